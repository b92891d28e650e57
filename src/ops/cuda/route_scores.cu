// Computes scores with the accuracy of fp32 on the tensor cores, which cannot multiply fp32 numbers. Each row (query or
// key) is scaled by a power of two so that its largest number lies in [2^10, 2^11), and each number is split into the
// sum of two fp16 numbers, which together hold 22 bits. Of the four products of two such sums, the three larger ones
// are added; the fourth is below the last bit of an fp32 number of that row's size. Every product of two fp16 numbers
// is exact in fp32. The tensor cores truncate instead of rounding when they add, so only 64 columns are summed there,
// and these sums are added by ordinary fp32 additions.
//
// One block handles 64 tokens: their two pieces stay in shared memory while the keys' pieces, which are computed
// beforehand, stream past; the scores also stay there until the block's warps choose. Narrow queries are padded to 64
// columns with zeros.
#include <cuda_fp16.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/primitives.cuh"
#include "kernels/cuda/toolkit.cuh"
#include "ops/cuda/route_scores.h"
#include "ops/cuda/route_top_k.cuh"
#include "runtime/row_products.h"

namespace some::cuda {
namespace {

constexpr int threads = 256, warps = threads / warp_size;
constexpr int block_rows = 64, block_keys = 64, block_depth = 64;
constexpr int max_columns = 512, max_experts = 256;
constexpr std::int64_t fewest_rows = 512;
constexpr float shortest = 1e-12f;  // spec 3.2
constexpr int piece_bytes = block_keys * block_depth * 2, stage_bytes = 2 * piece_bytes;

// Returns the distance between the scores of successive rows; the extra eight make a warp's stores hit different banks.
constexpr int line_width(int experts) { return (experts + block_keys - 1) / block_keys * block_keys + 8; }
// Returns the number of columns of a row of d numbers after padding.
constexpr int depth_of(int d) { return (d + block_depth - 1) / block_depth * block_depth; }
constexpr std::size_t shared_size(int d, int experts, int stages) {
  return static_cast<std::size_t>(block_rows) * static_cast<std::size_t>(depth_of(d)) * 4 +
         static_cast<std::size_t>(stages) * stage_bytes +
         static_cast<std::size_t>(block_rows * line_width(experts)) * sizeof(float);
}

// Returns the additional bytes needed to compute the raw queries from the router's hidden layer.
constexpr std::size_t router_size(int d, int in) {
  return static_cast<std::size_t>(block_rows + d) * static_cast<std::size_t>(in) * 2;
}

// Powers of two that scale the largest magnitude into [2^10, 2^11) and back. Zero, infinity and NaN stay as they are.
struct Scale {
  float there, back;
};
__device__ __forceinline__ Scale scale_for(float largest) {
  const int exponent = static_cast<int>(__float_as_uint(largest) >> 23);  // biased by 127
  if (largest == 0.0f || exponent == 255) return {1.0f, 1.0f};
  const int shift = 10 + 127 - max(exponent, 11);  // limited, so that both powers can be represented
  return {__uint_as_float(static_cast<unsigned>(127 + shift) << 23),
          __uint_as_float(static_cast<unsigned>(127 - shift) << 23)};
}

// Splits four numbers into their larger and smaller pieces.
__device__ __forceinline__ void split(const float4& from, float scale, uint2& large, uint2& small) {
  const float values[4] = {from.x * scale, from.y * scale, from.z * scale, from.w * scale};
  __half first[4], second[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    first[i] = __float2half_rn(values[i]);
    second[i] = __float2half_rn(values[i] - __half2float(first[i]));
  }
  const auto pair = [](__half low, __half high) {
    return static_cast<unsigned>(__half_as_ushort(low)) | static_cast<unsigned>(__half_as_ushort(high)) << 16;
  };
  large = {pair(first[0], first[1]), pair(first[2], first[3])};
  small = {pair(second[0], second[1]), pair(second[2], second[3])};
}

// A row of at most 128 PARTS numbers, read by a warp: lane l holds numbers 4 l to 4 l + 3 of every 128.
template <int PARTS>
struct Row {
  float4 parts[PARTS];

  __device__ __forceinline__ void load(const float* source, int d, int lane) {
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
      const int column = 128 * p + 4 * lane;
      parts[p] = source != nullptr && column < d ? *reinterpret_cast<const float4*>(source + column)
                                                 : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
  }
  // Returns the length with the same bits as the kernels of ops/cuda/route.cu.
  __device__ __forceinline__ float length() const {
    float sum = 0.0f;
#pragma unroll
    for (const float4& part : parts)
      sum = fmaf(part.w, part.w, fmaf(part.z, part.z, fmaf(part.y, part.y, fmaf(part.x, part.x, sum))));
    return fmaxf(sqrtf(warp_sum(sum)), shortest);
  }
  __device__ __forceinline__ void multiply(float factor) {
#pragma unroll
    for (float4& part : parts) part = {part.x * factor, part.y * factor, part.z * factor, part.w * factor};
  }
  __device__ __forceinline__ void add(float factor, const Row& other) {
#pragma unroll
    for (int p = 0; p < PARTS; ++p)
      parts[p] = {fmaf(factor, other.parts[p].x, parts[p].x), fmaf(factor, other.parts[p].y, parts[p].y),
                  fmaf(factor, other.parts[p].z, parts[p].z), fmaf(factor, other.parts[p].w, parts[p].w)};
  }
  __device__ __forceinline__ void store(float* target, int d, int lane) const {
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
      const int column = 128 * p + 4 * lane;
      if (column < d) *reinterpret_cast<float4*>(target + column) = parts[p];
    }
  }
  __device__ __forceinline__ Scale scale() const {
    float largest = 0.0f;
#pragma unroll
    for (const float4& part : parts)
      largest = fmaxf(fmaxf(fmaxf(fabsf(part.x), fabsf(part.y)), fmaxf(fabsf(part.z), fabsf(part.w))), largest);
    return scale_for(warp_max(largest));
  }
  // Calls store(column, larger pieces, smaller pieces) for every four numbers of this lane, including the zeros that
  // pad the row.
  template <typename Store>
  __device__ __forceinline__ void split_into(float scale, int depth, int lane, Store&& store) const {
#pragma unroll
    for (int p = 0; p < PARTS; ++p) {
      const int column = 128 * p + 4 * lane;
      if (column >= depth) break;
      uint2 large, small;
      split(parts[p], scale, large, small);
      store(column, large, small);
    }
  }
};

// Splits the keys. pieces: [2][experts][depth], the larger ones first; back: [experts].
__global__ void __launch_bounds__(threads)
    split_keys_kernel(const float* keys, int experts, int d, int depth, __half* pieces, float* back) {
  wait_previous_kernel();
  const int expert = static_cast<int>(blockIdx.x) * warps + static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  if (expert >= experts) return;
  Row<max_columns / 128> row;
  row.load(keys + static_cast<std::int64_t>(expert) * d, d, lane);
  const Scale scale = row.scale();
  row.split_into(scale.there, depth, lane, [&](int column, const uint2& large, const uint2& small) {
    __half* const target = pieces + static_cast<std::int64_t>(expert) * depth + column;
    *reinterpret_cast<uint2*>(target) = large;
    *reinterpret_cast<uint2*>(target + static_cast<std::int64_t>(experts) * depth) = small;
  });
  if (lane == 0) back[expert] = scale.back;
}

// Returns the byte offset of a 16-byte piece. The pieces of a row are permuted by its number, so that eight rows of one
// column hit all banks.
__device__ __forceinline__ int swizzled(int row, int piece) { return (piece ^ (row & 7)) * 16; }

// For queries that this kernel computes itself, like query_forward (ops/route.h). Null `query`: they are already
// computed.
struct FusedQuery {
  const float* previous;
  float ground;
  float *query, *norms;
  const float* log_temperature;  // or null
  std::int32_t* counts;          // [blocks, experts]
};

// For queries whose raw values this kernel also computes from the router's hidden layer: raw = y W^T + b. Null y: they
// are already computed.
struct FusedRouterLayer {
  const bf16 *y, *weight;  // [rows, in], [d, in]
  const float* bias;       // [d], or null
  float* raw;              // [rows, d]
  int in;
};
constexpr int max_router_in = 256;

struct Product {
  const float* query;  // [rows, d]; with `made`, the raw queries
  FusedRouterLayer router;
  FusedQuery made;
  const float* keys;
  const __half* pieces;  // both pieces of the keys
  const float* back;     // factors that undo the keys' scaling
  const float* bias;     // added only for the choice; may be null
  float* temperature;
  std::int64_t rows;
  int d, depth, experts, k;
  std::int32_t* indices;
  float *scores, *gates;
};

// Warps per block. If queries are narrow, most of the time is spent reading them and choosing, one row after another,
// so there are more warps, with fewer rows each.
template <int PARTS>
inline constexpr int warps_for = PARTS == 1 ? 16 : 8;

// Loads both pieces of the keys starting at `tile` * 64, in the columns starting at `step` * 64.
template <int THREADS>
__device__ __forceinline__ void load_stage(const Product& product, std::uint32_t stage, int tile, int step) {
#pragma unroll
  for (int i = 0; i < stage_bytes / 16 / THREADS; ++i) {
    const int index = static_cast<int>(threadIdx.x) + i * THREADS;
    const int small = index >> 9, row = index >> 3 & 63, piece = index & 7;
    const int expert = tile * block_keys + row;
    const bool valid = expert < product.experts;
    const std::int64_t line = static_cast<std::int64_t>(small * product.experts + (valid ? expert : 0));
    cp_async(stage + static_cast<std::uint32_t>(small * piece_bytes + row * block_depth * 2 + swizzled(row, piece)),
             product.pieces + line * product.depth + step * block_depth + piece * 8, valid);
  }
}

// Starts the copies of rows of y and of the weight to shared memory, without waiting: [rows][in], their 16-byte pieces
// permuted by row.
__device__ __forceinline__ void load_router(const FusedRouterLayer& router, std::uint32_t target,
                                            std::int64_t first_row, std::int64_t rows, int d) {
  const int pieces = router.in / 8, all = (block_rows + d) * pieces;
  for (int i = static_cast<int>(threadIdx.x); i < all; i += static_cast<int>(blockDim.x)) {
    const int line = i / pieces, piece = i % pieces;
    const bool state = line < block_rows, valid = !state || first_row + line < rows;
    const bf16* const source = state ? router.y + (valid ? first_row + line : 0) * router.in
                                     : router.weight + static_cast<std::int64_t>(line - block_rows) * router.in;
    cp_async(target + static_cast<std::uint32_t>(line * router.in * 2 + swizzled(line, piece)), source + piece * 8,
             valid);
  }
  cp_async_commit();
}

// Multiplies the rows loaded by load_router, with 16 tokens and 16 columns per warp, and leaves the result in `lines`,
// `width` apart. Requires 16 warps.
__device__ __forceinline__ void make_raw(const FusedRouterLayer& router, std::uint32_t place, float* lines, int width,
                                         int d, int warp, int lane) {
  const int first_row = warp % 4 * 16, first_column = warp / 4 * 16;
  if (first_column >= d) return;
  const int a_row = first_row + lane % 16, a_piece = lane / 16;
  const int b_row = block_rows + first_column + lane % 8 + lane / 16 * 8, b_piece = lane / 8 % 2;
  float sums[2][4] = {};
#pragma unroll 4
  for (int step = 0; step < router.in / 16; ++step) {
    std::uint32_t left[4], right[4];
    ldmatrix_x4(left, place + static_cast<std::uint32_t>(a_row * router.in * 2 + swizzled(a_row, step * 2 + a_piece)));
    ldmatrix_x4(right, place + static_cast<std::uint32_t>(b_row * router.in * 2 + swizzled(b_row, step * 2 + b_piece)));
#pragma unroll
    for (int n = 0; n < 2; ++n) multiply_add(sums[n], left, right[2 * n], right[2 * n + 1]);
  }
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int row = first_row + lane / 4, column = first_column + 8 * n + lane % 4 * 2;
    const float2 shift =
        router.bias != nullptr ? *reinterpret_cast<const float2*>(router.bias + column) : make_float2(0.0f, 0.0f);
    *reinterpret_cast<float2*>(lines + row * width + column) = make_float2(sums[n][0] + shift.x, sums[n][1] + shift.y);
    *reinterpret_cast<float2*>(lines + (row + 8) * width + column) =
        make_float2(sums[n][2] + shift.x, sums[n][3] + shift.y);
  }
}

// Computes scores and chooses. OWN_KEYS: all keys fit into the stages, so every block splits them itself instead of
// reading precomputed pieces.
template <int ITEMS, int STAGES, int PARTS, bool OWN_KEYS>
__global__ void __launch_bounds__(warps_for<PARTS>* warp_size, 1) choose_by_product_kernel(const Product product) {
  wait_previous_kernel();
  constexpr int block_warps = warps_for<PARTS>, warp_keys = 4 * block_keys / block_warps, keys_each = warp_keys / 8;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ float query_back[block_rows], key_back[OWN_KEYS ? max_experts : 1];
  __shared__ std::int32_t chosen[max_experts];
  for (int expert = static_cast<int>(threadIdx.x); expert < max_experts; expert += block_warps * warp_size)
    chosen[expert] = 0;
  const int d = product.d, depth = product.depth, width = line_width(product.experts);
  const std::uint32_t queries = shared_address(shared), small_queries = queries + block_rows * depth * 2,
                      stages = small_queries + block_rows * depth * 2;
  float* const lines = reinterpret_cast<float*>(shared + block_rows * depth * 4 + STAGES * stage_bytes);
  const int warp = static_cast<int>(threadIdx.x) / warp_size, lane = static_cast<int>(threadIdx.x) % warp_size;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x) * block_rows;
  const int steps = depth / block_depth, tiles = (product.experts + block_keys - 1) / block_keys, all = steps * tiles;
  const auto load = [&](int i) {
    if (i < all)
      load_stage<block_warps * warp_size>(product, stages + static_cast<std::uint32_t>(i % STAGES * stage_bytes),
                                          i / steps, i % steps);
    cp_async_commit();
  };
  const bool makes_raw = OWN_KEYS && product.router.y != nullptr;
  const std::uint32_t router_place = shared_address(lines + block_rows * width);
  if (makes_raw) load_router(product.router, router_place, first_row, product.rows, d);
  if constexpr (OWN_KEYS) {
#pragma unroll 4
    for (int expert = warp; expert < product.experts; expert += block_warps) {
      Row<PARTS> key;
      key.load(product.keys + static_cast<std::int64_t>(expert) * d, d, lane);
      const Scale scale = key.scale();
      const int row = expert % block_keys;
      key.split_into(scale.there, depth, lane, [&](int column, const uint2& large, const uint2& small) {
        const int stage = expert / block_keys * steps + column / block_depth;
        unsigned char* const target = shared + block_rows * depth * 4 + stage * stage_bytes + row * block_depth * 2 +
                                      swizzled(row, column % block_depth / 8) + column % 8 * 2;
        *reinterpret_cast<uint2*>(target) = large;
        *reinterpret_cast<uint2*>(target + piece_bytes) = small;
      });
      if (lane == 0) key_back[expert] = scale.back;
    }
  } else {
    for (int i = 0; i < STAGES - 1; ++i) load(i);
  }

  if (makes_raw) {
    cp_async_wait<0>();
    __syncthreads();
    make_raw(product.router, router_place, lines, width, d, warp, lane);
    __syncthreads();
  }

#pragma unroll(PARTS == 1 ? block_rows / block_warps : 2)
  for (int row = warp; row < block_rows; row += block_warps) {
    Row<PARTS> q;
    const std::int64_t token = first_row + row;
    const bool there = token < product.rows;
    q.load(!there ? nullptr : makes_raw ? lines + row * width : product.query + token * d, d, lane);
    if (makes_raw && there) q.store(product.router.raw + token * d, d, lane);
    if (product.made.query != nullptr) {
      const float first = q.length();
      q.multiply(1.0f / first);
      float second = 1.0f;
      if (product.made.previous != nullptr) {
        Row<PARTS> below;
        below.load(there ? product.made.previous + token * d : nullptr, d, lane);
        q.add(product.made.ground, below);
        second = q.length();
        q.multiply(1.0f / second);
      }
      if (there) {
        q.store(product.made.query + token * d, d, lane);
        if (lane == 0) *reinterpret_cast<float2*>(product.made.norms + 2 * token) = make_float2(first, second);
      }
    }
    const Scale scale = q.scale();
    q.split_into(scale.there, depth, lane, [&](int column, const uint2& large, const uint2& small) {
      unsigned char* const target = shared + row * depth * 2 + swizzled(row, column / 8) + column % 8 * 2;
      *reinterpret_cast<uint2*>(target) = large;
      *reinterpret_cast<uint2*>(target + block_rows * depth * 2) = small;
    });
    if (lane == 0) query_back[row] = scale.back;
  }

  // A warp handles 16 tokens and 16 or 32 keys of each tile.
  const int warp_row = warp % 4 * 16, warp_key = warp / 4 * warp_keys;
  const int a_row = warp_row + lane % 16, a_piece = lane / 16;
  const int b_row = warp_key + lane % 8 + lane / 16 * 8, b_piece = lane / 8 % 2;
  float sums[keys_each][4] = {};
  for (int i = 0; i < all; ++i) {
    if constexpr (!OWN_KEYS) cp_async_wait<STAGES - 2>();
    if (!OWN_KEYS || i == 0) __syncthreads();
    if constexpr (!OWN_KEYS) load(i + STAGES - 1);
    const int step = i % steps;
    const std::uint32_t stage = stages + static_cast<std::uint32_t>(i % STAGES * stage_bytes);
    float parts[keys_each][4] = {},
          small_parts[keys_each][4] = {};  // separate, because small terms lose more bits when added to large sums
#pragma unroll
    for (int inner = 0; inner < block_depth / 16; ++inner) {
      std::uint32_t large[4], small[4];
      const auto a = static_cast<std::uint32_t>(a_row * depth * 2 + swizzled(a_row, step * 8 + inner * 2 + a_piece));
      ldmatrix_x4(large, queries + a);
      ldmatrix_x4(small, small_queries + a);
#pragma unroll
      for (int half = 0; half < keys_each / 2; ++half) {
        const int row = b_row + 16 * half;
        std::uint32_t large_keys[4], small_keys[4];
        const std::uint32_t b =
            stage + static_cast<std::uint32_t>(row * block_depth * 2 + swizzled(row, inner * 2 + b_piece));
        ldmatrix_x4(large_keys, b);
        ldmatrix_x4(small_keys, b + piece_bytes);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          mma_fp16(small_parts[2 * half + n], small, large_keys[2 * n], large_keys[2 * n + 1]);
          mma_fp16(small_parts[2 * half + n], large, small_keys[2 * n], small_keys[2 * n + 1]);
          mma_fp16(parts[2 * half + n], large, large_keys[2 * n], large_keys[2 * n + 1]);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < keys_each; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[n][j] += parts[n][j] + small_parts[n][j];
    }
    if (step == steps - 1) {
      const int row = warp_row + lane / 4;
      const float upper = query_back[row], lower = query_back[row + 8];
#pragma unroll
      for (int n = 0; n < keys_each; ++n) {
        const int key = i / steps * block_keys + warp_key + 8 * n + lane % 4 * 2;
        const float* const back = OWN_KEYS ? key_back : product.back;
        const float first = key < product.experts ? back[key] : 0.0f,
                    second = key + 1 < product.experts ? back[key + 1] : 0.0f;
        *reinterpret_cast<float2*>(lines + row * width + key) =
            make_float2(sums[n][0] * upper * first, sums[n][1] * upper * second);
        *reinterpret_cast<float2*>(lines + (row + 8) * width + key) =
            make_float2(sums[n][2] * lower * first, sums[n][3] * lower * second);
#pragma unroll
        for (float& sum : sums[n]) sum = 0.0f;
      }
    }
  }
  __syncthreads();
  float temperature;
  if (product.made.log_temperature != nullptr) {
    temperature = expf(product.made.log_temperature[0]);
    if (blockIdx.x == 0 && threadIdx.x == 0) product.temperature[0] = temperature;
  } else {
    temperature = product.temperature[0];
  }
  const float inverse = 1.0f / temperature;
  for (int row = warp; row < block_rows; row += block_warps) {
    const std::int64_t token = first_row + row;
    if (token >= product.rows) break;
    const std::int64_t at = token * product.k;
    const int expert = choose_row<ITEMS>(lines + row * width, product.bias, product.experts, product.k, inverse,
                                         product.indices + at, product.scores + at, product.gates + at);
    if (product.made.counts != nullptr && lane < product.k) atomicAdd(&chosen[expert], 1);
  }
  if (product.made.counts == nullptr) return;
  __syncthreads();
  for (int expert = static_cast<int>(threadIdx.x); expert < product.experts; expert += block_warps * warp_size)
    product.made.counts[static_cast<std::int64_t>(blockIdx.x) * product.experts + expert] = chosen[expert];
}

int max_shared(const Context& ctx) {
  return ctx.cuda->max_shared - (block_rows + 2 * max_experts) * static_cast<int>(sizeof(float));
}

bool keys_fit(const Product& product, int stages) {
  const int tiles = (product.experts + block_keys - 1) / block_keys;
  return product.d <= 128 && product.depth / block_depth * tiles <= stages;
}

template <int ITEMS, int STAGES, int PARTS, bool OWN_KEYS>
void launch_kernel(Context& ctx, const Product& product) {
  const std::size_t shared =
      shared_size(product.d, product.experts, STAGES) + router_size(product.d, product.router.in);
  auto* const kernel = choose_by_product_kernel<ITEMS, STAGES, PARTS, OWN_KEYS>;
  SOME_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)));
  launch_dependent(ctx, kernel, grid_for(product.rows, block_rows), warps_for<PARTS> * warp_size, shared, product);
}

template <int ITEMS, int STAGES>
void launch(Context& ctx, Product product) {
  if (keys_fit(product, STAGES)) return launch_kernel<ITEMS, STAGES, 1, true>(ctx, product);
  const Tensor pieces = ctx.scratch({2, product.experts, product.depth},
                                    DType::bf16),  // holds fp16 numbers, which have the same width
      back = ctx.scratch({product.experts}, DType::f32);
  auto* const halves = static_cast<__half*>(pieces.raw());
  launch_dependent(ctx, split_keys_kernel, grid_for(product.experts, warps), threads, 0, product.keys, product.experts,
                   product.d, product.depth, halves, floats(back));
  product.pieces = halves;
  product.back = floats(back);
  launch_kernel<ITEMS, STAGES, max_columns / 128, false>(ctx, product);
}

// query: the queries or, if `made` is set, the raw values from which they are computed.
void choose(Context& ctx, const Tensor& query, const FusedQuery& made, const FusedRouterLayer& router,
            const Tensor& keys, const Tensor* bias, const Tensor& temperature, Routing& routing) {
  const ArenaScope scope(*ctx.arena);
  Product product{};
  product.query = floats(query);
  product.router = router;
  product.made = made;
  product.keys = floats(keys);
  product.bias = bias != nullptr ? floats(*bias) : nullptr;
  product.temperature = floats(temperature);
  product.rows = query.dim(0);
  product.d = static_cast<int>(keys.dim(1));
  product.depth = depth_of(product.d);
  product.experts = static_cast<int>(keys.dim(0));
  product.k = static_cast<int>(routing.indices.dim(1));
  product.indices = ints(routing.indices);
  product.scores = floats(routing.scores);
  product.gates = floats(routing.gates);
  const bool four = shared_size(product.d, product.experts, 4) <= static_cast<std::size_t>(max_shared(ctx));
  if (product.experts <= 2 * warp_size)
    four ? launch<2, 4>(ctx, product) : launch<2, 2>(ctx, product);
  else if (product.experts <= 4 * warp_size)
    four ? launch<4, 4>(ctx, product) : launch<4, 2>(ctx, product);
  else
    four ? launch<8, 4>(ctx, product) : launch<8, 2>(ctx, product);
}

}  // namespace

bool supports_tensor_core_routing(const Context& ctx, const Tensor& query, const Tensor& keys, int k) {
  const std::int64_t d = keys.dim(1), experts = keys.dim(0);
  // While text is generated, a row's bits must not depend on the number of rows.
  return ctx.compute == DType::bf16 && row_products(ctx) == nullptr && query.dim(0) >= fewest_rows && d % 4 == 0 && d <= max_columns &&
         experts <= max_experts && k <= warp_size && all_aligned16(query.raw(), keys.raw()) &&
         shared_size(static_cast<int>(d), static_cast<int>(experts), 2) <= static_cast<std::size_t>(max_shared(ctx));
}

void route_on_tensor_cores(Context& ctx, const Tensor& query, const Tensor& keys, const Tensor* bias,
                           const Tensor& temperature, Routing& routing) {
  choose(ctx, query, {}, {}, keys, bias, temperature, routing);
}

void query_route_on_tensor_cores(Context& ctx, const QueryRoute& route, const RouterOutputLayer* router) {
  const std::int64_t blocks = grid_for(route.raw.dim(0), block_rows);
  Routing& routing = route.routing;
  routing.counts = ctx.scratch({blocks, route.keys.dim(0)}, DType::i32);
  FusedQuery made{};
  made.previous = route.previous != nullptr && route.ground > 0.0 ? floats(*route.previous) : nullptr;
  made.ground = static_cast<float>(route.ground);
  made.query = floats(route.query);
  made.norms = floats(route.norms);
  made.log_temperature = route.log_temperature != nullptr ? floats(*route.log_temperature) : nullptr;
  made.counts = ints(routing.counts);
  FusedRouterLayer before{};
  if (router != nullptr)
    before = {elements_of<bf16>(router->y), elements_of<bf16>(router->weight.compute),
              router->bias ? floats(router->bias.value) : nullptr, floats(route.raw),
              static_cast<int>(router->weight.value.dim(1))};
  choose(ctx, route.raw, made, before, route.keys, route.bias, route.temperature, routing);
}

bool can_fuse_router_layer(const Context& ctx, const RouterOutputLayer& router, const Tensor& raw, const Tensor& keys) {
  const std::int64_t d = keys.dim(1), in = router.weight.value.dim(1), experts = keys.dim(0);
  if (d > block_depth || d % 16 != 0 || in % 64 != 0 || in > max_router_in || experts > 4 * block_keys) return false;
  if (router.y.dtype() != DType::bf16 || router.weight.compute.dtype() != DType::bf16 || raw.dtype() != DType::f32)
    return false;
  if (!all_aligned16(router.y.raw(), router.weight.compute.raw(), raw.raw(),
                     router.bias ? router.bias.value.raw() : nullptr))
    return false;
  return shared_size(static_cast<int>(d), static_cast<int>(experts), 4) +
             router_size(static_cast<int>(d), static_cast<int>(in)) <=
         static_cast<std::size_t>(max_shared(ctx));
}

}  // namespace some::cuda

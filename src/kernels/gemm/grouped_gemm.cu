// Chooses the kernel for a grouped GEMM, and computes the GEMMs that sum over a group's rows (weight gradients).
#include "kernels/gemm/grouped_gemm.h"
#include "kernels/gemm/grouped_gemm_kernel.cuh"

namespace some::cuda {

void launch_narrow(Context& ctx, const GroupedGemm& product);  // grouped_gemm_warp.cu

namespace {

bool aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

// True if the tensor core kernels can compute this GEMM: they move 16 bytes at a time.
bool fits_tensor_cores(const GroupedGemm& product) {
  return product.type == DType::bf16 && product.depth % 8 == 0 && product.columns % 8 == 0 && aligned(product.a) &&
         aligned(product.b) && aligned(product.result) && aligned(product.activated);
}

// True if the narrow kernel can: it moves 8 bytes at a time and only stores.
bool fits_narrow(const GroupedGemm& product) {
  const auto aligned8 = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 8 == 0; };
  return product.type == DType::bf16 && product.depth % 4 == 0 && product.columns % 4 == 0 && aligned8(product.a) &&
         aligned8(product.b) && aligned8(product.result) && product.finish == Epilogue::store && product.rank == 0;
}

constexpr int outer_tile = 64;
constexpr int outer_rows = 16;

// Computes the sums over a group's rows with plain multiply-adds, in the order of the rows: one 64x64 tile of one
// group's matrix per block.
template <typename T>
__global__ void __launch_bounds__(256) plain_outer_kernel(const GroupedGradientGemm outer) {
  const int group = blockIdx.z, first_m = blockIdx.y * outer_tile, first_n = blockIdx.x * outer_tile;
  const int begin = outer.offsets[group], end = outer.offsets[group + 1];
  if (begin == end) return;
  const int m_size = static_cast<int>(outer.m), n_size = static_cast<int>(outer.n);
  const T* const u = static_cast<const T*>(outer.u);
  const T* const v = static_cast<const T*>(outer.v);
  __shared__ float u_tile[outer_rows][outer_tile];
  __shared__ float v_tile[outer_rows][outer_tile];
  const int thread = threadIdx.x, thread_m = thread / 16, thread_n = thread % 16;
  float sums[4][4] = {};
  for (int start = begin; start < end; start += outer_rows) {
#pragma unroll
    for (int i = 0; i < outer_rows * outer_tile / 256; ++i) {
      const int index = thread + i * 256, row = index / outer_tile, c = index % outer_tile, j = start + row;
      float left = 0.f, right = 0.f;
      if (j < end) {
        const int source = outer.order != nullptr ? outer.order[j] : 0;
        const std::int64_t u_row = outer.u_gather == 0 ? j : source / outer.u_gather;
        const std::int64_t v_row = outer.v_gather == 0 ? j : source / outer.v_gather;
        if (first_m + c < m_size) left = to_f32(u[u_row * m_size + first_m + c]);
        if (first_n + c < n_size) right = to_f32(v[v_row * n_size + first_n + c]);
      }
      u_tile[row][c] = left;
      v_tile[row][c] = right;
    }
    __syncthreads();
#pragma unroll
    for (int row = 0; row < outer_rows; ++row) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float left = u_tile[row][thread_m * 4 + i];
#pragma unroll
        for (int n = 0; n < 4; ++n) sums[i][n] = fmaf(left, v_tile[row][thread_n * 4 + n], sums[i][n]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int row = first_m + thread_m * 4 + i, column = first_n + thread_n * 4 + n;
      if (row < m_size && column < n_size) {
        outer.target[(static_cast<std::int64_t>(group) * m_size + row) * n_size + column] += sums[i][n];
      }
    }
  }
}

constexpr int warp_tile = 128;
constexpr int warp_rows = 32;
constexpr int warp_stages = 3;
constexpr int warp_stage_bytes = 2 * warp_tile * warp_rows * 2;

__device__ __forceinline__ std::uint32_t tile_place(int row, int piece) {
  return row * 256 + ((piece ^ (row & 7)) << 4);
}

// Computes the same on the tensor cores, with a 128x128 tile per block and 32 rows per step. The summed axis is the
// outermost of both operands, so both are read with transposing matrix loads.
__global__ void __launch_bounds__(256, 2) warp_outer_kernel(const GroupedGradientGemm outer) {
  const int group = blockIdx.z, first_m = blockIdx.y * warp_tile, first_n = blockIdx.x * warp_tile;
  const int begin = outer.offsets[group], end = outer.offsets[group + 1];
  if (begin == end) return;
  const int m_size = static_cast<int>(outer.m), n_size = static_cast<int>(outer.n);
  const bf16* const u = static_cast<const bf16*>(outer.u);
  const bf16* const v = static_cast<const bf16*>(outer.v);
  extern __shared__ __align__(128) unsigned char memory[];
  const std::uint32_t base = shared_address(memory);
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const auto load_stage = [&](int step) {
    const std::uint32_t u_base = base + (step % warp_stages) * warp_stage_bytes, v_base = u_base + warp_stage_bytes / 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = thread / 16 + 16 * i, piece = thread & 15, j = begin + step * warp_rows + row;
      const bool inside = j < end;
      const int source = inside && outer.order != nullptr ? outer.order[j] : 0;
      const std::int64_t u_row = outer.u_gather == 0 ? j : source / outer.u_gather;
      const std::int64_t v_row = outer.v_gather == 0 ? j : source / outer.v_gather;
      const int m = first_m + piece * 8, n = first_n + piece * 8;
      const bool u_valid = inside && m < m_size, v_valid = inside && n < n_size;
      cp_async(u_base + tile_place(row, piece), u_valid ? u + u_row * m_size + m : u, u_valid);
      cp_async(v_base + tile_place(row, piece), v_valid ? v + v_row * n_size + n : v, v_valid);
    }
  };
  const int steps = (end - begin + warp_rows - 1) / warp_rows;
#pragma unroll
  for (int step = 0; step < warp_stages - 1; ++step) {
    if (step < steps) load_stage(step);
    cp_async_commit();
  }
  const int warp_m = (warp & 1) * 64, warp_n = (warp >> 1) * 32;
  float sums[4][4][4] = {};
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<warp_stages - 2>();
    __syncthreads();
    if (step + warp_stages - 1 < steps) load_stage(step + warp_stages - 1);
    cp_async_commit();
    const std::uint32_t u_base = base + (step % warp_stages) * warp_stage_bytes, v_base = u_base + warp_stage_bytes / 2;
#pragma unroll
    for (int part = 0; part < warp_rows / 16; ++part) {
      std::uint32_t left[4][4], right[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = part * 16 + (lane & 7) + (lane >> 4) * 8, piece = (warp_m + i * 16) / 8 + ((lane >> 3) & 1);
        ldmatrix_x4_transposed(left[i], u_base + tile_place(row, piece));
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = part * 16 + (lane & 15), piece = (warp_n + i * 16) / 8 + (lane >> 4);
        ldmatrix_x4_transposed(right[i], v_base + tile_place(row, piece));
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          multiply_add(sums[i][n], left[i], right[n / 2][(n & 1) * 2], right[n / 2][(n & 1) * 2 + 1]);
        }
      }
    }
  }
  cp_async_wait<0>();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first_m + warp_m + i * 16 + (lane >> 2) + 8 * half,
                  column = first_n + warp_n + n * 8 + 2 * (lane & 3);
        if (row < m_size && column < n_size) {
          float2* const target = reinterpret_cast<float2*>(
              outer.target + (static_cast<std::int64_t>(group) * m_size + row) * n_size + column);
          float2 value = *target;
          value.x += sums[i][n][2 * half];
          value.y += sums[i][n][2 * half + 1];
          *target = value;
        }
      }
    }
  }
}

}  // namespace

Kernel choose_kernel(const Context& ctx, const GroupedGemm& product) {
  if (!fits_tensor_cores(product)) return Kernel::plain;
  return ctx.cuda->major == 9 ? Kernel::warpgroup : Kernel::warp;
}

bool computes_low(const Context& ctx, const GroupedGemm& product) {
  if (product.rows == 0 || product.columns == 0) return false;
  if (choose_kernel(ctx, product) != Kernel::warpgroup || !aligned(product.inner)) return false;
  if (product.rank == 0 || product.factor_transposed != product.b_transposed) return false;
  return product.gather != 0 ? uses_wide_resident_tiles(ctx, product) : uses_wide_tiles(ctx, product);
}

int row_sum_parts(const Context& ctx, const GroupedGemm& product) {
  const auto parts = [&](int width) { return static_cast<int>((product.columns + width - 1) / width); };
  switch (choose_kernel(ctx, product)) {
    case Kernel::plain: return parts(64);
    case Kernel::warp: return parts(32);
    case Kernel::warpgroup: return parts(128);
  }
  return 0;
}

void run_grouped_product(Context& ctx, const GroupedGemm& product, Kernel kernel) {
  if (product.rows == 0 || product.columns == 0) return;
  if (product.rank > 0 && !supports_correction(product.finish))
    failed(Code::internal, "a GEMM that keeps the slope of GELU does not support LoRA");
  if (product.inner != nullptr && (kernel != Kernel::warpgroup || !computes_low(ctx, product)))
    failed(Code::internal, "this product cannot make its low-rank correction's rows itself");
  switch (kernel) {
    case Kernel::plain: return fits_narrow(product) ? launch_narrow(ctx, product) : launch_plain(ctx, product);
    case Kernel::warp: return launch_warp(ctx, product);
    case Kernel::warpgroup: return launch_warpgroup(ctx, product);
  }
}

void launch_grouped_gemm(Context& ctx, const GroupedGemm& product) {
  run_grouped_product(ctx, product, choose_kernel(ctx, product));
}

void launch_grouped_gradient_gemm(Context& ctx, const GroupedGradientGemm& outer) {
  if (outer.groups == 0 || outer.m == 0 || outer.n == 0) return;
  const auto tiles = [](std::int64_t size, int tile) { return static_cast<unsigned>((size + tile - 1) / tile); };
  const cudaStream_t stream = ctx.cuda->stream;
  if (outer.type == DType::bf16 && outer.m % 8 == 0 && outer.n % 8 == 0 && aligned(outer.u) && aligned(outer.v) &&
      aligned(outer.target)) {
    const dim3 grid(tiles(outer.n, warp_tile), tiles(outer.m, warp_tile), static_cast<unsigned>(outer.groups));
    warp_outer_kernel<<<grid, 256, warp_stages * warp_stage_bytes, stream>>>(outer);
  } else {
    const dim3 grid(tiles(outer.n, outer_tile), tiles(outer.m, outer_tile), static_cast<unsigned>(outer.groups));
    if (outer.type == DType::bf16) {
      plain_outer_kernel<bf16><<<grid, 256, 0, stream>>>(outer);
    } else {
      plain_outer_kernel<float><<<grid, 256, 0, stream>>>(outer);
    }
  }
  SOME_CUDA_LAUNCHED();
}

}  // namespace some::cuda

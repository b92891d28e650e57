// Computes segment sums in two levels, because one key (the padding token, a popular expert) may own most of the rows.
// The sorted list is split into chunks of equal length. A key that lies within one chunk is summed there; a key that
// extends over several chunks leaves a partial sum in each, and a second kernel adds these up. Every row is read once.
#include "kernels/cuda/launch.cuh"
#include "kernels/reduce/segment_sums.h"

namespace some::cuda {
namespace {

constexpr int threads = 128;
constexpr int max_in_chunk = 64;
constexpr int together = 8;  // rows in flight

struct Jobs {
  SegmentSums of[max_segment_sums];
};

// First level: block (x, y) sums chunk x of sum y. partials: [sums, chunks, 2, d]; entry 0 is the sum for a key that
// continues from the previous chunk (and may continue in the next), entry 1 for a key that begins here and continues in
// the next.
template <typename T, int WIDTH>
__global__ void __launch_bounds__(threads)
    chunk_sums_kernel(const __grid_constant__ Jobs jobs, int count, int chunk_length, std::int32_t keys_end,
                      int divisor, int d, float scale, float* partials) {
  wait_previous_kernel();
  __shared__ std::int32_t key_of[max_in_chunk + 1];
  __shared__ std::int32_t row_of[max_in_chunk];
  const SegmentSums& job = jobs.of[blockIdx.y];
  const std::int32_t *keys = job.sorted.keys, *items = job.sorted.items;
  const T* values = static_cast<const T*>(job.values);
  float* target = job.target;
  partials += static_cast<std::int64_t>(blockIdx.y) * gridDim.x * 2 * d;
  const int begin = blockIdx.x * chunk_length, length = min(chunk_length, count - begin);
  for (int j = threadIdx.x; j < length; j += threads) {
    key_of[j] = keys[begin + j];
    row_of[j] = items[begin + j] / divisor;
  }
  if (threadIdx.x == 0) key_of[length] = begin + length < count ? keys[begin + length] : -1;
  __syncthreads();
  const bool from_before = begin > 0 && keys[begin - 1] == key_of[0];
  for (int column = static_cast<int>(threadIdx.x) * WIDTH; column < d; column += threads * WIDTH) {
    float sum[WIDTH] = {};
    bool whole = !from_before;  // the current key began in this chunk
    for (int first = 0; first < length; first += together) {
      if (key_of[first] >= keys_end) break;
      float rows[together][WIDTH];
#pragma unroll
      for (int j = 0; j < together; ++j) {
        if (first + j < length)
          load_elements<WIDTH>(values + static_cast<std::int64_t>(row_of[first + j]) * d + column, rows[j]);
      }
#pragma unroll
      for (int j = 0; j < together; ++j) {
        const int place = first + j;
        if (place >= length || key_of[place] >= keys_end) continue;
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) sum[i] += rows[j][i];
        const bool last_of_chunk = place + 1 == length;
        if (key_of[place + 1] == key_of[place] && !last_of_chunk) continue;
        if (key_of[place + 1] != key_of[place] && whole) {
          float old[WIDTH];
          float* out = target + static_cast<std::int64_t>(key_of[place]) * d + column;
          load_elements<WIDTH>(out, old);
#pragma unroll
          for (int i = 0; i < WIDTH; ++i) old[i] += scale * sum[i];
          store_elements<WIDTH>(out, old);
        } else {
          store_elements<WIDTH>(partials + (static_cast<std::int64_t>(blockIdx.x) * 2 + (whole ? 1 : 0)) * d + column,
                                sum);
        }
        whole = true;
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) sum[i] = 0.0f;
      }
    }
  }
}

constexpr int span_threads = 256;
constexpr int span_warps = span_threads / warp_size;

// Second level: block (x, y, z) checks whether a key of sum z begins in chunk x and continues beyond it. If so, it adds
// up the key's partial sums in part y of the columns, each warp taking every eighth partial sum.
template <int WIDTH>
__global__ void __launch_bounds__(span_threads)
    span_sums_kernel(const __grid_constant__ Jobs jobs, int count, int chunk_length, std::int32_t keys_end,
                     const float* partials, int d, float scale) {
  wait_previous_kernel();
  __shared__ double shared[span_warps][warp_size * WIDTH];
  const std::int32_t* keys = jobs.of[blockIdx.z].sorted.keys;
  float* target = jobs.of[blockIdx.z].target;
  partials += static_cast<std::int64_t>(blockIdx.z) * gridDim.x * 2 * d;
  const int begin = blockIdx.x * chunk_length, end = begin + chunk_length;
  if (end >= count) return;
  const std::int32_t key = keys[end - 1], next = keys[end], before = begin > 0 ? keys[begin - 1] : -1;
  if (key >= keys_end || next != key || before == key) return;
  // To find how far the key continues, every thread looks at the first key of another chunk.
  int last_chunk = static_cast<int>(blockIdx.x), more = span_threads;
  while (more == span_threads) {
    const std::int64_t place = (static_cast<std::int64_t>(last_chunk) + 1 + threadIdx.x) * chunk_length;
    more = __syncthreads_count(place < count && keys[place] == key);
    last_chunk += more;
  }
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const int column = (blockIdx.y * warp_size + lane) * WIDTH;
  double sum[WIDTH] = {};
  if (column < d) {
#pragma unroll 4
    for (int chunk = static_cast<int>(blockIdx.x) + warp; chunk <= last_chunk; chunk += span_warps) {
      float part[WIDTH];
      load_elements<WIDTH>(
          partials + (static_cast<std::int64_t>(chunk) * 2 + (chunk == static_cast<int>(blockIdx.x) ? 1 : 0)) * d +
              column,
          part);
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) sum[i] += part[i];
    }
  }
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) shared[warp][lane * WIDTH + i] = sum[i];
  __syncthreads();
  for (int c = threadIdx.x; c < warp_size * WIDTH; c += span_threads) {
    const int place = static_cast<int>(blockIdx.y) * warp_size * WIDTH + c;
    if (place >= d) continue;
    double total = 0.0;
    for (int w = 0; w < span_warps; ++w) total += shared[w][c];
    float& out = target[static_cast<std::int64_t>(key) * d + place];
    out = static_cast<float>(out + scale * total);
  }
}

// Returns the chunk length. A block reads and writes the targets of its keys one after another, so short lists are
// split into short chunks.
int chunk_length_of(std::int64_t count) {
  if (count <= 16384) return together;
  return count > 32768 ? max_in_chunk : max_in_chunk / 2;
}
}  // namespace

std::int64_t segment_sums_bytes(std::int64_t count, int d) {
  return static_cast<std::int64_t>(sizeof(float)) * grid_for(count, chunk_length_of(count)) * 2 * d;
}

void add_segment_sums(Context& ctx, std::span<const SegmentSums> sums, std::int64_t count, std::int32_t keys_end,
                      int divisor, DType type, int d, float scale) {
  if (count == 0 || d == 0 || sums.empty()) return;
  if (sums.size() > max_segment_sums)
    failed(Code::size_unsupported, "{} sums in one call; {} is the most", sums.size(), max_segment_sums);
  const int chunk_length = chunk_length_of(count), chunks = grid_for(count, chunk_length);
  const int number = static_cast<int>(sums.size());
  const ArenaScope scope(*ctx.arena);
  float* partials = floats(ctx.scratch({number, chunks, 2, d}, DType::f32));
  Jobs jobs{};
  bool vectors = d % 8 == 0;
  for (int i = 0; i < number; ++i) {
    jobs.of[i] = sums[static_cast<std::size_t>(i)];
    vectors = vectors && aligned16(jobs.of[i].values) && aligned16(jobs.of[i].target);
  }
  with_real_type(type, "a sum of rows", [&](auto tag) {
    using T = decltype(tag);
    const auto launch = [&](auto width) {
      constexpr int W = decltype(width)::value;
      launch_dependent(ctx, chunk_sums_kernel<T, W>, dim3(chunks, number), threads, 0, jobs, static_cast<int>(count),
                       chunk_length, keys_end, divisor, d, scale, partials);
      launch_dependent(ctx, span_sums_kernel<W>, dim3(chunks, grid_for(d, warp_size * W), number), span_threads, 0,
                       jobs, static_cast<int>(count), chunk_length, keys_end, partials, d, scale);
    };
    if (vectors)
      launch(std::integral_constant<int, 4>{});
    else
      launch(std::integral_constant<int, 1>{});
  });
}

}  // namespace some::cuda

// Two levels, because one key (the padding token, a popular expert) may own most of the rows: the sorted list is cut
// into chunks of equal length; a key that lies inside one chunk is summed there, one that crosses chunks leaves a
// partial sum in each and is put together by the second kernel. Every row is read once.
#include "ops/segment_sums.h"

namespace some::cuda {
namespace {

constexpr int threads = 128;
constexpr int most_in_chunk = 64;
constexpr int together = 8;  // rows in flight

// partials: [chunks, 2, d]; 0 holds the sum of a key that came from the chunk before (it may go on behind this one as
// well), 1 that of a key that begins here and goes on in the next chunk.
template <typename T, int WIDTH>
__global__ void __launch_bounds__(threads)
    chunk_sums_kernel(const std::int32_t* keys, const std::int32_t* items, int count, int chunk_length,
                      std::int32_t keys_end, int divisor, const T* values, int d, float scale, float* target,
                      float* partials) {
  __shared__ std::int32_t key_of[most_in_chunk + 1];
  __shared__ std::int32_t row_of[most_in_chunk];
  const int begin = blockIdx.x * chunk_length, length = min(chunk_length, count - begin);
  for (int j = threadIdx.x; j < length; j += threads) {
    key_of[j] = keys[begin + j];
    row_of[j] = items[begin + j] / divisor;
  }
  if (threadIdx.x == 0) key_of[length] = begin + length < count ? keys[begin + length] : -1;
  __syncthreads();
  const bool from_before = begin > 0 && keys[begin - 1] == key_of[0];
  for (int column = (blockIdx.y * threads + threadIdx.x) * WIDTH; column < d; column += gridDim.y * threads * WIDTH) {
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

// Block x looks whether a key begins in chunk x and goes on behind it; if so it adds up the key's partial sums, warp w
// every eighth.
template <int WIDTH>
__global__ void __launch_bounds__(span_threads)
    span_sums_kernel(const std::int32_t* keys, int count, int chunk_length, std::int32_t keys_end,
                     const float* partials, int d, float scale, float* target) {
  __shared__ double shared[span_warps][warp_size * WIDTH];
  const int begin = blockIdx.x * chunk_length, end = begin + chunk_length;
  if (end >= count) return;
  const std::int32_t key = keys[end - 1];
  if (key >= keys_end || keys[end] != key || (begin > 0 && keys[begin - 1] == key)) return;
  int low = end, high = count;  // the first place behind the key
  while (low < high) {
    const int middle = (low + high) / 2;
    if (keys[middle] == key)
      low = middle + 1;
    else
      high = middle;
  }
  const int last_chunk = (low - 1) / chunk_length;
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

}  // namespace

void add_segment_sums(Context& ctx, const SortedPairs& sorted, std::int64_t count, std::int32_t keys_end, int divisor,
                      const void* values, DType type, int d, float scale, float* target) {
  if (count == 0 || d == 0) return;
  const int chunk_length = count > 32768 ? 64 : 32;
  const int chunks = grid_for(count, chunk_length);
  const ArenaScope scope(*ctx.arena);
  float* partials = floats(ctx.scratch({chunks, 2, d}, DType::f32));
  with_real_type(type, "a sum of rows", [&](auto tag) {
    using T = decltype(tag);
    const T* source = static_cast<const T*>(values);
    const auto launch = [&](auto width) {
      constexpr int W = decltype(width)::value;
      chunk_sums_kernel<T, W><<<chunks, threads, 0, ctx.cuda->stream>>>(sorted.keys, sorted.items,
                                                                        static_cast<int>(count), chunk_length, keys_end,
                                                                        divisor, source, d, scale, target, partials);
      SOME_CUDA_LAUNCHED();
      span_sums_kernel<W><<<dim3(chunks, grid_for(d, warp_size * W)), span_threads, 0, ctx.cuda->stream>>>(
          sorted.keys, static_cast<int>(count), chunk_length, keys_end, partials, d, scale, target);
      SOME_CUDA_LAUNCHED();
    };
    if (d % 8 == 0 && all_aligned16(source, target))
      launch(std::integral_constant<int, 4>{});
    else
      launch(std::integral_constant<int, 1>{});
  });
}

}  // namespace some::cuda

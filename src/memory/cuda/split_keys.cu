// Splits rows of numbers into halves for the products of memory/cuda/split_keys.cuh.
#include "memory/cuda/split_keys.cuh"

namespace some::cuda {
namespace {

// 8 bytes per number: 4 read and 4 written.
__global__ void __launch_bounds__(threads) halves_kernel(const float* numbers, std::int64_t count, int d, __half* to) {
  wait_previous_kernel_no_trigger();
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * threads)
    write_halves(to + i / d * 2 * d, static_cast<int>(i % d), numbers[i]);
}

}  // namespace

Tensor in_halves(Context& ctx, const Tensor& numbers, std::int64_t rows) {
  const std::int64_t d = numbers.dim(1);
  const Tensor out = ctx.scratch({rows, d}, DType::i32);
  constexpr unsigned max_blocks = 2048;
  if (rows > 0)
    launch_dependent(ctx, halves_kernel, dim3(std::min(grid_for(rows * d, threads), max_blocks)), dim3(threads), 0,
                     floats(numbers), rows * d, static_cast<int>(d), halves(out));
  return out;
}

void split_windows(Context& ctx, const Store& store, const Tensor& queries, std::span<const Rows> windows,
                   std::vector<Matches>& found) {
  // Splitting partitions renumbers slots.
  if (windows.empty() || store.partitions() > 1 || !uses_halves(ctx, store)) return;
  const Tensor all = in_halves(ctx, queries, queries.dim(0));
  // Slots inserted meanwhile come after the current ones, and the search range grows by at most this.
  std::int64_t most = store.reach;
  for (const Rows& window : windows) most += window.end - window.begin + reach_grain;
  const Tensor keys = in_halves(ctx, store.keys, std::min(store.slots(), most));
  for (std::size_t i = 0; i < windows.size(); ++i) {
    found[i].query_halves = all.rows(windows[i].begin, windows[i].end);
    found[i].key_halves = keys;
  }
}

}  // namespace some::cuda

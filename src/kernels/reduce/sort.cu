// Radix sorts from CUB, which is part of the CUDA toolkit, on scratch memory. In a separate file because it takes long
// to compile.
#include <cub/device/device_radix_sort.cuh>

#include "kernels/reduce/segment_sums.h"

namespace some::cuda {
namespace {

template <typename Key>
void sort(Context& ctx, const Key* keys, Key* sorted_keys, const std::int32_t* items, std::int32_t* sorted_items,
          std::int64_t count, int bits) {
  std::size_t bytes = 0;
  const int n = static_cast<int>(count);
  SOME_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, sorted_keys, items, sorted_items, n, 0, bits,
                                                  ctx.cuda->stream));
  void* storage = ctx.scratch({static_cast<std::int64_t>(bytes / 8 + 1)}, DType::i64).raw();
  SOME_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(storage, bytes, keys, sorted_keys, items, sorted_items, n, 0, bits,
                                                  ctx.cuda->stream));
}

}  // namespace

int bits_for(std::int64_t largest_key) {
  int bits = 1;
  while ((largest_key >> bits) != 0) ++bits;
  return bits;
}

SortedPairs sort_pairs(Context& ctx, const std::int32_t* keys, const std::int32_t* items, std::int64_t count,
                       int bits) {
  std::int32_t* sorted_keys = ints(ctx.scratch({count}, DType::i32));
  std::int32_t* sorted_items = ints(ctx.scratch({count}, DType::i32));
  sort_pairs_into(ctx, keys, items, count, bits, sorted_keys, sorted_items);
  return {sorted_keys, sorted_items};
}

void sort_pairs_into(Context& ctx, const std::int32_t* keys, const std::int32_t* items, std::int64_t count, int bits,
                     std::int32_t* sorted_keys, std::int32_t* sorted_items) {
  if (count > 0)
    sort(ctx, reinterpret_cast<const std::uint32_t*>(keys), reinterpret_cast<std::uint32_t*>(sorted_keys), items,
         sorted_items, count, bits);
}

SortedLongs sort_pairs(Context& ctx, const long long* keys, const std::int32_t* items, std::int64_t count, int bits) {
  long long* sorted_keys = longs(ctx.scratch({count}, DType::i64));
  std::int32_t* sorted_items = ints(ctx.scratch({count}, DType::i32));
  if (count > 0) sort(ctx, keys, sorted_keys, items, sorted_items, count, bits);
  return {sorted_keys, sorted_items};
}

}  // namespace some::cuda

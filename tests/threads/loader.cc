// The batch loader under ThreadSanitizer: several loaders over the same data, read by different threads at once, some
// destroyed early. Batches must not depend on the reader, and no two threads may access the same memory without
// synchronization.
#include <cstdio>
#include <thread>
#include <vector>

#include "core/error.h"
#include "data/token_data.h"

namespace {

using namespace some;
using namespace some;

TokenData documents(int count) {
  std::vector<std::vector<std::int32_t>> ids;
  for (int story = 0; story < count; ++story) {
    std::vector<std::int32_t> one;
    for (int i = 0; i < 2 + story % 13; ++i) one.push_back(3 + (story * 7 + i) % 50);
    ids.push_back(std::move(one));
  }
  return make_token_data(ids);
}

std::uint64_t digest(const Batch& batch) {
  std::uint64_t sum = 0;
  for (const std::int32_t id : batch.tokens) sum = sum * 31 + static_cast<std::uint64_t>(id);
  for (const std::int32_t id : batch.targets) sum = sum * 31 + static_cast<std::uint64_t>(id + 1);
  return sum;
}

constexpr int rows = 4, batches = 60;

std::vector<std::uint64_t> read_all(const TokenData& data, std::int64_t first) {
  BatchLoader loader(data, {.seq_len = 8}, rows, 5, first);
  std::vector<std::uint64_t> out;
  for (int i = 0; i < batches; ++i) out.push_back(digest(loader.next()));
  return out;
}

int run() {
  const TokenData data = documents(37);
  const std::vector<std::uint64_t> expected = read_all(data, 3);
  std::vector<std::vector<std::uint64_t>> got(4);
  std::vector<std::thread> readers;
  for (auto& one : got) readers.emplace_back([&] { one = read_all(data, 3); });
  for (int left = 0; left < 20; ++left) {  // destroyed before the first batch is ready, and after some
    BatchLoader loader(data, {.seq_len = 8}, rows, 5, left);
    for (int i = 0; i < left % 5; ++i) loader.next();
    BatchLoader moved = std::move(loader);
    if (left % 2 == 0) moved.next();
  }
  for (std::thread& reader : readers) reader.join();
  for (const auto& one : got) {
    if (one != expected) {
      std::fprintf(stderr, "the batches depend on who reads them\n");
      return 1;
    }
  }
  // A loader that cannot prepare its batches reports that to its callers, instead of ending the program from its
  // thread.
  for (const int too_many : {38, 1000}) {
    try {
      BatchLoader(data, {.seq_len = 8}, too_many, 5, 0);
      std::fprintf(stderr, "a batch of more stories than there are was not refused\n");
      return 1;
    } catch (const Error&) {
    }
  }
  return 0;
}

}  // namespace

int main() { return run(); }

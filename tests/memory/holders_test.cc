// Tests that the CPU finds exactly the slots that hold a token, both with a list per window and by direct lookup.
#include "memory/holders_cpu.h"
#include "support.h"

namespace some::test {
namespace {

constexpr std::int64_t slots = 2500, entries = 5, reach = 2309;  // three pieces of the list, the last one partial
constexpr std::int32_t tokens = 40;

// Returns a store whose slots have different numbers of used entries, from none to all, without duplicate tokens.
Store filled_store(Context& ctx, const MemorySettings& settings) {
  const RandomStream stream = random_stream(5, "test.holders");
  Store store = make_store(ctx, settings, Tensor::zeros({3}, DType::f64));
  std::uint64_t next = 0;
  for (std::int64_t m = 0; m < reach; ++m) {
    auto token = static_cast<std::int32_t>(stream.below(next++, tokens));
    const std::int64_t contents = stream.below(next++, static_cast<std::uint32_t>(settings.values) + 1);
    for (std::int64_t j = 0; j < contents; ++j) {
      const double count = 1 + stream.below(next++, 9);
      store.values.data<std::int32_t>()[j * slots + m] = token;
      if (settings.values > 1) store.entry_counts.data<float>()[j * slots + m] = static_cast<float>(count);
      store.counts.data<float>()[m] += static_cast<float>(count);
      token = (token + 1 + static_cast<std::int32_t>(stream.below(next++, 7))) % tokens;
    }
  }
  store.reach = reach;
  return store;
}

std::vector<std::pair<std::int32_t, float>> plain(const Store& store, std::int32_t token, std::int64_t first,
                                                  std::int64_t width) {
  std::vector<std::pair<std::int32_t, float>> out;
  for (std::int64_t m = first; m < first + width; ++m) {
    for (std::int64_t j = 0; j < store.entries(); ++j) {
      if (store.values.data<std::int32_t>()[j * slots + m] == token)
        out.emplace_back(static_cast<std::int32_t>(m),
                         store.entry_counts_or_totals().data<float>()[j * slots + m] / store.counts.data<float>()[m]);
    }
  }
  return out;
}

void finds_all(std::int64_t values, std::int64_t positions, int threads) {
  SCOPED_TRACE(testing::Message() << values << " values, " << positions << " positions, " << threads << " threads");
  Host host;
  host.threads = std::make_shared<Threads>(threads);
  auto ctx = make_context("cpu", "fp32", host);
  MemorySettings settings;
  settings.slots = slots;
  settings.values = values;
  const Store store = filled_store(*ctx, settings);
  Tensor targets = Tensor::empty({positions}, DType::i32);
  // Some without a target, many twice, one contents by no slot, and most contents tokens not among them.
  for (std::int64_t t = 0; t < positions; ++t)
    targets.data<std::int32_t>()[t] = t % 7 == 1 ? -1 : static_cast<std::int32_t>(t * 3 % tokens);
  targets.data<std::int32_t>()[positions - 1] = tokens + 3;
  const cpu::TargetSlots<float> holders(*ctx, store, settings, targets);
  std::size_t all = 0;
  for (std::int64_t t = 0; t < positions; ++t) {
    const std::int32_t token = targets.data<std::int32_t>()[t];
    if (token < 0) continue;
    for (const auto& [first, last] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {0, reach}, {0, 1}, {1, 1024}, {1023, 1025}, {1024, 2048}, {700, 2100}, {reach - 1, reach}, {50, 50}}) {
      const auto wanted = plain(store, token, first, last - first);
      std::vector<std::pair<std::int32_t, float>> got;
      for (const auto& holder : holders.of(t, first, last - first)) got.emplace_back(holder.slot, holder.part);
      EXPECT_EQ(got, wanted) << "token " << token << " in " << first << " to " << last;
      all += got.size();
    }
  }
  EXPECT_GT(all + (positions == 1), 0);
}

TEST(TargetSlots, AreFoundAllAndNoOther) {
  for (const std::int64_t values : {std::int64_t{1}, entries}) {
    for (const std::int64_t positions : {1, 5, 24, 100}) finds_all(values, positions, 1);
    finds_all(values, 100, 3);
  }
}

TEST(TargetSlots, OfAnEmptyStoreThereAreNone) {
  auto ctx = make_context("cpu", "fp32");
  const Store store = make_store(*ctx, {}, Tensor::zeros({3}, DType::f64));
  for (const std::int64_t positions : {2, 50}) {
    const Tensor targets = Tensor::zeros({positions}, DType::i32);
    EXPECT_TRUE(cpu::TargetSlots<float>(*ctx, store, {}, targets).of(1, 0, 0).empty());
  }
}

}  // namespace
}  // namespace some::test

// Compares the store on the GPU with the CPU: same choices and numbers, and bit-identical when repeated.
#include <numeric>

#include "memory/mixture.h"
#include "support.h"
#include "tensor/device.h"

namespace some::test {
namespace {

class CudaStore : public testing::TestWithParam<StoreCase> {};

TEST_P(CudaStore, AgreesWithTheCpu) {
  if (!some::cuda::available()) GTEST_SKIP() << some::cuda::unavailable_reason_text();
  const StoreCase& one = GetParam();
  auto gpu = make_context("cuda", "fp32");
  auto exact = make_context("cpu", "f64");
  std::vector<Store> twice;
  for (int again = 0; again < 2; ++again) {
    Store store = make_store(*gpu, one.settings, mean_tensor(one.shape)),
          wanted = make_store(*exact, one.settings, mean_tensor(one.shape));
    std::int64_t place = 0;
    for (const Window& window : make_stream(one.shape, 7)) {
      SCOPED_TRACE(testing::Message() << "from position " << place);
      const Outcome got = read_window(*gpu, one.settings, store, window, place),
                    right = read_window(*exact, one.settings, wanted, window, place);
      EXPECT_LT(largest_error(got.nll, right.nll), 1e-4);
      ASSERT_EQ(got.assignments, right.assignments);
      ASSERT_EQ(read_vector(store.values), read_vector(wanted.values));
      EXPECT_LT(largest_error(read_vector(store.keys), read_vector(wanted.keys)), 1e-5);
      EXPECT_EQ(read_vector(store.entry_counts_or_totals()), read_vector(wanted.entry_counts_or_totals()));
      EXPECT_EQ(read_vector(store.counts), read_vector(wanted.counts));
      EXPECT_LT(largest_error(read_vector(store.usage), read_vector(wanted.usage)), 1e-5);
      EXPECT_LT(largest_error(read_vector(store.shares), read_vector(wanted.shares)), 1e-3);
      EXPECT_EQ(read_vector(store.born), read_vector(wanted.born));
      EXPECT_EQ(read_vector(store.hit), read_vector(wanted.hit));
      EXPECT_GE(store.reach, wanted.reach);
      if (one.settings.partitions > 1) {
        ASSERT_EQ(store.reach, wanted.reach);
        EXPECT_LT(largest_error(read_vector(store.centroids), read_vector(wanted.centroids)), 1e-5);
      }
      place += one.shape.positions;
    }
    for (int round = 0; round < 2; ++round) {
      SCOPED_TRACE(testing::Message() << "round " << round << " of settling");
      refine_store(*gpu, one.settings, make_stream(one.shape, 7), store);
      refine_store(*exact, one.settings, make_stream(one.shape, 7), wanted);
      ASSERT_EQ(read_vector(store.values), read_vector(wanted.values));
      EXPECT_EQ(read_vector(store.entry_counts_or_totals()), read_vector(wanted.entry_counts_or_totals()));
      EXPECT_EQ(read_vector(store.counts), read_vector(wanted.counts));
      EXPECT_EQ(read_vector(store.usage), read_vector(wanted.usage));
      EXPECT_LT(largest_error(read_vector(store.keys), read_vector(wanted.keys)), 1e-5);
      EXPECT_EQ(read_vector(store.born), read_vector(wanted.born));
      EXPECT_EQ(read_vector(store.hit), read_vector(wanted.hit));
      if (one.settings.partitions > 1) {
        EXPECT_LT(largest_error(read_vector(store.centroids), read_vector(wanted.centroids)), 1e-5);
      }
    }
    twice.push_back(store);
  }
  EXPECT_TRUE(same_bits(twice[0], twice[1]));
}

INSTANTIATE_TEST_SUITE_P(Gpu, CudaStore, testing::ValuesIn(store_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

// At this width the product is computed from three products of rounded numbers; a single one would be off by 1e-4.
TEST(GpuSearch, ProductsHaveThePrecisionOfFp32) {
  if (!some::cuda::available()) GTEST_SKIP() << some::cuda::unavailable_reason_text();
  auto ctx = make_context("cuda", "fp32");
  const StreamShape shape{2, 150, 512, 40, 1.0, 0.0};
  MemorySettings settings;
  settings.slots = 150;
  settings.threshold = 2;  // every position gets its own slot
  Store store = make_store(*ctx, settings, mean_tensor(shape));
  const std::vector<Window> stream = make_stream(shape, 3);
  read_window(*ctx, settings, store, stream[0], 0);
  const Tensor states = numbers(stream[1].states, DType::f32).to(ctx->device);
  Tensor targets = Tensor::empty({shape.positions}, DType::i32);
  std::copy(stream[1].targets.begin(), stream[1].targets.end(), targets.data<std::int32_t>());
  Tensor queries = ctx->scratch(states.shape(), DType::f32);
  make_queries(*ctx, states, store.mean, queries);
  Matches found = make_matches(*ctx, settings, shape.positions);
  search(*ctx, store, settings, queries, targets.to(ctx->device), found);
  const Row query = read_vector(queries), key = read_vector(store.keys), product = read_vector(found.product),
            nearest = read_vector(found.nearest);
  int compared = 0;
  for (int t = 0; t < shape.positions; ++t) {
    const auto slot = static_cast<int>(nearest[static_cast<std::size_t>(t)]);
    if (slot < 0) continue;
    const double exact = std::inner_product(query.begin() + t * shape.d, query.begin() + (t + 1) * shape.d,
                                            key.begin() + slot * shape.d, 0.0);
    EXPECT_NEAR(product[static_cast<std::size_t>(t)], exact, 1e-6) << "of position " << t << " and slot " << slot;
    ++compared;
  }
  EXPECT_GT(compared, 100);
}

// Enough slots that a block of the search processes several tiles.
TEST(GpuSearch, GoesThroughMoreTilesThanThereAreBlocks) {
  if (!some::cuda::available()) GTEST_SKIP() << some::cuda::unavailable_reason_text();
  auto gpu = make_context("cuda", "fp32");
  auto exact = make_context("cpu", "f64");
  const StreamShape shape{5, 5000, 32, 300, 0.3, 0.02};
  MemorySettings settings;
  settings.slots = 20000;
  settings.threshold = never_match;
  settings.values = 2;
  Store store = make_store(*gpu, settings, mean_tensor(shape)),
        wanted = make_store(*exact, settings, mean_tensor(shape));
  std::int64_t place = 0;
  for (Window window : make_stream(shape, 13)) {
    if (place == 4 * shape.positions) {  // a few queries suffice for the last window
      window.states.resize(150);
      window.targets.resize(150);
      window.nll.resize(150);
    }
    const Outcome got = read_window(*gpu, settings, store, window, place),
                  right = read_window(*exact, settings, wanted, window, place);
    EXPECT_LT(largest_error(got.nll, right.nll), 1e-4);
    EXPECT_EQ(got.assignments, right.assignments);
    place += shape.positions;
  }
}

class GpuReading : public testing::TestWithParam<const char*> {};

// Reads as a text is read: shared data of the windows is computed once, and updates do not wait for the concurrent
// mixing. The results equal those of one window after another.
TEST_P(GpuReading, WindowsTogetherGiveTheSameBits) {
  if (!some::cuda::available()) GTEST_SKIP() << some::cuda::unavailable_reason_text();
  const StoreCase one = case_named(GetParam());
  auto ctx = make_context("cuda", "fp32");
  const std::vector<Window> stream = make_stream(one.shape, 11);
  const auto count = static_cast<std::int64_t>(one.shape.positions);
  std::vector<Row> alone;
  Store apart = make_store(*ctx, one.settings, mean_tensor(one.shape));
  for (const Window& window : stream) alone.push_back(read_window(*ctx, one.settings, apart, window, 0).nll);

  Store store = make_store(*ctx, one.settings, mean_tensor(one.shape));
  Mixing mixing;
  ctx->arena->reset();
  std::vector<Row> all_states;
  std::vector<Rows> windows;
  for (const Window& window : stream) {
    windows.push_back({std::ssize(all_states), std::ssize(all_states) + count});
    all_states.insert(all_states.end(), window.states.begin(), window.states.end());
  }
  const Tensor states = numbers(all_states, DType::f32).to(ctx->device);
  Tensor queries = ctx->scratch(states.shape(), DType::f32);
  make_queries(*ctx, states, store.mean, queries);
  std::vector<Tensor> mixed;
  // In chunks, so that the search also starts from a partly filled store.
  for (std::size_t first = 0; first < windows.size(); first += 5) {
    const std::size_t last = std::min(windows.size(), first + 5);
    const std::int64_t begin = windows[first].begin;
    const Tensor own = queries.rows(begin, windows[last - 1].end);
    std::vector<Rows> together;
    for (std::size_t i = first; i < last; ++i) together.push_back({windows[i].begin - begin, windows[i].end - begin});
    std::vector<Matches> found = make_matches(*ctx, store, one.settings, own, together);
    for (std::size_t i = first; i < last; ++i) {
      Tensor targets = Tensor::empty({count}, DType::i32), places = Tensor::empty({count}, DType::i64);
      std::copy(stream[i].targets.begin(), stream[i].targets.end(), targets.data<std::int32_t>());
      for (std::int64_t t = 0; t < count; ++t) places.data<std::int64_t>()[t] = packed({0, t});
      targets = targets.to(ctx->device);
      Tensor nll = numbers({stream[i].nll}, DType::f32).reshape({count}).to(ctx->device);
      Tensor assignments = ctx->scratch({count}, DType::i32);
      const Tensor asked = own.rows(together[i - first].begin, together[i - first].end);
      search_and_mix_concurrently(*ctx, mixing, store, one.settings, asked, targets, found[i - first], store.shares,
                                  nll);
      learn(*ctx, one.settings, asked, targets, places.to(ctx->device), found[i - first], store, assignments);
      mixed.push_back(nll);
    }
  }
  finish_mixing(*ctx, mixing);
  for (std::size_t i = 0; i < stream.size(); ++i) EXPECT_EQ(read_vector(mixed[i]), alone[i]) << "of window " << i;
  EXPECT_TRUE(same_bits(store, apart));
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuReading,
                         testing::Values("several_tokens", "parts_that_are_full", "wide", "tiles_of_products",
                                         "tiles_of_one_token", "tiles_of_64_tokens", "more_rows_than_a_block",
                                         "ranks_of_more_than_a_tile", "tiles_of_parts"),
                         [](const auto& info) { return std::string(info.param); });

class CudaSlotWeights : public testing::TestWithParam<const char*> {};

TEST_P(CudaSlotWeights, AgreeWithTheCpu) {
  if (!some::cuda::available()) GTEST_SKIP() << some::cuda::unavailable_reason_text();
  const StoreCase one = case_named(GetParam());
  const auto kinds = static_cast<std::int64_t>(one.settings.beta.size());
  const std::vector<Window> stream = make_stream(one.shape, 5);
  std::vector<Row> results;
  for (const char* device : {"cpu", "cuda"}) {
    auto ctx = make_context(device, "fp32");
    Store store = make_store(*ctx, one.settings, mean_tensor(one.shape));
    for (const Window& window : stream) read_window(*ctx, one.settings, store, window, 0);
    const Tensor states = numbers(stream[0].states, DType::f32).to(ctx->device);
    Tensor queries = Tensor::empty(states.shape(), DType::f32, ctx->device);
    make_queries(*ctx, states, store.mean, queries);
    Tensor say = Tensor::empty({states.dim(0), kinds}, DType::f32);
    for (std::int64_t i = 0; i < say.elements(); ++i) say.data<float>()[i] = 0.01f * static_cast<float>(1 + i % 7);
    Tensor weights = Tensor::zeros({states.dim(0), store.reach}, DType::f32, ctx->device);
    slot_weights(*ctx, store, one.settings, queries, say.to(ctx->device), weights);
    const std::vector<double> all = read_vector(weights);
    Row padded;  // the two may have different ranges of empty slots
    for (std::int64_t r = 0; r < states.dim(0); ++r) {
      for (std::int64_t m = 0; m < one.settings.slots; ++m)
        padded.push_back(m < store.reach ? all[static_cast<std::size_t>(r * store.reach + m)] : 0.0);
    }
    results.push_back(padded);
  }
  EXPECT_LT(largest_error(results[1], results[0]), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Gpu, CudaSlotWeights,
                         testing::Values("several_tokens", "parts_that_are_full", "partitions_all_searched"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace some::test

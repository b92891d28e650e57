// Compares the store on the CPU with the plain reference in both precisions, and with itself for any number of threads.
#include "expect_error.h"
#include "support.h"

namespace some::test {
namespace {

template <typename Check>
void run_case(const StoreCase& one, const char* precision, Check&& check) {
  auto ctx = make_context("cpu", precision);
  Store store = make_store(*ctx, one.settings, mean_tensor(one.shape));
  std::int64_t place = 0;
  for (const Window& window : make_stream(one.shape, 7)) {
    const Outcome outcome = read_window(*ctx, one.settings, store, window, place);
    check(window, outcome, store);
    place += one.shape.positions;
  }
}

// Both places of every token in a store must be places in the text where it occurs.
void expect_tokens_at_their_places(const Store& store, const std::vector<std::int32_t>& text) {
  for (std::int64_t at = 0; at < store.values.elements(); ++at) {
    const std::int32_t token = store.values.data<std::int32_t>()[at];
    for (const Tensor* places : {&store.born, &store.hit}) {
      const std::int64_t where = places->data<std::int64_t>()[at];
      if (token < 0) {
        EXPECT_EQ(where, no_place);
      } else {
        EXPECT_EQ(text.at(static_cast<std::size_t>(unpacked(where).offset)), token);
      }
    }
  }
}

class StoreCases : public testing::TestWithParam<StoreCase> {};

TEST_P(StoreCases, AgreesWithThePlainReference) {
  const StoreCase& one = GetParam();
  for (const char* precision : {"f64", "fp32"}) {
    const double tolerance = std::string(precision) == "f64" ? 1e-11 : 2e-5;
    ReferenceMemory plain(one.settings, mean_of(one.shape));
    int number = 0;
    run_case(one, precision, [&](const Window& window, const Outcome& outcome, const Store& store) {
      SCOPED_TRACE(testing::Message() << precision << " window " << number++);
      EXPECT_LT(largest_error(outcome.nll, plain.read(window.states, window.targets, window.nll)), tolerance);
      plain.learn(window.states, window.targets);
      ASSERT_EQ(read_vector(store.values), plain.values());
      EXPECT_LT(largest_error(read_vector(store.entry_counts_or_totals()), plain.entry_counts()), tolerance);
      EXPECT_LT(largest_error(read_vector(store.keys), flat(plain.keys)), tolerance);
      EXPECT_LT(largest_error(read_vector(store.counts), plain.counts()), tolerance);
      EXPECT_LT(largest_error(read_vector(store.usage), plain.usage), tolerance);
      if (one.settings.partitions > 1) {
        ASSERT_EQ(store.partitions_active(), std::ssize(plain.centroids));
        EXPECT_LT(largest_error(read_vector(store.centroids.rows(0, store.partitions_active())), flat(plain.centroids)),
                  tolerance);
      }
      EXPECT_LT(largest_error(read_vector(store.shares), plain.weights), 10 * tolerance);
    });
  }
}

TEST_P(StoreCases, RefinesLikeThePlainReference) {
  const StoreCase& one = GetParam();
  const std::vector<Window> stream = make_stream(one.shape, 7);
  std::vector<std::vector<Row>> states;
  std::vector<std::vector<std::int32_t>> targets;
  for (const Window& window : stream) {
    states.push_back(window.states);
    targets.push_back(window.targets);
  }
  std::vector<ReferenceMemory> rounds;  // expected values
  ReferenceMemory plain(one.settings, mean_of(one.shape));
  for (const Window& window : stream) plain.learn(window.states, window.targets);
  for (int round = 0; round < 2; ++round) {
    plain.refine(states, targets);
    rounds.push_back(plain);
  }
  for (const char* precision : {"f64", "fp32"}) {
    const double tolerance = std::string(precision) == "f64" ? 1e-11 : 2e-5;
    auto ctx = make_context("cpu", precision);
    Store store = make_store(*ctx, one.settings, mean_tensor(one.shape));
    for (const Window& window : stream) read_window(*ctx, one.settings, store, window, 0);
    for (const ReferenceMemory& wanted : rounds) {
      SCOPED_TRACE(testing::Message() << precision << " round " << &wanted - rounds.data());
      refine_store(*ctx, one.settings, stream, store);
      ASSERT_EQ(read_vector(store.values), wanted.values());
      EXPECT_EQ(read_vector(store.entry_counts_or_totals()), wanted.entry_counts());
      EXPECT_EQ(read_vector(store.counts), wanted.counts());
      EXPECT_EQ(read_vector(store.usage), wanted.usage);
      EXPECT_LT(largest_error(read_vector(store.keys), flat(wanted.keys)), tolerance);
      if (one.settings.partitions > 1) {
        EXPECT_LT(
            largest_error(read_vector(store.centroids.rows(0, store.partitions_active())), flat(wanted.centroids)),
            tolerance);
      }
    }
    std::vector<std::int32_t> read;
    for (const auto& window : targets) read.insert(read.end(), window.begin(), window.end());
    expect_tokens_at_their_places(store, read);
    for (std::int64_t at = 0; at < store.values.elements(); ++at)
      EXPECT_LE(store.born.data<std::int64_t>()[at], store.hit.data<std::int64_t>()[at]);
  }
}

TEST_P(StoreCases, HasTheSameBitsForAnyNumberOfThreads) {
  const StoreCase& one = GetParam();
  std::vector<Store> stores, refined;
  std::vector<Row> losses;
  for (const int threads : {1, 2, 5}) {
    Host host;
    host.threads = std::make_shared<Threads>(threads);
    auto ctx = make_context("cpu", "fp32", host);
    Store store = make_store(*ctx, one.settings, mean_tensor(one.shape));
    Row all;
    for (const Window& window : make_stream(one.shape, 3)) {
      const Outcome outcome = read_window(*ctx, one.settings, store, window, 0);
      all.insert(all.end(), outcome.nll.begin(), outcome.nll.end());
    }
    stores.push_back(store);
    refine_store(*ctx, one.settings, make_stream(one.shape, 3), store);
    refined.push_back(store);
    losses.push_back(all);
  }
  for (std::size_t i = 1; i < stores.size(); ++i) {
    EXPECT_TRUE(same_bits(stores[0], stores[i]));
    EXPECT_TRUE(same_bits(refined[0], refined[i]));
    EXPECT_EQ(losses[0], losses[i]);
  }
}

// Every token is found in its assigned slot, and every slot has the places of its insertion and last match.
TEST_P(StoreCases, SlotsKnowTheirPlaces) {
  const StoreCase& one = GetParam();
  const bool slots_stay = one.settings.values == 1 && one.settings.partitions == 1;
  std::vector<std::int64_t> born(static_cast<std::size_t>(one.settings.slots), no_place), hit = born;
  std::vector<std::int32_t> read;
  std::int64_t place = 0;
  run_case(one, "fp32", [&](const Window& window, const Outcome& outcome, const Store& store) {
    for (std::size_t t = 0; t < outcome.assignments.size(); ++t) {
      const auto assignment = static_cast<std::int32_t>(outcome.assignments[t]);
      if (assignment == no_slot) continue;
      const auto slot = static_cast<std::size_t>(slot_of_assignment(assignment));
      EXPECT_GE(window.targets[t], 0);
      if ((assignment & inserted_flag) == 0) hit[slot] = place + static_cast<std::int64_t>(t);
    }
    for (std::size_t t = 0; t < outcome.assignments.size(); ++t) {  // insertions come after all matches of a window
      const auto assignment = static_cast<std::int32_t>(outcome.assignments[t]);
      if (assignment == no_slot || (assignment & inserted_flag) == 0) continue;
      const auto slot = static_cast<std::size_t>(slot_of_assignment(assignment));
      born[slot] = hit[slot] = place + static_cast<std::int64_t>(t);
    }
    place += static_cast<std::int64_t>(outcome.assignments.size());
    for (std::size_t m = 0; m < born.size() && slots_stay; ++m) {
      EXPECT_EQ(store.born.data<std::int64_t>()[m], born[m]);
      EXPECT_EQ(store.hit.data<std::int64_t>()[m], hit[m]);
    }
    for (std::int64_t t = 0; t < std::ssize(window.targets); ++t)
      read.push_back(window.targets[static_cast<std::size_t>(t)]);
    expect_tokens_at_their_places(store, read);
  });
}

INSTANTIATE_TEST_SUITE_P(Cpu, StoreCases, testing::ValuesIn(store_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

// The weights of all slots of a token add up to the search's probability of it.
void weights_add_up(const StoreCase& one) {
  auto ctx = make_context("cpu", "f64");
  Store store = make_store(*ctx, one.settings, mean_tensor(one.shape));
  const std::vector<Window> stream = make_stream(one.shape, 5);
  for (std::size_t w = 0; w + 1 < stream.size(); ++w) read_window(*ctx, one.settings, store, stream[w], 0);
  const Window& window = stream.back();
  const Outcome outcome = read_window(*ctx, one.settings, store, window, 0, false);
  const std::size_t positions = window.states.size(), kinds = one.settings.beta.size();
  const Tensor states = numbers(window.states, DType::f64);
  Tensor queries = Tensor::empty(states.shape(), DType::f64);
  make_queries(*ctx, states, store.mean, queries);
  for (std::size_t s = 0; s < kinds; ++s) {
    Tensor say = Tensor::zeros({static_cast<std::int64_t>(positions), static_cast<std::int64_t>(kinds)}, DType::f64);
    for (std::size_t t = 0; t < positions; ++t) say.data<double>()[t * kinds + s] = 0.5;
    Tensor weights = Tensor::zeros({static_cast<std::int64_t>(positions), store.reach}, DType::f64);
    slot_weights(*ctx, store, one.settings, queries, say, weights);
    for (std::size_t t = 0; t < positions; ++t) {
      if (window.targets[t] < 0) continue;
      double right = 0, all = 0;
      for (std::int64_t m = 0; m < store.reach; ++m) {
        const double weight = weights.data<double>()[static_cast<std::int64_t>(t) * store.reach + m];
        all += weight;
        for (std::int64_t at = m; at < store.values.elements(); at += store.slots()) {
          if (store.values.data<std::int32_t>()[at] != window.targets[t]) continue;
          right += weight * read_vector(store.entry_counts_or_totals())[static_cast<std::size_t>(at)] /
                   read_vector(store.counts)[static_cast<std::size_t>(m)];
        }
      }
      EXPECT_NEAR(all, 0.5, 1e-12);
      EXPECT_NEAR(right, 0.5 * outcome.memory_prob[s * positions + t], 1e-12);
    }
  }
}

TEST(SlotWeights, AddUpToWhatTheMemorySays) { weights_add_up(case_named("several_tokens")); }
TEST(SlotWeights, AddUpIfSomePartitionsAreSearched) { weights_add_up(case_named("parts_that_are_full")); }

// Searching every partition equals the exact search, for any partitions.
TEST(Parts, SearchingAllPartitionsIsExact) {
  const StoreCase one = case_named("parts_in_a_wide_store");
  auto ctx = make_context("cpu", "f64");
  Store store = make_store(*ctx, one.settings, mean_tensor(one.shape));
  const std::vector<Window> stream = make_stream(one.shape, 5);
  for (std::size_t w = 0; w + 1 < stream.size(); ++w) read_window(*ctx, one.settings, store, stream[w], 0);
  ASSERT_EQ(store.partitions_active(), 7);
  Store whole = store;  // the same slots in one partition
  whole.centroids = {};
  MemorySettings in_one = one.settings;
  in_one.partitions = 1;
  const Row exact = read_window(*ctx, in_one, whole, stream.back(), 0, false).memory_prob;
  const auto error_of = [&](std::int64_t look) {
    MemorySettings settings = one.settings;
    settings.nprobe = look;
    const Row memory_prob = read_window(*ctx, settings, store, stream.back(), 0, false).memory_prob;
    double sum = 0;
    for (std::size_t i = 0; i < memory_prob.size(); ++i) sum += std::abs(memory_prob[i] - exact[i]);
    return sum;
  };
  EXPECT_EQ(error_of(7), 0);
  EXPECT_GT(error_of(4), 0);
  EXPECT_GT(error_of(1), 2 * error_of(4));  // the nearest partitions contain most of the weight
}

TEST(Parts, FillEvenlyAndAreAllUsed) {
  const StoreCase one = case_named("parts_in_a_wide_store");
  auto ctx = make_context("cpu", "fp32");
  Store store = make_store(*ctx, one.settings, mean_tensor(one.shape));
  for (const Window& window : make_stream(one.shape, 5)) read_window(*ctx, one.settings, store, window, 0);
  ASSERT_EQ(store.partitions_active(), 7);
  const std::vector<double> counts = read_vector(store.counts);
  for (std::size_t p = 0; p < 7; ++p) {
    const auto first = counts.begin() + static_cast<std::ptrdiff_t>(p * 300);
    EXPECT_GT(std::count_if(first, first + 300, [](double n) { return n > 0; }), 100) << "part " << p;
  }
}

TEST(Mix, ATargetNobodyExpectsIsNoEndOfNumbers) {
  auto ctx = make_context("cpu", "fp32");
  StreamShape shape;
  const MemorySettings settings;
  Store store = make_store(*ctx, settings, mean_tensor(shape));
  Window window = make_stream(shape, 1)[0];
  window.nll[3] = 300;  // e^-300 is 0 in single precision
  const Outcome outcome = read_window(*ctx, settings, store, window, 0);
  for (const double loss : outcome.nll) EXPECT_TRUE(std::isfinite(loss));
  double sum = 0;
  for (const double weight : read_vector(store.shares)) sum += weight;
  EXPECT_NEAR(sum, 1, 1e-5);
}

TEST(Settings, WhatMakesNoSenseIsRefused) {
  const auto refused = [](auto change) {
    MemorySettings settings;
    change(settings);
    const auto error = error_in([&] { check_settings(settings, "memory."); });
    return is_bad_input(error, Code::setting_out_of_range) && error->values().front().starts_with("memory.");
  };
  EXPECT_FALSE(refused([](MemorySettings&) {}));
  EXPECT_TRUE(refused([](MemorySettings& s) { s.slots = 0; }));
  EXPECT_TRUE(refused([](MemorySettings& s) { s.slots = max_slots + 1; }));
  EXPECT_TRUE(refused([](MemorySettings& s) { s.threshold = 3; }));
  EXPECT_TRUE(refused([](MemorySettings& s) { s.threshold = NAN; }));
  EXPECT_TRUE(refused([](MemorySettings& s) { s.beta.clear(); }));
  EXPECT_TRUE(refused([](MemorySettings& s) { s.beta.assign(9, 1.0); }));
  EXPECT_TRUE(refused([](MemorySettings& s) { s.beta = {-1}; }));
  EXPECT_TRUE(refused([](MemorySettings& s) { s.decay = 1.5; }));
  EXPECT_TRUE(refused([](MemorySettings& s) { s.switch_rate = -0.1; }));
  EXPECT_TRUE(refused([](MemorySettings& s) { s.window = -1; }));
  EXPECT_TRUE(refused([](MemorySettings& s) { s.values = 0; }));
  EXPECT_TRUE(refused([](MemorySettings& s) { s.values = max_values + 1; }));
  EXPECT_FALSE(refused([](MemorySettings& s) { s.partitions = 64; }));
  EXPECT_TRUE(refused([](MemorySettings& s) { s.partitions = 0; }));
  EXPECT_TRUE(refused([](MemorySettings& s) { s.partitions = 60; }));  // does not divide 4,096
  EXPECT_TRUE(refused([](MemorySettings& s) { s.slots = s.partitions = max_partitions + 1; }));
  EXPECT_TRUE(refused([](MemorySettings& s) { s.nprobe = 0; }));
  EXPECT_TRUE(refused([](MemorySettings& s) { s.nprobe = max_partitions + 1; }));
}

}  // namespace
}  // namespace some::test

// Memories with their texts: reading, stopping and resuming, forgetting, merging.
#include <numeric>

#include "expect_error.h"
#include "memory/memory_file.h"
#include "memory/predictions.h"
#include "memory_fixture.h"

namespace some::test {
namespace {

// Runs tests for a store with one partition, with several, and with contexts, of which some are evicted.
struct Kind {
  const char* name;
  std::int64_t parts = 1, contexts = 0;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }
class Divided : public testing::TestWithParam<Kind> {
 public:
  static MemorySettings small_settings() {
    MemorySettings settings = test::small_settings();
    settings.partitions = GetParam().parts;
    settings.nprobe = 2;
    settings.contexts = GetParam().contexts;
    settings.context_entries = 2000;
    return settings;
  }
};
INSTANTIATE_TEST_SUITE_P(Memory, Divided,
                         testing::Values(Kind{"not"}, Kind{"in_parts", 6}, Kind{"with_contexts", 1, 4}),
                         [](const auto& info) { return info.param.name; });

TEST(Reading, PredictsEveryTokenOnceBeforeItIsLearnt) {
  Fixture fixture;
  Memory memory = fixture.memory(small_settings());
  const std::vector<std::int32_t> text = Fixture::words(333, 5);
  std::int64_t tokens = 0, fated = 0;
  double frozen = 0, mixed = 0;
  learn_text(*fixture.model, memory, "a", text, 333, [&](auto windows, auto assignments) {
    for (const WindowResult& window : windows) {
      tokens += window.tokens;
      frozen += window.frozen;
      mixed += window.mixed;
      EXPECT_EQ(window.births + window.hits, window.tokens);
    }
    fated += std::ssize(assignments);
    return true;
  });
  EXPECT_EQ(tokens, 332);
  EXPECT_EQ(fated, 332);
  EXPECT_LT(mixed, frozen);  // the text repeats itself, and the model is untrained
  EXPECT_EQ(memory.texts.size(), 1u);
  EXPECT_EQ(memory.texts[0].tokens, text);
  // The frozen loss equals that of the model without a memory.
  double alone = 0;
  MemoryReader(*fixture.model, nullptr, false)
      .read(text, {0, 1, 333, 20, windows_at_once(*fixture.ctx, fixture.model->config())}, [&](auto windows, auto) {
        for (const WindowResult& window : windows) alone += window.frozen;
        return true;
      });
  EXPECT_EQ(alone, frozen);
}

// Documents that are read separately are predicted as if each were its own text.
TEST(Reading, NoContextReachesBackOverABorder) {
  Fixture fixture;
  const std::int32_t border = 2;
  std::vector<std::int32_t> text;
  std::vector<std::vector<std::int32_t>> documents;
  for (const int length : {12, 1, 20, 3, 15}) {
    std::vector<std::int32_t> document = Fixture::words(length, static_cast<std::uint64_t>(length));
    document.push_back(border);
    text.insert(text.end(), document.begin(), document.end());
    documents.push_back(document);
  }
  const auto losses = [&](const std::vector<std::int32_t>& tokens, std::optional<std::int32_t> with) {
    const std::int64_t length = fixture.model->config().seq_len;
    std::vector<double> out;
    MemoryReader(*fixture.model, nullptr, false, with)
        .read(tokens, {0, 1, std::ssize(tokens), 1, length}, [&](auto windows, auto) {
          for (const WindowResult& window : windows) out.push_back(window.frozen);
          return true;
        });
    return out;
  };
  const std::vector<double> together = losses(text, border), stream = losses(text, std::nullopt);
  ASSERT_EQ(together.size(), text.size() - 1);
  std::size_t at = 0, different = 0;
  for (const std::vector<std::int32_t>& document : documents) {
    const std::vector<double> alone = losses(document, std::nullopt);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      EXPECT_NEAR(together[at + i], alone[i], 1e-5) << at << " + " << i;
      different += std::fabs(stream[at + i] - alone[i]) > 1e-3;
    }
    at += document.size();
  }
  EXPECT_GT(different, 20u);

  // Larger windows give the same losses as reading token by token, with the border in the settings of the memory.
  MemorySettings settings = small_settings();
  settings.border = border;
  Memory memory = fixture.memory(settings);
  double sum = 0;
  learn_text(*fixture.model, memory, "a", text, std::ssize(text), [&](auto windows, auto) {
    for (const WindowResult& window : windows) sum += window.frozen;
    return true;
  });
  EXPECT_NEAR(sum, std::accumulate(together.begin(), together.end(), 0.0), 1e-3);
  Folder folder;
  save_memory(memory, folder.file("m"));
  EXPECT_TRUE(same(load_memory(*fixture.ctx, folder.file("m")), memory));
}

TEST_P(Divided, ReadingDoesNotDependOnThreads) {
  std::vector<Memory> memories;
  for (const int threads : {1, 3}) {
    Fixture fixture(3, threads);
    memories.push_back(fixture.memory(small_settings()));
    learn_text(*fixture.model, memories.back(), "a", Fixture::words(700, 5), 700, {});
  }
  EXPECT_TRUE(same(memories[0], memories[1]));
}

TEST_P(Divided, StoppedAndReadOnGivesTheSameBits) {
  const Folder folder;
  const std::vector<std::int32_t> text = Fixture::words(4000, 5);
  Fixture fixture;
  Memory whole = fixture.memory(small_settings());
  learn_text(*fixture.model, whole, "a", text, 4000, {});
  Memory part = fixture.memory(small_settings());
  int passes = 0;
  const std::int64_t first =
      learn_text(*fixture.model, part, "a", text, 4000, [&](auto, auto) { return ++passes < 2; });
  EXPECT_LT(first, 4000);
  save_memory(part, folder.file("m"));
  Fixture other(3, 1);  // another process
  Memory resumed = load_memory(*other.ctx, folder.file("m"));
  EXPECT_TRUE(same(part, resumed));
  require_model(resumed, folder.file("m"), *other.model, other.tokenizer);
  EXPECT_EQ(learn_text(*other.model, resumed, "a", text, 4000, {}), 4000);
  EXPECT_TRUE(same(whole, resumed));
  // Read to its end already: nothing is read again.
  EXPECT_EQ(learn_text(*other.model, resumed, "a", text, 4000, {}), 4000);
  EXPECT_TRUE(same(whole, resumed));
}

// On a GPU the model runs one pass ahead of the updates, except if the reading has a single pass.
TEST(GpuReading, APassAheadGivesTheSameBits) {
  if (!some::cuda::available()) GTEST_SKIP() << some::cuda::unavailable_reason_text();
  Fixture fixture(3, 2, "cuda");
  const std::vector<std::int32_t> text = Fixture::words(1500, 5);
  constexpr std::int64_t window = 20, together = 3, end = 1500;
  std::vector<Memory> memories;
  std::vector<Store> assigned_slots;
  std::vector<std::vector<double>> losses;
  for (const std::int64_t step : {end, window * together}) {
    Memory& memory = memories.emplace_back(fixture.memory(small_settings()));
    std::vector<double>& own = losses.emplace_back();
    for (std::int64_t begin = 1; begin < end; begin += step)
      MemoryReader(*fixture.model, &memory, true)
          .read(text, {0, begin, std::min(end, begin + step), window, together}, [&](auto windows, auto) {
            for (const WindowResult& one : windows) own.insert(own.end(), {one.frozen, one.mixed});
            return true;
          });
    Store& home = assigned_slots.emplace_back(make_store(*fixture.ctx, memory.settings, memory.store.mean));
    for (std::int64_t begin = 1; begin < end; begin += step)
      EXPECT_TRUE(MemoryReader(*fixture.model, &memory, false)
                      .reassign(text, {0, begin, std::min(end, begin + step), window, together}, home, {}));
  }
  EXPECT_EQ(losses[0].size(), 2 * 75u);
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_TRUE(same_bits(memories[0].store, memories[1].store));
  EXPECT_TRUE(same_bits(assigned_slots[0], assigned_slots[1]));
  // A stopped reading leaves nothing behind that would disturb the next one.
  Memory stopped = fixture.memory(small_settings());
  const std::int64_t first =
      MemoryReader(*fixture.model, &stopped, true).read(text, {0, 1, end, window, together}, [](auto, auto) {
        return false;
      });
  EXPECT_EQ(first, 1 + window * together);
  MemoryReader(*fixture.model, &stopped, true).read(text, {0, first, end, window, together}, {});
  EXPECT_TRUE(same_bits(memories[0].store, stopped.store));
}

TEST(Reading, AnotherTextOfTheSameNameIsRefused) {
  Fixture fixture;
  Memory memory = fixture.memory(small_settings());
  learn_text(*fixture.model, memory, "a", Fixture::words(100, 5), 100, {});
  EXPECT_ERROR((learn_text(*fixture.model, memory, "a", Fixture::words(100, 6), 100, {})), Code::text_changed, "a");
}

TEST(Reading, TheBeginningOfATextThatWasReadWasReadAlready) {
  Fixture fixture;
  Memory memory = fixture.memory(small_settings());
  const std::vector<std::int32_t> text = Fixture::words(100, 5);
  learn_text(*fixture.model, memory, "a", text, 100, {});
  const std::vector<double> before = read_vector(memory.store.counts);
  EXPECT_EQ(learn_text(*fixture.model, memory, "a", std::span(text).first(60), 60, {}), 100);
  EXPECT_EQ(read_vector(memory.store.counts), before);
  EXPECT_EQ(memory.texts[0].tokens.size(), 100u);
}

TEST_P(Divided, ForgettingLeavesWhatWouldBeThereHadTheTextNeverBeenRead) {
  const std::vector<std::int32_t> a = Fixture::words(500, 5), b = Fixture::words(400, 6), c = Fixture::words(300, 7);
  Fixture fixture;
  Memory all = fixture.memory(small_settings()), without = fixture.memory(small_settings());
  learn_text(*fixture.model, all, "a", a, 500, {});
  learn_text(*fixture.model, all, "b", b, 400, {});
  learn_text(*fixture.model, all, "c", c, 300, {});
  learn_text(*fixture.model, without, "a", a, 500, {});
  learn_text(*fixture.model, without, "c", c, 300, {});
  EXPECT_FALSE(same(all, without));
  EXPECT_TRUE(same(memory_without_text(*fixture.model, all, 1, {}), without));
  // The same for texts that came with another memory.
  Memory other = fixture.memory(small_settings()), merged = fixture.memory(small_settings()),
         others_left = fixture.memory(small_settings()), left = fixture.memory(small_settings());
  learn_text(*fixture.model, other, "b", b, 400, {});
  learn_text(*fixture.model, other, "c", c, 300, {});
  learn_text(*fixture.model, merged, "a", a, 500, {});
  merge(*fixture.ctx, merged, other);
  learn_text(*fixture.model, others_left, "c", c, 300, {});
  learn_text(*fixture.model, left, "a", a, 500, {});
  merge(*fixture.ctx, left, others_left);
  EXPECT_TRUE(same_bits(memory_without_text(*fixture.model, merged, 1, {}).store, left.store));
}

TEST_P(Divided, SettlingIsPartOfWhatTheMemoryIs) {
  const Folder folder;
  const std::vector<std::int32_t> a = Fixture::words(500, 5), b = Fixture::words(3000, 6), c = Fixture::words(300, 7);
  Fixture fixture;
  Memory all = fixture.memory(small_settings()), without = fixture.memory(small_settings());
  learn_text(*fixture.model, all, "a", a, 500, {});
  learn_text(*fixture.model, all, "b", b, 3000, {});
  EXPECT_EQ(refinement_passes(all), 0);
  save_memory(all, folder.file("unsettled"));
  const Memory unsettled = load_memory(*fixture.ctx, folder.file("unsettled"));
  // A stopped pass changes nothing.
  std::int64_t most = 0;
  EXPECT_FALSE(refine(*fixture.model, all, [&](std::int64_t done, std::int64_t of) {
    EXPECT_EQ(of, 499 + 2999);
    most = done;
    return done < 1000;
  }));
  EXPECT_GE(most, 1000);
  EXPECT_TRUE(same(all, unsettled));
  // Repeated passes give the same result whether or not the memory was saved in between, and for any number of threads.
  EXPECT_TRUE(refine(*fixture.model, all, {}));
  EXPECT_FALSE(same_bits(all.store, unsettled.store));
  save_memory(all, folder.file("m"));
  EXPECT_TRUE(refine(*fixture.model, all, {}));
  Fixture other(3, 1);
  Memory resumed = load_memory(*other.ctx, folder.file("m"));
  EXPECT_EQ(refinement_passes(resumed), 1);
  EXPECT_TRUE(refine(*other.model, resumed, {}));
  EXPECT_TRUE(same(all, resumed));
  EXPECT_EQ(refinement_passes(all), 2);
  // Everything that was read is assigned, except tokens that did not fit into a full slot.
  const std::vector<double> counts = read_vector(all.store.counts);
  const double contents = std::accumulate(counts.begin(), counts.end(), 0.0);
  EXPECT_LE(contents, 499 + 2999);
  EXPECT_GT(contents, 0.5 * (499 + 2999));
  // It can read more, and forget: the rest is refined as it would have been without the text.
  learn_text(*fixture.model, all, "c", c, 300, {});
  EXPECT_EQ(refinement_passes(all), 0);
  learn_text(*fixture.model, without, "a", a, 500, {});
  refine(*fixture.model, without, {});
  refine(*fixture.model, without, {});
  learn_text(*fixture.model, without, "c", c, 300, {});
  std::int64_t last = 0, total = 0;
  EXPECT_TRUE(same(memory_without_text(*fixture.model, all, 1,
                                       [&](std::int64_t done, std::int64_t of) {
                                         EXPECT_GT(done, last);
                                         last = done;
                                         total = of;
                                       }),
                   without));
  EXPECT_EQ(last, total);
  // Nor would a text that it never read have caused a refinement.
  refine(*fixture.model, all, {});
  EXPECT_TRUE(same(memory_without_text(*fixture.model, all, 2, {}), resumed));
  Memory only = fixture.memory(small_settings());
  learn_text(*fixture.model, only, "c", c, 300, {});
  refine(*fixture.model, only, {});
  total = last = 0;
  const Memory without_both = memory_without_text(*fixture.model, memory_without_text(*fixture.model, all, 0, {}), 0,
                                                  [&](std::int64_t done, std::int64_t of) { last = done, total = of; });
  EXPECT_TRUE(same(without_both, only));
  EXPECT_EQ(last, 2 * 299);
  EXPECT_EQ(last, total);
}

TEST(Merging, KeepsTheStrongAndKnowsTheTexts) {
  Fixture fixture;
  Memory first = fixture.memory(small_settings()), second = fixture.memory(small_settings());
  const std::vector<std::int32_t> a = Fixture::words(300, 5), b = Fixture::words(300, 6);
  learn_text(*fixture.model, first, "a", a, 300, {});
  learn_text(*fixture.model, second, "b", b, 300, {});
  Memory both = fixture.memory(small_settings());
  learn_text(*fixture.model, both, "a", a, 300, {});
  merge(*fixture.ctx, both, second);
  EXPECT_EQ(both.texts.size(), 2u);
  EXPECT_GE(slots_in_use(both), slots_in_use(first));
  // The second text is predicted better than before.
  const auto loss = [&](Memory& memory) {
    double sum = 0;
    MemoryReader(*fixture.model, &memory, false).read(b, {0, 1, 300, 20, 1}, [&](auto windows, auto) {
      for (const WindowResult& window : windows) sum += window.mixed;
      return true;
    });
    return sum;
  };
  EXPECT_LT(loss(both), loss(first));
  // A memory merged with itself doubles every slot's count and has no other slots.
  Memory twice = first;
  twice.store.keys = first.store.keys.clone();
  twice.store.counts = first.store.counts.clone();
  twice.store.usage = first.store.usage.clone();
  twice.store.values = first.store.values.clone();
  twice.store.born = first.store.born.clone();
  twice.store.hit = first.store.hit.clone();
  merge(*fixture.ctx, twice, first);
  EXPECT_EQ(slots_in_use(twice), slots_in_use(first));
  double before = 0, after = 0;
  for (const double count : read_vector(first.store.counts)) before += count;
  for (const double count : read_vector(twice.store.counts)) after += count;
  EXPECT_EQ(after, 2 * before);
  // A memory of another model.
  Fixture stranger(9);
  Memory foreign = stranger.memory(small_settings());
  EXPECT_ERROR(merge(*fixture.ctx, both, foreign), Code::memory_mismatch, both.model, foreign.model);
}

// There is room: nothing is lost, and the content of one partition spreads over many.
TEST(Merging, FillsPartsThatHaveNotBegun) {
  const Folder folder;
  Fixture fixture;
  MemorySettings settings = small_settings();
  settings.slots = 1200;
  settings.partitions = 20;
  settings.nprobe = 4;
  Memory first = fixture.memory(settings), second = fixture.memory(small_settings());
  const std::vector<std::int32_t> a = Fixture::words(40, 5), b = Fixture::words(600, 6);
  learn_text(*fixture.model, first, "a", a, 40, {});
  learn_text(*fixture.model, second, "b", b, 600, {});
  const auto contents = [](const Memory& memory) {
    double sum = 0;
    for (const double count : read_vector(memory.store.counts)) sum += count;
    return sum;
  };
  const double both = contents(first) + contents(second);
  EXPECT_EQ(first.store.partitions_active(), 1);
  merge(*fixture.ctx, first, second);
  EXPECT_EQ(contents(first), both);
  EXPECT_GE(first.store.partitions_active(), 3);
  save_memory(first, folder.file("m"));
  Memory loaded = load_memory(*fixture.ctx, folder.file("m"));
  EXPECT_TRUE(same(loaded, first));
  learn_text(*fixture.model, loaded, "c", Fixture::words(300, 8), 300, {});  // it can read more
  EXPECT_GE(contents(loaded), both);
}

TEST_P(Divided, PruningEmptiesTheWeak) {
  Fixture fixture;
  Memory memory = fixture.memory(small_settings());
  learn_text(*fixture.model, memory, "a", Fixture::words(600, 5), 600, {});
  std::int64_t weak = 0;
  for (const double count : read_vector(memory.store.counts)) weak += count == 1;
  const std::int64_t used = slots_in_use(memory);
  EXPECT_EQ(prune(*fixture.ctx, memory, 2), weak);
  EXPECT_EQ(slots_in_use(memory), used - weak);
  const std::vector<double> counts = read_vector(memory.store.counts), values = read_vector(memory.store.values);
  for (std::size_t m = 0; m < counts.size(); ++m) EXPECT_EQ(counts[m] > 0, values[m] >= 0);
  learn_text(*fixture.model, memory, "b", Fixture::words(300, 8), 300, {});  // it can read more
}

TEST_P(Divided, DamageOfItsFileIsReported) {
  const Folder folder;
  Fixture fixture;
  Memory memory = fixture.memory(small_settings());
  learn_text(*fixture.model, memory, "a", Fixture::words(100, 5), 100, {});
  save_memory(memory, folder.file("m"));
  const std::string whole = read_file(folder.file("m"));
  for (std::size_t at = 9; at < whole.size(); at += whole.size() / 40) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    write_file_atomic(folder.file("d"), damaged);
    EXPECT_TRUE(error_in([&] { load_memory(*fixture.ctx, folder.file("d")); })) << "byte " << at;
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, whole.size() / 2, whole.size() - 1}) {
    write_file_atomic(folder.file("d"), whole.substr(0, size));
    EXPECT_TRUE(error_in([&] { load_memory(*fixture.ctx, folder.file("d")); })) << size << " bytes";
  }
  EXPECT_ERROR(load_memory(*fixture.ctx, folder.file("nothing")), Code::file_not_found, folder.file("nothing"));
}

TEST_P(Divided, AnswersOfBothAreTheMixture) {
  Fixture fixture;
  Memory memory = fixture.memory(small_settings());
  const std::vector<std::int32_t> text = Fixture::words(300, 5);
  learn_text(*fixture.model, memory, "a", text, 300, {});
  // The losses equal the probability of each target under the whole distribution.
  const std::vector<std::int32_t> row(text.begin(), text.begin() + 30);
  const Batch batch = rows_batch({row}, 40, false);
  Context& ctx = *fixture.ctx;
  ctx.arena->reset();
  const DeviceBatch device_batch = upload(ctx, batch);
  Tensor states, nll = fixture.model->evaluate(device_batch, {}, {.states = &states});
  std::vector<double> logits = read_vector(fixture.model->logits(device_batch, {}));
  const std::size_t vocabulary = static_cast<std::size_t>(fixture.model->config().vocab);
  MixtureState mixture(memory);
  for (std::size_t t = 0; t + 1 < row.size(); ++t) {
    const auto at = static_cast<std::int64_t>(t);
    MemoryPredictions answers(ctx, memory, {mixture_weights(memory.settings, read_vector(mixture.shares))});
    answers.set_mixtures({mixture.contexts});
    std::vector<double> one(logits.begin() + static_cast<std::ptrdiff_t>(t * vocabulary),
                            logits.begin() + static_cast<std::ptrdiff_t>((t + 1) * vocabulary));
    const std::int32_t only[1] = {0};
    const std::vector<std::vector<std::int32_t>> before{{row.begin(), row.begin() + at + 1}};
    answers.mix(states.rows(at, at + 1), only, one, before);
    double sum = 0;
    for (const double log : one) sum += std::exp(log);
    EXPECT_NEAR(sum, 1, 1e-5);
    Tensor loss = nll.rows(at, at + 1);
    mix_losses(ctx, memory, batch, at, states.rows(at, at + 1), device_batch.targets.rows(at, at + 1), mixture, loss);
    EXPECT_NEAR(-one[static_cast<std::size_t>(row[t + 1])], read_vector(loss)[0], 1e-4);
  }
}

}  // namespace
}  // namespace some::test

// Reading into a memory with a trained run: loss improves on repetitive text, changes little on the run's own text; the
// memory is saved and affects evaluation, generation and traces.
#include "analysis/read.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "analysis/adaptation_methods.h"
#include "analysis/assignments.h"
#include "analysis/pages/memory_view.h"
#include "analysis/recall.h"
#include "analysis/tiny_run.h"
#include "analysis/trace.h"
#include "core/files/files.h"
#include "evaluation/evaluate.h"
#include "expect_error.h"
#include "flip_bits.h"
#include "inference/generate.h"
#include "memory/memory_file.h"

namespace some {
namespace {

ReadOptions recipes(const std::string& memory) {
  ReadOptions options;
  options.texts = {"builtin:recipes"};
  options.memory = memory;
  options.tokens = 3000;
  options.original_tokens = 1000;
  options.choices.slots = 600;
  return options;
}

TEST(Read, GainsOnOtherTextAndCostsLittleOnItsOwn) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder));
  ReadOptions options = recipes(folder / "memory");
  options.keep_frames = true;
  ReadMemory kept;
  const ReadReport typed = read_texts(run, options, &kept);
  const nlohmann::json report = to_json(typed);
  EXPECT_EQ(report["tokens"], 2999);
  EXPECT_GT(report["gain"].get<double>(), 0.3);
  EXPECT_LT(report["original"]["lost"].get<double>(), 0.05);
  EXPECT_FALSE(kept.frames.empty());
  const std::string page = read_page(typed, kept, run);
  EXPECT_NE(page.find("store-map"), std::string::npos);
  // The frozen control is the model without a memory.
  options.frozen = true;
  const nlohmann::json alone = to_json(read_texts(run, options));
  EXPECT_EQ(alone["frozen"], report["frozen"]);
  EXPECT_FALSE(alone.contains("loss"));
  // A second read finds nothing new.
  options.frozen = false;
  const std::string before = read_file(folder / "memory");
  EXPECT_EQ(read_texts(run, options).all().tokens, 0);
  EXPECT_EQ(read_file(folder / "memory"), before);
  // Continues beyond the first limit.
  options.tokens = 3500;
  const nlohmann::json more = to_json(read_texts(run, options));
  EXPECT_EQ(more["tokens"], 500);
  EXPECT_EQ(more["texts"][0]["from"], 3000);
}

TEST(Read, StoppedItKeepsWhatItReadAndGoesOnToTheSameBits) {
  TemporaryFolder folder;
  const std::string path = train_tiny(folder);
  {
    OpenedRun run = open_tiny(path);
    read_texts(run, recipes(folder / "whole"));
  }
  OpenedRun run = open_tiny(path);
  ReadOptions options = recipes(folder / "parts");
  int passes = 0;
  options.stop = [&] { return ++passes >= 1; };
  EXPECT_TRUE(read_texts(run, options).stopped);
  options.stop = nullptr;
  OpenedRun again = open_tiny(path);
  EXPECT_FALSE(read_texts(again, options).stopped);
  EXPECT_EQ(read_file(folder / "whole"), read_file(folder / "parts"));
}

// Searching some partitions finds most slots, and the rest changes the loss little.
TEST(Read, InPartsItLosesLittleAndKnowsHowMuch) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder));
  ReadOptions options = recipes(folder / "whole");
  options.original_tokens = 0;
  const double exact = to_json(read_texts(run, options))["loss"].get<double>();
  options.memory = folder / "memory";
  options.choices.partitions = 10;
  options.choices.nprobe = 4;
  const double loss = to_json(read_texts(run, options))["loss"].get<double>();
  EXPECT_NE(loss, exact);
  EXPECT_LT(loss, exact + 0.3);
  const std::vector<std::int32_t> tokens = stream_of(load_analysis_text(run, "builtin:recipes", 0).data, 1000);
  const RecallReport report = measure_recall(*run.model, open_memory(run, folder / "memory"), tokens, {1, 4, 10});
  EXPECT_EQ(report.tokens, 999);
  EXPECT_EQ(report.partitions, 10);
  ASSERT_EQ(report.searches.size(), 3u);
  EXPECT_LT(report.searches[0].found, report.searches[1].found);
  EXPECT_GT(report.searches[1].found, 0.8);
  EXPECT_EQ(report.searches[2].found, 1);
  EXPECT_EQ(report.searches[2].loss, report.exact.loss);
  EXPECT_LT(report.searches[1].loss, report.searches[0].loss);
  EXPECT_GT(report.alone.loss, report.searches[0].loss);
  // Nothing is learned from it, and recall is undefined for a store with one partition.
  EXPECT_EQ(to_json(report)["searches"].size(), 3u);
  EXPECT_THROW(measure_recall(*run.model, open_memory(run, folder / "whole"), tokens, {1}), Error);
}

TEST(Read, EveryFlippedBitOfAReadingThatWasStoppedIsNamed) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder));
  const std::string path = folder / "memory";
  ReadOptions options = recipes(path);
  options.tokens = 400;
  options.original_tokens = 0;
  options.choices.slots = 5;
  options.choices.window = 4;
  options.stop = [] { return true; };
  EXPECT_TRUE(read_texts(run, options).stopped);
  const Memory half = load_memory(*run.ctx, path);
  ASSERT_GT(slots_in_use(half), 0);
  ASSERT_LT(half.history.back().reading.end, 400);
  std::size_t refused = 0, bits = 0;
  flip_every_bit(path, [&](std::size_t byte, int bit) {
    ++bits;
    const auto error = error_in([&] { load_memory(*run.ctx, path); });
    const std::string message = error && error->fault() == Fault::input ? error->what() : "none that is bad input";
    EXPECT_NE(message.find(path), std::string::npos) << "bit " << bit << " of byte " << byte << ": " << message;
    refused += error ? 1 : 0;
  });
  EXPECT_EQ(refused, bits);
  // Restored, it can be continued.
  options.stop = nullptr;
  EXPECT_FALSE(read_texts(run, options).stopped);
}

TEST(Read, WhatDoesNotFitIsRefusedAndLosesNothing) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder));
  read_texts(run, recipes(folder / "memory"));
  const std::string before = read_file(folder / "memory");
  const auto refused = [&](auto change, Code code, const std::vector<std::string>& values) {
    ReadOptions options = recipes(folder / "memory");
    options.tokens = 4000;
    change(options);
    EXPECT_TRUE(is_bad_input(error_in([&] { read_texts(run, options); }), code, values));
    EXPECT_EQ(read_file(folder / "memory"), before);
  };
  refused([](ReadOptions& o) { o.choices.slots = 700; }, Code::memory_settings, {"--slots", "700"});
  refused([](ReadOptions& o) { o.choices.threshold = 0.5; }, Code::memory_settings, {folder / "memory"});
  refused([](ReadOptions& o) { o.texts = {"no such file"}; }, Code::file_not_found, {"no such file"});
  refused([](ReadOptions& o) { o.tokens = 1; }, Code::option_invalid, {"--tokens", "1"});
  refused([](ReadOptions& o) { o.choices.values = 3; }, Code::memory_settings, {folder / "memory"});
  refused([](ReadOptions& o) { o.choices.merge_evicted = false; }, Code::memory_settings, {folder / "memory"});
  refused([](ReadOptions& o) { o.choices.plain_cache = true; }, Code::memory_settings, {folder / "memory"});
  refused([&](ReadOptions& o) { o.memory = folder / "new", o.choices.values = 0; }, Code::setting_out_of_range,
          {"memory.values", "0"});
  refused([&](ReadOptions& o) { o.memory = folder / "new", o.choices.slots = 0; }, Code::setting_out_of_range,
          {"memory.slots", "0"});
  refused([&](ReadOptions& o) { o.memory = folder / "new", o.choices.window = 100000; }, Code::setting_out_of_range,
          {"memory.window", "100000"});
  refused([](ReadOptions& o) { o.choices.partitions = 4; }, Code::memory_settings, {folder / "memory"});
  refused([&](ReadOptions& o) { o.memory = folder / "new", o.choices.partitions = 7; }, Code::setting_out_of_range,
          {"memory.partitions", "7"});
  refused([&](ReadOptions& o) { o.memory = folder / "new", o.choices.nprobe = 0; }, Code::setting_out_of_range,
          {"memory.nprobe", "0"});
  refused([&](ReadOptions& o) { o.memory = folder / "new", o.choices.slots = max_slots + 1; },
          Code::setting_out_of_range, {"memory.slots"});
  // Tokens outside the vocabulary.
  Memory strange = open_memory(run, folder / "memory");
  strange.store.values.data<std::int32_t>()[0] = run.model->config().vocab;
  save_memory(strange, folder / "strange");
  EXPECT_ERROR(open_memory(run, folder / "strange"), Code::memory_mismatch, folder / "strange");
  // A memory of another model.
  TemporaryFolder elsewhere;
  OpenedRun other = open_tiny(train_tiny(elsewhere, {"seed=5"}));
  EXPECT_ERROR(open_memory(other, folder / "memory"), Code::memory_mismatch, folder / "memory");
}

TEST(Read, WhatAnotherProgramWroteInTheMeantimeIsNotLost) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder));
  ReadOptions options = recipes(folder / "memory"), other = options;
  other.texts = {"builtin:letters"};
  bool met = false;
  options.stop = [&] {
    if (!met) read_texts(run, other);
    met = true;
    return false;
  };
  EXPECT_ERROR(read_texts(run, options), Code::memory_not_kept, options.memory);
  const Memory memory = open_memory(run, folder / "memory");
  ASSERT_EQ(memory.texts.size(), 1u);
  EXPECT_EQ(memory.texts[0].name, "builtin:letters");
  EXPECT_GT(slots_in_use(memory), 0);
  // The same call again reads into the current memory.
  options.stop = {};
  read_texts(run, options);
  EXPECT_EQ(open_memory(run, folder / "memory").texts.size(), 2u);
}

TEST(Memory, ATextIsNamedByWhatIsItsAlone) {
  Memory memory;
  memory.texts = {{"a", {}}, {"notes", {}}, {"notes", {}}, {"odd\\xff", {}}};
  EXPECT_EQ(text_named(memory, "a"), 0);
  EXPECT_EQ(text_named(memory, "2"), 1);
  EXPECT_EQ(text_named(memory, "odd\xff"), 3) << "as it is kept";
  EXPECT_THROW(text_named(memory, "notes"), Error) << "forgetting one of two would not be forgetting it";
}

TEST(Memory, HasItsSayInEvaluationGenerationAndTraces) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder));
  ReadMemory kept;
  read_texts(run, recipes(folder / "memory"), &kept);
  Memory memory = open_memory(run, folder / "memory");
  const TokenData text = load_tokens(*run.ctx, "builtin:recipes", run.recipe.data, run.tokenizer, 6, run.paths.cache());
  EvaluateOptions how = evaluate_options(run.recipe, run.tokenizer);
  const double without = evaluate(*run.model, text, how).loss;
  how.memory = &memory;
  EXPECT_LT(evaluate(*run.model, text, how).loss, without - 0.3);

  GenerateOptions options;
  options.temperature = 0;
  options.max_tokens = 12;
  const std::string prompt = run.tokenizer.decode(text.ids(0, 0, 20));
  const Generated alone = generate(*run.model, run.tokenizer, {prompt}, options).front();
  options.memory = &memory;
  const Generated both = generate(*run.model, run.tokenizer, {prompt}, options).front();
  EXPECT_NE(alone.tokens, both.tokens);

  // In a batch with a text that has no memory, and with others that have one.
  EngineOptions three;
  three.max_sequences = 3;
  Engine engine(*run.model, run.tokenizer, three);
  std::vector<FinishedSequence> ends(4);
  double share_of_memory = 0;
  std::size_t sources = 0;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    SequenceRequest request;
    request.prompt = run.tokenizer.encode(i == 3 ? "Mix the flour" : prompt);
    request.sampling.temperature = 0;
    request.max_tokens = 12;
    request.memory = i == 1 ? nullptr : &memory;
    request.sources = i == 0 ? 3 : 0;
    request.on_token = [&](const TokenEvent& event) {
      EXPECT_LE(event.memory.of_slots.size(), 3u);
      share_of_memory = std::max(share_of_memory, event.memory.total());
      sources += event.memory.of_slots.size();
    };
    request.on_finish = [&ends, i](const FinishedSequence& end) { ends[i] = end; };
    engine.add(std::move(request));
  }
  engine.run();
  EXPECT_EQ(ends[0].tokens, both.tokens);
  EXPECT_EQ(ends[1].tokens, alone.tokens);
  EXPECT_EQ(ends[2].tokens, both.tokens);
  EXPECT_GT(share_of_memory, 0.1);
  EXPECT_GT(sources, 0u);

  const std::vector<TokenId> ids = text.ids(0, 0, 30);
  const Trace trace = trace_tokens(run, ids, {0}, &memory);
  ASSERT_EQ(trace.remembered.size(), ids.size());
  double share = 0;
  std::size_t passages = 0;
  for (std::size_t t = 1; t < ids.size(); ++t) {
    share = std::max(share, trace.remembered[t].memory());
    for (const TokenSource& source : trace.remembered[t].passages) {
      EXPECT_EQ(source.passage.text, "builtin:recipes");
      EXPECT_EQ(source.passage.token, run.tokenizer.decode(std::span(ids).subspan(t, 1)));
      EXPECT_FALSE(source.is_context());
      ++passages;
    }
  }
  EXPECT_GT(share, 0.3);
  EXPECT_GT(passages, 5u);
  EXPECT_NE(to_json(trace, run).dump().find("passages"), std::string::npos);

  const nlohmann::json shown = to_json(describe_memory(memory, run.tokenizer, 5));
  EXPECT_EQ(shown["strongest"].size(), 5u);
  EXPECT_EQ(shown["texts"][0]["tokens"], 3000);
}

TEST(Memory, LearnsFromWhatIsWritten) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder));
  Memory memory = new_memory(run, default_memory_settings(run));
  learn_typed_text(run, memory, "The fox likes plum jam. The fox likes plum jam.");
  EXPECT_EQ(memory.texts.size(), 1u);
  const std::int64_t slots = slots_in_use(memory);
  EXPECT_GT(slots, 0);
  learn_typed_text(run, memory, "The fox likes plum jam. The fox likes plum jam.");  // already known
  EXPECT_EQ(memory.texts.size(), 1u);
  EXPECT_EQ(slots_in_use(memory), slots);
}

TEST(Memory, OfTheTrainingTextIsBuiltAndEvaluated) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder));
  TrainingMemoryOptions options;
  options.memory = folder / "memory";
  options.tokens = 2000;
  const nlohmann::json report = to_json(build_training_memory(run, options));
  EXPECT_EQ(report["tokens"], 2000);
  EXPECT_LT(report["loss"].get<double>(), report["loss_without"].get<double>() + 0.05);
}

TEST(Ways, AreComparedOnTheSameTokens) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder));
  AdaptMethodsOptions options;
  options.data = "builtin:recipes";
  options.tokens = 1500;
  options.original_tokens = 500;
  options.choices.slots = 500;
  const std::string before = fingerprint(*run.model, run.tokenizer);
  const AdaptMethodsReport typed = compare_adapt_methods(run, options);
  const nlohmann::json report = to_json(typed);
  EXPECT_EQ(fingerprint(*run.model, run.tokenizer), before);  // the run is unchanged
  std::vector<std::string> names;
  for (const auto& way : report["methods"]) {
    names.push_back(way["name"]);
    std::int64_t tokens = 0;
    for (const auto& window : way["windows"]) tokens += window[0].get<std::int64_t>();
    EXPECT_EQ(tokens, 1499) << names.back();
  }
  EXPECT_EQ(names, (std::vector<std::string>{"frozen", "keys", "plain cache", "memory", "memory with contexts",
                                             "counter", "output bias", "gradients"}));
  EXPECT_EQ(report["methods"][0]["gain"], 0.0);
  EXPECT_GT(report["methods"][3]["gain"].get<double>(), 0.2);
  EXPECT_GT(report["methods"][4]["gain"].get<double>(), report["methods"][3]["gain"].get<double>());
  EXPECT_GT(report["methods"][5]["gain"].get<double>(), report["methods"][3]["gain"].get<double>());
  EXPECT_GT(report["methods"][6]["gain"].get<double>(), 0.0);
  EXPECT_GT(report["methods"][7]["gain"].get<double>(), 0.0);
  // The stream is built-in text with a vocabulary that keeps every byte. Programs that are missing have no size.
  const double bytes = report["bytes"].get<double>();
  EXPECT_GT(bytes, 1499);
  EXPECT_NEAR(report["methods"][0]["bits_per_byte"].get<double>(),
              report["methods"][0]["loss"].get<double>() * 1499 / bytes / std::log(2.0), 1e-9);
  ASSERT_EQ(report["compressors"].size(), 5u);
  for (const auto& one : report["compressors"]) {
    if (one["bytes"].is_null()) continue;
    EXPECT_GT(one["bytes"].get<double>(), 0.01 * bytes) << one["name"];
    EXPECT_LT(one["bytes"].get<double>(), bytes) << one["name"];
  }
  EXPECT_NE(adapt_methods_page(typed, run).find("Methods of learning during use"), std::string::npos);
}

TEST(Ways, GiveTheSameNumbersForAnyNumberOfThreads) {
  TemporaryFolder folder;
  const std::string path = train_tiny(folder);
  AdaptMethodsOptions options;
  options.data = "builtin:recipes";
  options.tokens = 700;
  options.original_tokens = 300;
  options.choices.slots = 200;
  const auto numbers = [&](int threads) {
    OpenedRun run = open_run(path, {"latest", on_cpu, {}, make_host(threads)});
    nlohmann::json ways = to_json(compare_adapt_methods(run, options))["methods"];
    for (auto& way : ways) {
      way.erase("seconds");
      way.erase("times_frozen");
    }
    return ways;
  };
  EXPECT_EQ(numbers(1), numbers(3));
}

}  // namespace
}  // namespace some

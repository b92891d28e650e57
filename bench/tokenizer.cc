// Speed of training a vocabulary and of encoding with it, on TinyStories if available.
#include "text/tokenizer.h"

#include <benchmark/benchmark.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "text/bpe_train.h"
#include "text/corpus.h"

namespace some {
namespace {

const std::string& train_file() {
  static const std::string path = [] {
    // From the checkout or from a build folder in it.
    for (const char* candidate : {"../shared/data/tinystories/train.txt", "../../shared/data/tinystories/train.txt"}) {
      if (std::filesystem::exists(candidate)) return std::string(candidate);
    }
    return std::string();
  }();
  return path;
}

bool is_missing(benchmark::State& state) {
  if (!train_file().empty()) return false;
  state.SkipWithError("needs ../shared/data/tinystories/train.txt: not here");
  return true;
}

Tokenizer train(TokenizerKind kind, int threads) {
  CorpusReader corpus({.paths = {train_file()}});
  BpeTrainOptions options;
  options.kind = kind;
  // 8,192 merges and the preceding steps.
  options.vocab_size = 8192 + (kind == TokenizerKind::bytelevel ? 259 : 120);
  options.threads = threads;
  return train_bpe(options, corpus);
}

void train_8192_merges(benchmark::State& state) {
  if (is_missing(state)) return;
  for (auto _ : state) {
    benchmark::DoNotOptimize(train(static_cast<TokenizerKind>(state.range(0)), static_cast<int>(state.range(1))));
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(std::filesystem::file_size(train_file())));
}

// Whole documents one after another on one thread, with a warm word cache, as soon is the case in a long text.
void encode(benchmark::State& state) {
  if (is_missing(state)) return;
  const Tokenizer tokenizer = train(static_cast<TokenizerKind>(state.range(0)), 0);
  std::vector<std::string> stories;
  CorpusReader corpus({.paths = {train_file()}});
  for (std::string story; corpus.next(story);) stories.push_back(story);
  std::vector<TokenId> ids;
  std::vector<std::uint32_t> lengths;
  for (auto _ : state) {
    for (const std::string& story : stories) {
      tokenizer.encode(story, ids, lengths);
      benchmark::DoNotOptimize(ids.data());
    }
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(corpus.bytes()));
}

// First pass over the text, in which every word occurs for the first time.
void encode_cold(benchmark::State& state) {
  if (is_missing(state)) return;
  const std::string file = train(static_cast<TokenizerKind>(state.range(0)), 0).to_json();
  std::vector<std::string> stories;
  CorpusReader corpus({.paths = {train_file()}});
  for (std::string story; corpus.next(story);) stories.push_back(story);
  std::vector<TokenId> ids;
  std::vector<std::uint32_t> lengths;
  for (auto _ : state) {
    state.PauseTiming();
    const Tokenizer tokenizer = Tokenizer::from_json(file);
    state.ResumeTiming();
    for (const std::string& story : stories) tokenizer.encode(story, ids, lengths);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(corpus.bytes()));
}

void read_corpus(benchmark::State& state) {
  if (is_missing(state)) return;
  std::int64_t bytes = 0;
  for (auto _ : state) {
    CorpusReader corpus({.paths = {train_file()}});
    for (std::string story; corpus.next(story);) benchmark::DoNotOptimize(story.data());
    bytes += static_cast<std::int64_t>(corpus.bytes());
  }
  state.SetBytesProcessed(bytes);
}

constexpr int whitespace = static_cast<int>(TokenizerKind::whitespace);
constexpr int bytelevel = static_cast<int>(TokenizerKind::bytelevel);
// kind: 0 whitespace, 1 bytelevel; threads: 0 for all cores.
BENCHMARK(train_8192_merges)
    ->ArgNames({"kind", "threads"})
    ->ArgsProduct({{whitespace, bytelevel}, {0, 1}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK(encode)->ArgName("kind")->Arg(whitespace)->Arg(bytelevel)->Unit(benchmark::kMillisecond);
BENCHMARK(encode_cold)->ArgName("kind")->Arg(whitespace)->Arg(bytelevel)->Unit(benchmark::kMillisecond);
BENCHMARK(read_corpus)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace some

BENCHMARK_MAIN();

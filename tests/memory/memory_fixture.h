// A small model and memories of it, for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/files/files.h"
#include "memory/memory.h"
#include "memory/reader.h"
#include "model/sample.h"
#include "support.h"
#include "text/bpe_train.h"

namespace some::test {

struct Folder {
  std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) /
      ("memory-" + std::to_string(::getpid()) + "-" + testing::UnitTest::GetInstance()->current_test_info()->name());
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const char* name) const { return (path / name).string(); }
};

struct Fixture {
  std::shared_ptr<Context> ctx;
  std::unique_ptr<Model> model;
  Tokenizer tokenizer = some_tokenizer();

  static Tokenizer some_tokenizer() {
    BpeTrainOptions options;
    options.vocab_size = 300;
    int documents = 0;
    return train_bpe(options, [&](std::string& story) {
      story = "Once upon a time there was a small fox who liked to read.";
      return ++documents < 4;
    });
  }
  explicit Fixture(int seed = 3, int threads = 2, const char* device = "cpu") {
    Host host;
    host.threads = std::make_shared<Threads>(threads);
    ctx = make_context(device, "fp32", host);
    ModelConfig config = medium_config();
    config.seed = static_cast<std::uint64_t>(seed);
    model = std::make_unique<Model>(ctx, config, false);
  }

  Memory memory(MemorySettings settings) {
    Memory out = make_memory(*ctx, settings, model->config(), mean_state(*model, words(200, 1), 200));
    bind_to_model(out, *model, tokenizer, "runs/some");
    return out;
  }
  // Returns a text with repetitions.
  static std::vector<std::int32_t> words(int count, std::uint64_t seed) {
    const RandomStream stream = random_stream(seed, "words");
    std::vector<std::int32_t> out;
    std::uint64_t next = 0;
    while (std::ssize(out) < count) {
      if (out.size() > 30 && stream.uniform(next++) < 0.3) {
        const std::size_t from = stream.below(next++, static_cast<std::uint32_t>(out.size() - 20));
        for (std::size_t i = 0; i < 12; ++i) out.push_back(out[from + i]);
      } else {
        out.push_back(static_cast<std::int32_t>(3 + stream.below(next++, 50)));
      }
    }
    out.resize(static_cast<std::size_t>(count));
    return out;
  }
};

inline MemorySettings small_settings() {
  MemorySettings settings;
  settings.slots = 150;
  settings.window = 20;
  settings.beta = {20, 80};
  return settings;
}

// True if both have the same texts, history, settings and bits.
inline bool same(const Memory& a, const Memory& b) {
  if (a.texts.size() != b.texts.size() || !(a.history == b.history)) return false;
  for (std::size_t i = 0; i < a.texts.size(); ++i) {
    if (a.texts[i].name != b.texts[i].name || a.texts[i].tokens != b.texts[i].tokens) return false;
  }
  if (a.settings.contexts > 0 && !(a.contexts == b.contexts && a.mixture.state() == b.mixture.state())) return false;
  return same_bits(a.store, b.store) && a.settings == b.settings && a.model == b.model && a.tokenizer == b.tokenizer;
}

}  // namespace some::test

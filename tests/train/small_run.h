// A run of a few seconds, and helpers for tests of runs.
#pragma once

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "expect_error.h"
#include "recipe/recipe.h"
#include "runs/checkpoint.h"
#include "tensor/safetensors.h"
#include "train/trainer.h"

namespace some {

inline std::string file_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline std::string recipe_text() { return file_bytes(SOME_SOURCE_DIR "/tests/train/small_run.toml"); }

inline Recipe recipe(const std::vector<std::string>& overrides = {}) {
  return parse_recipe(recipe_text(), "test recipe", overrides);
}

inline void expect_same_run(const std::string& a, const std::string& b) {
  EXPECT_EQ(file_bytes(a + "/metrics.jsonl"), file_bytes(b + "/metrics.jsonl"));
  EXPECT_EQ(file_bytes(a + "/load.jsonl"), file_bytes(b + "/load.jsonl"));
  EXPECT_EQ(file_bytes(a + "/samples.jsonl"), file_bytes(b + "/samples.jsonl"));
  const auto first = list_checkpoints(a), second = list_checkpoints(b);
  ASSERT_FALSE(first.empty());
  ASSERT_FALSE(second.empty());
  ASSERT_EQ(first.back().step, second.back().step);
  // Not the whole files: runs with different settings have different ids.
  const SafetensorsFile model = SafetensorsFile::open(first.back().folder + "/model.safetensors");
  const SafetensorsFile other = SafetensorsFile::open(second.back().folder + "/model.safetensors");
  EXPECT_EQ(model.content_digest(), other.content_digest());
  for (const char* key : {"key_steps", "library_hash", "step"})
    EXPECT_EQ(model.require_metadata(key), other.require_metadata(key));
  const SafetensorsFile x = SafetensorsFile::open(first.back().folder + "/optimizer.safetensors");
  const SafetensorsFile y = SafetensorsFile::open(second.back().folder + "/optimizer.safetensors");
  ASSERT_EQ(x.names(), y.names());
  for (const std::string& name : x.names()) {
    const Tensor p = x.load(name), q = y.load(name);
    EXPECT_EQ(std::string(static_cast<const char*>(p.raw()), p.bytes()),
              std::string(static_cast<const char*>(q.raw()), q.bytes()))
        << name;
  }
}

inline TrainHooks stop_after(int steps) {
  TrainHooks hooks;
  const auto made = std::make_shared<int>(0);
  hooks.step = [made](const TrainProgress&) { ++*made; };
  hooks.stop_signal = [made, steps] { return *made >= steps ? SIGTERM : 0; };
  return hooks;
}

}  // namespace some

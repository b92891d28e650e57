// The golden memories, made by another implementation of the specification, in both precisions.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "support.h"
#include "tensor/safetensors.h"

namespace some::test {
namespace {

void replay(const std::string& path, const char* precision, double tolerance) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const nlohmann::json config = nlohmann::json::parse(file.metadata().at("config"));
  auto ctx = make_context("cpu", precision);
  MemorySettings settings;
  settings.slots = config.at("slots");
  settings.match = config.at("match");
  settings.sharpness = {config.at("sharpness").get<double>()};
  settings.decay = config.at("decay");
  settings.share = config.at("share");
  settings.values = config.value("values", 1);
  settings.inherit = config.value("inherit", false);
  settings.parts = config.value("parts", 1);
  settings.look = config.value("look", settings.look);
  settings.counts = config.value("counts", 1.0);
  settings.rounds = config.value("rounds", 0);
  Store store = make_store(*ctx, settings, file.load("mean"));
  const auto compare = [&](const std::string& name) {
    const auto wanted = [&](const char* what) { return read_vector(file.load("expect." + name + "." + what)); };
    EXPECT_LT(largest_error(read_vector(store.keys), wanted("keys")), tolerance);
    EXPECT_EQ(read_vector(store.values), wanted("values"));
    if (settings.values > 1) {
      EXPECT_LT(largest_error(read_vector(store.entry_counts), wanted("tallies")), tolerance);
    }
    EXPECT_LT(largest_error(read_vector(store.counts), wanted("counts")), tolerance);
    EXPECT_LT(largest_error(read_vector(store.usage), wanted("usage")), tolerance);
    EXPECT_LT(largest_error(read_vector(store.shares), wanted("shares")), tolerance);
  };
  std::vector<Window> stream;
  for (int i = 0; i < config.at("windows").get<int>(); ++i) {
    SCOPED_TRACE(testing::Message() << path << " window " << i << " in " << precision);
    const std::string from = fmt::format("window.{}.", i), expect = fmt::format("expect.{}.", i);
    const std::vector<double> states = read_vector(file.load(from + "states")),
                              targets = read_vector(file.load(from + "targets")),
                              model = read_vector(file.load(from + "model_probability"));
    Window window;
    const std::size_t d = states.size() / targets.size();
    for (std::size_t t = 0; t < targets.size(); ++t) {
      window.states.emplace_back(states.begin() + static_cast<std::ptrdiff_t>(t * d),
                                 states.begin() + static_cast<std::ptrdiff_t>((t + 1) * d));
      window.targets.push_back(static_cast<std::int32_t>(targets[t]));
      window.nll.push_back(-std::log(model[t]));
    }
    const Outcome outcome = read_window(*ctx, settings, store, window, 0);
    Row chances;
    for (const double nll : outcome.nll) chances.push_back(std::exp(-nll));
    const auto wanted = [&](const char* name) { return read_vector(file.load(expect + name)); };
    EXPECT_LT(largest_error(outcome.said, wanted("memory_probability")), tolerance);
    EXPECT_LT(largest_error(chances, wanted("probability")), tolerance);
    compare(std::to_string(i));
    stream.push_back(window);
  }
  for (int round = 0; round < settings.rounds; ++round) {
    SCOPED_TRACE(testing::Message() << path << " round " << round << " in " << precision);
    settle_store(*ctx, settings, stream, store);
    compare(fmt::format("settled.{}", round));
  }
}

void replay_all(const char* precision, double tolerance) {
  int files = 0;
  for (const char* folder : {SOME_SOURCE_DIR "/tests/reference/fixtures", SOME_SOURCE_DIR "/../shared/fixtures-next"}) {
    if (!std::filesystem::is_directory(folder)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (!entry.path().filename().string().starts_with("memory-")) continue;
      replay(entry.path().string(), precision, tolerance);
      ++files;
    }
  }
  EXPECT_GE(files, 4);
}

TEST(MemoryFixtures, DoublePrecision) { replay_all("f64", 1e-9); }
TEST(MemoryFixtures, SinglePrecision) { replay_all("fp32", 2e-5); }

}  // namespace
}  // namespace some::test

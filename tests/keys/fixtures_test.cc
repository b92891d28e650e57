// The golden key updates, made by another implementation of the specification, in both precisions.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "keys/measures.h"
#include "support.h"
#include "tensor/safetensors.h"

namespace some::test {
namespace {

Constraint constraint_of(const std::string& name) {
  if (name == "normalize") return Constraint::normalize;
  if (name == "normalize_used") return Constraint::normalize_used;
  if (name == "clamp") return Constraint::clamp;
  EXPECT_EQ(name, "free");
  return Constraint::free;
}

template <typename T>
void replay(const std::string& path, double tolerance) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const nlohmann::json config = nlohmann::json::parse(file.metadata().at("config"));
  KeySettings settings;
  settings.alpha = config.at("alpha");
  settings.beta = config.at("beta");
  settings.delta = config.at("delta");
  settings.use_alpha = config.at("use_alpha");
  settings.use_beta = config.at("use_beta");
  settings.use_delta = config.at("use_delta");
  settings.theta_percentile = config.at("theta_percentile");
  settings.decay_warmup = config.at("decay_warmup");
  settings.ema_decay = config.at("ema_decay");
  settings.constraint = constraint_of(config.at("key_constraint"));
  settings.beta_inertia = config.at("beta_inertia") == "min" ? BetaInertia::min : BetaInertia::max;

  auto ctx = make_context("cpu", dtype_of<T>() == DType::f64 ? "f64" : "fp32");
  const int experts = config.at("experts"), top_k = config.at("top_k"),
            query_size = config.value("query_dim", config.at("d_model").get<int>());
  KeyState state = make_key_state(*ctx, experts, query_size, 0, 0, settings);
  state.keys = file.load("keys").to(dtype_of<T>());
  state.usage = file.load("usage").to(dtype_of<T>());
  state.mass = file.load("mass").to(dtype_of<T>());
  KeySums sums = make_key_sums(*ctx, experts, top_k, query_size, needs_of(settings));
  settings.beta *= config.at("beta_scale").get<double>();
  for (int n = 0; n < config.at("steps").get<int>(); ++n) {
    const std::string step = "step." + std::to_string(n) + ".", expect = "expect." + std::to_string(n) + ".";
    clear_key_sums(*ctx, sums);
    Routing routing;
    routing.indices = file.load(step + "indices").to(DType::i32);
    routing.gates = file.load(step + "gates").to(dtype_of<T>());
    const KeyPlan plan = plan_update(settings, {.update = state.steps + 1});
    add_key_sums(*ctx, {file.load(step + "queries").to(dtype_of<T>()), routing, plan, 0, &sums}, nullptr);
    update_keys(*ctx, state, sums, plan);
    EXPECT_LT(largest_error(values(state.keys), values(file.load(expect + "keys"))), tolerance)
        << path << " step " << n;
    EXPECT_LT(largest_error(values(state.usage), values(file.load(expect + "usage"))), tolerance)
        << path << " step " << n;
    EXPECT_LT(largest_error(values(state.mass), values(file.load(expect + "mass"))), tolerance)
        << path << " step " << n;
  }
  EXPECT_NEAR(gini(values(state.usage)), std::stod(file.metadata().at("gini")), 10 * tolerance) << path;
  EXPECT_NEAR(entropy_bits(values(state.usage)), std::stod(file.metadata().at("entropy")), 10 * tolerance) << path;
}

template <typename T>
void replay_all(double tolerance) {
  int folders = 0;
  for (const char* folder : {SOME_SOURCE_DIR "/../shared/fixtures", SOME_SOURCE_DIR "/../shared/fixtures-next"}) {
    if (!std::filesystem::is_directory(folder)) continue;
    ++folders;
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (!entry.path().filename().string().starts_with("keys-")) continue;
      replay<T>(entry.path().string(), tolerance);
      ++files;
    }
    EXPECT_GT(files, 0) << folder;
  }
  if (folders == 0) GTEST_SKIP() << "needs ../shared/fixtures: not here";
}

TEST(KeyFixtures, DoublePrecision) { replay_all<double>(1e-12); }
TEST(KeyFixtures, SinglePrecision) { replay_all<float>(2e-6); }

}  // namespace
}  // namespace some::test

// Claims and their parts: bounds, seeds, missing data. The verdicts in docs/claims.md must match those of the report
// for runs with exactly the numbers in the documents.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "core/files/files.h"
#include "expect_error.h"
#include "lab/report.h"
#include "lab/texts.h"
#include "recipe/recipe.h"
#include "temporary_folder.h"

namespace some {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string recipes = std::string(SOME_SOURCE_DIR) + "/recipes";

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string line_of(const std::string& text, const std::string& begin) {
  const std::size_t at = text.find("\n" + begin);
  return at == std::string::npos ? "" : text.substr(at + 1, text.find('\n', at + 1) - at - 1);
}

// Final values of a run.
struct Ending {
  double loss = 0;
  std::optional<double> bits = {}, headline = {}, gini = {}, gini_before = {}, seconds = {};
};

json layer(int number, double gini) {
  const json usage{
      {"gini", gini}, {"entropy", 1.0}, {"effective_experts", 2.0}, {"max_over_mean_load", 2.0}, {"experts_used", 4}};
  return {{"layer", number}, {"count", usage}, {"mass", usage}, {"experts_used_this_epoch", 4}};
}

class LabClaims : public ::testing::Test {
 protected:
  LabClaims() {
    options_.runs = folder_ / "runs";
    options_.samples = false;
    index_ = load_series_index(recipes + "/index.toml");
  }

  void run(const std::string& name, int seed, const Ending& ending, const std::string& device = "cpu") {
    const std::string run = "runs/" + name + (seed == 0 ? "" : fmt::format("-seed{}", seed));
    const Recipe recipe = load_recipe(recipes + "/" + name + ".toml", {fmt::format("seed={}", seed)});
    folder_.write(run + "/config.toml", write_recipe(recipe));
    const auto evaluation = [&](int epoch, double gini) {
      json line{{"kind", "eval"},
                {"step", epoch * 10},
                {"epoch", static_cast<double>(epoch)},
                {"loss", ending.loss},
                {"perplexity", std::exp(ending.loss)},
                {"bits_per_byte", ending.bits.value_or(ending.loss / 3)},
                {"tokens", 62},
                {"documents", 4},
                {"middle_layer", recipe.model.layers / 2},
                {"layers", json::array()}};
      if (ending.headline) line["batch_mean_loss"] = *ending.headline;
      for (int i = 0; recipe.model.ffn == Ffn::some && i < recipe.model.layers; ++i)
        line["layers"].push_back(layer(i, gini));
      return line.dump() + "\n";
    };
    std::string metrics;
    if (ending.gini_before) metrics = evaluation(1, *ending.gini_before);
    folder_.write(run + "/metrics.jsonl",
                  metrics + evaluation(static_cast<int>(recipe.train.epochs), ending.gini.value_or(0.5)));
    if (!ending.seconds) return;
    folder_.write(run + "/timing.jsonl", json{{"from_step", 0},
                                              {"to_step", 100},
                                              {"finished", true},
                                              {"seconds", 100 * *ending.seconds},
                                              {"real_tokens", 5000},
                                              {"slots", 20000},
                                              {"operations", 1e12},
                                              {"device", device}}
                                                 .dump() +
                                             "\n");
  }

  std::string markdown() { return make_report(index_, {}, options_).markdown; }

  TemporaryFolder folder_;
  SeriesIndex index_;
  ReportOptions options_;
};

TEST_F(LabClaims, APartIsHeldSeedBySeed) {
  const std::vector<double> base{3.10, 3.00, 3.20};
  for (int seed = 0; seed < 3; ++seed) {
    const double other = base[static_cast<std::size_t>(seed)];
    run("study-experts-32-k4", seed, {.loss = other});
    run("knob-router-mlp", seed, {.loss = other - 0.01});                       // better for every seed
    run("knob-topk-warmup", seed, {.loss = other + 0.01});                      // worse for every seed
    run("knob-beta-anneal", seed, {.loss = other + (seed == 1 ? 0.1 : -0.1)});  // for two of three seeds
    run("knob-warmup", seed, {.loss = other});                                  // equal is not better
  }
  const std::string text = markdown();
  // The deviation between seeds is ten times these differences, and the same on both sides.
  EXPECT_TRUE(holds(text,
                    "| A lower loss | loss of knob-router-mlp against study-experts-32-k4 | below 0 | -0.0100 "
                    "(-0.0100 to -0.0100) | as claimed, 3 seeds |"))
      << text;
  EXPECT_TRUE(holds(text, "+0.0100 (+0.0100 to +0.0100) | not as claimed, 3 seeds |"));
  EXPECT_TRUE(holds(text, "-0.0333 (-0.1000 to +0.1000) | in 2 of 3 seeds |"));
  EXPECT_TRUE(holds(text, "+0.0000 (+0.0000 to +0.0000) | not as claimed, 3 seeds |"));
  // Every claim that can be evaluated has a line in the summary table.
  EXPECT_TRUE(holds(text, "](#claim-knob-router-mlp) | **As claimed.** |"));
  EXPECT_TRUE(holds(text, "](#claim-knob-topk-warmup) | **Not as claimed.** |"));
  EXPECT_TRUE(
      holds(text, "](#claim-knob-beta-anneal) | **Within chance: the claim is neither confirmed nor refuted.**"));
  EXPECT_FALSE(holds(text, "#claim-knob-lora"));
}

TEST_F(LabClaims, GainTimeAndWhatIsMissing) {
  run("study-experts-32-k4", 0, {.loss = 3.0, .seconds = 0.100});
  run("study-experts-32-k4", 1, {.loss = 3.2, .seconds = 0.100});
  run("knob-full", 0, {.loss = 2.5});
  run("knob-lora", 0, {.loss = 2.9, .seconds = 0.105});
  run("knob-lora", 2, {.loss = 2.9, .seconds = 0.111});  // the other side has no seed 2: its mean is used
  std::string text = markdown();
  EXPECT_TRUE(holds(text, "below -0.05 | -0.1500 (-0.2000 to -0.1000) | as claimed, 2 seeds |")) << text;
  EXPECT_TRUE(holds(text, "above 0.5 times | 0.27 times (0.20 to 0.33) | not as claimed, 2 seeds |")) << text;
  EXPECT_TRUE(holds(text, "below 1.1 times | 1.08 times (1.05 to 1.11) | in 1 of 2 seeds |")) << text;
  // Full training, the reference of the gain, has one seed; the others have two.
  EXPECT_TRUE(holds(text, "](#claim-knob-lora) | **In part as claimed, with one seed of some runs.** |"));
  // Step times are missing: the verdict is limited to what was measured.
  EXPECT_TRUE(holds(text, "step time of knob-full against knob-lora | above 1 times | – | not measured |"));
  EXPECT_TRUE(holds(text, "](#claim-knob-full) | **As claimed, as far as it was measured, with one seed each.** |"));
  // Times on two devices are not comparable.
  run("knob-lora", 0, {.loss = 2.9, .seconds = 0.105}, "cuda");
  run("knob-lora", 2, {.loss = 2.9, .seconds = 0.111}, "cuda");
  text = markdown();
  EXPECT_TRUE(holds(text, "step time of knob-lora against study-experts-32-k4 | below 1.1 times | – | not "));
}

TEST_F(LabClaims, ThePublishedNumberStandsBesideIt) {
  run("mvp-v3", 0, {.loss = 3.156, .headline = 2.2233});
  run("mvp-v6", 0, {.loss = 3.1, .headline = 2.3});
  std::string text = markdown();
  EXPECT_TRUE(holds(text,
                    "| v3: 0.1017 | validation loss of mvp-v3 against the published one | below +0.25 | +2.1216 | "
                    "not as claimed, 1 seed |"))
      << text;
  EXPECT_TRUE(holds(text, "below +0.25 | +0.0277 | as claimed, 1 seed |"));
  EXPECT_TRUE(holds(text, "](#claim-prototypes) | **In part as claimed, with one seed each.** |"));
  EXPECT_TRUE(holds(text, "| claim | 1 | 0.1017 | 2.2233 | 3.1560 |"))
      << "published, as trained here, non-padding tokens";
}

// Every recipe named by a claim exists, and every claim has a criterion.
TEST_F(LabClaims, EveryClaimCanFail) {
  for (const Claim& claim : load_report_texts(recipes).claims) {
    for (const auto& names : {claim.runs, claim.controls, claim.along}) {
      for (const std::string& name : names) EXPECT_TRUE(fs::exists(recipes + "/" + name + ".toml")) << name;
    }
    EXPECT_TRUE(claim.expects != Claim::Expects::nothing || !claim.parts.empty()) << claim.id;
  }
}

TEST_F(LabClaims, PartsThatDoNotFitAreBadInput) {
  const auto read = [&](const std::string& part) {
    folder_.write(
        "recipes/report.toml",
        "[[claim]]\nid = \"a\"\nclaim = \"b\"\nquestion = \"c\"\nruns = [\"x\", \"y\"]\npart = [" + part + "]\n");
    return error_in([&] { load_report_texts(folder_ / "recipes"); });
  };
  const std::string place = folder_ / "recipes/report.toml:6";
  const std::string begin = R"({says = "s", run = "x", )";
  EXPECT_FALSE(read(begin + R"(against = "y", below = 0})"));
  EXPECT_FALSE(read(begin + R"(measure = "gini", below = -0.1, above = -1})")) << "since its first evaluation";
  const auto refused = [&](const std::string& rest, Code code, std::vector<std::string> values) {
    values.insert(values.begin(), place);
    EXPECT_TRUE(is_bad_input(read(begin + rest), code, values)) << rest;
  };
  refused(R"(against = "y"})", Code::setting_missing, {});
  refused(R"(against = "z", below = 0})", Code::claims_invalid, {"z"});
  refused(R"(below = "low"})", Code::setting_type, {"below"});
  refused(R"(measure = "speed", below = 0})", Code::setting_out_of_range, {"measure", "speed"});
  refused(R"(measure = "time", below = 1})", Code::setting_missing, {});
  refused(R"(measure = "gain", against = "y", above = 1})", Code::setting_conflict, {});
  refused(R"(measure = "published", against = "y", below = 0})", Code::setting_conflict, {});
  refused(R"(beneath = 0})", Code::setting_unknown, {"beneath"});
  folder_.write("recipes/report.toml",
                "[[claim]]\nid = \"a\"\nclaim = \"b\"\nquestion = \"c\"\nruns = [\"x\"]\n"
                "[[claim]]\nid = \"a\"\nclaim = \"b\"\nquestion = \"c\"\nruns = [\"x\"]\n");
  EXPECT_ERROR(load_report_texts(folder_ / "recipes"), Code::name_taken, "a");
}

// A row of the documents: a recipe and the published values of its runs, exactly as written. If three seeds are not
// listed separately, "A ± B" is read as A - B, A and A + B, and "A to B" as A, the midpoint and B.
struct Documented {
  const char* recipe;
  const char* loss;         // over non-padding tokens
  const char* padded = "";  // the validation loss as trained
  const char* gini = "";    // of the middle layer
  const char* bits = "";    // bits per byte
};
const Documented documented[] = {
    {"mvp-v2", "3.399 3.394 3.417", "2.3926 2.3874 2.4040", "0.512 0.506 0.431"},
    {"mvp-v3", "3.156 3.172 3.160", "2.2233 2.2351 2.2237", "0.466 0.527 0.484"},
    {"mvp-v5", "3.156 3.172 3.160", "2.2233 2.2351 2.2237", "0.466 0.527 0.484"},
    {"mvp-v4", "5.132 5.090 5.056", "3.6160 3.5865 3.5623", "0.783 0.718 0.761"},
    {"mvp-v6", "3.480 3.471 3.474", "2.4527 2.4470 2.4488", "0.750 0.729 0.743"},
    {"mvp-v2-long", "1.1190 1.0269 1.3721", "0.7863 0.7209 0.9640", "0.493 0.451 0.447"},
    {"mvp-v2-long-causal", "2.4231 2.4164 2.4269", "1.7036 1.6989 1.7062", "0.485 0.507 0.445"},
    {"v1-1", "1.894", "0.7061", "0.794"},
    {"v2-2", "2.281", "0.8546", "0.729"},
    {"v2-pro", "2.431 2.4436 2.4313", "0.4571 0.4594 0.4571", "0.794 0.790 0.803"},
    {"v2-pro-k16", "2.443 2.4337 2.4294", "0.4593 0.4575 0.4567", "0.722 0.727 0.746"},
    {"v2-pro-k4", "2.424 2.4430 2.4508", "0.4557 0.4593 0.4607", "0.835 0.847 0.839"},
    {"v2-pro-no-beta", "2.434 2.4310 2.4395", "0.4576 0.4570 0.4586", "0.797 0.791 0.790"},
    {"1-v1", "3.356 ± 0.014", "2.3674 ± 0.0097", "0.509 ± 0.045", "1.159"},
    {"1-v2", "2.932 ± 0.001", "2.0688 ± 0.0005", "0.535 ± 0.022", "1.013"},
    {"1-v4", "2.936 ± 0.004", "2.0666 ± 0.0026", "0.571 ± 0.022", "1.011"},
    {"1-v5", "2.924 ± 0.003", "2.0633 ± 0.0024", "0.470 ± 0.040", "1.010"},
    {"1-v7", "2.735 ± 0.006", "1.0241 ± 0.0023", "0.723 ± 0.012", "0.947"},
    {"1-v8", "2.984 ± 0.007", "1.1170 ± 0.0026", "0.731 ± 0.029", "1.033"},
    {"1-v9", "3.003 ± 0.003", "1.1242 ± 0.0009", "0.743 ± 0.005", "1.039"},
    {"1-v10", "2.983 ± 0.014", "1.1169 ± 0.0052", "0.689 ± 0.023", "1.033"},
    {"2-a1", "2.983 ± 0.014", "1.1169 ± 0.0052", "0.689 ± 0.023", "1.033"},
    {"2-a2", "2.650 2.627 2.636", "0.6643 0.6587 0.6609", "0.749 0.745 0.738", "0.913"},
    {"2-a3", "2.587 2.575 2.578", "0.4850 0.4827 0.4833", "0.795 0.818 0.790", "0.893"},
    {"2-b1", "2.648 2.635 2.632", "0.6633 0.6601 0.6595", "0.823 0.814 0.803", "0.913"},
    {"2-b2", "2.603 2.595 2.588", "0.6523 0.6502 0.6484", "0.813 0.814 0.832", "0.898"},
    {"2-c1", "2.500 2.489 2.483", "0.6264 0.6235 0.6222", "0.801 0.806 0.829", "0.863"},
    {"2-c2", "5.785 6.322 2.279", "1.4900 1.7041 0.5711", "0.962 0.949 0.807"},
    {"3-v1", "2.308 5.789 2.300", "0.5782 1.4771 0.5763", "0.766 0.902 0.758"},
    {"3-v2", "5.729 5.653 2.334", "1.4553 1.4323 0.5848", "0.977 0.979 0.828"},
    {"3-v3", "2.316 5.753 2.302", "0.5802 1.4677 0.5768", "0.801 0.946 0.811"},
    {"3-v2-warm", "2.306 2.302 2.308", "0.5779 0.5769 0.5783", "0.833 0.823 0.812"},
    {"compare-some", "2.524 2.525 2.529", "0.9454 0.9456 0.9472", "0.644 0.676 0.658", "0.874"},
    {"compare-dense", "2.173 2.188 2.190", "0.8139 0.8194 0.8204", "", "0.756"},
    {"compare-some-textbooks", "4.704 4.701 4.713", "3.3488 3.3464 3.3554", "0.386 0.349 0.355", "1.515"},
    {"compare-dense-textbooks", "4.217 4.143 4.170", "3.0022 2.9496 2.9687", "", "1.345"},
    {"study-experts-32-k4", "3.086 3.034 3.006", "", "0.33 0.35 0.35"},
    {"study-experts-64-k4", "3.042 3.008 3.005", "", "0.41 0.34 0.45"},
    {"study-experts-32-k8", "3.081 3.018 3.006", "", "0.25 0.29 0.27"},
    {"study-backbone-4x256", "3.536 3.512 3.511", "", "0.35 0.33 0.39"},
    {"study-backbone-6x320", "3.227 3.221 3.226", "", "0.25 0.39 0.35"},
    {"study-stress-temperature", "3.055 3.018 2.988", "", "0.31 0.22 0.21"},
    {"study-stress-clip", "3.048 3.006 3.004", "", "0.34 0.34 0.31"},
    {"study-stress-key-ema", "3.070 3.012 3.004", "", "0.30 0.45 0.38"},
    {"study-stress-alpha-floor", "3.152 3.268 3.097", "", "0.05 0.04 0.03"},
    {"study-stress-all", "3.052 3.012 3.005", "", "0.08 0.08 0.07"},
    {"a1", "2.9306 ± 0.0066", "0.7346 ± 0.0016", "0.852 ± 0.017"},
    {"a2", "2.7611 ± 0.0122", "0.6921 ± 0.0031", "0.859 ± 0.016"},
    {"a3", "2.8969 ± 0.0105", "0.7261 ± 0.0026", "0.869 ± 0.029"},
    {"a4", "2.7238 ± 0.0135", "0.6828 ± 0.0034", "0.878 ± 0.042"},
    {"a5", "2.8593 ± 0.0186", "0.7167 ± 0.0047", "0.835 ± 0.032"},
    {"a6", "7.1821 7.0837 5.9947", "2.0048 1.9765 1.5713", "0.936 ± 0.001"},
    {"b1", "2.7270 ± 0.0094", "0.6836 ± 0.0024", "0.928 ± 0.023"},
    {"b2", "2.7275 ± 0.0102", "0.6837 ± 0.0026", "0.950 ± 0.003"},
    {"b3", "2.7324 ± 0.0115", "0.6850 ± 0.0029", "0.970 ± 0.007"},
    {"c1", "2.7795 ± 0.0189", "0.6967 ± 0.0047", "0.925 ± 0.004"},
    {"c2", "2.7228 ± 0.0054", "0.6825 ± 0.0014", "0.910 ± 0.059"},
    {"c3", "2.7180 ± 0.0084", "0.6813 ± 0.0021", "0.960 ± 0.008"},
    {"d1", "7.2075 5.8372 5.8251", "2.0218 1.4703 1.4687"},
    {"d2", "5.8360 7.1721 5.8543", "1.4698 2.0190 1.5114"},
    {"d3", "5.8388 5.8372 6.9931", "1.4711 1.4703 1.9365"},
    {"a6-frozen-keys", "7.1903 5.8330 5.6039", "2.0190 1.4691 1.4111"},
    {"a6-dense", "5.8294 7.2113 5.8395", "1.4683 2.0266 1.4708"},
    {"a6-pre", "3.0799 3.0878 3.0901", "0.7721 0.7741 0.7747"},
    {"a6-warm", "2.6255 2.6472 2.6427"},
    {"a4-warm", "2.7286 2.7127 2.7299", "", "0.63 to 0.79"},
    {"control-frozen-keys", "2.7013 2.6679 2.6932"},
    {"control-hash-routing", "2.7188 2.6934 2.7063"},
    {"control-no-ffn", "2.7157 2.6931 2.7095"},
    {"control-output-proj-features", "2.6819 2.6619 2.6886"},
    {"control-dense-trainable", "2.4573 2.4472 2.4615"},
    {"control-output-proj-linear", "2.6798 2.6658 2.6845", "", "0.64 to 0.78"},
    {"control-features-best", "2.5363 2.5342 2.5479", "", "0.52 to 0.60"},
    {"control-dense-4x", "2.3938 2.4021 2.4168"},
    {"control-dense-step", "2.3485 2.3826 2.3695"},
    {"control-dense-active", "2.3578 2.3859 2.3758"},
    {"control-no-alpha", "2.7352 2.7145 2.7438", "", "0.74 to 0.81"},
    {"control-no-beta", "2.7151 2.6952 2.7098", "", "0.54 to 0.71"},
    {"control-no-delta", "2.7304 2.7186 2.7276", "", "0.75 to 0.76"},
    {"control-flux-usage", "2.7237 2.6999 2.7168", "", "0.68 to 0.86"},
    {"control-router-linear", "2.7319 2.7045 2.7228", "", "0.22 to 0.42"},
    {"control-init-sparse", "2.7131 2.6965 2.7095", "", "0.50 to 0.58"},
    {"control-init-orthogonal", "2.7976 2.7617 2.7693", "", "0.79 to 0.89"},
    {"control-context-256", "2.7040 2.6939 2.7130", "", "0.58 to 0.85"},
    {"control-context-512", "2.7203 2.7078 2.7285", "", "0.68 to 0.84"},
    {"control-context-1024", "2.7364 2.7162 2.7281", "", "0.62 to 0.72"},
    {"v3.5", "2.8764 2.8629 2.9184", "0.7180 0.7145 0.7284", "0.865 0.861 0.862"},
    {"v5-linear", "2.6712 2.8046 2.8929", "2.6712 2.8046 2.8929", "0.327 0.429 0.312"},
    {"v5-mlp", "2.7057 2.7565 2.6869", "2.7057 2.7565 2.6869", "0.547 0.744 0.641"},
    {"v6", "2.3599 2.3463 2.3331", "2.3599 2.3463 2.3331", "0.778 0.798 0.835"},
    {"mod-shift", "2.214 2.210 2.227"},
    {"mod-shift-gentle", "2.203 2.200 2.215"},
    {"mod-shift-frozen-keys", "2.207 2.201 2.217"},
    {"mod-shift-keys", "2.260 2.244 2.260"},
    {"mod-shift-hash", "2.241 2.224 2.236"},
    {"mod-shift-one-expert", "2.210 2.200 2.203"},
    {"mod-shift-all-experts", "2.200 2.202 2.203"},
    {"mod", "2.298 2.288 2.300"},
    {"mod-nolib", "2.305 2.288 2.286"},
    {"mod-conv", "2.188 2.191 2.186"},
    {"mod-conv-nolib", "2.192 2.191 2.192"},
    {"mod-shift-lora", "2.462 2.465 2.496"},
    {"mod-shift-full", "2.302 2.274 2.304"},
    {"dense-match", "2.282 2.278 2.294"},
    {"dense-conv", "2.185 2.188 2.188"},
    {"dense-flops", "2.293 2.315 2.317"},
    {"mod-shift-20k", "1.943 1.957 1.945"},
    {"mod-shift-gentle-20k", "1.947 1.947 1.939"},
    {"mod-shift-hash-20k", "1.965 1.973 1.961"},
    {"mod-shift-one-expert-20k", "1.934 1.944 1.943"},
    {"dense-flops-20k", "1.994 2.034 1.987"},
    {"mod-conv-20k", "1.916 1.928 1.925"},
    {"dense-match-20k", "2.011 2.055 2.006"},
    {"mod-nolib-20k", "1.996 2.043 2.017"},
    {"dense-conv-20k", "1.918 1.925 1.920"},
    {"knob-full", "2.525 2.550 2.485"},
    {"knob-rope", "2.854 2.805 2.808"},
    {"knob-lora", "2.948 2.933 2.897"},
    {"knob-router-mlp", "3.063 3.021 2.999"},
    {"knob-update-half", "3.050 3.033 3.006"},
    {"knob-k2-f1536", "3.077 3.033 3.008"},
    {"knob-beta-anneal", "3.056 3.048 3.027"},
    {"knob-update-every-2", "3.143 3.020 2.991"},
    {"knob-balance-loss", "3.110 3.037 2.989"},
    {"knob-topk-warmup", "3.156 3.073 3.023"},
    {"knob-warmup", "3.695 3.140 3.143"},
};

std::vector<double> numbers_in(const std::string& text) {
  if (const std::size_t to = text.find(" to "); to != std::string::npos) {
    const double first = std::stod(text), last = std::stod(text.substr(to + 4));
    return {first, (first + last) / 2, last};
  }
  std::vector<double> out;
  const std::size_t sign = text.find("±");
  std::istringstream in(sign == std::string::npos ? text : text.substr(0, sign));
  for (double one = 0; in >> one;) out.push_back(one);
  if (sign == std::string::npos) return out;
  const double deviation = std::stod(text.substr(sign + std::string("±").size()));
  return {out.at(0) - deviation, out.at(0), out.at(0) + deviation};
}

// Joins lines, so that wrapped text is found.
std::string in_one_line(const std::string& path) {
  return std::regex_replace(read_file(path), std::regex("\\s+"), " ");
}

// docs/claims.md has a line for every claim, with the same verdict as the report for runs with the documents' numbers.
TEST_F(LabClaims, TheDocumentsSayWhatTheReportSays) {
  const std::string docs = std::string(SOME_SOURCE_DIR) + "/docs/";
  std::string results;
  for (const fs::directory_entry& page : fs::directory_iterator(docs + "results"))
    if (page.path().extension() == ".md") results += in_one_line(page.path().string()) + " ";
  const auto told = [&](const Documented& row, const std::string& text) {
    // Seeds are in one cell, in a list separated by commas, or in separate rows.
    if (holds(results, text) || holds(results, std::regex_replace(text, std::regex(" "), ", "))) return;
    std::istringstream each(text);
    for (std::string one; each >> one;) EXPECT_TRUE(holds(results, " " + one)) << row.recipe << ": " << one;
  };
  // Milliseconds per step; values that are compared were measured in one session.
  const std::map<std::string, double> step_ms{
      {"mod-shift", 8.18},           {"dense-match", 4.21},      {"study-experts-32-k4", 7.32},
      {"knob-update-every-2", 7.29}, {"knob-update-half", 7.19}, {"knob-lora", 12.37},
      {"knob-full", 14.42},          {"knob-k2-f1536", 6.49},    {"knob-router-mlp", 7.88}};
  for (const Documented& row : documented) {
    const auto losses = numbers_in(row.loss), padded = numbers_in(row.padded), gini = numbers_in(row.gini);
    for (const char* text : {row.loss, row.padded, row.gini, row.bits}) told(row, text);
    for (std::size_t seed = 0; seed < losses.size(); ++seed) {
      Ending ending{.loss = losses[seed]};
      if (seed < padded.size()) ending.headline = padded[seed];
      if (seed < gini.size()) ending.gini = gini[seed];
      // Only their mean is published; for one text and vocabulary they are proportional to the loss.
      if (*row.bits != '\0') ending.bits = std::stod(row.bits) * losses[seed] / losses[losses.size() / 2];
      if (const auto found = step_ms.find(row.recipe); found != step_ms.end()) ending.seconds = found->second / 1000;
      run(row.recipe, static_cast<int>(seed), ending);
    }
  }
  EXPECT_TRUE(holds(results, "dense 4.21 ms/step, mod-shift 8.18,"));
  EXPECT_TRUE(
      holds(results,
            "baseline 7.32 and 7.26 ms, every other step 7.29 and 7.22, half of the tokens 7.19 and 7.25, LoRA 12.37 "
            "and 12.38, full training 14.42 and 14.40, two experts of 1,536 6.49, two-layer router 7.88."));
  // v7, with Gini after the first and after the last epoch.
  const double clamped[3][3] = {{2.3462, 0.843, 0.703}, {2.3507, 0.887, 0.918}, {2.3366, 0.815, 0.755}};
  for (int seed = 0; seed < 3; ++seed) {
    const auto& [loss, before, after] = clamped[seed];
    run("v7", seed, {.loss = loss, .headline = loss, .gini = after, .gini_before = before});
    EXPECT_TRUE(holds(results, fmt::format("{:.3f} → {:.3f}", before, after)));
  }
  const Report report = make_report(index_, {}, options_);
  const std::string documents = "\n" + read_file(docs + "claims.md") + read_file(docs + "claims-notes.md");
  for (const Claim& claim : load_report_texts(recipes).claims) {
    const std::string begin = fmt::format("| [{}](#claim-{}) | ", claim.claim, claim.id);
    std::string verdict = line_of(report.markdown, begin);
    ASSERT_GT(verdict.size(), begin.size() + 2) << claim.id << " was not asked";
    verdict = verdict.substr(begin.size(), verdict.size() - begin.size() - 2);
    const std::string line = line_of(documents, "| " + claim.claim + " | ");
    EXPECT_TRUE(holds(line, "| " + verdict)) << claim.id << ": the report says " << verdict << "; claims.md: " << line;
  }
}

}  // namespace
}  // namespace some

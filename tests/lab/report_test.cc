// A report of runs with known numbers: the expected cells in both formats, and in a browser.
#include "lab/report.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "browser.h"
#include "core/files/files.h"
#include "expect_error.h"
#include "lab/queue.h"
#include "runs/history.h"
#include "runs/run_list.h"
#include "temporary_folder.h"

namespace some {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json usage(double gini, double entropy) {
  return {{"gini", gini},
          {"entropy", entropy},
          {"effective_experts", std::exp2(entropy)},
          {"max_over_mean_load", 2.0},
          {"experts_used", 4}};
}

json layer(int number, double gini, double entropy) {
  return {{"layer", number},
          {"count", usage(gini, entropy)},
          {"mass", usage(gini + 0.01, entropy - 0.01)},
          {"experts_used_this_epoch", 4},
          {"gate_entropy", 0.6},
          {"key_norm", {{"min", 1}, {"mean", 1}, {"max", 1}}},
          {"key_moved", {{"mean", 0.25}, {"max", 0.5}}},
          {"births", 0},
          {"deaths", 0}};
}

// Two epochs of ten steps; 4 documents of 32 positions, 62 non-padding tokens among the 4 * 31 predicted positions.
std::string metrics(double shift) {
  std::string out;
  const auto add = [&](const json& line) { out += line.dump() + "\n"; };
  for (int epoch = 1; epoch <= 2; ++epoch) {
    for (int step = epoch * 10 - 8; step <= epoch * 10; step += 2) {
      add({{"kind", "train"},
           {"step", step},
           {"epoch", step / 10.0},
           {"loss", 3.0 - 0.1 * step + shift},
           {"lr", 1e-3},
           {"gradient_norm", 1.0}});
    }
    const double loss = 3.0 - epoch + shift;
    add({{"kind", "eval"},
         {"step", epoch * 10},
         {"epoch", static_cast<double>(epoch)},
         {"loss", 2 * loss},
         {"perplexity", std::exp(2 * loss)},
         {"bits_per_byte", loss / 2},
         {"tokens", 62},
         {"bytes", 300},
         {"documents", 4},
         {"padded_loss", loss + 0.001},
         {"padded_perplexity", std::exp(loss)},
         {"batch_mean_loss", loss},
         {"layers", {layer(0, 0.3, 1.9), layer(1, 0.5 + 0.01 * epoch + shift / 10, 1.7)}},
         {"middle_layer", 1}});
    add({{"kind", "epoch"}, {"step", epoch * 10}, {"epoch", epoch}, {"train_loss", loss + 0.5}});
  }
  return out;
}

class LabReport : public ::testing::Test {
 protected:
  LabReport() {
    const std::string tiny =
        "# tiny\n[model]\nd_model = 16\nlayers = 2\nheads = 2\nseq_len = 32\nnorm = \"pre\"\n[some]\nexperts = "
        "8\nd_ffn = 16\ntop_k = 2\n"
        "[data]\ntrain = \"builtin:stories\"\ntrain_documents = 40\nlong = \"cut\"\nvocab = 300\n[train]\nepochs = "
        "2\nbatch = "
        "8\nmeasure_every = 1\nthreads = 1\n";
    folder_.write("recipes/plain.toml", tiny);
    folder_.write("recipes/told.toml",
                  "# told\nbase = \"plain.toml\"\ntitle = \"A run & its <numbers>\"\n[some]\ntop_k = "
                  "1\n[data]\ncount_pads = true\n[train]\neval_average = \"batches\"\n"
                  "[published]\nsource = \"a report\"\ntotal_parameters_m = 12.5\nexperts_used = 7\nbest_gini = "
                  "0.4321\nentropy_low = 1.5\nstep_seconds = 2.0\ntrain = [2.4, 1.6]\nval = [2.1, "
                  "0.9]\nppl = [8.17, 2.46]\ngini = [0.5, nan]\n");
    folder_.write(
        "recipes/index.toml",
        "[[series]]\nname = \"pair\"\ntitle = \"A pair\"\nabout = \"Two runs.\"\nrecipes = [\"plain\", \"told\"]\n");
    folder_.write("recipes/report.toml", read_file(SOME_SOURCE_DIR "/recipes/report.toml"));
    index_ = load_series_index(folder_ / "recipes/index.toml");
    options_.runs = folder_ / "runs";
    options_.samples = false;
    told("told", 0.0, {});
  }

  void told(const std::string& name, double shift, const std::vector<std::string>& overrides) {
    folder_.write("runs/" + name + "/config.toml", write_recipe(load_recipe(folder_ / "recipes/told.toml", overrides)));
    folder_.write("runs/" + name + "/metrics.jsonl", metrics(shift));
    folder_.write("runs/" + name + "/timing.jsonl", json{{"from_step", 0},
                                                         {"to_step", 20},
                                                         {"finished", true},
                                                         {"seconds", 10},
                                                         {"real_tokens", 5000},
                                                         {"slots", 20000},
                                                         {"operations", 1e12},
                                                         {"device", "cpu"},
                                                         {"arena_bytes", 1288490189}}
                                                            .dump() +
                                                        "\n");
  }

  void train_plain() {
    LabOptions lab;
    lab.runs = options_.runs;
    const auto entries = run_queue(plan_runs(index_, {"plain"}, lab), {});
    ASSERT_EQ(entries.at(0).outcome, Outcome::trained) << entries[0].message;
  }

  TemporaryFolder folder_;
  SeriesIndex index_;
  ReportOptions options_;
};

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(LabReport, PublishedStandsBesideReproduced) {
  const Report report = make_report(index_, {}, options_);
  EXPECT_EQ(report.runs, 1U);
  // Epoch 1: training 2.5 against 2.4, validation 2.0 (mean over batches, as published) against 2.1.
  EXPECT_TRUE(holds(
      report.markdown,
      "| 1 | 2.4000 | 2.5000 | +0.1000 | 2.1000 | 2.0000 | -0.1000 | 8.17 | 7.39 | -0.78 | 0.500 | 0.510 | +0.010 |"))
      << report.markdown;
  EXPECT_TRUE(
      holds(report.markdown,
            "| 2 | 1.6000 | 1.5000 | -0.1000 | 0.9000 | 1.0000 | +0.1000 | 2.46 | 2.72 | +0.26 | – | 0.520 | – |"));
  EXPECT_TRUE(holds(report.html,
                    "<td class=\"number\">2</td><td class=\"number first\">1.6000</td><td "
                    "class=\"number\">1.5000</td><td class=\"number\">-0.1000</td>"));
  // Loss over non-padding tokens next to the padded loss: half of the positions are text.
  EXPECT_TRUE(holds(report.markdown, "| 2 | 20 | 2.0000 | 7.39 | 0.5000 | 1.0010 | 50.0 % | 0.520 |"));
  EXPECT_TRUE(holds(report.markdown, "here it is 1.0000, **0.1000 above** (+11.1 %)"));
  EXPECT_TRUE(holds(report.markdown, "One run is compared with one run"));
  EXPECT_TRUE(holds(report.markdown, "Only 50.0 % of the positions in this loss are text"));
  EXPECT_TRUE(holds(report.markdown, "| parameters, million | 12.50 | 0.0"));
  EXPECT_TRUE(holds(report.markdown, "| non-padding tokens per second | – | 500 |"));
  // Numbers of the whole run; the best epoch is the second.
  EXPECT_TRUE(holds(report.markdown, "| experts ever used, middle layer, best epoch | 7 | 4 |"));
  EXPECT_TRUE(holds(report.markdown, "| Gini, middle layer, best epoch | 0.4321 | 0.5200 |"));
  EXPECT_TRUE(holds(report.markdown, "| lowest entropy after an epoch, middle layer | 1.500 | 1.700 |"));
  EXPECT_TRUE(holds(report.markdown, "| seconds a step | 2 | 0.5 |"));
  EXPECT_TRUE(holds(report.markdown, "| device | A100, as reported | cpu |"));
  EXPECT_TRUE(holds(report.markdown, "| working memory, MiB | – | 1,229 |"));
  EXPECT_TRUE(holds(report.markdown, "2 layers of 16, 2 heads, rows of 32 tokens; 8 experts of 16, top-k 1"));
  EXPECT_TRUE(holds(report.markdown, "the perplexity of told is 2.72 with padding and 7.39 over text"));
  // Checkpoints and key positions may have been removed: the run is still done, and missing parts are reported.
  EXPECT_TRUE(holds(report.markdown, "| done | 0.0"));
  EXPECT_FALSE(holds(report.markdown, "This run is not finished"));
  EXPECT_TRUE(holds(report.markdown, "Usage histogram and key map are omitted"));
  EXPECT_TRUE(holds(report.markdown, "`some.top_k = 1 (2)`"));
  EXPECT_TRUE(holds(report.html, "A run &amp; its &lt;numbers&gt;"));
  EXPECT_FALSE(holds(report.html, "<numbers>"));
}

TEST_F(LabReport, SeedsGiveMeanAndSpread) {
  told("told-seed1", 0.02, {"seed=1"});
  told("told-seed2", -0.02, {"seed=2"});
  const Report report = make_report(index_, {"told"}, options_);
  EXPECT_EQ(report.runs, 3U);
  EXPECT_TRUE(holds(report.markdown, "| 2 | 1.6000 | 1.5000 ± 0.0200 | -0.1000 | 0.9000 | 1.0000 ± 0.0200 | +0.1000 |"))
      << report.markdown;
  EXPECT_TRUE(holds(report.markdown, "| told-seed2 | 2 |"));
  EXPECT_TRUE(holds(report.markdown, "| done, 3 seeds |"));
  // A table with many spreads fits because each may be broken before its sign, and only there.
  EXPECT_TRUE(
      holds(report.html,
            "<td class=\"number\"><span class=\"part\">1.5000</span> <span class=\"part\">± 0.0200</span></td>"));
  EXPECT_TRUE(holds(report.html, "<td>done, 3\u00a0seeds</td>"));
  EXPECT_TRUE(holds(report.markdown, "The deviation of 3 seeds here is 0.0200, so the difference exceeds chance."));
}

TEST_F(LabReport, AClaimIsHeldAgainstEachOfItsControls) {
  // Losses over non-padding tokens: 2.04, 2.06 for the claim, then 2.02, 2.00 and 1.60 for two controls.
  told("a4-warm", 0.02, {});
  told("a4-warm-seed1", 0.03, {"seed=1"});
  told("control-no-ffn", 0.01, {});
  told("control-no-ffn-seed1", 0.0, {"seed=1"});
  told("control-dense-4x", -0.2, {});
  fs::remove_all(folder_ / "runs/told");
  const SeriesIndex index = load_series_index(std::string(SOME_SOURCE_DIR) + "/recipes/index.toml");
  const Report report = make_report(index, {}, options_);
  EXPECT_TRUE(
      holds(report.markdown,
            "Seeds of one experiment differ by 0.0141 (standard deviation), so a difference below about 0.0283 "
            "is not significant. a4-warm, the best of the claim, is 0.0400 nats worse than control-no-ffn (more than "
            "chance) and 0.4500 nats worse than control-dense-4x (more than chance). **Not as claimed, with one seed "
            "of some runs.**"))
      << report.markdown;
  // Its sizes differ from the recipe of that name: the title shows the actual ones.
  EXPECT_TRUE(holds(report.markdown,
                    "| [control-dense-4x](#run-control-dense-4x) | control-dense-4x: 2 layers of 16, 8 experts of 16, "
                    "top-k 1 | control | 1 | 1.6000 | -0.4500 |"))
      << report.markdown;
  // Words between backticks in the index are code in both formats.
  told("a1", 0, {});
  told("a4", 0, {});
  EXPECT_TRUE(holds(make_report(index, {}, options_).html, "<code>some lab run main --seeds 3</code>"));
}

// The lowest of the six backbones is named, whichever it is, and the claim is compared with it.
TEST_F(LabReport, TheLowestLossIsThatOfTheLowest) {
  fs::remove_all(folder_ / "runs/told");
  told("a4", 0.02, {});
  told("a1", 0.05, {});
  told("a6", -0.03, {});
  const SeriesIndex index = load_series_index(std::string(SOME_SOURCE_DIR) + "/recipes/index.toml");
  EXPECT_TRUE(holds(make_report(index, {}, options_).markdown,
                    "The lowest loss is that of a6, 0.1000 nats below the next, a4; the highest is that of a1, 0.1600 "
                    "above it. **Not as claimed, with one seed each.**"));
  fs::remove_all(folder_ / "runs/a6");
  EXPECT_TRUE(holds(make_report(index, {}, options_).markdown,
                    "The lowest loss is that of a4, 0.0600 nats below the next, a1; the highest is that of a1, 0.0600 "
                    "above it. **As claimed, with one seed each.**"));
  told("a1-seed1", -0.01, {"seed=1"});  // 2.10 and 1.98: the seeds differ by more than the runs
  EXPECT_TRUE(holds(make_report(index, {}, options_).markdown, "**Within chance: the claim is neither confirmed"));
}

// Small models with one seed each say nothing about a claim.
TEST_F(LabReport, ScaledRunsOfOneSeedGiveNoVerdict) {
  fs::remove_all(folder_ / "runs/told");
  told("a4@0.02", 0.02, {});
  told("a1@0.02", 0.05, {});
  const SeriesIndex index = load_series_index(std::string(SOME_SOURCE_DIR) + "/recipes/index.toml");
  const std::string report = make_report(index, {}, options_).markdown;
  EXPECT_TRUE(holds(report, "No verdict: runs scaled by 0.02")) << report;
  EXPECT_FALSE(holds(report, "**As claimed"));
  EXPECT_FALSE(holds(report, "**Not as claimed"));
  told("a4@0.02-seed1", 0.02, {"seed=1"});
  told("a1@0.02-seed1", 0.05, {"seed=1"});
  EXPECT_TRUE(holds(make_report(index, {}, options_).markdown, "**As claimed"));
}

TEST_F(LabReport, ARunOfAnotherTextIsNoReplay) {
  const std::string recipe = read_file(folder_ / "recipes/told.toml");
  folder_.write("recipes/told.toml", recipe + "\n");
  folder_.write("recipes/plain.toml",
                std::string(read_file(folder_ / "recipes/plain.toml"))
                    .replace(read_file(folder_ / "recipes/plain.toml").find("builtin:stories"), 15, "data/theirs.txt"));
  const Report report = make_report(index_, {}, options_);
  EXPECT_TRUE(holds(report.markdown, "| 2 | _1.6000_ | 1.5000 | _0.9000_ | 1.0000 |")) << report.markdown;
  EXPECT_TRUE(holds(report.markdown, "Read another text (builtin:stories) than the published run"));
  EXPECT_TRUE(holds(report.markdown, "**Built-in stories**"));
  EXPECT_FALSE(holds(report.markdown, "+0.1000"));
}

// report.toml is validated when it is read.
TEST_F(LabReport, TextsThatDoNotFitAreBadInput) {
  const auto refused = [&](const std::string& text, Code code, const std::vector<std::string>& values) {
    folder_.write("recipes/report.toml", text);
    EXPECT_TRUE(is_bad_input(error_in([&] { make_report(index_, {}, options_); }), code, values)) << text;
  };
  const std::string file = folder_ / "recipes/report.toml";
  refused("[[guide]]\ntitle = \"a\"\ntext = \"b\"\nwhen = \"never\"\n", Code::setting_out_of_range,
          {file + ":4", "when", "never"});
  refused("[[claim]]\nid = \"a\"\n", Code::setting_missing, {file + ":1"});
  refused("[[clam]]\nid = \"a\"\n", Code::setting_unknown, {"clam", "claim"});
  refused("[sentences]\noverview = \"{nothing}\"\n", Code::claims_invalid, {"nothing"});
  folder_.write("recipes/report.toml", "");
  EXPECT_NO_THROW(make_report(index_, {}, options_)) << "numbers alone";
}

TEST_F(LabReport, ScaledRunsAreNoReplay) {
  told("told@0.5", 0.0, {"model.d_model=8"});
  const Report report = make_report(index_, {"told@0.5"}, options_);
  EXPECT_EQ(report.runs, 1U);
  EXPECT_TRUE(holds(report.markdown, "Scaled by 0.5"));
  EXPECT_TRUE(holds(report.markdown, "| 2 | _1.6000_ | 1.5000 | _0.9000_ | 1.0000 |")) << "pale: not to be compared";
  EXPECT_TRUE(holds(report.html, "<span class=\"pale\">1.6000</span>"));
  EXPECT_TRUE(holds(report.markdown, "told scaled by 0.5: 2 layers of 8, 8 experts of 16, top-k 1"));
  EXPECT_TRUE(holds(report.markdown, "**Published numbers in pale italics**"));
  EXPECT_FALSE(holds(report.markdown, "+0.1000"));
  EXPECT_FALSE(holds(report.html, "published, middle layer")) << "usage of another number of experts";
  EXPECT_TRUE(holds(report.markdown, "`model.d_model = 8 (16)`"));
}

TEST_F(LabReport, ALayerThatCountsNothingShowsWhatTheValidationStoriesChose) {
  std::istringstream lines(metrics(0));
  std::string changed;
  for (std::string text; std::getline(lines, text);) {
    json line = json::parse(text);
    if (line["kind"] == "eval") {
      json& middle = line["layers"][1];
      middle["validation"] = middle["validation_mass"] = usage(0.875, 1.25);
      middle["count"] = middle["mass"] = usage(0, 0);
      middle["count"]["experts_used"] = middle["mass"]["experts_used"] = 0;
    }
    changed += line.dump() + "\n";
  }
  folder_.write("runs/told/metrics.jsonl", changed);
  const RunHistory history = read_history(*find_run(folder_ / "runs/told"));
  EXPECT_EQ(history.evaluations.at(1).layers.at(1).gini, 0.875);
  EXPECT_EQ(history.evaluations.at(1).layers.at(1).entropy_mass, 1.25);
  EXPECT_EQ(history.evaluations.at(1).layers.at(0).gini, 0.3);
}

TEST_F(LabReport, NamesThatLeadNowhereAreBadInput) {
  EXPECT_ERROR((make_report(index_, {"plain"}, options_)), Code::run_not_found, "plain", options_.runs);
  const auto near = [&](const std::string& name) {
    const auto error = error_in([&] { make_report(index_, {name}, options_); });
    EXPECT_TRUE(is_bad_input(error, Code::series_unknown, {name}));
    return error ? error->values().back() : "";
  };
  EXPECT_NE(near("tolt").find("told"), std::string::npos);
  EXPECT_EQ(near("nosuch"), "");
  options_.runs = folder_ / "nothing";
  EXPECT_ERROR((make_report(index_, {}, options_)), Code::run_not_found, options_.runs);
}

TEST_F(LabReport, ARunThatIsGoingOnIsShownAsFarAsItIs) {
  const std::string whole = metrics(0);
  folder_.write("runs/told/metrics.jsonl", whole.substr(0, whole.size() - 20));  // an incomplete line
  fs::remove(folder_ / "runs/told/timing.jsonl");
  Report report = make_report(index_, {}, options_);
  EXPECT_TRUE(holds(report.markdown, "This run is not finished"));
  folder_.write("runs/told/metrics.jsonl", "");
  report = make_report(index_, {}, options_);
  EXPECT_TRUE(holds(report.markdown, "This run has not been evaluated yet."));
}

TEST_F(LabReport, PublishedNumbersAreThoseOfTheRecipeAsItStands) {
  const std::string recipe = read_file(folder_ / "recipes/told.toml");
  // The first epoch differs by 0.9, the last by 0.1.
  folder_.write("recipes/told.toml", std::string(recipe).replace(recipe.find("2.1, 0.9"), 8, "1.1, 0.9"));
  const std::string text = make_report(index_, {}, options_).markdown;
  EXPECT_TRUE(holds(text, "| 1.1000 | 2.0000 | +0.9000 |")) << text;
  EXPECT_TRUE(holds(text, "The largest difference was after epoch 1: 0.9000 above."));
}

TEST_F(LabReport, AFailureIsReported) {
  write_identity(options_.runs + "/told", {"told", 1, 0, false}, "the loss is not a number");
  EXPECT_FALSE(holds(make_report(index_, {}, options_).markdown, "This run failed")) << "it has ended all the same";
  fs::remove(folder_ / "runs/told/timing.jsonl");
  const Report report = make_report(index_, {}, options_);
  EXPECT_TRUE(holds(report.markdown, "| failed | 0.0"));
  EXPECT_TRUE(holds(report.markdown, "This run failed: the loss is not a number"));
}

TEST_F(LabReport, ARunThatWentAstrayDoesNotHideTheOthers) {
  told("plain", 0.1, {});
  told("plain@0.5", 0.1, {});
  told("told@0.5", 0.2, {});
  told("told@0.25", 5.0, {});
  const Report report = make_report(index_, {}, options_);
  EXPECT_TRUE(holds(report.markdown, "Outside the chart: told@0.25 at 12.0000.")) << report.markdown;
  EXPECT_FALSE(holds(report.markdown, "told@0.5 at"));
}

TEST_F(LabReport, SamplesOutliveTheirCheckpoint) {
  options_.samples = true;
  folder_.write("runs/told/samples.json",
                R"({"version":1,"step":20,"layer":1,"samples":[{"prompt":"A","how":"drawn","text":"A kept story"}],)"
                R"("trace":[{"token":"A","experts":[3],"gates":[1.0]}]})");
  EXPECT_TRUE(holds(make_report(index_, {}, options_).markdown, "A kept story"));
  fs::remove(folder_ / "runs/told/samples.json");
  EXPECT_TRUE(holds(make_report(index_, {}, options_).markdown, "Sample text: none (no checkpoint in the run folder)"));
}

// Every number of every [published] table of the project is in a line of its run, whether or not the run was done.
TEST_F(LabReport, EveryPublishedNumberHasItsRow) {
  const SeriesIndex index = load_series_index(std::string(SOME_SOURCE_DIR) + "/recipes/index.toml");
  const std::string text = make_report(index, {options_.runs + "/told"}, options_).markdown;
  std::set<std::string> lines;
  std::istringstream in(text.substr(text.find("Every published number, epoch by epoch")));
  for (std::string line; std::getline(in, line);) lines.insert(line);
  const auto row = [&](const std::string& begin) {
    const auto found = lines.lower_bound(begin);
    return found != lines.end() && found->starts_with(begin) ? *found : std::string();
  };
  int numbers = 0;
  for (const std::string& name : index.all_recipes()) {
    const Recipe recipe = load_recipe(index.recipe_path(name), {});
    if (!recipe.published) continue;
    for (const PublishedEpoch& epoch : recipe.published->epochs) {
      const std::string line = row(fmt::format("| {} | {} |", name, epoch.epoch));
      for (const auto& [measure, value] : epoch.values) {
        const int digits = measure == "dead"                              ? 0
                           : measure == "ppl" || measure == "temperature" ? 2
                           : measure.starts_with("gini")                  ? 3
                           : measure.starts_with("entropy")               ? 3
                                                                          : 4;
        EXPECT_TRUE(holds(line, fmt::format("| {:.{}f} |", value, digits)))
            << name << " epoch " << epoch.epoch << " " << measure << ": " << line;
        ++numbers;
      }
    }
    int told = 0;
    for (auto found = lines.lower_bound("| " + name + " | ");
         found != lines.end() && found->starts_with("| " + name + " | "); ++found)
      told += std::isalpha(static_cast<unsigned char>((*found)[name.size() + 5])) != 0 ? 1 : 0;
    EXPECT_EQ(told, static_cast<int>(recipe.published->values.size())) << name;
    numbers += told;
  }
  EXPECT_GT(numbers, 1000);
}

TEST_F(LabReport, InABrowser) {
  train_plain();
  options_.samples = true;
  const Report report = make_report(index_, {"pair"}, options_);
  EXPECT_TRUE(holds(report.markdown, "From `One morning a small`, greedy (most likely token):"));
  EXPECT_TRUE(holds(report.markdown, "Trace: experts of each token of the first text, layer 1"));
  EXPECT_TRUE(fs::exists(options_.runs + "/plain/samples.json"));
  const Report again = make_report(index_, {"pair"}, options_);
  EXPECT_EQ(report.html, again.html);
  // The same facts in both formats.
  for (const char* id : {"run-plain", "run-told", "experiment-index", "series-pair", "overview-pair"})
    EXPECT_TRUE(holds(report.html, std::string("id=\"") + id + "\"")) << id;

  if (const std::string why = no_browser(); !why.empty()) GTEST_SKIP() << why;
  const json cell = json::array({{{"table", "run-told-published"}, {"row", 1}, {"column", 1}, {"text", "1.6000"}},
                                 {{"table", "run-told-published"}, {"row", 1}, {"column", 6}, {"text", "+0.1000"}},
                                 {{"table", "run-told-real"}, {"row", 0}, {"column", 4}, {"text", "1.0000"}},
                                 {{"table", "run-told-size"}, {"row", 0}, {"column", 1}, {"text", "12.50"}},
                                 {{"table", "overview"}, {"row", 1}, {"column", 1}, {"text", "A run & its <numbers>"}},
                                 {{"table", "overview"}, {"row", 0}, {"column", 2}, {"text", "done"}},
                                 {{"table", "experiment-index"}, {"row", 1}, {"column", 3}, {"text", "0.9000"}}});
  // Every mark is a path; the key map has a line and two circles for each of its 8 keys.
  const json charts{{"run-plain-keys", {{"selector", "svg path"}, {"least", 24}}},
                    {"run-plain-loss", {{"selector", "svg path[fill='none']"}, {"least", 2}}},
                    {"run-told-gini", {{"selector", "svg path"}, {"least", 6}}},
                    {"dots-pair", {{"selector", "svg path"}, {"least", 2}}}};
  open_in_browser(folder_, "report", report.html,
                  {{"cells", cell}, {"charts", charts}, {"texts", {"A run & its <numbers>"}}});
}

}  // namespace
}  // namespace some

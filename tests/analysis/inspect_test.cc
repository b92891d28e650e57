#include "analysis/inspect.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "analysis/assignments.h"
#include "analysis/guilds.h"
#include "analysis/routes_csv.h"
#include "analysis/tiny_run.h"
#include "core/files/files.h"
#include "expect_error.h"
#include "keys/measures.h"

namespace some {
namespace {

std::vector<std::vector<std::string>> read_csv(const std::string& path) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream text(read_file(path));
  for (std::string line; std::getline(text, line);) {
    rows.emplace_back();
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) rows.back().push_back(cell);
  }
  return rows;
}

TEST(Routes, AreOneLinePerTokenLayerAndChoice) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder));
  const AnalysisText text = load_analysis_text(run, "", 3);
  CollectOptions options;
  options.max_documents = 3;
  options.pad_id = run.tokenizer.pad_id();
  options.eos_id = run.tokenizer.eos_id();
  const Choices choices = collect_assignments(*run.model, text.data, options);
  const std::string file = folder / "routes.csv";
  write_file_atomic(file, [&](const ByteSink& sink) {
    write_routes(choices, {1}, run.tokenizer, [&](std::string_view part) { sink(part.data(), part.size()); });
  });
  // Tokens may hold commas and line ends between quotes, so fields are counted from both ends of a record.
  const std::string whole = read_file(file);
  const auto k = static_cast<std::size_t>(choices.top_k);
  std::string expected = "document,position,token_id,token,next_id,loss,layer,rank,expert,gate\n";
  for (std::size_t t = 0; t < choices.tokens.size(); ++t) {
    std::string token;
    for (const char c : run.tokenizer.token_bytes(choices.tokens[t]))
      token += c == '"' ? std::string("\"\"") : std::string(1, c);
    for (std::size_t i = 0; i < k; ++i) {
      const LayerAssignments& layer = choices.layers[1];
      expected += fmt::format("{},{},{},\"{}\",", choices.document[t], choices.places[t], choices.tokens[t], token);
      expected += choices.next[t] < 0 ? "," : fmt::format("{},{:.6g}", choices.next[t], choices.nll[t]);
      expected += fmt::format(",1,{},{},{:.6g}\n", i, layer.experts[t * k + i], layer.gates[t * k + i]);
    }
  }
  EXPECT_EQ(whole, expected);
  EXPECT_EQ(std::count(choices.next.begin(), choices.next.end(), -1), 3);  // the ends of three documents
}

TEST(Inspect, WritesAPageItsNumbersAndPictures) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder));
  InspectOptions options;
  const std::string out = folder / "pictures";
  const InspectReport inspected = inspect_run(run, options);
  write_inspection(inspected, run, out, true);
  const nlohmann::json report = to_json(inspected);
  ASSERT_EQ(report["layers"].size(), 2u);
  EXPECT_EQ(report["middle_layer"], 1);
  EXPECT_EQ(report["moved_since_step"], 0);
  for (const auto& layer : report["layers"]) {
    const int l = layer["layer"];
    const std::vector<double> usage = read_vector(run.model->layers()[static_cast<std::size_t>(l)].keys.usage);
    EXPECT_DOUBLE_EQ(layer["count"]["gini"].get<double>(), gini(usage));
    EXPECT_GT(layer["key_moved"]["mean"].get<double>(), 0);
    EXPECT_GT(layer["gate_entropy"].get<double>(), 0);
    EXPECT_LE(layer["gate_entropy"].get<double>(), std::log(2.0) + 1e-9);
    // The count logged by the run's last evaluation.
    EXPECT_GE(layer["experts_used_last_epoch"].get<int>(), 1);
    double share = 0;
    for (const auto& clique : layer["cliques"]) {
      EXPECT_EQ(clique["experts"].size(), 2u);
      share += clique["share"].get<double>();
    }
    EXPECT_GT(share, 0);
    EXPECT_LE(share, 1 + 1e-9);
    EXPECT_LE(layer["top_sets_share"].get<double>(), 1 + 1e-9);
    for (const char* name : {"usage.svg", "keys-pca.svg", "keys-tsne.svg", "movement.svg"}) {
      const std::string picture = read_file(fmt::format("{}/layer-{}-{}", out, l, name));
      EXPECT_EQ(xml_problem(picture), "") << name;
    }
    const auto table = read_csv(fmt::format("{}/layer-{}-usage.csv", out, l));
    ASSERT_EQ(table.size(), 9u);
    for (std::size_t e = 0; e < 8; ++e) {
      ASSERT_EQ(table[e + 1].size(), table[0].size());
      EXPECT_DOUBLE_EQ(std::stod(table[e + 1][1]), usage[e]);
    }
    EXPECT_EQ(read_csv(fmt::format("{}/layer-{}-keys.csv", out, l)).size(), 9u);
    // Saved at steps 0, 2 and 4, plus the current step 6.
    EXPECT_EQ(layer["movement"]["steps"], (nlohmann::json{0, 2, 4, 6}));
    EXPECT_EQ(read_csv(fmt::format("{}/layer-{}-movement.csv", out, l)).size(), 4u * 8 + 1);
  }
  EXPECT_EQ(nlohmann::json::parse(read_file(out + "/inspect.json"))["layers"].size(), 2u);
  // (tests/analysis/pages_test.cc opens the page.)
  const std::string page = read_file(out + "/index.html");
  EXPECT_NE(page.find("<figure class=\"chart\" id=\"keys-1\">"), std::string::npos);

  // Repeating it gives the same bytes; another seed gives another map; pictures are only drawn on request.
  const std::string first = read_file(out + "/layer-0-keys-tsne.svg");
  write_inspection(inspect_run(run, options), run, out, true);
  EXPECT_EQ(read_file(out + "/layer-0-keys-tsne.svg"), first);
  EXPECT_EQ(read_file(out + "/index.html"), page);
  options.tsne.seed = 5;
  options.layer = 0;
  const InspectReport other = inspect_run(run, options);
  EXPECT_EQ(other.layers.size(), 1u);
  const std::string again = folder / "again";
  write_inspection(other, run, again, true);
  EXPECT_NE(read_file(again + "/layer-0-keys-tsne.svg"), first);
  for (const std::string& file : write_inspection(other, run, folder / "plain", false))
    EXPECT_FALSE(file.ends_with(".svg")) << file;
}

TEST(Metrics, EveryEvaluationTellsGateEntropyAndCliques) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder, {"data.long=cut"}));
  std::istringstream lines(read_file(run.paths.metrics()));
  int evaluations = 0;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json one = nlohmann::json::parse(line);
    if (one["kind"] != "eval") continue;
    ++evaluations;
    // Recomputes the run's logged numbers from the assignments of every position.
    CollectOptions collect;
    collect.predicted_only = true;
    const Choices choices = collect_assignments(*run.model, load_analysis_text(run, "", 0).data, collect);
    for (const auto& layer : one["layers"]) {
      const LayerAssignments& firings = choices.layers[layer["layer"].get<std::size_t>()];
      double entropy = 0;
      for (const float gate : firings.gates) entropy -= gate * std::log(gate);
      EXPECT_EQ(layer["sampled_positions"], choices.positions());
      EXPECT_NEAR(layer["gate_entropy"].get<double>(), entropy / static_cast<double>(choices.positions()), 1e-5);
      const std::vector<Clique> sets = frequent_sets(firings.experts, 2, 100000);
      EXPECT_EQ(layer["distinct_sets"], sets.size());
      EXPECT_EQ(layer["cliques"][0]["experts"], sets[0].experts);
      EXPECT_NEAR(layer["cliques"][0]["share"].get<double>(), sets[0].share, 1e-12);
      double top = 0;
      for (std::size_t i = 0; i < std::min<std::size_t>(4, sets.size()); ++i) top += sets[i].share;  // E / k = 4
      EXPECT_NEAR(layer["top_sets_share"].get<double>(), top, 1e-12);
    }
  }
  EXPECT_EQ(evaluations, 1);
}

TEST(Inspect, TellsWhatIsWrong) {
  TemporaryFolder folder;
  {
    OpenedRun run = open_tiny(train_tiny(folder));
    InspectOptions options;
    options.layer = 2;
    EXPECT_ERROR(inspect_run(run, options), Code::layer_out_of_range, "2", "1");
    options.layer.reset();
    options.tsne.perplexity = 50;
    EXPECT_ERROR(inspect_run(run, options), Code::option_invalid, "--perplexity", "50");
    options.tsne.perplexity = 0;
    options.data = folder / "absent.txt";
    EXPECT_ERROR(inspect_run(run, options), Code::file_not_found, options.data);
    options.data.clear();
    const InspectReport report = inspect_run(run, options);
    const std::string file = folder.write("file", "x");
    EXPECT_THROW(write_inspection(report, run, file, false), Error);
    GuildOptions guilds;
    guilds.layer = 7;
    EXPECT_ERROR(analyze_guilds(run, guilds), Code::layer_out_of_range, "7", "1");
    guilds.layer.reset();
    guilds.shuffles = 0;
    EXPECT_ERROR(analyze_guilds(run, guilds), Code::option_invalid, "--shuffles", "0");
  }
  TemporaryFolder other;
  OpenedRun dense = open_tiny(train_tiny(other, {"model.ffn=\"dense\"", "train.max_steps=1"}));
  EXPECT_ERROR((inspect_run(dense, {})), Code::experts_missing, dense.paths.folder, "dense");
  EXPECT_ERROR((analyze_guilds(dense, {})), Code::experts_missing, dense.paths.folder, "dense");
}

TEST(Inspect, TakesTheSmallestLibrary) {
  // Two experts: too few for t-SNE, and either one is never used or both are always used.
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder, {"some.experts=2", "some.top_k=1", "train.max_steps=2"}));
  InspectOptions options;
  const InspectReport report = inspect_run(run, options);
  EXPECT_FALSE(report.layers.at(0).maps->tsne.has_value());
  write_inspection(report, run, folder / "pictures", true);
  EXPECT_EQ(xml_problem(read_file(folder / "pictures/layer-0-keys-pca.svg")), "");
}

TEST(Inspect, ALayerThatDoesNotLearnShowsWhatTheStoriesChose) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder, {"some.frozen_layers=[1]"}));
  const nlohmann::json report = to_json(inspect_run(run, {}));
  EXPECT_EQ(report["layers"][0]["usage_of"], "training");
  const auto& frozen = report["layers"][1];
  EXPECT_EQ(frozen["usage_of"], "data");
  EXPECT_EQ(frozen["key_moved"]["max"], 0);
  EXPECT_GT(frozen["count"]["experts_used"].get<int>(), 1);
  EXPECT_EQ(frozen["count"], frozen["validation"]);
}

TEST(Guilds, RandomRoutingIsAGuildOfTokensByConstruction) {
  // Hash routing: the token determines the assignment, which is far from chance.
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder, {"some.routing=\"hash\"", "train.max_steps=2"}));
  GuildOptions options;
  options.shuffles = 30;
  options.min_count = 5;
  const nlohmann::json report = to_json(analyze_guilds(run, options));
  for (const auto& layer : report["layers"]) {
    const auto& token = layer["token"]["information"];
    EXPECT_LE(token["p"].get<double>(), 1.0 / 31 + 1e-9);
    EXPECT_GT(token["bits"].get<double>(), 2 * token["shuffled_mean"].get<double>());
    EXPECT_GT(token["bits"].get<double>(), layer["next_token"]["information"]["bits"].get<double>());
    // Each token has one set, so the tokens of a set belong only to it: their lift is the inverse of the set's share.
    const auto& set = layer["sets"][0];
    EXPECT_NEAR(set["tokens"][0]["lift"].get<double>(), 1 / set["share_of_positions"].get<double>(), 1e-6);
    double nouns = 0;
    for (const auto& one : layer["word_class"]["classes"]) nouns += one["class"] == "noun";
    EXPECT_EQ(nouns, 1);
    EXPECT_FALSE(layer["summary"].get<std::string>().empty());
  }
  double shares = 0;
  for (const auto& [name, share] : report["class_shares"].items()) shares += share.get<double>();
  EXPECT_NEAR(shares, 1, 1e-9);
}

}  // namespace
}  // namespace some

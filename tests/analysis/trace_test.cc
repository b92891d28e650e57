#include "analysis/trace.h"

#include <gtest/gtest.h>

#include "analysis/tiny_run.h"
#include "expect_error.h"
#include "inference/generate.h"

namespace some {
namespace {

TEST(Trace, ShowsTheExpertsOfTheTokenItselfAsDecodingChoosesThem) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder));
  const Trace trace = trace_text(run, "Once upon a time there was a dog.", parse_layers("", run.recipe.model));
  const auto k = static_cast<std::size_t>(run.recipe.model.top_k);
  ASSERT_GT(trace.choices.positions(), 5);
  // Token by token with the cache: another path through the model with one row per call, so that assignments are
  // unambiguous.
  Model::Cache cache = run.model->make_cache(1, run.recipe.model.seq_len);
  for (std::size_t t = 0; t < trace.choices.tokens.size(); ++t) {
    const auto observe = [&](int layer, const RouterTape& tape) {
      const std::vector<double> experts = read_vector(tape.routing.indices), gates = read_vector(tape.routing.gates);
      ASSERT_EQ(experts.size(), k);
      const LayerAssignments& firings = trace.choices.layers[static_cast<std::size_t>(layer)];
      double sum = 0;
      for (std::size_t i = 0; i < k; ++i) {
        EXPECT_EQ(firings.experts[t * k + i], static_cast<std::int32_t>(experts[i]))
            << "token " << t << " layer " << layer;
        EXPECT_NEAR(firings.gates[t * k + i], gates[i], 1e-4);
        sum += firings.gates[t * k + i];
      }
      EXPECT_NEAR(sum, 1, 1e-5);
    };
    run.ctx->arena->reset();
    run.model->decode(cache, {trace.choices.tokens[t]}, {0}, {static_cast<std::int32_t>(t)}, {0}, {}, {observe});
  }
  // The same from JSON: one object per token, in the text's order; concatenated they give the text.
  const nlohmann::json json = to_json(trace, run);
  std::string text;
  for (const auto& token : json["tokens"]) {
    text += token["text"].get<std::string>();
    EXPECT_EQ(token["layers"].size(), 2u);
    EXPECT_EQ(token["layers"][1]["experts"].size(), k);
  }
  EXPECT_EQ(text, "Once upon a time there was a dog.");
  EXPECT_FALSE(json["tokens"][0].contains("loss"));
  EXPECT_GT(json["tokens"][1]["loss"].get<double>(), 0);
}

TEST(Trace, TellsWhatIsWrong) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder));
  const ModelConfig& config = run.recipe.model;
  EXPECT_ERROR((trace_text(run, "", {0})), Code::prompt_empty);
  EXPECT_ERROR((trace_tokens(run, {run.tokenizer.unk_id(), run.tokenizer.unk_id()}, {0})), Code::prompt_empty);
  EXPECT_ERROR((trace_text(run, "dog", {2})), Code::layer_out_of_range, "2", "1");
  std::string long_text;
  for (int i = 0; i < 100; ++i) long_text += "zq xv ";
  EXPECT_ERROR((trace_text(run, long_text, {0})), Code::text_too_long, fmt::to_string(config.seq_len));
  EXPECT_EQ(parse_layers("1,0,1", config), (std::vector<int>{0, 1}));
  for (const char* bad : {"2", "0,", "x", "-1", "0;1", "1.5"})
    EXPECT_TRUE(error_in([&] { parse_layers(bad, config); })) << bad;
}

TEST(Trace, ThePageStandsAlone) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder));
  const Trace trace = trace_text(run, "a </script><script>alert('x')</script> & \"b\"", {0, 1});
  const std::string page = trace_page(trace, run);
  // The text cannot escape its element: only the page opens and closes scripts, and the data are read back unchanged.
  // (tests/analysis/pages_test.cc opens the page.)
  const std::string mark = "id=\"page-data\">";
  const std::size_t begin = page.find(mark) + mark.size();
  const nlohmann::json data = nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  EXPECT_EQ(data["views"]["trace"]["text"], trace.text);
  EXPECT_EQ(data["views"]["trace"]["tokens"].size(), trace.words.size());
}

TEST(Trace, RefusesARunWithoutExperts) {
  TemporaryFolder folder;
  OpenedRun run = open_tiny(train_tiny(folder, {"model.ffn=\"dense\"", "train.max_steps=1"}));
  EXPECT_ERROR((trace_text(run, "dog", {0})), Code::experts_missing, run.paths.folder, "dense");
}

}  // namespace
}  // namespace some

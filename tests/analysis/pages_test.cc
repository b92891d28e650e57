// The pages of trace, guilds, adapt and inspect, opened in a browser. The run's name and title contain markup that must
// be escaped on every page.
#include <gtest/gtest.h>

#include "analysis/adapt.h"
#include "analysis/guilds.h"
#include "analysis/inspect.h"
#include "analysis/tiny_run.h"
#include "analysis/trace.h"
#include "browser.h"

namespace some {
namespace {

using nlohmann::json;

const std::string harm = "<img src=x onerror=alert(1)>";

class Pages : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder = new TemporaryFolder;
    const Recipe recipe = load_recipe(
        SOME_SOURCE_DIR "/recipes/tiny.toml",
        {"train.max_steps=12", "train.save_keys_every=3", "data.train_documents=80", "data.valid_documents=12",
         "data.vocab=320", "train.device=cpu", "some.experts=24", "title=\"" + harm + "\""});
    start_run(recipe, *folder / harm, {});
  }
  static void TearDownTestSuite() {
    delete folder;
    folder = nullptr;
  }
  void SetUp() override {
    if (const std::string why = no_browser(); !why.empty()) GTEST_SKIP() << why;
  }
  OpenedRun open() const { return open_tiny(*folder / harm); }

  static TemporaryFolder* folder;
};
TemporaryFolder* Pages::folder = nullptr;

TEST_F(Pages, Trace) {
  OpenedRun run = open();
  const std::string text = "Once upon a time </script><script>alert(2)</script> <!-- there was & a \"dog\".";
  const Trace trace = trace_text(run, text, parse_layers("", run.recipe.model));
  const std::string html = trace_page(trace, run);
  // One cell of the field per token and layer.
  open_in_browser(*folder, "trace", html,
                  {{"texts", {harm, fmt::format("{} at step {}", harm, run.step), "script>"}},
                   {"charts", {{"trace-field", {{"selector", "svg path"}, {"least", 2 * trace.words.size()}}}}},
                   {"play", "trace"}});
}

TEST_F(Pages, Guilds) {
  OpenedRun run = open();
  GuildOptions options;
  options.shuffles = 20;
  options.min_count = 5;
  const GuildReport report = analyze_guilds(run, options);
  json cells = json::array();
  for (std::size_t i = 0; i < 3; ++i) {
    cells.push_back({{"table", "experts-1"},
                     {"row", i},
                     {"column", 1},
                     {"text", fmt::to_string(report.layers.at(1).experts.at(i).count)}});
  }
  open_in_browser(*folder, "guilds", guilds_page(report, run),
                  {{"texts", {harm, "Layer 1 (middle)"}},
                   {"cells", cells},
                   {"charts",
                    {{"beyond-chance", {{"selector", "svg path"}, {"least", 8}}},
                     {"classes-0", {{"selector", "svg path"}, {"least", 8 * 5}}}}}});
}

TEST_F(Pages, Adapt) {
  OpenedRun run = open();
  AdaptOptions options;
  options.data = "builtin:recipes";
  options.max_documents = 40;
  options.max_eval_documents = 10;
  const AdaptReport report = adapt_run(run, options);
  const std::string gini = fmt::format("{:.3f}", report.layers[0].usage_after.gini);
  open_in_browser(*folder, "adapt", adapt_page(report, run),
                  {{"texts", {harm, "builtin:recipes", "uniform guessing"}},
                   {"cells", {{{"table", "layers"}, {"row", 0}, {"column", 4}, {"text", gini}}}},
                   {"charts",
                    {{"loss", {{"selector", "svg path[fill='none']"}, {"least", 2}}},
                     {"gain", {{"selector", "svg path[fill='none']"}, {"least", 2}}}}}});
}

TEST_F(Pages, Inspect) {
  OpenedRun run = open();
  open_in_browser(*folder, "inspect", inspect_page(inspect_run(run, {}), run),
                  {{"texts", {harm, "Layer 1 (middle)"}},
                   {"charts",
                    {{"keys-1", {{"selector", "svg path"}, {"least", 3 * 24}}},
                     {"usage-0", {{"selector", "svg path"}, {"least", 5}}}}},
                   {"play", "keys"}});
}

}  // namespace
}  // namespace some

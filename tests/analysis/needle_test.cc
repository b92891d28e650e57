#include "analysis/needle/needle.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "expect_error.h"
#include "plot/document.h"
#include "tiny_run.h"
#include "train/remember.h"

namespace some {
namespace {

TEST(Facts, AreAboutDifferentThingsAndEveryAnswerIsAsFrequent) {
  const FactSet set = make_facts(max_facts(), 7);
  ASSERT_EQ(std::ssize(set.facts), max_facts());
  std::set<std::string> verbatim, reworded;
  std::map<std::size_t, std::int64_t> counts;
  for (const Fact& fact : set.facts) {
    const std::string& answer = set.answers.at(fact.answer);
    EXPECT_EQ(fact.statement, fact.verbatim + " " + answer + ".");
    EXPECT_EQ(fact.reworded.find(answer), std::string::npos) << fact.reworded;
    verbatim.insert(fact.verbatim.substr(fact.verbatim.find(" the ")));
    reworded.insert(fact.reworded);
    ++counts[fact.answer];
  }
  EXPECT_EQ(verbatim.size(), set.facts.size()) << "the last words before the answer name the thing";
  EXPECT_EQ(reworded.size(), set.facts.size());
  EXPECT_EQ(counts.size(), set.answers.size());
  for (const auto& [answer, count] : counts) EXPECT_EQ(count, max_facts() / std::ssize(set.answers));
  EXPECT_EQ(make_facts(20, 7).facts[3].statement, make_facts(20, 7).facts[3].statement);
  EXPECT_NE(make_facts(20, 7).facts[3].statement, make_facts(20, 8).facts[3].statement);
}

class Needle : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    run_ = train_tiny(*folder_, {"data.vocab=2000", "data.train_documents=300"});
  }
  static void TearDownTestSuite() { delete folder_; }
  static NeedleOptions small() {
    NeedleOptions options;
    options.data = "builtin:stories";
    options.tokens = {900, 2000};
    options.others = {4, 60};
    options.facts = 8;
    options.choices.contexts = 8;
    options.choices.slots = 512;
    return options;
  }
  static const NeedleResult& of(const NeedleRow& row, NeedleMethod method) {
    return row.results.at(static_cast<std::size_t>(method));
  }
  static TemporaryFolder* folder_;
  static std::string run_;
};
TemporaryFolder* Needle::folder_ = nullptr;
std::string Needle::run_;

TEST_F(Needle, AHaystackIsTheTextWithEveryFactOnce) {
  OpenedRun run = open_tiny(run_);
  const FactSet set = make_facts(8, 1);
  const TokenData data = load_tokens(*run.ctx, "builtin:stories", run.recipe.data, run.tokenizer, 40, "");
  std::vector<std::vector<std::int32_t>> documents;
  for (std::int64_t i = 0; i < data.documents(); ++i) documents.push_back(data.ids(i));
  const Haystack haystack = make_haystack(documents, run.tokenizer, set, 900, 5);
  EXPECT_EQ(haystack.tokens.size(), 900u);
  ASSERT_EQ(haystack.places.size(), 8u);
  std::vector<std::int32_t> rest;
  std::int64_t done = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    const std::vector<TokenId> fact = run.tokenizer.encode(" " + set.facts[i].statement);
    const auto place = haystack.tokens.begin() + haystack.places[i];
    EXPECT_TRUE(std::equal(fact.begin(), fact.end(), place)) << set.facts[i].statement;
    const std::string before = run.tokenizer.decode(std::span(haystack.tokens).subspan(0, haystack.places[i]));
    EXPECT_NE(std::string(".!?").find(before.back()), std::string::npos) << before;
    rest.insert(rest.end(), haystack.tokens.begin() + done, place);
    done = haystack.places[i] + std::ssize(fact);
  }
  rest.insert(rest.end(), haystack.tokens.begin() + done, haystack.tokens.end());
  std::vector<std::int32_t> all;
  for (const auto& document : documents) all.insert(all.end(), document.begin(), document.end());
  ASSERT_LE(rest.size(), all.size());
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), all.begin())) << "the text itself is unchanged";
}

TEST_F(Needle, CountsFindWhatIsAskedVerbatimAndTheModelDoesNot) {
  OpenedRun run = open_tiny(run_);
  const NeedleReport report = measure_needles(run, small());
  ASSERT_EQ(report.lengths.size(), 2u);
  ASSERT_EQ(report.retention.size(), 2u);
  EXPECT_EQ(report.answers, 8);
  for (const NeedleRow& row : report.lengths) {
    for (const NeedleMethod method : {NeedleMethod::counter, NeedleMethod::contexts, NeedleMethod::both})
      EXPECT_GE(of(row, method).verbatim.right, 0.9) << name_of(method) << " in " << row.tokens;
    // A model that has not read the facts guesses: 1 of 8.
    EXPECT_LE(of(row, NeedleMethod::model).verbatim.right, 0.5);
    EXPECT_LT(of(row, NeedleMethod::both).verbatim.loss, of(row, NeedleMethod::model).verbatim.loss - 1);
    // No context of five tokens is equal.
    EXPECT_LE(of(row, NeedleMethod::counter).reworded.right, 0.5);
    for (const NeedleResult& one : row.results) {
      for (const NeedleScore& score : {one.verbatim, one.reworded}) {
        EXPECT_GE(score.right, 0);
        EXPECT_LE(score.right, 1);
        EXPECT_GT(score.loss, 0);
      }
    }
  }
  // The model gives the same results whatever the memory has read.
  EXPECT_EQ(of(report.lengths[0], NeedleMethod::model).verbatim.loss,
            of(report.retention[1], NeedleMethod::model).verbatim.loss);
  EXPECT_EQ(report.retention[0].others, 4);
  EXPECT_GT(report.retention[1].other_tokens, report.retention[0].other_tokens);

  // A store that is too small for the other texts forgets.
  NeedleOptions little = small();
  little.tokens = {900};
  little.others = {60};
  little.choices.context_entries = min_context_entries;
  const NeedleReport forgot = measure_needles(run, little);
  EXPECT_LT(of(forgot.retention[0], NeedleMethod::contexts).verbatim.right,
            of(report.retention[1], NeedleMethod::contexts).verbatim.right);

  const nlohmann::json json = to_json(report);
  EXPECT_EQ(json["chance"], 0.125);
  EXPECT_EQ(json["lengths"][1]["methods"][2]["method"], "counter");
  const std::string page = needle_page(report, run);
  EXPECT_NE(page.find("lengths-verbatim"), std::string::npos);
  EXPECT_NE(page.find("slots and contexts"), std::string::npos);
}

TEST_F(Needle, IsTheSameOnAnyNumberOfThreads) {
  NeedleOptions options = small();
  options.tokens = {900};
  options.others = {};
  options.repeats = 2;
  std::vector<std::string> found;
  for (const int threads : {1, 3}) {
    OpenedRun run = open_run(run_, {"latest", on_cpu, {}, make_host(threads)});
    nlohmann::json json = to_json(measure_needles(run, options));
    json.erase("seconds");
    found.push_back(json.dump());
  }
  EXPECT_EQ(found[0], found[1]);
}

TEST_F(Needle, RefusesWhatCannotBeMeasured) {
  OpenedRun run = open_tiny(run_);
  const auto refused = [&](const auto& change) {
    NeedleOptions options = small();
    change(options);
    return error_in([&] { measure_needles(run, options); });
  };
  EXPECT_TRUE(is_bad_input(refused([](NeedleOptions& o) { o.facts = 100; }), Code::option_invalid, {"100", "900"}));
  EXPECT_TRUE(is_bad_input(refused([](NeedleOptions& o) { o.facts = 0; }), Code::option_invalid, {"--facts", "0"}));
  EXPECT_TRUE(is_bad_input(refused([](NeedleOptions& o) { o.tokens = {3}; }), Code::option_invalid, {"--tokens", "3"}));
  EXPECT_TRUE(is_bad_input(refused([](NeedleOptions& o) { o.tokens.clear(); }), Code::option_invalid, {"--tokens"}));
  EXPECT_TRUE(is_bad_input(refused([](NeedleOptions& o) { o.others = {-1}; }), Code::option_invalid, {"--others"}));
  EXPECT_TRUE(is_bad_input(refused([](NeedleOptions& o) { o.choices.contexts = 0; }), Code::option_invalid,
                           {"--contexts", "0"}));
  const std::string brief = folder_->write("brief.txt", "A short text. It ends soon.\n");
  EXPECT_TRUE(is_bad_input(refused([&](NeedleOptions& o) { o.data = brief; }), Code::data_nothing_to_predict));
  NeedleOptions options = small();
  int asked = 0;
  options.stop = [&asked] { return ++asked > 1; };
  const NeedleReport stopped = measure_needles(run, options);
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.lengths.size(), 1u);
}

}  // namespace
}  // namespace some

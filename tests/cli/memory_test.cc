// A memory from the user's side: editing keeps its values unchanged, names and links resolve correctly, overlap with an
// evaluation text is reported, and a read-only run can be used for reading.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/run_command.h"
#include "core/files/files.h"
#include "memory/memory_file.h"
#include "runtime/context.h"
#include "without_rights.h"

namespace some {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class MemoryCommands : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    ASSERT_EQ(some({"train", std::string(SOME_SOURCE_DIR) + "/recipes/tiny.toml", "train.max_steps=6",
                    "data.train_documents=60", "data.valid_documents=12", "--device", "cpu"})
                  .code,
              0);
    folder_->write("a.txt", "The fox likes plum jam. The fox likes plum jam, and the bear likes it too.\n");
    folder_->write("b.txt", "The bear likes pears. The bear likes pears, and so does the fox.\n");
  }
  static void TearDownTestSuite() { delete folder_; }
  static CommandResult some(const std::vector<std::string>& arguments, const std::string& input = "") {
    return run_command(folder_->path(), arguments, input);
  }
  static CommandResult read(const std::string& memory, std::vector<std::string> more) {
    more.insert(more.begin(), {"read", "runs/tiny", "--memory", memory, "--slots", "100", "--device", "cpu"});
    return some(more);
  }
  static TemporaryFolder* folder_;
};
TemporaryFolder* MemoryCommands::folder_ = nullptr;

TEST_F(MemoryCommands, TendingKeepsTheNumbersAsTheyAre) {
  const auto precision = [](const std::string& file) { return precision_of(*folder_ / file); };
  ASSERT_EQ(read("exact", {"a.txt", "b.txt", "--precision", "f64", "--original", "0"}).code, 0);
  ASSERT_EQ(read("only-a", {"a.txt", "--precision", "f64", "--original", "0"}).code, 0);
  ASSERT_EQ(read("plain", {"b.txt", "--original", "0"}).code, 0);
  ASSERT_EQ(precision("exact"), Precision::f64);
  ASSERT_EQ(precision("plain"), Precision::fp32);
  const CommandResult forgotten = some({"memory", "forget", "exact", "./b.txt", "-o", "left"});
  ASSERT_EQ(forgotten.code, 0) << forgotten.err;
  EXPECT_EQ(read_file(*folder_ / "left"), read_file(*folder_ / "only-a")) << "as if it had never been read";
  EXPECT_EQ(some({"memory", "prune", "exact", "-o", "pruned"}).code, 0);
  EXPECT_EQ(precision("pruned"), Precision::f64);
  EXPECT_EQ(some({"memory", "merge", "only-a", "plain", "-o", "merged"}).code, 0);
  EXPECT_EQ(precision("merged"), Precision::f64);
  EXPECT_EQ(some({"memory", "merge", "plain", "only-a", "-o", "merged"}).code, 0);
  EXPECT_EQ(precision("merged"), Precision::fp32);
  EXPECT_EQ(some({"memory", "forget", "plain", "1", "-o", "empty"}).code, 0);
  EXPECT_EQ(precision("empty"), Precision::fp32);
  // Learning with lower precision would round it; showing it does not.
  const std::string before = read_file(*folder_ / "only-a");
  const std::vector<std::vector<std::string>> rounding{
      {"read", "runs/tiny", "b.txt", "--memory", "only-a", "--device", "cpu"},
      {"generate", "runs/tiny", "--prompt", "The fox", "--memory", "only-a", "--learn", "--device", "cpu"},
      {"chat", "runs/tiny", "--memory", "only-a", "--learn", "--device", "cpu"}};
  for (const std::vector<std::string>& call : rounding) {
    const CommandResult rounds = some(call);
    EXPECT_EQ(rounds.code, 2) << call[0];
    EXPECT_TRUE(says(rounds, Code::memory_settings, {"only-a"}));
  }
  EXPECT_EQ(some({"eval", "runs/tiny", "--memory", "only-a", "--device", "cpu"}).code, 0);
  EXPECT_EQ(read_file(*folder_ / "only-a"), before);
  EXPECT_EQ(some({"read", "runs/tiny", "b.txt", "--memory", "only-a", "--precision", "f64", "--device", "cpu"}).code,
            0);
  EXPECT_EQ(read_file(*folder_ / "only-a"), read_file(*folder_ / "exact")) << "read on";
  const CommandResult wrong = some({"memory", "prune", "a.txt"});
  EXPECT_EQ(wrong.code, 2) << wrong.err;
}

// Shares are fractions of the token's probability: those of the passages are parts of their kind's. Returns the share
// of contexts.
double check_sources(const Json& memory) {
  const double slots = memory["slots_share"], contexts = memory["contexts_share"], rounding = 1e-5;
  EXPECT_GE(slots, 0);
  EXPECT_GE(contexts, 0);
  EXPECT_NEAR(slots + contexts, memory["share"].get<double>(), rounding) << memory;
  EXPECT_LE(slots + contexts, 1 + rounding) << memory;
  double of_slots = 0, of_contexts = 0, last = 2;
  for (const Json& one : memory["passages"]) {
    EXPECT_LE(one["share"], last) << "the largest first";
    last = one["share"];
    const bool context = one["kind"] == "context";
    (context ? of_contexts : of_slots) += last;
    EXPECT_EQ(one.contains("seen") && one["seen"] >= 1, context) << one;
  }
  EXPECT_LE(of_slots, slots + rounding) << memory;
  EXPECT_LE(of_contexts, contexts + rounding) << memory;
  return contexts;
}

TEST_F(MemoryCommands, ContextsAreShownWithTheirPlaces) {
  const std::vector<std::string> contexts{"--contexts", "3", "--context-entries", "2000", "--original", "0"};
  const auto reads = [&](const std::string& memory, std::vector<std::string> texts) {
    texts.insert(texts.end(), contexts.begin(), contexts.end());
    return read(memory, texts);
  };
  const CommandResult told = reads("counts", {"a.txt", "b.txt", "--json"});
  ASSERT_EQ(told.code, 0) << told.err;
  EXPECT_GT(Json::parse(told.out)["memory"]["contexts"]["entries"], 10);
  ASSERT_EQ(reads("counts-a", {"a.txt"}).code, 0);
  ASSERT_EQ(some({"memory", "forget", "counts", "./b.txt", "-o", "counts-left"}).code, 0);
  EXPECT_EQ(read_file(*folder_ / "counts-left"), read_file(*folder_ / "counts-a")) << "as if it had never been read";
  const CommandResult shown = some({"memory", "show", "counts", "--json"});
  ASSERT_EQ(shown.code, 0) << shown.err;
  const Json known = Json::parse(shown.out)["contexts"];
  ASSERT_FALSE(known["strongest"].empty());
  EXPECT_GE(known["strongest"][0]["seen"], 2);
  EXPECT_EQ(known["strongest"][0]["born"]["token"], known["strongest"][0]["token"]);
  EXPECT_EQ(known["weights"].size(), 5u) << "orders 0 to 3, and the single follower";
  const CommandResult traced = some(
      {"trace", "runs/tiny", "--text", "The fox likes plum jam", "--memory", "counts", "--json", "--device", "cpu"});
  ASSERT_EQ(traced.code, 0) << traced.err;
  double share = 0;
  const Json trace = Json::parse(traced.out);
  for (const Json& token : trace["tokens"]) {
    if (!token.contains("memory")) continue;
    share = std::max(share, check_sources(token["memory"]));
  }
  EXPECT_GT(share, 0.1) << "of contexts";
  const CommandResult table =
      some({"trace", "runs/tiny", "--text", "The fox likes plum jam", "--memory", "counts", "--device", "cpu"});
  EXPECT_NE(table.out.find("% context of "), std::string::npos) << table.out;
  const std::vector<std::string> writes{
      "generate", "runs/tiny", "--prompt", "The fox likes", "--max-tokens",  "6", "--ignore-eos", "--memory",
      "counts",   "--sources", "--device", "cpu",           "--temperature", "0"};
  std::vector<std::string> in_json = writes;
  in_json.insert(in_json.end(), {"--json", "--samples", "2"});
  const CommandResult written = some(in_json);
  ASSERT_EQ(written.code, 0) << written.err;
  share = 0;
  const Json all_written = Json::parse(written.out);
  for (const Json& sample : all_written["samples"]) {
    ASSERT_EQ(sample["sources"].size(), 6u) << sample;
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(sample["sources"][i]["index"], sample["sources"][0]["index"].get<std::size_t>() + i);
      EXPECT_GT(sample["sources"][i]["probability"], 0);
      share = std::max(share, check_sources(sample["sources"][i]));
    }
  }
  EXPECT_GT(share, 0.1);
  EXPECT_NE(some(writes).out.find("model  slots  contexts"), std::string::npos);
  const CommandResult talked =
      some({"chat", "runs/tiny", "--memory", "counts", "--max-tokens", "4", "--device", "cpu"}, "The fox\n/sources\n");
  EXPECT_EQ(talked.code, 0) << talked.err;
  EXPECT_NE(talked.out.find("model  slots  contexts"), std::string::npos) << talked.out;
  EXPECT_TRUE(says(some({"generate", "runs/tiny", "--prompt", "The fox", "--sources"}), Code::option_needs_another,
                   {"--sources"}));
  EXPECT_EQ(some({"memory", "show", "counts"}).code, 0);
  EXPECT_EQ(some({"memory", "prune", "counts", "-o", "counts-pruned"}).code, 0);
  EXPECT_EQ(some({"memory", "merge", "counts-a", "counts", "-o", "counts-both"}).code, 0);
  EXPECT_EQ(some({"generate", "runs/tiny", "--prompt", "The fox", "--max-tokens", "5", "--memory", "counts-both",
                  "--device", "cpu"})
                .code,
            0);
}

TEST_F(MemoryCommands, ATextThatItHasReadIsReported) {
  const CommandResult stories = read("stories", {"builtin:stories", "--max-documents", "4"});
  ASSERT_EQ(stories.code, 0) << stories.err;
  EXPECT_TRUE(says(stories, Code::text_overlap, {"4", "12"}));
  const CommandResult eval = some({"eval", "runs/tiny", "--memory", "stories", "--json", "--device", "cpu"});
  ASSERT_EQ(eval.code, 0) << eval.err;
  EXPECT_TRUE(says(eval, Code::text_overlap, {"4", "12"}));
  EXPECT_EQ(Json::parse(eval.out)["memory"]["known"], 4);
  const CommandResult other = read("other", {"a.txt"});
  ASSERT_EQ(other.code, 0) << other.err;
  EXPECT_EQ(other.err.find("warning"), std::string::npos) << other.err;
}

// Runs every command that only reads a run, in a folder without write permission.
void expect_readable(const std::string& folder, const TemporaryFolder& writable) {
  const std::vector<std::vector<std::string>> calls{
      {"eval", "runs/tiny"},
      {"eval", "runs/tiny", "--data", "a.txt", "--memory", "runs/tiny/memory.safetensors"},
      {"read", "runs/tiny", "b.txt", "--slots", "50", "--memory", writable / "memory"},
      {"read", "runs/tiny", "b.txt", "--frozen"},
      {"generate", "runs/tiny", "--prompt", "Once", "--max-tokens", "5"},
      {"generate", "runs/tiny", "--prompt", "Once", "--max-tokens", "5", "--memory", writable / "said", "--learn"},
      {"trace", "runs/tiny", "--text", "The fox"},
      {"memory", "show", "runs/tiny/memory.safetensors"},
      {"memory", "prune", "runs/tiny/memory.safetensors", "-o", writable / "pruned"},
      {"guilds", "runs/tiny", "--shuffles", "5"}};
  for (const std::vector<std::string>& call : calls) {
    std::string shown;
    for (const std::string& word : call) shown += word + " ";
    const CommandResult result = run_command(folder, call);
    EXPECT_EQ(result.code, 0) << shown << "\n" << result.err;
  }
}

TEST_F(MemoryCommands, ARunWithoutACacheIsReadAllTheSame) {
  TemporaryFolder folder, writable;
  fs::copy(folder_->path(), folder.path(), fs::copy_options::recursive);
  ASSERT_EQ(run_command(folder.path(), {"read", "runs/tiny", "a.txt", "--slots", "100"}).code, 0);
  fs::remove_all(folder / "runs/cache");
  folder.write("runs/cache", "in the way");
  expect_readable(folder.path(), writable);
  EXPECT_EQ(read_file(folder / "runs/cache"), "in the way");
}

TEST_F(MemoryCommands, ARunThatMayOnlyBeReadIsRead) {
  TemporaryFolder folder;
  fs::copy(folder_->path(), folder.path(), fs::copy_options::recursive);
  ASSERT_EQ(run_command(folder.path(), {"read", "runs/tiny", "a.txt", "--slots", "100"}).code, 0);
  fs::remove_all(folder / "runs/cache");
  const WithoutRights nobody(folder.path());
  const std::string why_not = nobody.why_not(std::string(SOME_BINARY_DIR) + "/some");
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  const TemporaryFolder writable;
  std::vector<fs::path> folders{folder.path()};
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  const auto allow_writing = [&](fs::perm_options how) {
    for (const fs::path& one : folders) fs::permissions(one, fs::perms::owner_write, how);
  };
  allow_writing(fs::perm_options::remove);
  expect_readable(folder.path(), writable);
  // A memory that would be saved in the run's folder is rejected with a hint to --memory.
  const CommandResult result = run_command(folder.path(), {"read", "runs/tiny", "b.txt"});
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(says(result, Code::memory_not_kept, {"runs/tiny", "--memory"}));
  const CommandResult kept = run_command(folder.path(), {"read", "runs/tiny", "b.txt", "--memory", "m"});
  EXPECT_EQ(kept.code, 1);
  EXPECT_TRUE(says(kept, Code::file_unwritable, {"m"}));
  const std::vector<std::string> on{"read", "runs/tiny", "b.txt", "--memory", "runs/tiny/memory.safetensors"};
  EXPECT_TRUE(says(run_command(folder.path(), on), Code::memory_not_kept, {"runs/tiny/memory.safetensors"}));
  allow_writing(fs::perm_options::add);
}

}  // namespace
}  // namespace some

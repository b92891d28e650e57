// Labels of runs, and the trash: what is stored, what is refused, and that nothing is lost.
#include "runs/run_labels.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/files/files.h"
#include "core/files/folders.h"
#include "expect_error.h"
#include "runs/run_lock.h"
#include "runs/trash.h"
#include "temporary_folder.h"

namespace some {
namespace {

namespace fs = std::filesystem;

TEST(RunLabels, AreWrittenAndReadBack) {
  TemporaryFolder folder;
  EXPECT_EQ(read_run_labels(folder.path()), RunLabels{});
  const RunLabels labels{"Größe <b>&", {"baseline", "keep it"}, "line 1\nline 2 \"quoted\""};
  write_run_labels(folder.path(), labels);
  EXPECT_EQ(read_run_labels(folder.path()), labels);
  write_run_labels(folder.path(), {});
  EXPECT_EQ(folder.entries(), 0U) << "no labels, no file";
}

TEST(RunLabels, RefuseWhatCannotBeShown) {
  TemporaryFolder folder;
  const auto refused = [&](const nlohmann::json& object, const std::string& value) {
    EXPECT_ERROR(parse_run_labels(object, "labels"), Code::request_invalid, value);
  };
  refused({{"name", std::string(201, 'x')}}, "200");
  refused({{"name", "two\nlines"}}, "labels: name");
  refused({{"name", "\x1b[31m"}}, "labels: name");
  refused({{"name", "half \xff"}}, "labels: name");
  refused({{"note", std::string(10001, 'x')}}, "10000");
  refused({{"tags", std::vector<std::string>(21, "a")}}, "20");
  refused({{"tags", {""}}}, "labels: tags");
  refused({{"tags", {"a,b"}}}, "labels: tags");
  EXPECT_THROW(parse_run_labels({{"name", 3}}, "labels"), Error);
  EXPECT_EQ(parse_run_labels({{"tags", {"b", "a", "b"}}}, "labels").tags, (std::vector<std::string>{"a", "b"}));
  folder.write("labels.json", "{not json");
  EXPECT_THROW(read_run_labels(folder.path()), Error);
  EXPECT_THROW(write_run_labels(folder.path(), {std::string(201, 'x'), {}, ""}), Error);
  EXPECT_EQ(read_file(labels_file(folder.path())), "{not json") << "a refused change leaves the file";
}

class Trash : public ::testing::Test {
 protected:
  std::string make_run(const std::string& name) const {
    folder_.write(name + "/config.toml", "title = \"" + name + "\"\n");
    folder_.write(name + "/checkpoints/step-1/model", "weights");
    return folder_ / name;
  }
  TemporaryFolder folder_;
};

TEST_F(Trash, ADeletedRunComesBackAsItWas) {
  const std::string run = make_run("one");
  const TrashedRun trashed = move_to_trash(run + "/");
  EXPECT_FALSE(fs::exists(run));
  EXPECT_EQ(trashed.name, "one");
  const auto all = list_trash(folder_.path());
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].folder, trashed.folder);
  EXPECT_EQ(all[0].original, run);
  EXPECT_EQ(all[0].when.size(), 19U);
  EXPECT_EQ(restore_from_trash(trashed.folder), run);
  EXPECT_EQ(read_file(run + "/checkpoints/step-1/model"), "weights");
  EXPECT_FALSE(fs::exists(folder_ / ".trash")) << "an empty trash folder is removed";
}

TEST_F(Trash, RunsOfOneNameDoNotReplaceEachOther) {
  const TrashedRun first = move_to_trash(make_run("one"));
  make_run("one");
  const TrashedRun second = move_to_trash(folder_ / "one");
  EXPECT_NE(first.folder, second.folder);
  EXPECT_EQ(list_trash(folder_.path()).size(), 2U);
  restore_from_trash(first.folder);
  EXPECT_ERROR(restore_from_trash(second.folder), Code::run_exists, folder_ / "one");
  EXPECT_TRUE(fs::exists(second.folder)) << "what is in the way is not replaced, and what cannot come back stays";
}

TEST_F(Trash, RefusesWhatItMustNotMove) {
  const std::string run = make_run("one");
  {
    const RunLock training(run);
    EXPECT_ERROR(move_to_trash(run), Code::run_locked, run);
  }
  fs::create_directory(folder_ / "none");
  EXPECT_ERROR(move_to_trash(folder_ / "none"), Code::run_not_found, folder_ / "none");
  EXPECT_ERROR(move_to_trash(folder_ / "nowhere"), Code::run_not_found, folder_ / "nowhere");
  fs::create_directory_symlink(run, folder_ / "link");
  EXPECT_ERROR(move_to_trash(folder_ / "link"), Code::run_not_found, folder_ / "link");
  TemporaryFolder outside;
  fs::create_directory_symlink(outside.path(), folder_ / ".trash");
  EXPECT_ERROR(move_to_trash(run), Code::link_broken, folder_ / ".trash");
  EXPECT_TRUE(list_trash(folder_.path()).empty());
  EXPECT_EQ(outside.entries(), 0U);
  EXPECT_TRUE(fs::exists(run + "/config.toml"));
  for (const std::string& path : {run, folder_ / ".trash", folder_ / ".trash/../one", std::string("/etc")})
    EXPECT_ERROR(restore_from_trash(path), Code::run_not_found, path == folder_ / ".trash/../one" ? run : path);
}

}  // namespace
}  // namespace some

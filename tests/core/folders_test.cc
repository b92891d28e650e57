#include "core/files/folders.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <thread>

#include "core/error.h"
#include "core/files/files.h"
#include "core/system_error.h"
#include "temporary_folder.h"

namespace some {
namespace {

namespace fs = std::filesystem;

TEST(Folders, UnreadableEntriesAreErrorsNotMissing) {
  const TemporaryFolder folder;
  EXPECT_FALSE(exists_path(folder / "absent"));
  EXPECT_FALSE(exists_path(folder / ("absent/" + std::string(5000, 'x'))));
  EXPECT_THROW(list_folder(folder / "absent"), Error);
  fs::create_symlink("not mounted", folder / "link");
  fs::create_symlink("loop", folder / "loop");
  fs::create_symlink("file/inside", folder / "into a file");
  folder.write("file", "");
  for (const char* name : {"link", "loop", "into a file"}) {
    SCOPED_TRACE(name);
    EXPECT_THROW(exists_path(folder / name), Error);
    EXPECT_THROW(folder_exists(folder / name), Error);
    EXPECT_THROW(file_exists(folder / name), Error);
    EXPECT_THROW(list_folder(folder / name), Error);
    EXPECT_TRUE(is_link(folder / name));
  }
  EXPECT_TRUE(file_exists(folder / "file"));
  EXPECT_FALSE(folder_exists(folder / "file"));
  EXPECT_FALSE(exists_path(folder / "file/inside"));
  EXPECT_FALSE(file_exists(folder.path()));
  EXPECT_EQ(list_folder(folder.path()), (std::vector<std::string>{"file", "into a file", "link", "loop"}));
}

// 'some board' watches folders while runs write to them: a file that appears or vanishes between two calls is not an
// error.
TEST(Folders, WhatComesAndGoesMeanwhileIsThereOrNot) {
  const TemporaryFolder folder;
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) {
      folder.write("new", "");
      fs::rename(folder / "new", folder / "file");
      fs::remove(folder / "file");
    }
  });
  bool seen = false, missed = false;
  for (int i = 0; i < 200000 || !(seen && missed); ++i) {
    try {
      (exists_path(folder / "file") ? seen : missed) = true;
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
      break;
    }
  }
  over = true;
  other.join();
}

TEST(Folders, WhatAKillLeftGoesUnlessSomebodyIsAtIt) {
  const TemporaryFolder folder;
  for (const char* name : {"a.tmp-1-0", "b.tmp-99-12", "held.tmp-7-1", "a.tmp-x", "a.tmp-1", "tmp-1-0"})
    folder.write(name, "half");
  const int held = open((folder / "held.tmp-7-1").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(flock(held, LOCK_EX | LOCK_NB), 0);
  remove_temporary_files(folder.path());
  EXPECT_EQ(list_folder(folder.path()), (std::vector<std::string>{"a.tmp-1", "a.tmp-x", "held.tmp-7-1", "tmp-1-0"}));
  close(held);
  remove_temporary_files(folder.path());
  EXPECT_FALSE(exists_path(folder / "held.tmp-7-1"));
}

TEST(Folders, AFileBeingWrittenIsNotTidiedAway) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "a", [&](const ByteSink& sink) {
    remove_temporary_files(folder.path());
    sink("whole", 5);
    remove_temporary_files(folder.path());
  });
  EXPECT_EQ(read_file(folder / "a"), "whole");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Folders, AnOutputFileTakesItsOwnLeftoversWithIt) {
  const TemporaryFolder folder;
  folder.write("page.html.tmp-5-0", "half");
  folder.write("other.html.tmp-5-0", "half");
  write_output_file(folder / "page.html", "whole");
  EXPECT_EQ(list_folder(folder.path()), (std::vector<std::string>{"other.html.tmp-5-0", "page.html"}));
}

TEST(Reason, SaysWhatToDo) {
  for (const int error : {ENOSPC, EACCES, EROFS, EMFILE, EIO, ESTALE, EDQUOT, ENOMEM, ENOENT})
    EXPECT_NE(reason_of(error).find("; "), std::string::npos) << reason_of(error);
}

}  // namespace
}  // namespace some

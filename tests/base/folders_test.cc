#include "base/folders.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/reason.h"
#include "temporary_folder.h"

namespace some {
namespace {

namespace fs = std::filesystem;

TEST(Folders, WhatCannotBeLookedAtIsAnErrorNotNothing) {
  const TemporaryFolder folder;
  EXPECT_FALSE(there_is(folder / "absent"));
  EXPECT_FALSE(there_is(folder / ("absent/" + std::string(5000, 'x'))));
  EXPECT_THROW(list_folder(folder / "absent"), Error);
  fs::create_symlink("not mounted", folder / "link");
  fs::create_symlink("loop", folder / "loop");
  for (const char* name : {"link", "loop"}) {
    SCOPED_TRACE(name);
    EXPECT_THROW(there_is(folder / name), Error);
    EXPECT_THROW(there_is_folder(folder / name), Error);
    EXPECT_THROW(there_is_file(folder / name), Error);
    EXPECT_THROW(list_folder(folder / name), Error);
    EXPECT_TRUE(is_link(folder / name));
  }
  folder.write("file", "");
  EXPECT_TRUE(there_is_file(folder / "file"));
  EXPECT_FALSE(there_is_folder(folder / "file"));
  EXPECT_FALSE(there_is(folder / "file/inside"));
  EXPECT_FALSE(there_is_file(folder.path()));
  EXPECT_EQ(list_folder(folder.path()), (std::vector<std::string>{"file", "link", "loop"}));
}

TEST(Folders, WhatAKillLeftGoesUnlessSomebodyIsAtIt) {
  const TemporaryFolder folder;
  for (const char* name : {"a.tmp-1-0", "b.tmp-99-12", "held.tmp-7-1", "a.tmp-x", "a.tmp-1", "tmp-1-0"})
    folder.write(name, "half");
  const int held = open((folder / "held.tmp-7-1").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(flock(held, LOCK_EX | LOCK_NB), 0);
  remove_half_written_files(folder.path());
  EXPECT_EQ(list_folder(folder.path()), (std::vector<std::string>{"a.tmp-1", "a.tmp-x", "held.tmp-7-1", "tmp-1-0"}));
  close(held);
  remove_half_written_files(folder.path());
  EXPECT_FALSE(there_is(folder / "held.tmp-7-1"));
}

TEST(Folders, AFileBeingWrittenIsNotTidiedAway) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "a", [&](const ByteSink& sink) {
    remove_half_written_files(folder.path());
    sink("whole", 5);
    remove_half_written_files(folder.path());
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

#include "core/files/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <stdexcept>

#include "core/log.h"
#include "expect_error.h"
#include "temporary_folder.h"

namespace some {
namespace {

TEST(Files, WritesAndReadsBack) {
  const TemporaryFolder folder;
  std::string contents(3 << 20, 'x');
  contents[5] = '\0';
  write_file_atomic(folder.file("a"), contents);
  EXPECT_EQ(read_file(folder.file("a")), contents);
  write_file_atomic(folder.file("a"), "");
  EXPECT_EQ(read_file(folder.file("a")), "");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Files, ReadsWhatHasNoSize) { EXPECT_NE(read_file("/proc/self/status").find("Name:"), std::string::npos); }

TEST(Files, PipesAndDevicesAreNoFiles) {
  const TemporaryFolder folder;
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto refused = [](const std::string& path, auto&& call) {
    EXPECT_TRUE(is_bad_input(error_in(call), Code::file_not_regular, {path}));
  };
  refused(pipe, [&] { read_file(pipe); });
  refused(pipe, [&] { map_file(pipe); });
  refused("/dev/zero", [&] { read_file("/dev/zero"); });
  refused("/dev/null", [&] { InputFile("/dev/null"); });
  refused(folder.path(), [&] { InputFile(folder.path()); });
  // A rename would replace them by a regular file.
  refused(pipe, [&] { write_file_atomic(pipe, "text"); });
  refused("/dev/null", [&] { write_file_atomic("/dev/null", "text"); });
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Files, WhatIsTooLargeIsNotRead) {
  const TemporaryFolder folder;
  std::filesystem::resize_file(folder.write("large", "x"), std::uintmax_t{1} << 40);  // occupies no disk space
  EXPECT_ERROR(read_file(folder.file("large")), Code::file_too_large, folder.file("large"));
  EXPECT_EQ(read_file(folder.write("small", "four"), 4), "four");
  EXPECT_ERROR(read_file(folder.file("small"), 3), Code::file_too_large, folder.file("small"), "4", "3");
}

TEST(Files, PiecesOfEverySizeArriveInOrder) {
  const TemporaryFolder folder;
  std::string expected;
  write_file_atomic(folder.file("a"), [&](const ByteSink& sink) {
    for (const std::size_t size : {0u, 1u, 7u, (1u << 20) - 9u, 3u, (1u << 20), 5u, (2u << 20) + 1u, 2u}) {
      const std::string piece(size, static_cast<char>('a' + expected.size() % 26));
      sink(piece.data(), piece.size());
      expected += piece;
    }
  });
  EXPECT_EQ(read_file(folder.file("a")), expected);
}

TEST(Files, OldFileStaysWhenTheProducerThrows) {
  const TemporaryFolder folder;
  write_file_atomic(folder.file("a"), "old");
  EXPECT_THROW(write_file_atomic(folder.file("a"),
                                 [](const ByteSink& sink) {
                                   const std::string part(2 << 20, 'n');
                                   sink(part.data(), part.size());
                                   throw std::runtime_error("stopped half way");
                                 }),
               std::runtime_error);
  EXPECT_EQ(read_file(folder.file("a")), "old");
  EXPECT_EQ(folder.entries(), 1u) << "the unfinished file was left behind";
}

TEST(Files, AFileThatIsReplacedLeavesItsPermissions) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  write_file_atomic(folder.file("a"), "old");
  fs::permissions(folder.file("a"), fs::perms::owner_read | fs::perms::owner_write);
  write_file_atomic(folder.file("a"), "new");
  EXPECT_EQ(read_file(folder.file("a")), "new");
  EXPECT_EQ(fs::status(folder.file("a")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST(Files, ErrorsNameTheFile) {
  const TemporaryFolder folder;
  EXPECT_ERROR(read_file(folder.file("absent")), Code::file_not_found, folder.file("absent"));
  EXPECT_ERROR(read_file(folder.path()), Code::file_not_regular, folder.path());
  EXPECT_ERROR(write_file_atomic(folder.file("no/such"), "x"), Code::file_unwritable, folder.file("no/such"));
  EXPECT_ERROR(append_line(folder.file("no/such"), "x"), Code::file_unwritable, folder.file("no/such"));
}

TEST(Files, AppendsLines) {
  const TemporaryFolder folder;
  append_line(folder.file("log"), "one");
  append_line(folder.file("log"), "two");
  EXPECT_EQ(read_file(folder.file("log")), "one\ntwo\n");
}

TEST(Files, HashAndHex) {
  EXPECT_EQ(hash_bytes("", 0), 0xef46db3751d8e999ull);  // xxHash64 of nothing, as published
  EXPECT_NE(hash_bytes("a", 1), hash_bytes("b", 1));
  EXPECT_NE(hash_bytes("a", 1, 1), hash_bytes("a", 1, 2));
  EXPECT_EQ(hex(0xab), "00000000000000ab");
}

TEST(Log, GoesToTheSinkOnly) {
  std::string seen;
  std::vector<LogMessage> warnings;
  const Log log([&](const LogMessage& message) {
    seen += (message.level == LogLevel::warning ? "W:" : "I:") + message.text + ";";
    if (message.level == LogLevel::warning) warnings.push_back(message);
  });
  const Log copy = log, none, empty{LogSink()};
  log.info("a {}", 1);
  copy.warning(Code::text_overlap, "b {}", 2);
  none.warning(Code::text_overlap, "dropped");
  empty.info("dropped");
  EXPECT_EQ(seen, "I:a 1;W:b 2;");
  EXPECT_TRUE(has_warning(warnings, Code::text_overlap, {"2"}));
}

}  // namespace
}  // namespace some

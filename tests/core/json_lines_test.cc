// The reader of JSON lines, for whole and growing files: both read the same lines and skip damaged ones.
#include "core/files/json_lines.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "core/files/files.h"
#include "temporary_folder.h"

namespace some {
namespace {

struct Read {
  std::vector<int> steps;
  std::vector<std::string> damaged;
};

Read read_whole(const std::string& path) {
  Read out;
  for_each_json_line(
      path, [&](const JsonObject& line) { out.steps.push_back(line.need<int>("step")); },
      [&](const Error& error) { out.damaged.push_back(error.what()); });
  return out;
}

class Growing {
 public:
  explicit Growing(const std::string& path) : lines_(path) {}
  bool poll() {
    return lines_.poll({[&](std::string_view line, std::uint64_t offset) {
                          const auto parsed = parse_json_line(line);
                          if (!parsed || !parsed->is_object()) return;
                          steps.push_back((*parsed)["step"].get<int>());
                          offsets.push_back(offset);
                        },
                        [&] {
                          steps.clear();
                          offsets.clear();
                        }});
  }
  std::vector<int> steps;
  std::vector<std::uint64_t> offsets;

 private:
  JsonLines lines_;
};

using Steps = std::vector<int>;

TEST(JsonLines, OneDamagedLineCostsOnlyItself) {
  TemporaryFolder folder;
  const std::string path =
      folder.write("lines", "{\"step\":1}\nnot JSON\n[2]\n{\"step\":\"x\"}\n{\"step\":5}\n{\"step\":");
  const Read read = read_whole(path);
  EXPECT_EQ(read.steps, (Steps{1, 5}));
  ASSERT_EQ(read.damaged.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    const int number[] = {2, 3, 4, 6};
    EXPECT_TRUE(read.damaged[i].starts_with(path + ":" + std::to_string(number[i]) + ":")) << read.damaged[i];
  }
}

TEST(JsonLines, ALastLineWithoutItsEndCountsIfItIsWhole) {
  TemporaryFolder folder;
  EXPECT_EQ(read_whole(folder.write("lines", "{\"step\":1}\n{\"step\":2}")).steps, (Steps{1, 2}));
  EXPECT_TRUE(read_whole(folder.write("empty", "")).steps.empty());
  EXPECT_TRUE(read_whole(folder / "nowhere").steps.empty());
}

TEST(JsonLines, WhatIsNoFileIsRefused) {
  TemporaryFolder folder;
  EXPECT_THROW(read_whole(folder.path()), Error);
}

TEST(JsonLines, AGrowingFileIsReadOnce) {
  TemporaryFolder folder;
  const std::string path = folder.write("lines", "{\"step\":1}\n{\"st");
  Growing growing(path);
  EXPECT_TRUE(growing.poll());
  EXPECT_EQ(growing.steps, (Steps{1}));
  append_bytes(path, "ep\":2}\nbroken\n{\"step\":4}\n");
  EXPECT_TRUE(growing.poll());
  EXPECT_FALSE(growing.poll());
  EXPECT_EQ(growing.steps, read_whole(path).steps);
  EXPECT_EQ(growing.offsets, (std::vector<std::uint64_t>{0, 11, 29}));
}

TEST(JsonLines, AReplacedFileIsReadAgain) {
  TemporaryFolder folder;
  const std::string path = folder.write("lines", "{\"step\":1}\n{\"step\":2}\n");
  Growing growing(path);
  growing.poll();
  folder.write("lines", "{\"step\":7}\n{\"step\":8}\n{\"step\":9}\n");
  EXPECT_TRUE(growing.poll());
  EXPECT_EQ(growing.steps, (Steps{7, 8, 9}));
}

// Longer than one block of reading.
TEST(JsonLines, LongLinesAreReadWhole) {
  TemporaryFolder folder;
  const std::string blanks(3 << 20, ' ');
  const std::string path = folder.write("lines", "{\"step\":1" + blanks + "}\n{\"step\":2}\n");
  Growing growing(path);
  growing.poll();
  EXPECT_EQ(growing.steps, (Steps{1, 2}));
  EXPECT_EQ(read_whole(path).steps, (Steps{1, 2}));
}

}  // namespace
}  // namespace some

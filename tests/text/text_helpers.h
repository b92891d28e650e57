// Shared by the tests of the text module.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "expect_error.h"
#include "text/utf8.h"

namespace some::testing {

inline std::string shared_path(const std::string& name) { return std::string(SOME_SOURCE_DIR "/../shared/") + name; }

// Use as: SOME_NEEDS_SHARED("fixtures/tokenizer").
#define SOME_NEEDS_SHARED(name)                                       \
  if (!std::filesystem::exists(::some::testing::shared_path(name))) { \
    GTEST_SKIP() << "needs ../shared/" << (name) << ": not here";     \
  }

inline std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

// A separate folder for every test, removed afterwards.
class TextFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(SOME_BINARY_DIR) / "text-tests" /
              (std::string(info->test_suite_name()) + "." + info->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, std::string_view content) {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    return path.string();
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

// A sequence of random numbers.
class Dice {
 public:
  explicit Dice(std::string_view name) : stream_(random_stream(1, name)) {}
  std::uint32_t below(std::uint32_t bound) { return stream_.below(n_++, bound); }

 private:
  RandomStream stream_;
  std::uint64_t n_ = 0;
};

// Returns valid UTF-8 from all over Unicode, with many characters that split words.
inline std::string random_unicode(Dice& dice, std::size_t characters) {
  std::string text;
  for (std::size_t i = 0; i < characters; ++i) {
    std::uint32_t c = 0;
    switch (dice.below(8)) {
      case 0: c = dice.below(0x110000); break;
      case 1: c = 0x80 + dice.below(0x780); break;
      case 2: c = 0x2000 + dice.below(0x100); break;
      case 3: c = static_cast<unsigned char>(" \t\n\r'  s"[dice.below(8)]); break;
      case 4: c = 0x300 + dice.below(0x100); break;
      default: c = 0x20 + dice.below(0x5F); break;
    }
    if (c >= 0xD800 && c <= 0xDFFF) c = 0xFFFD;
    append_utf8(text, c);
  }
  return text;
}

inline std::string random_bytes(Dice& dice, std::size_t count) {
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(dice.below(256)));
  return bytes;
}

}  // namespace some::testing

// Whole files: round trips of any bytes, thread counts, interruptions, damage, other models and other arithmetic.
#include "compress/compress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "analysis/tiny_run.h"
#include "compress/state_file.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "expect_error.h"
#include "text/stories.h"

namespace some {
namespace {

std::string random_bytes(std::size_t size) {
  std::mt19937 dice(3);
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) bytes.push_back(static_cast<char>(dice() & 255));
  return bytes;
}

std::string some_text(int sentences) {
  const char* const subjects[] = {"The fox", "A girl", "Tom", "The old bird"};
  const char* const verbs[] = {" saw ", " found ", " liked ", " lost "};
  const char* const objects[] = {"a red ball", "the river", "her friend", "some bread"};
  std::mt19937 dice(5);
  std::string text;
  for (int i = 0; i < sentences; ++i)
    text +=
        fmt::format("{}{}{}.{}", subjects[dice() % 4], verbs[dice() % 4], objects[dice() % 4], i % 5 == 4 ? "\n" : " ");
  return text;
}

// Unusual texts: empty, one byte, binary data, invalid UTF-8, special tokens as text.
std::vector<std::string> texts() {
  return {"",
          "x",
          std::string(1, '\0'),
          std::string(5000, '\0'),
          some_text(60),
          "[EOS][PAD][UNK] [EOS]\n<|endoftext|> " + some_text(3),
          "na\xc3\xafve \xe2\x82\xac \xf0\x9f\xa6\x8a \xff\xfe\x80\xc3 \xed\xa0\x80 end\r\n\t\v" + some_text(5),
          random_bytes(700),
          some_text(10) + random_bytes(300) + some_text(10)};
}

std::string packed_text(OpenedRun* run, const std::string& text, const CompressOptions& options = {}) {
  CompressReport report;
  std::string file = compress_text(run, text, options, report);
  EXPECT_EQ(report.compressed, file.size());
  EXPECT_EQ(report.bytes, text.size());
  return file;
}
std::string unpacked_text(OpenedRun* run, const std::string& file, const CompressOptions& options = {}) {
  CompressReport report;
  return decompress_text(run, file, "a file", options, report);
}

class Compress : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    train_tiny(*folder_, {"model.seq_len=16"});
  }
  static void TearDownTestSuite() { delete folder_; }
  static OpenedRun open(int threads = 1) {
    return open_run(*folder_ / "run", {"latest", on_cpu, {}, make_host(threads)});
  }
  static TemporaryFolder* folder_;
};
TemporaryFolder* Compress::folder_ = nullptr;

TEST_F(Compress, AnyBytesReturnWithAModel) {
  OpenedRun run = open();
  for (const std::string& text : texts()) {
    const std::string file = packed_text(&run, text);
    ASSERT_EQ(unpacked_text(&run, file), text);
    ASSERT_LE(file.size(), text.size() + 45);  // never much larger than the original
  }
}

TEST_F(Compress, AnyBytesReturnWithoutAModel) {
  for (const std::string& text : texts()) {
    const std::string file = packed_text(nullptr, text);
    ASSERT_EQ(unpacked_text(nullptr, file), text);
    ASSERT_LE(file.size(), text.size() + 45);
  }
}

TEST_F(Compress, PartsOfAnyNumberAndSize) {
  OpenedRun run = open();
  const std::string text = some_text(40);
  for (const int parts : {1, 2, 7, 64}) {
    ASSERT_EQ(unpacked_text(&run, packed_text(&run, text, {.parts = parts})), text) << parts;
    ASSERT_EQ(unpacked_text(nullptr, packed_text(nullptr, text, {.parts = parts})), text) << parts;
  }
  const std::string shorter = "a b c";  // more parts than bytes
  ASSERT_EQ(unpacked_text(&run, packed_text(&run, shorter, {.parts = 64})), shorter);
}

// The portable format guarantees the same bytes on every machine and in every later version that writes format 1.
TEST_F(Compress, PortableFilesAreTheSameBytesEverywhere) {
  const std::string file = packed_text(nullptr, some_text(400));
  EXPECT_EQ(file.size(), 477u);
  EXPECT_EQ(hex(hash_bytes(file.data(), file.size())), "00b0282746ca8e60");
}

TEST_F(Compress, ThreadsDoNotChangeTheBytes) {
  OpenedRun one = open(1), three = open(3);
  const std::string text = some_text(120), file = packed_text(&one, text);
  EXPECT_EQ(packed_text(&three, text), file);
  EXPECT_EQ(unpacked_text(&three, file), text);
}

TEST_F(Compress, AModelSavesMoreThanItsLosses) {
  OpenedRun run = open();
  const std::string text = some_text(300);
  CompressReport report;
  compress_text(&run, text, {}, report);
  EXPECT_EQ(report.mode, CompressionMode::model);
  EXPECT_LT(static_cast<double>(report.compressed), 0.5 * report.model_bytes);
  EXPECT_GT(report.tokens, 500);
}

TEST_F(Compress, AnInterruptedCommandContinuesWithTheSameResult) {
  OpenedRun run = open();
  const std::string text = some_text(100), state = *folder_ / "state";
  for (OpenedRun* const used : {&run, static_cast<OpenedRun*>(nullptr)}) {
    const std::string whole = packed_text(used, text);
    const auto in_pieces = [&](const auto& work) {
      std::string result;
      for (int tries = 0; tries < 200; ++tries) {
        int asked = 0;
        CompressReport report;
        const int pause = used != nullptr ? 100 : 2;
        result = work(CompressOptions{.state = state, .state_seconds = 1e9, .stop = [&] { return ++asked > pause; }},
                      report);
        EXPECT_EQ(report.resumed_at > 0, tries > 0);
        if (!report.stopped) {
          EXPECT_GT(tries, 1);
          remove_tree(state);
          return result;
        }
        EXPECT_EQ(result, "");
      }
      ADD_FAILURE() << "never ends";
      return result;
    };
    EXPECT_EQ(in_pieces([&](const CompressOptions& options, CompressReport& report) {
                return compress_text(used, text, options, report);
              }),
              whole);
    EXPECT_EQ(in_pieces([&](const CompressOptions& options, CompressReport& report) {
                return decompress_text(used, whole, "a file", options, report);
              }),
              text);
  }
}

TEST_F(Compress, StatesOfOtherWorkAndDamagedStatesAreRefused) {
  const std::string text = some_text(40), state = *folder_ / "state";
  remove_tree(state);
  CompressReport report;
  const CompressOptions stopped{.state = state, .stop = [] { return true; }};
  compress_text(nullptr, text, stopped, report);
  ASSERT_TRUE(report.stopped);
  const std::string whole = packed_text(nullptr, text);
  EXPECT_ERROR(packed_text(nullptr, text + "!", {.state = state}), Code::compressed_mismatch, state);
  EXPECT_ERROR(unpacked_text(nullptr, whole, {.state = state}), Code::compressed_mismatch, state);
  const std::string good = read_file(state);
  for (const std::size_t at : {std::size_t{3}, std::size_t{20}, good.size() / 2, good.size() - 1}) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    write_file_atomic(state, bad);
    EXPECT_ERROR(packed_text(nullptr, text, {.state = state}), Code::compressed_invalid, state);
    write_file_atomic(state, good.substr(0, at));
    EXPECT_ERROR(packed_text(nullptr, text, {.state = state}), Code::compressed_invalid, state);
  }
  write_file_atomic(state, good);
  EXPECT_EQ(packed_text(nullptr, text, {.state = state}), whole);
  remove_tree(state);
}

// A hash protects from damage, not from somebody who writes states: values that would lead outside of an array or of
// the text are refused although the hash is right.
TEST_F(Compress, StatesWithImpossibleValuesAndTheRightHashAreRefused) {
  OpenedRun run = open();
  const std::string text = some_text(100), state = *folder_ / "state";
  enum Field : std::size_t { low, high, slots, histories, weights, final_weights, corrections, decisions, coded, ends };
  constexpr std::size_t parts = ends + 1, match_table = parts + 1, windows = match_table + 3, lengths = windows + 1;
  constexpr std::size_t part_at = 2, part_match = 7, part_end = 1;  // in numbers of 8 bytes
  for (OpenedRun* const used : {&run, static_cast<OpenedRun*>(nullptr)}) {
    const std::string whole = packed_text(used, text);
    for (const bool decoding : {false, true}) {
      const auto work = [&](const CompressOptions& options) {
        CompressReport report;
        return decoding ? decompress_text(used, whole, "a file", options, report)
                        : compress_text(used, text, options, report);
      };
      remove_tree(state);
      int asked = 0;
      work({.state = state, .state_seconds = 1e9, .stop = [&] { return ++asked > (used != nullptr ? 100 : 2); }});
      const std::string good = read_file(state);
      EXPECT_EQ(StateFile(good).sealed(), good);
      const std::size_t shift = decoding ? 2 : 0;  // a decoder has two more fields than an encoder
      const std::size_t fixed = StateFile(good).fields().size() - StateFile::strings;
      const std::size_t read = fixed - 3, tokens = fixed - 2, model_bytes = fixed - 1;
      const auto refused = [&](const char* what, const auto& change) {
        StateFile file(good);
        change(file);
        ASSERT_NE(file.bytes(), good) << what;
        write_file_atomic(state, file.sealed());
        EXPECT_ERROR(work({.state = state}), Code::compressed_invalid, state) << what;
      };
      const auto set = [&](const char* what, std::size_t field, std::size_t index, auto value) {
        refused(what, [&](StateFile& file) { file.set(field, index, value); });
      };
      set("low", low, 0, ~std::uint64_t{0});
      set("high", high, 0, std::uint64_t{0});
      if (decoding) set("value", 2, 0, std::uint64_t{0});
      set("weight", weights + shift, 3, std::int32_t{0x7fffffff});
      set("final weight", final_weights + shift, 0, std::int32_t{-0x7fffffff});
      set("decisions", decisions + shift, 0, std::int64_t{-16384});
      set("text", coded + shift, 0, 'x');  // found by its checksum if it is the result
      set("begin", parts + shift, 0, std::uint64_t{1});
      set("end", parts + shift, part_end, std::uint64_t{text.size() + 1});
      set("at", parts + shift, part_at, std::uint64_t{text.size() + 1});
      set("at", parts + shift, part_at, std::uint64_t{0});
      set("match", parts + shift, part_match, ~std::uint64_t{0});
      set("end of match", parts + shift, part_match + 1, std::uint64_t{text.size() + 1});
      set("match table", match_table + shift, 77, std::uint32_t(text.size() + 1));
      set("read", read, 0, std::uint64_t{text.size() + 1});
      if (!decoding) set("read", read, 0, std::uint64_t{1});
      set("tokens", tokens, 0, std::int64_t{-1});
      set("bytes of the model", model_bytes, 0, std::nan(""));
      if (used != nullptr) {
        set("window", windows + shift, 0, std::int32_t{1 << 30});
        set("window", windows + shift, 0, std::int32_t{-1});
        set("length", lengths + shift, 0, std::int64_t{17});
        set("length", lengths + shift, 0, std::int64_t{0});
        set("memory", fixed + 1, 0, std::uint64_t{1} << 60);
        set("memory", fixed + 1, 2, std::int32_t{-1});
      }
    }
  }
  remove_tree(state);
}

TEST_F(Compress, EveryFlippedBitAndEveryCutIsAnError) {
  OpenedRun run = open();
  const std::string text = some_text(12);
  for (OpenedRun* const used : {&run, static_cast<OpenedRun*>(nullptr)}) {
    const std::string file = packed_text(used, text);
    for (std::size_t at = 0; at < file.size(); ++at) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string bad = file;
        bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
        EXPECT_ERROR(parse_compressed(bad, "a file"), Code::compressed_invalid, "a file");
      }
      EXPECT_ERROR(parse_compressed(std::string_view(file).substr(0, at), "a file"), Code::compressed_invalid,
                   "a file");
    }
    EXPECT_ERROR(parse_compressed(file + "x", "a file"), Code::compressed_invalid, "a file");
  }
}

// With valid checksums of the file: the checksum of the text detects what was decoded from wrong data.
TEST_F(Compress, OtherDataWithRightChecksumsIsAnError) {
  const std::string text = some_text(30), file = packed_text(nullptr, text);
  const CompressedFile parsed = parse_compressed(file, "a file");
  for (const std::size_t at : {std::size_t{0}, parsed.payload.size() / 2}) {
    std::string payload(parsed.payload);
    payload[at] = static_cast<char>(payload[at] ^ 16);
    EXPECT_ERROR(unpacked_text(nullptr, write_compressed(parsed.header, payload)), Code::compressed_invalid, "a file");
  }
  EXPECT_ERROR(unpacked_text(nullptr, write_compressed(parsed.header, "")), Code::compressed_invalid, "a file");
}

TEST_F(Compress, AnotherModelAndOtherArithmeticAreRefused) {
  OpenedRun run = open();
  const std::string file = packed_text(&run, some_text(30));
  const CompressedFile parsed = parse_compressed(file, "a file");
  EXPECT_ERROR(unpacked_text(nullptr, file), Code::argument_missing, "a file", parsed.header.model);
  const TemporaryFolder folder;
  train_tiny(folder, {"model.seq_len=16", "train.lr=1e-3"});
  OpenedRun other = open_tiny(folder / "run");
  EXPECT_ERROR(unpacked_text(&other, file), Code::compressed_mismatch, "a file", parsed.header.model);
  CompressedHeader header = parsed.header;
  header.arithmetic = "abacus";
  EXPECT_ERROR(unpacked_text(&run, write_compressed(header, parsed.payload)), Code::compressed_mismatch, "a file",
               "abacus");
  header = parsed.header;
  header.probe ^= 1;
  EXPECT_ERROR(unpacked_text(&run, write_compressed(header, parsed.payload)), Code::compressed_mismatch, "a file");
}

}  // namespace
}  // namespace some

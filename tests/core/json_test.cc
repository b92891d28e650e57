#include "core/files/json.h"

#include <gtest/gtest.h>

#include "core/escape.h"
#include "expect_error.h"

namespace some {
namespace {

TEST(Json, FaultsAreReportedWithFileAndPlace) {
  const auto parse = [](const std::string& text) { parse_json(text, "a.json"); };
  EXPECT_NO_THROW(parse("{\"a\": [1, 2]}"));
  EXPECT_ERROR(parse("{\n  \"a\": nul\n}"), Code::json_syntax, "a.json", "2", "11");
  EXPECT_ERROR(parse(""), Code::json_syntax, "a.json", "1", "1");
  for (const char* text :
       {"{", "[1,]", "\"\x1b\"", "\"\xff\"", "{\"a\":1 \"b\":2}", "[1e999]", "\"\\ud800\"", "]", "1 2"}) {
    const auto error = error_in([&] { parse(text); });
    ASSERT_TRUE(is_bad_input(error, Code::json_syntax, {"a.json"})) << text;
    const std::string told = error->what();
    EXPECT_EQ(told.find("exception"), std::string::npos) << told;
    EXPECT_EQ(told.find("last read"), std::string::npos) << told;
    EXPECT_EQ(told, escaped(told));
  }
}

TEST(Json, NestingIsLimited) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(parse_json(nested(max_json_depth), "a"));
  EXPECT_ERROR(parse_json(nested(max_json_depth + 1), "a"), Code::json_syntax, "a", "64");
  EXPECT_ERROR(parse_json(std::string(1000000, '{'), "a"), Code::json_syntax, "a", "64");
  EXPECT_FALSE(parse_json_line(nested(max_json_depth + 1)));
  EXPECT_FALSE(parse_json_line("[1"));
  EXPECT_EQ(*parse_json_line("[1]"), nlohmann::json::array({1}));
  // Brackets in strings do not nest, whatever precedes the closing quote.
  EXPECT_NO_THROW(parse_json("[\"" + std::string(100, '[') + "\\\\\", \"\\\"" + std::string(100, '{') + "\"]", "a"));
}

TEST(Json, KeysAreReadWithTheirTypes) {
  const JsonObject object(parse_json(R"({"flag": true, "count": 3, "large": 5000000000, "negative": -1, "share": 0.5,
      "name": "x", "list": [1, 2], "inner": {"step": 7}, "layers": [{"a": 1}, {"a": 2}]})",
                                     "a.json"),
                          "a.json");
  EXPECT_TRUE(object.need<bool>("flag"));
  EXPECT_EQ(object.need<int>("count"), 3);
  EXPECT_EQ(object.need<std::int64_t>("large"), 5000000000);
  EXPECT_EQ(object.need<double>("count"), 3.0);
  EXPECT_EQ(object.need<std::vector<int>>("list"), (std::vector<int>{1, 2}));
  EXPECT_EQ(object.object("inner").need<int>("step"), 7);
  EXPECT_EQ(object.objects("layers")[1].need<int>("a"), 2);
  EXPECT_EQ(object.get<int>("absent", 8), 8);
  EXPECT_EQ(object.need<int>("count", 1, 3), 3);

  EXPECT_ERROR(object.need<int>("absent"), Code::json_missing, "a.json", "absent");
  EXPECT_ERROR(object.need<int>("name"), Code::json_type, "a.json", "name", "\"x\"");
  EXPECT_ERROR(object.need<int>("share"), Code::json_type, "a.json", "share", "0.5");
  EXPECT_ERROR(object.need<int>("large"), Code::json_out_of_range, "a.json", "large", "-2147483648", "2147483647",
               "5000000000");
  EXPECT_ERROR(object.need<std::uint64_t>("negative"), Code::json_out_of_range, "a.json", "negative", "0", "-1");
  EXPECT_EQ(object.need<int>("negative"), -1);
  EXPECT_ERROR((object.get<int>("count", 1, 1, 2)), Code::json_out_of_range, "a.json", "count", "1", "2", "3");
  EXPECT_ERROR(object.need<bool>("count"), Code::json_type, "a.json", "count", "3");
  EXPECT_ERROR(object.need<std::string>("list"), Code::json_type, "a.json", "list");
  EXPECT_ERROR(object.need<std::vector<int>>("inner"), Code::json_type, "a.json", "inner");
  EXPECT_ERROR(object.objects("list"), Code::json_type, "a.json", "list", "1");
  EXPECT_ERROR(object.objects("layers")[1].need<int>("b"), Code::json_missing, "a.json: layers 1", "b");
  EXPECT_ERROR(JsonObject(parse_json("[]", "b"), "b"), Code::json_type, "b");
}

TEST(Escape, WhatActsOnATerminalIsWrittenOut) {
  EXPECT_EQ(escaped("plain, naïve, 日本語, 👍"), "plain, naïve, 日本語, 👍");
  EXPECT_EQ(escaped("\x1b[2J\r\x7f\x01"), "\\x1b[2J\\x0d\\x7f\\x01");
  EXPECT_EQ(escaped("a\nb\tc"), "a\\nb\\tc");
  EXPECT_EQ(escaped("a\nb\tc", Lines::kept), "a\nb\tc");
  EXPECT_EQ(escaped("\xc2\x9b"), "\\x9b") << "the eight-bit form of the escape sequence's beginning";
  EXPECT_EQ(escaped("\xe2\x80\xae"), "\\u202e") << "turns the direction of what follows";
  EXPECT_EQ(escaped("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(escaped("\xed\xa0\x80\xc0\x80"), "\\xed\\xa0\\x80\\xc0\\x80") << "half a pair, and a long form of zero";
  EXPECT_EQ(escaped(std::string(1, '\0')), "\\x00");
}

TEST(Escape, PiecesMayEndInsideACharacter) {
  StreamEscape stream;
  std::string out;
  for (const char c : std::string("né\x1b日\xc2\x9b\n")) out += stream.add(std::string(1, c));
  EXPECT_EQ(out + stream.finish(), "né\\x1b日\\x9b\n");
  EXPECT_EQ(stream.add("\xe6\x97"), "");
  EXPECT_EQ(stream.finish(), "\\xe6\\x97");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Escape, ShortenedBetweenCharacters) {
  EXPECT_EQ(shortened("short", 5), "short");
  EXPECT_EQ(shortened("longer text", 8), "longe...");
  EXPECT_EQ(shortened("日本語の文", 10), "日本...");
}

}  // namespace
}  // namespace some

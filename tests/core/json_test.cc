#include "core/json.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/escape.h"

namespace some {
namespace {

template <typename Call>
std::string fault_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::input) << error.what();
    return error.what();
  }
  return "";
}

TEST(Json, FaultsAreToldWithFileAndPlace) {
  const auto fault = [](const std::string& text) { return fault_of([&] { parse_json(text, "a.json"); }); };
  EXPECT_EQ(fault("{\"a\": [1, 2]}"), "");
  EXPECT_EQ(fault("{\n  \"a\": nul\n}"), "a.json: line 2, column 11: not JSON: invalid literal");
  EXPECT_EQ(fault(""), "a.json: line 1, column 1: not JSON: unexpected end of input; expected '[', '{', or a literal");
  EXPECT_EQ(fault("[1e999]").find("a.json: "), 0u);
  for (const char* text :
       {"{", "[1,]", "\"\x1b\"", "\"\xff\"", "{\"a\":1 \"b\":2}", "[1e999]", "\"\\ud800\"", "]", "1 2"}) {
    const std::string told = fault(text);
    EXPECT_NE(told, "") << text;
    EXPECT_EQ(told.find("exception"), std::string::npos) << told;
    EXPECT_EQ(told.find("last read"), std::string::npos) << told;
    EXPECT_EQ(told, escaped(told));
  }
}

TEST(Json, NestingIsLimited) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(parse_json(nested(deepest_json), "a"));
  EXPECT_NE(fault_of([&] { parse_json(nested(deepest_json + 1), "a"); }).find("deeper than 64"), std::string::npos);
  EXPECT_NE(fault_of([&] { parse_json(std::string(1000000, '{'), "a"); }), "");
  EXPECT_FALSE(parse_json_line(nested(deepest_json + 1)));
  EXPECT_FALSE(parse_json_line("[1"));
  EXPECT_EQ(*parse_json_line("[1]"), nlohmann::json::array({1}));
  // Brackets in strings nest nothing, whatever stands before the closing quote.
  EXPECT_EQ(fault_of([&] {
              parse_json("[\"" + std::string(100, '[') + "\\\\\", \"\\\"" + std::string(100, '{') + "\"]", "a");
            }),
            "");
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

  EXPECT_EQ(fault_of([&] { object.need<int>("absent"); }), "a.json: absent is missing");
  EXPECT_EQ(fault_of([&] { object.need<int>("name"); }), "a.json: name: wants a whole number, not \"x\"");
  EXPECT_EQ(fault_of([&] { object.need<int>("share"); }), "a.json: share: wants a whole number, not 0.5");
  EXPECT_EQ(fault_of([&] { object.need<int>("large"); }),
            "a.json: large: wants a number from -2147483648 to 2147483647, not 5000000000");
  EXPECT_NE(fault_of([&] { object.need<std::uint64_t>("negative"); }), "");
  EXPECT_EQ(object.need<int>("negative"), -1);
  EXPECT_EQ(fault_of([&] { object.get<int>("count", 1, 1, 2); }), "a.json: count: wants a number from 1 to 2, not 3");
  EXPECT_EQ(fault_of([&] { object.need<bool>("count"); }), "a.json: count: wants true or false, not 3");
  EXPECT_EQ(fault_of([&] { object.need<std::string>("list"); }), "a.json: list: wants a text, not a list of 2 values");
  EXPECT_EQ(fault_of([&] { object.need<std::vector<int>>("inner"); }), "a.json: inner: wants a list, not an object");
  EXPECT_EQ(fault_of([&] { object.objects("list"); }), "a.json: list: wants a list of objects, not 1");
  EXPECT_EQ(fault_of([&] { object.objects("layers")[1].need<int>("b"); }), "a.json: layers 1: b is missing");
  EXPECT_EQ(fault_of([] { JsonObject(parse_json("[]", "b"), "b"); }), "b: wants a JSON object, not a list of 0 values");
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

#include "text/utf8.h"

#include <set>

#include "text/pretokenize.h"
#include "text_helpers.h"

namespace some {
namespace {

using testing::Dice;

TEST(Utf8, AcceptsEveryCodePointAndNothingElse) {
  std::string text;
  for (std::uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string one;
    append_utf8(one, c);
    const CodePoint point = decode_utf8(one.data(), one.data() + one.size());
    ASSERT_EQ(point.value, c);
    ASSERT_EQ(point.length, one.size());
    text += one;
  }
  EXPECT_FALSE(find_invalid_utf8(text));
}

TEST(Utf8, FindsTheFirstBadByte) {
  const std::string before = "fine so far \xC3\xA9 ";  // 15 bytes, not a multiple of the fast path's eight
  const std::string bad[] = {
      "\x80",              // continuation without a lead
      "\xC0\xAF",          // overlong
      "\xC1\xBF",          // overlong
      "\xE0\x9F\xBF",      // overlong
      "\xF0\x8F\xBF\xBF",  // overlong
      "\xED\xA0\x80",      // surrogate
      "\xF4\x90\x80\x80",  // above U+10FFFF
      "\xF5\x80\x80\x80",  // never a lead byte
      "\xFF",              //
      "\xC3",              // truncated
      "\xE2\x82",          // truncated
      "\xF0\x9F\x99",      // truncated
      "\xE2\x28\xA1",      // invalid continuation
  };
  for (const std::string& bytes : bad) {
    EXPECT_EQ(find_invalid_utf8(before + bytes), before.size());
    EXPECT_EQ(find_invalid_utf8(before + bytes + " and more text behind it"), before.size());
    EXPECT_EQ(find_invalid_utf8(bytes), 0u);
    EXPECT_EQ(decode_utf8(bytes.data(), bytes.data() + bytes.size()).value, invalid_byte);
  }
  EXPECT_FALSE(find_invalid_utf8(before));
  EXPECT_FALSE(find_invalid_utf8(""));
  EXPECT_FALSE(find_invalid_utf8(std::string_view("\0", 1)));
}

TEST(Utf8, Classes) {
  const std::uint8_t* classes = char_classes();
  const auto is = [&](std::uint32_t c, std::uint8_t wanted) { return classes[c] == wanted; };
  EXPECT_TRUE(is('a', class_letter | class_word));
  EXPECT_TRUE(is('7', class_number | class_word));
  EXPECT_TRUE(is('_', class_word));
  EXPECT_TRUE(is('-', 0));
  EXPECT_TRUE(is(0x00BD, class_number));               // one half: a number, not a word character
  EXPECT_TRUE(is(0x2160, class_number | class_word));  // roman numeral one: Nl is alphabetic
  EXPECT_TRUE(is(0x0301, class_word));                 // combining acute
  EXPECT_TRUE(is(0x20DD, class_word));                 // enclosing circle
  EXPECT_TRUE(is(0x203F, class_word));                 // undertie
  EXPECT_TRUE(is(0x200C, class_word));                 // zero width non-joiner
  EXPECT_TRUE(is(0x200B, 0));                          // zero width space is no White_Space
  EXPECT_TRUE(is(0x24B6, class_word));                 // circled A
  EXPECT_TRUE(is(0x24EA, class_number));               // circled zero
  EXPECT_TRUE(is(0x1F149, class_word));
  EXPECT_TRUE(is(0x1F14A, 0));
  EXPECT_TRUE(is(0x65E5, class_letter | class_word));
  EXPECT_TRUE(is(0x0660, class_number | class_word));
  EXPECT_TRUE(is(0xE000, 0));  // private use
  EXPECT_TRUE(is(0x0378, 0));  // not assigned
  std::set<std::uint32_t> spaces;
  for (std::uint32_t c = 0; c < 0x110000; ++c) {
    if (classes[c] & class_space) spaces.insert(c);
  }
  const std::set<std::uint32_t> white_space = {9,      10,     11,     12,     13,     32,     0x85,   0xA0,   0x1680,
                                               0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006, 0x2007, 0x2008,
                                               0x2009, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};
  EXPECT_EQ(spaces, white_space);
}

std::vector<std::string> words(TokenizerKind kind, std::string_view text) {
  std::vector<std::string> found;
  for_each_word(kind, text, [&](std::string_view word) { found.emplace_back(word); });
  return found;
}

TEST(Pretokenize, Whitespace) {
  using Words = std::vector<std::string>;
  const auto split = [](std::string_view text) { return words(TokenizerKind::whitespace, text); };
  EXPECT_EQ(split(""), Words{});
  EXPECT_EQ(split(" \t\r\n\u00A0\u3000"), Words{});
  EXPECT_EQ(split("Hey, you!?  a_b-c"), (Words{"Hey", ",", "you", "!?", "a_b", "-", "c"}));
  EXPECT_EQ(split("e\u0301x\u00BD9"), (Words{"e\u0301x", "\u00BD", "9"}));
  EXPECT_EQ(split("a\xFF\xFE"
                  "b"),
            (Words{"a", "\xFF\xFE", "b"}));
}

TEST(Pretokenize, Bytelevel) {
  using Words = std::vector<std::string>;
  const auto split = [](std::string_view text) { return words(TokenizerKind::bytelevel, text); };
  EXPECT_EQ(split(""), Words{});
  EXPECT_EQ(split("it's we'll 'sup I'M"), (Words{"it", "'s", " we", "'ll", " '", "sup", " I", "'", "M"}));
  EXPECT_EQ(split("a  b   c"), (Words{"a", " ", " b", "  ", " c"}));
  EXPECT_EQ(split("a\n\nb \n c  "), (Words{"a", "\n", "\n", "b", " \n", " c", "  "}));
  EXPECT_EQ(split(" x\t"), (Words{" x", "\t"}));
  EXPECT_EQ(split("ab12!?\u00BD"), (Words{"ab", "12", "!?", "\u00BD"}));
  EXPECT_EQ(split("\u00A0a"), (Words{"\u00A0", "a"}));
  EXPECT_EQ(split("\u3000 a"), (Words{"\u3000", " a"}));
  EXPECT_EQ(split("'"), Words{"'"});
  EXPECT_EQ(split("'r"), (Words{"'", "r"}));
  EXPECT_EQ(split(" "), Words{" "});
  EXPECT_EQ(split("a\xFF\xC3 \x80"), (Words{"a", "\xFF\xC3", " \x80"}));
}

TEST(Pretokenize, BytelevelWordsCoverAnyBytes) {
  Dice dice("cover");
  for (int round = 0; round < 300; ++round) {
    const std::string text = round % 2 ? testing::random_bytes(dice, 200) : testing::random_unicode(dice, 200);
    std::string joined;
    for_each_word(TokenizerKind::bytelevel, text, [&](std::string_view word) {
      ASSERT_FALSE(word.empty());
      joined += word;
    });
    EXPECT_EQ(joined, text);
  }
}

}  // namespace
}  // namespace some

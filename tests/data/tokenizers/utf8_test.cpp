#include "data/tokenizers/utf8.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

const std::string kBad = "\xef\xbf\xbd";

// As Python's bytes.decode("utf-8", "replace") gives it.
TEST(RepairUtf8, ReplacesEachLongestBrokenPart) {
  EXPECT_EQ(repair_utf8("ab\xe2\x96\x81\xf0\x9f\x98\x80"), "ab\xe2\x96\x81\xf0\x9f\x98\x80");
  EXPECT_EQ(repair_utf8("\xff\xfe"), kBad + kBad);
  EXPECT_EQ(repair_utf8("a\xe2\x96z"), "a" + kBad + "z");
  EXPECT_EQ(repair_utf8("\xf0\x9f\x98"), kBad);
  EXPECT_EQ(repair_utf8("\xc0\x80"), kBad + kBad);
  EXPECT_EQ(repair_utf8("\xed\xa0\x80"), kBad + kBad + kBad);
  EXPECT_EQ(repair_utf8("\xf4\x90\x80\x80"), kBad + kBad + kBad + kBad);
  EXPECT_EQ(repair_utf8(std::string("\0\x80", 2)), std::string("\0", 1) + kBad);
}

TEST(Utf8Repair, GivesTheSameWhereverTheInputIsCut) {
  const std::string input = "x\xe2\x96\x81\xf0\x9f\x98\xff\xe2\x96\xed\xa0\x80\xf0\x9f\x98\x80\xe2";
  for (size_t cut = 0; cut <= input.size(); ++cut) {
    Utf8Repair repair;
    std::string text;
    repair.push(std::string_view(input).substr(0, cut), text);
    repair.push(std::string_view(input).substr(cut), text);
    repair.finish(text);
    EXPECT_EQ(text, repair_utf8(input)) << cut;
  }
}

TEST(Utf8Repair, HoldsBackWhatMayBecomeACharacter) {
  Utf8Repair repair;
  std::string text;
  repair.push("a\xe2\x96", text);
  EXPECT_EQ(text, "a");
  repair.push("\x81", text);
  EXPECT_EQ(text, "a\xe2\x96\x81");
}

TEST(AppendCharacter, IsReadBackByNextCharacter) {
  for (const char32_t c : {U'a', char32_t{0x7f}, char32_t{0x80}, char32_t{0x7ff}, char32_t{0x800},
                           char32_t{0xffff}, char32_t{0x10000}, char32_t{0x10ffff}}) {
    std::string text;
    append_character(text, c);
    EXPECT_EQ(text.size(), character_length(text[0]));
    size_t position = 0;
    EXPECT_EQ(next_character(text, position), c);
    EXPECT_EQ(position, text.size());
  }
}

}  // namespace
}  // namespace switchyard

#include "data/tokenizers/characters.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

TEST(Normalize, ComposesAndDecomposes) {
  EXPECT_EQ(normalize("e\u0301", NormalForm::kNfc), "\u00e9");
  EXPECT_EQ(normalize("\u00e9", NormalForm::kNfd), "e\u0301");
  EXPECT_EQ(normalize("\ufb01\u00bd", NormalForm::kNfkc), "fi1\u20442");
  EXPECT_EQ(normalize("\u00c5", NormalForm::kNfkd), "A\u030a");
}

// Behind a Hangul syllable U+11A7 looks like a trailing consonant, but is none.
TEST(Normalize, KeepsTheCharacterBeforeTheTrailingConsonants) {
  EXPECT_EQ(normalize("\uc544\u11a7", NormalForm::kNfc), "\uc544\u11a7");
  EXPECT_EQ(normalize("\uc544\u11a8", NormalForm::kNfc), "\uc545");
}

TEST(Normalize, LeavesLaterCharactersToTheCurrentTables) {
  EXPECT_EQ(normalize("\u32ff", NormalForm::kNfkc), "\u32ff");  // of 2019
  EXPECT_EQ(normalize("\u32ff", NormalForm::kNfkc, NormalTables::kCurrent), "\u4ee4\u548c");
}

TEST(Lowercase, TakesEachCharacterByItself) {
  EXPECT_EQ(lowercase("AbC \u00c9\u0130\u03a3"), "abc \u00e9i\u0307\u03c3");
  EXPECT_EQ(lowercase("\u1c89"), "\u1c8a");  // of Unicode 16
}

TEST(Characters, AreOfTheKindThatThePackageSees) {
  EXPECT_TRUE(is_number(U'7') && is_number(0xbd) && is_number(0x10d40));
  EXPECT_FALSE(is_number(U'a'));
  EXPECT_TRUE(is_punctuation(U'$') && is_punctuation(0x3001));
  EXPECT_FALSE(is_punctuation(0x20ac));  // a symbol beyond ASCII
  EXPECT_FALSE(is_punctuation(0x2e43));  // later than the package's tables
  EXPECT_TRUE(is_accent(0x301) && is_accent(0x903));
  EXPECT_FALSE(is_accent(0x898));
  EXPECT_TRUE(is_white_space(0x85) && is_white_space(0x3000));
  EXPECT_FALSE(is_white_space(0x200b));
  EXPECT_TRUE(is_word_character(U'_') && is_word_character(0x200d));
  EXPECT_FALSE(is_word_character(U'-'));
}

}  // namespace
}  // namespace switchyard

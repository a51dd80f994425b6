#include "data/tokenizers/regex.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/tokenizers/scratch_folder.h"
#include "data/tokenizers/utf8.h"

namespace switchyard {
namespace {

bool matches(const std::string& pattern, char32_t character,
             RegexSyntax syntax = RegexSyntax::kOniguruma) {
  std::string text;
  append_character(text, character);
  size_t begin = 0;
  size_t end = 0;
  return Regex(pattern, syntax, "test").find(text, 0, begin, end);
}

std::vector<std::string> parts_of(const std::string& pattern, const std::string& text) {
  std::vector<std::string> parts;
  Regex(pattern, RegexSyntax::kOniguruma, "test")
      .for_each_part(text, [&](size_t begin, size_t end, bool is_match) {
        parts.push_back((is_match ? "+" : "-") + text.substr(begin, end - begin));
      });
  return parts;
}

// PCRE2's own \s holds U+180E, and its \w no marks.
TEST(Regex, TakesClassesAsOnigurumaDoes) {
  EXPECT_FALSE(matches("\\s", 0x180e));
  EXPECT_TRUE(matches("\\S", 0x180e));
  EXPECT_FALSE(matches("[^\\S]", 0x180e));
  EXPECT_TRUE(matches("\\s", 0x85));
  EXPECT_TRUE(matches("[\\s]", 0x3000));
  EXPECT_TRUE(matches("\\w", 0x301));
  EXPECT_TRUE(matches("\\w", 0x24b6));  // alphabetic, but no letter
  EXPECT_TRUE(matches("\\h", U'f'));    // a hexadecimal digit, no white space
  EXPECT_FALSE(matches("\\h", U' '));
}

TEST(Regex, KnowsCharactersThatPcre2MayNot) {
  EXPECT_TRUE(matches("\\p{L}", 0x31350));  // of Unicode 15
  EXPECT_TRUE(matches("\\p{Lu}", 0x1c89));  // of Unicode 16
  EXPECT_FALSE(matches("[^\\p{L}]", 0x31350));
  EXPECT_FALSE(matches("\\P{L}", 0x31350));
  EXPECT_TRUE(matches("\\p{N}", 0x10d40));
}

TEST(Regex, TakesAScriptForItsOwnCharacters) {
  EXPECT_TRUE(matches("\\p{Han}", 0x4e00));
  EXPECT_FALSE(matches("\\p{Han}", 0x3001));  // shared by several scripts
  EXPECT_TRUE(matches("\\p{^Han}", 0x3001));
}

TEST(Regex, IgnoresCaseBeyondAscii) {
  EXPECT_TRUE(matches("(?i:s)", 0x17f));
}

TEST(Regex, EndsLinesOrTheTextAsItsSyntaxSays) {
  EXPECT_EQ(parts_of("^b|a$", "a\nb"), (std::vector<std::string>{"+a", "-\n", "+b"}));
  size_t begin = 0;
  size_t end = 0;
  EXPECT_FALSE(Regex("a$", RegexSyntax::kRust, "test").find("a\nb", 0, begin, end));
}

TEST(Regex, FindsEmptyMatchesButNotBehindAMatch) {
  EXPECT_EQ(parts_of("x*", "axb"), (std::vector<std::string>{"+", "-a", "+x", "-b", "+"}));
  EXPECT_TRUE(parts_of("x*", "").empty());
}

TEST(Regex, MatchesLongRunsOfSpaces) {
  const std::string text(1 << 20, ' ');
  EXPECT_EQ(parts_of("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", text + "x").size(), 3U);
}

TEST(EscapeRegex, MakesATextMatchItself) {
  const std::string text = "a.b*c[d]{2}\\e|(f)^$+?#-&~";
  EXPECT_EQ(parts_of(escape_regex(text), text), (std::vector<std::string>{"+" + text}));
}

TEST(Regex, RefusesWhatItCannotCarryOverByName) {
  const auto refusal = [](const std::string& pattern) {
    return message_of<FileError>(
        [&] { Regex(pattern, RegexSyntax::kOniguruma, "a.json: pre_tokenizer"); });
  };
  const auto expected = [](const std::string& pattern, const std::string& what) {
    return "a.json: pre_tokenizer: the pattern \"" + pattern + "\" uses " + what +
           ", which is not implemented";
  };
  EXPECT_EQ(refusal("[a&&b]"), expected("[a&&b]", "&& inside brackets"));
  EXPECT_EQ(refusal("[a[b]]"), expected("[a[b]]", "brackets inside brackets"));
  EXPECT_EQ(refusal("[a"), expected("[a", "brackets without their end"));
  EXPECT_EQ(refusal("\\bx"), expected("\\bx", "\\b"));
  EXPECT_EQ(refusal("[\\W]"), expected("[\\W]", "\\W inside brackets"));
  EXPECT_EQ(refusal("x\\"), expected("x\\", "a backslash at its end"));
  EXPECT_EQ(refusal("\\p{L"), expected("\\p{L", "\\p{ without its end"));
  EXPECT_EQ(refusal("(?s:.)"), expected("(?s:.)", "the option s"));
  EXPECT_EQ(refusal("x{1,3}+"),
            expected("x{1,3}+", "an interval with a suffix or without a lower limit"));
  EXPECT_EQ(refusal("(a"),
            "a.json: pre_tokenizer: the pattern \"(a\" is not understood: missing closing "
            "parenthesis");
}

}  // namespace
}  // namespace switchyard

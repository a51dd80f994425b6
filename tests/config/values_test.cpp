#include "config/values.h"

#include <limits>

#include <gtest/gtest.h>

#include "config/sections.h"

namespace switchyard {
namespace {

RawValue word(const std::string& text) {
  return {{text}, false};
}
RawValue list(const std::vector<std::string>& items) {
  return {items, true};
}

std::string read_integer(const RawValue& raw, int64_t& value) {
  return read_value(raw, IntegerRange{1, 64}, value);
}
std::string read_real(const RawValue& raw, double& value) {
  return read_value(raw, RealRange{0.0, 1.0}, value);
}

TEST(ReadValue, StoresWholeNumbers) {
  int64_t value = 0;
  EXPECT_EQ(read_integer(word("64"), value), "");
  EXPECT_EQ(value, 64);
}

TEST(ReadValue, RefusesWhatIsNoWholeNumber) {
  int64_t value = 7;
  EXPECT_EQ(read_integer(word("eight"), value), "must be a whole number, got \"eight\"");
  EXPECT_EQ(read_integer(word("8.0"), value), "must be a whole number, got \"8.0\"");
  EXPECT_EQ(read_integer(word("1e1"), value), "must be a whole number, got \"1e1\"");
  EXPECT_EQ(read_integer(word("8 "), value), "must be a whole number, got \"8 \"");
  EXPECT_EQ(read_integer(word(""), value), "must be a whole number, got \"\"");
  EXPECT_EQ(read_integer(list({"8"}), value), "must be a whole number, got [\"8\"]");
  EXPECT_EQ(value, 7);
}

TEST(ReadValue, RefusesNumbersOutOfRange) {
  int64_t value = 7;
  EXPECT_EQ(read_integer(word("0"), value), "is 0, allowed are 1 to 64");
  EXPECT_EQ(read_integer(word("65"), value), "is 65, allowed are 1 to 64");
  EXPECT_EQ(read_integer(word("99999999999999999999"), value),
            "is 99999999999999999999, allowed are 1 to 64");
  EXPECT_EQ(read_value(word("-1"), IntegerRange{0, kNoLimit}, value),
            "is -1, allowed are 0 or more");
  EXPECT_EQ(value, 7);
}

TEST(ReadValue, StoresNumbers) {
  double value = 0.0;
  EXPECT_EQ(read_real(word("1e-3"), value), "");
  EXPECT_EQ(value, 1e-3);
  EXPECT_EQ(read_real(word("1"), value), "");
  EXPECT_EQ(value, 1.0);
}

TEST(ReadValue, RefusesNumbersThatAreNoneOrOutside) {
  double value = 0.5;
  EXPECT_EQ(read_real(word("half"), value), "must be a number, got \"half\"");
  EXPECT_EQ(read_real(word("nan"), value), "must be a number, got \"nan\"");
  EXPECT_EQ(read_real(word("inf"), value), "must be a number, got \"inf\"");
  EXPECT_EQ(read_real(word("1.5"), value), "is 1.5, allowed are 0 to 1");
  EXPECT_EQ(read_real(word("1e999"), value), "is 1e999, allowed are 0 to 1");
  EXPECT_EQ(read_real(list({}), value), "must be a number, got []");
  EXPECT_EQ(value, 0.5);
}

TEST(ReadValue, KnowsTrueAndFalseOnly) {
  bool value = false;
  EXPECT_EQ(read_value(word("true"), NoLimits{}, value), "");
  EXPECT_TRUE(value);
  EXPECT_EQ(read_value(word("false"), NoLimits{}, value), "");
  EXPECT_FALSE(value);
  EXPECT_EQ(read_value(word("yes"), NoLimits{}, value), "must be true or false, got \"yes\"");
  EXPECT_EQ(read_value(list({"true"}), NoLimits{}, value), "must be true or false, got [\"true\"]");
}

TEST(ReadValue, StoresTexts) {
  std::string value;
  EXPECT_EQ(read_value(word("runs/a b"), NoLimits{}, value), "");
  EXPECT_EQ(value, "runs/a b");
  EXPECT_EQ(read_value(word(""), NoLimits{}, value), "");  // settings that must be given refuse it
  EXPECT_EQ(read_value(list({"a", "b"}), NoLimits{}, value),
            "must be a single text, got the list [\"a\", \"b\"]");
  EXPECT_EQ(value, "");
}

TEST(ReadValue, TakesOneTextForAListOfOne) {
  std::vector<std::string> value;
  EXPECT_EQ(read_value(word("a, b"), NoLimits{}, value), "");
  EXPECT_EQ(value, std::vector<std::string>{"a, b"});
  EXPECT_EQ(read_value(list({"a", "b"}), NoLimits{}, value), "");
  EXPECT_EQ(value, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(read_value(list({"a", ""}), NoLimits{}, value),
            "must not hold an empty text, got [\"a\", \"\"]");
}

TEST(ReadValue, KnowsTheWordsOfAnEnumeration) {
  ScoreFunction value = ScoreFunction::kSoftmax;
  EXPECT_EQ(read_value(word("sigmoid"), kScoreFunctionWords, value), "");
  EXPECT_EQ(value, ScoreFunction::kSigmoid);
  EXPECT_EQ(read_value(word("relu"), kScoreFunctionWords, value),
            "is \"relu\", allowed are softmax, sigmoid, sqrtsoftplus");
  EXPECT_EQ(read_value(word("sigmiod"), kScoreFunctionWords, value),
            "is \"sigmiod\", allowed are softmax, sigmoid, sqrtsoftplus; did you mean sigmoid?");
  EXPECT_EQ(read_value(list({"sigmoid"}), kScoreFunctionWords, value),
            "is [\"sigmoid\"], allowed are softmax, sigmoid, sqrtsoftplus");
}

TEST(PrintValue, KeepsEveryBitOfANumber) {
  for (const double value : {0.1 + 0.2, 1.0 / 3.0, 5e-324, 1.7976931348623157e308, 1e-8, 10000.0}) {
    double again = 0.0;
    const RealRange any{0.0, std::numeric_limits<double>::max()};
    EXPECT_EQ(read_value(word(print_value(value)), any, again), "");
    EXPECT_EQ(again, value);
  }
}

TEST(PrintValue, QuotesTexts) {
  EXPECT_EQ(print_value(std::string("a \"b\"\n")), R"("a \"b\"\n")");
  EXPECT_EQ(print_value(std::vector<std::string>{"a", "b, c"}), R"(["a", "b, c"])");
  EXPECT_EQ(print_value(std::vector<std::string>{}), "[]");
}

TEST(RawValue, ReadsWhatPrintValueGives) {
  for (const std::string text : {"", "a", "a \"b\"\n", "[a]", "\"", "x: y", "1e3"}) {
    EXPECT_EQ(raw_value(print_value(text)).items, std::vector<std::string>{text});
    EXPECT_FALSE(raw_value(print_value(text)).is_list);
  }
  const std::vector<std::string> list = {"a", "b, c", ""};
  EXPECT_EQ(raw_value(print_value(list)).items, list);
  EXPECT_EQ(raw_value("as it is").items, std::vector<std::string>{"as it is"});
  EXPECT_EQ(raw_value("\"not closed").items, std::vector<std::string>{"\"not closed"});
}

TEST(OnOneLine, ReplacesControlCharacters) {
  EXPECT_EQ(on_one_line("a\nb\x1b[1m\x7f, \xc3\xa9"), "a?b?[1m?, \xc3\xa9");
}

TEST(TypeText, SaysWhatIsAllowed) {
  EXPECT_EQ(type_text(IntegerRange{1, 64}, int64_t{}), "integer, 1 to 64");
  EXPECT_EQ(type_text(IntegerRange{0, kNoLimit}, int64_t{}), "integer, 0 or more");
  EXPECT_EQ(type_text(RealRange{0.0, 0.5}, 0.0), "number, 0 to 0.5");
  EXPECT_EQ(type_text(NoLimits{}, false), "true or false");
  EXPECT_EQ(type_text(NoLimits{}, std::string()), "text");
  EXPECT_EQ(type_text(NoLimits{}, std::vector<std::string>()), "list of texts, or one text");
  EXPECT_EQ(type_text(kPrecisionWords, Precision::kBf16), "one of fp64, fp32, bf16");
}

TEST(WordOf, NamesAValue) {
  EXPECT_EQ(word_of(kPrecisionWords, Precision::kBf16), "bf16");
}

}  // namespace
}  // namespace switchyard

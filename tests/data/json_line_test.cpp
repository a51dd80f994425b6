#include "data/json_line.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

std::string text_of(std::string_view line) {
  const JsonLine read = text_of_json_line(line, "text");
  EXPECT_EQ(read.mistake, "") << line;
  return read.text;
}

std::string mistake_of(std::string_view line) {
  return text_of_json_line(line, "text").mistake;
}

TEST(TextOfJsonLine, ResolvesEscapes) {
  EXPECT_EQ(text_of(R"({"text":"a\tb\"\\\/\n\u0041\u00e9\ud83d\ude00"})"),
            "a\tb\"\\/\nA\u00e9\U0001F600");
  EXPECT_EQ(text_of(R"({"text":"{\"text\":\"\\u0041\"}"})"), R"({"text":"\u0041"})");
  EXPECT_EQ(text_of(R"({"t\u0065xt":"escaped key"})"), "escaped key");
  EXPECT_EQ(text_of("{\"text\":\"\xe4\xb8\xad\"}"), "\xe4\xb8\xad");
  EXPECT_EQ(text_of(R"({"text":"a\u0000b"})"), std::string("a\0b", 3));
}

TEST(TextOfJsonLine, TakesTheOutermostKeyWhereverItStands) {
  EXPECT_EQ(text_of(R"({"a":{"text":"no"},"b":[{"text":"no"}],"text":"yes","c":["text","no"]})"),
            "yes");
  EXPECT_EQ(text_of(R"({"text":"first","text":"last"})"), "last");
  EXPECT_EQ(text_of(R"(  { "text" : "spaces" }  )"), "spaces");
  EXPECT_EQ(text_of_json_line(R"({"body":"x"})", "body").text, "x");
}

TEST(TextOfJsonLine, SaysWhyThereIsNone) {
  EXPECT_EQ(mistake_of(R"({"text":"a")"), "is not JSON (byte 12)");
  EXPECT_EQ(mistake_of("hello"), "is not JSON (byte 1)");
  EXPECT_EQ(mistake_of(R"({"text":"a"} {"text":"b"})"), "is not JSON (byte 14)");
  EXPECT_EQ(mistake_of(R"({"text":"\ud83d"})"), "is not JSON (byte 16)");
  EXPECT_EQ(mistake_of("{\"text\":\"\xff\"}"), "is not JSON (byte 10)");
  EXPECT_EQ(mistake_of(R"(["text"])"), "is not a JSON object");
  EXPECT_EQ(mistake_of(R"("text")"), "is not a JSON object");
  EXPECT_EQ(mistake_of(R"({"Text":"a"})"), "has no key \"text\"");
  EXPECT_EQ(mistake_of(R"({"text":3})"), "has a number under \"text\", expected a string");
  EXPECT_EQ(mistake_of(R"({"text":null})"), "has null under \"text\", expected a string");
  EXPECT_EQ(mistake_of(R"({"text":["a"]})"), "has a list under \"text\", expected a string");
  EXPECT_EQ(mistake_of(R"({"text":{"text":"a"}})"),
            "has an object under \"text\", expected a string");
  EXPECT_EQ(mistake_of(R"({"text":true})"), "has a boolean under \"text\", expected a string");
}

// A line of brackets must not exhaust the stack.
TEST(TextOfJsonLine, TakesAnyDepth) {
  EXPECT_EQ(mistake_of(std::string(1'000'000, '[')), "is not JSON (byte 1000001)");
}

}  // namespace
}  // namespace switchyard

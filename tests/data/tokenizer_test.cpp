#include "data/tokenizer.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace switchyard {
namespace {

TEST(MakeTokenizer, KnowsBytes) {
  EXPECT_EQ(make_tokenizer("bytes")->name(), "bytes");
}

TEST(MakeTokenizer, ListsTheKnownNamesForAnUnknownOne) {
  try {
    make_tokenizer("byte");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "unknown tokenizer \"byte\"; known are: bytes");
  }
}

}  // namespace
}  // namespace switchyard

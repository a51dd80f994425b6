#include "data/tokenizer.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace switchyard {
namespace {

TEST(MakeTokenizer, KnowsBytes) {
  EXPECT_EQ(make_tokenizer("bytes")->name(), "bytes");
}

TEST(MakeTokenizer, SaysWhatANameCanBe) {
  try {
    make_tokenizer("byte");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "unknown tokenizer \"byte\": it is neither \"bytes\" nor the path of a file or "
                 "folder that is there");
  }
}

}  // namespace
}  // namespace switchyard

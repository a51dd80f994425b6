#include "base/out_of_memory.h"

#include <new>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/error.h"

namespace switchyard {
namespace {

std::string message_for(const std::function<void()>& work) {
  try {
    with_memory_for("a test", "ask for less", work);
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kOutOfMemory);
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another: ") + error.what();
  }
  return "";
}

TEST(OutOfMemory, SaysWhatForAndHowMuch) {
  // More than any machine has, and fewer than can be counted.
  EXPECT_EQ(message_for([] { (void)at::empty({int64_t{1} << 52}, at::kDouble); }),
            "out of memory for a test (36028797 GB at once); ask for less");
  EXPECT_EQ(message_for([] {
              (void)at::empty({int64_t{1} << 40, int64_t{1} << 40});
            }),
            "out of memory for a test (more bytes than can be counted at once); ask for less");
  EXPECT_EQ(message_for([] { throw std::bad_alloc(); }), "out of memory for a test; ask for less");
}

TEST(OutOfMemory, IsNoOtherError) {
  EXPECT_EQ(message_for([] { throw FileError("x: can't allocate memory"); }),
            "another: x: can't allocate memory");
  EXPECT_EQ(message_for([] { throw std::runtime_error("no"); }), "another: no");
  EXPECT_EQ(with_memory_for("a test", "", [] { return 3; }), 3);
}

}  // namespace
}  // namespace switchyard

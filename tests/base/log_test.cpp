#include "base/log.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

TEST(Log, WritesPlainLinesAndMarksWarnings) {
  testing::internal::CaptureStderr();
  log_info("{} of {}", 1, 2);
  log_warn("low on {}", "space");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "1 of 2\nwarning: low on space\n");
}

// What a terminal makes of the bytes: "\r" and "\x1b[K" go to the start of the line and empty it.
TEST(Log, KeepsTheStatusLineBelowAllOthers) {
  testing::internal::CaptureStderr();
  set_status_line("step 1");
  set_status_line("step 2");
  log_line("saved");
  set_status_line("");
  log_line("done");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "step 1"
            "\r\x1b[Kstep 2"
            "\r\x1b[Ksaved\nstep 2"
            "\r\x1b[K"
            "done\n");
}

}  // namespace
}  // namespace switchyard

// Runs the built program: what a user types and what comes back.

#include <gtest/gtest.h>

#include "base/exit_code.h"
#include "switchyard/run_program.h"

namespace switchyard {
namespace {

TEST(InspectCommand, SaysWhatItLookedFor) {
  const ProgramResult result = run_program("inspect no/such/set.bin");
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kBadFile));
  EXPECT_EQ(result.output,
            "error: no/such/set.bin is nothing known: expected a checkpoint, a run directory with "
            "checkpoints, a Hugging Face directory, or the prefix of a data set (there is no "
            "no/such/set.bin.idx)\n");
}

}  // namespace
}  // namespace switchyard

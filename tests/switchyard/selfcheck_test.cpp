// Runs the built program: `switchyard selfcheck`.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/exit_code.h"
#include "config/example.h"
#include "switchyard/run_program.h"

namespace switchyard {
namespace {

using testing::HasSubstr;

constexpr char kRun[] =
    "model: {num_layers: 12, hidden_size: 512, num_attention_heads: 8, num_query_groups: 2, "
    "vocab_size: 1024}\n"
    "moe: {num_experts: 32, top_k: 4, ffn_hidden_size: 256, aux_loss_coeff: 0.01}\n"
    "parallel: {tensor_size: 4, expert_size: 8, sequence_parallel: true}\n"
    "data: {sequence_length: 128}\n";

class SelfcheckCommand : public FolderTest {};

TEST_F(SelfcheckCommand, ProvesALayoutAndSaysWhatItChanged) {
  write("run.yaml", kRun);
  const ProgramResult result = run_program("selfcheck run.yaml moe.dispatcher=allgather");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("layout: 4 ranks, as threads: dense layers tp 2 x dp 2, "
                                       "sequence parallel; experts etp 1 x ep 2 x edp 2"));
  EXPECT_THAT(result.output, HasSubstr("512 -> 16"));
  EXPECT_THAT(result.output, HasSubstr("gradients, first step"));
  EXPECT_THAT(result.output, HasSubstr("selfcheck: passed"));
}

TEST_F(SelfcheckCommand, RefusesALayoutThatCannotBe) {
  write("run.yaml", kRun);
  const ProgramResult result = run_program("selfcheck run.yaml parallel.expert_size=5");
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kRefusedConfig));
  EXPECT_THAT(result.output, HasSubstr("moe.num_experts (32) must be a multiple of "
                                       "parallel.expert_size (5)"));
}

}  // namespace
}  // namespace switchyard

// Runs the built program: what a user types and what comes back.

#include <cstdio>

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "base/exit_code.h"
#include "config/example.h"
#include "config/manual.h"
#include "switchyard/run_program.h"

namespace switchyard {
namespace {

void expect_refused(const std::string& words, const std::string& message) {
  const ProgramResult result = run_program(words);
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kRefusedConfig)) << words;
  EXPECT_EQ(result.output, "error: " + message + "\n");
}

class ConfigCommand : public FolderTest {};

TEST_F(ConfigCommand, TellsItsVersion) {
  const ProgramResult result = run_program("--version");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "switchyard " + program_version() + "\n");
}

TEST_F(ConfigCommand, ExplainsEveryCommandWithAnExample) {
  for (const char* words :
       {"--help", "config --help", "config show --help", "config keys --help"}) {
    const ProgramResult result = run_program(words);
    EXPECT_EQ(result.exit_code, 0) << words;
    EXPECT_NE(result.output.find("Example:\n  switchyard "), std::string::npos) << words;
  }
}

TEST_F(ConfigCommand, RefusesACommandLineItDoesNotKnow) {
  expect_refused("", "switchyard: A subcommand is required; see switchyard --help");
  expect_refused("confg", "switchyard: unknown command confg; did you mean config?");
  expect_refused("banana", "switchyard: unknown command banana; see switchyard --help");
  expect_refused("config kyes", "switchyard config: unknown command kyes; did you mean keys?");
  expect_refused("config keys x", "there is no section or setting x; config keys lists all");
  expect_refused("config keys --markdwon",
                 "switchyard config keys: unknown option --markdwon; did you mean --markdown?");
  expect_refused("config keys --zzz",
                 "switchyard config keys: unknown option --zzz; see switchyard config keys --help");
  expect_refused("config show",
                 "switchyard config show: CONFIG is required; see switchyard config show --help");
  expect_refused("config show run.yaml --moe.top_k=4",
                 "switchyard config show: unknown option --moe.top_k=4; settings are written "
                 "without dashes: moe.top_k=4");
}

TEST_F(ConfigCommand, DrawsTheGridOfRanks) {
  write("run.yaml", kExample);
  const ProgramResult result = run_program("config show run.yaml --ranks 2");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("# dp-cp, ranks that hold the same dense parameters: {0 1}\n"),
            std::string::npos)
      << result.output;
}

TEST_F(ConfigCommand, ListsTheStagesOfAPipeline) {
  write("run.yaml", kExample);
  const ProgramResult result = run_program(
      "config show run.yaml model.num_layers=3 parallel.pipeline_size=2 "
      "parallel.virtual_pipeline_size=2 \"parallel.pipeline_layout=E|t|tt|L\" --ranks 2");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("# stage 0, on pp 0: embedding\n"
                               "# stage 1, on pp 1: layer 0\n"
                               "# stage 2, on pp 0: layers 1-2\n"
                               "# stage 3, on pp 1: head\n"),
            std::string::npos)
      << result.output;
}

// Eight micro-batches; a backward pass takes as long as two forward passes: 3 of 8 x 3 + 3 idle,
// with zero bubble 1 of 8 x 3 + 1.
TEST_F(ConfigCommand, SaysHowAPipelineIsFilled) {
  write("run.yaml", kExample);
  const std::string words =
      "config show run.yaml train.micro_batch_size=1 model.num_layers=2 parallel.pipeline_size=2 "
      "--ranks 2 parallel.pipeline_schedule=";
  const std::pair<const char*, const char*> cases[] = {
      {"1f1b",
       "# 8 micro-batches: ranks idle for 11.1 % of them; each pp holds at most 2 1 at once\n"},
      {"zero_bubble",
       "# 8 micro-batches: ranks idle for 4.0 % of them; each pp holds at most 2 2 at once\n"}};
  for (const auto& [schedule, line] : cases) {
    const ProgramResult result = run_program(words + schedule);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_NE(result.output.find(line), std::string::npos) << result.output;
  }
}

TEST_F(ConfigCommand, SaysWhyALayoutDoesNotFitTheRanks) {
  write("run.yaml", kExample);
  const ProgramResult result = run_program("config show run.yaml parallel.tensor_size=2 --ranks 3");
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kRefusedConfig));
  EXPECT_NE(result.output.find("the number of ranks (3) must be a multiple of "
                               "parallel.tensor_size x parallel.pipeline_size"),
            std::string::npos)
      << result.output;
}

TEST_F(ConfigCommand, ShowsAConfiguration) {
  write("run.yaml", kExample);
  const ProgramResult result = run_program("config show run.yaml moe.top_k=4 train.eval_every=5");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("  top_k: 4 "), std::string::npos);
  EXPECT_NE(result.output.find("# [command line] experts each token is sent to"),
            std::string::npos);
  EXPECT_NE(result.output.find("warning: train.eval_every (5) has no effect: data.eval is empty "
                               "[command line]\n"),
            std::string::npos);
}

TEST_F(ConfigCommand, ShowsWhatItPrintsAgain) {
  write("run.yaml", kExample);
  ASSERT_EQ(run_program("config show run.yaml > resolved.yaml").exit_code, 0);
  const ProgramResult again = run_program("config show resolved.yaml");
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_EQ(again.output.find("warning"), std::string::npos) << again.output;
  EXPECT_NE(again.output.find("  num_experts: 8 "), std::string::npos);
}

TEST_F(ConfigCommand, ShowsABrokenConfigurationAndWhatIsWrongWithIt) {
  write("run.yaml", kExample);
  const ProgramResult result =
      run_program("config show run.yaml moe.top_k=9 parallel.context_size=7");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.output.find("  top_k: 9 "), std::string::npos);
  EXPECT_NE(result.output.find("must be a multiple of 2 x parallel.context_size (2 x 7 = 14)"),
            std::string::npos);
  EXPECT_NE(result.output.find("\nerror: moe.top_k (9) must not exceed"), std::string::npos);
}

TEST_F(ConfigCommand, PrefixesEveryMistakeOfAFile) {
  write("run.yaml", "run:\n  sed: 1\n  seed: x\n");
  expect_refused("config show run.yaml",
                 "run.yaml:2: unknown key run.sed; did you mean run.seed?\n"
                 "error: run.yaml:3: run.seed must be a whole number, got \"x\"");
}

TEST_F(ConfigCommand, ReportsAMissingFile) {
  const ProgramResult result = run_program("config show no.yaml");
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kBadFile));
  EXPECT_EQ(result.output, "error: no.yaml: cannot be read: No such file or directory\n");
}

TEST_F(ConfigCommand, ListsAllKeys) {
  EXPECT_EQ(run_program("config keys").output, manual_text());
  EXPECT_EQ(run_program("config keys --markdown").output, manual_markdown());
}

TEST_F(ConfigCommand, ReportsAFullDisk) {
  const ProgramResult result = run_program("config keys >/dev/full");
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kBadFile));
  EXPECT_EQ(result.output, "error: cannot write to standard output: No space left on device\n");
}

TEST_F(ConfigCommand, KeepsItsExitCodeWhenErrorsCannotBeWritten) {
  EXPECT_EQ(run_program("config show no.yaml 2>/dev/full").exit_code,
            static_cast<int>(ExitCode::kBadFile));
  EXPECT_EQ(run_program("config kyes 2>/dev/full").exit_code,
            static_cast<int>(ExitCode::kRefusedConfig));
}

}  // namespace
}  // namespace switchyard

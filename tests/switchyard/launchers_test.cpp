// `switchyard train` under the launchers of others, each where it is installed.
#include <cstdlib>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "switchyard/training_folder.h"

namespace switchyard {
namespace {

bool is_installed(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null").c_str()) == 0;
}

class OtherLaunchers : public TrainingFolder {
 protected:
  // Trains two ranks with `launcher` in front, to the losses of one.
  void expect_same_losses(const std::string& variables, const std::string& launcher) {
    const std::string settings =
        "train.precision=fp64 train.micro_batch_size=1 train.threads=1 parallel.timeout_s=60";
    ASSERT_EQ(train("one", settings).exit_code, 0);
    const std::string line =
        fmt::format("--version; {} {} {} {}; echo code $?", variables, launcher, program_path(),
                    command("two", settings + " parallel.tensor_size=2"));
    const ProgramResult launched = run_program(line);
    EXPECT_THAT(launched.output, testing::HasSubstr("code 0")) << launched.output;
    const std::vector<double> expected = losses("one");
    EXPECT_EQ(expected.size(), 20U);
    EXPECT_THAT(losses("two"), testing::Pointwise(testing::DoubleNear(1e-9), expected));
  }

  std::string port() const { return std::to_string(20000 + getpid() % 10000); }
};

TEST_F(OtherLaunchers, Torchrun) {
  // Torch is of no other use to the tests, so it may live in an environment of its own.
  const char* given = std::getenv("SWITCHYARD_TORCHRUN");
  const std::string torchrun = given == nullptr ? "torchrun" : given;
  if (!is_installed(torchrun)) {
    GTEST_SKIP() << "torchrun is not installed (SWITCHYARD_TORCHRUN says where it is)";
  }
  expect_same_losses("", torchrun + " --no-python --nproc-per-node 2 --master-port " + port());
}

TEST_F(OtherLaunchers, OpenMpi) {
  if (!is_installed("mpirun")) {
    GTEST_SKIP() << "mpirun is not installed (Debian: openmpi-bin)";
  }
  expect_same_losses("MASTER_PORT=" + port(), "mpirun --allow-run-as-root --oversubscribe -n 2");
}

TEST_F(OtherLaunchers, Slurm) {
  if (!is_installed("srun") || std::system("sinfo >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "there is no Slurm to ask for ranks";
  }
  expect_same_losses("MASTER_PORT=" + port(), "srun --ntasks 2 --overcommit");
}

// What srun sets, without Slurm.
TEST_F(OtherLaunchers, SlurmsVariables) {
  const std::string slurm =
      "SLURM_STEP_NUM_TASKS=2 SLURM_NODEID=0 SLURM_STEP_NODELIST=localhost SLURM_PROCID=";
  const std::string both = fmt::format(
      "sh -c '{0}1 SLURM_LOCALID=1 \"$@\" & {0}0 SLURM_LOCALID=0 \"$@\"; first=$?; wait $! && exit "
      "$first' sh",
      slurm);
  expect_same_losses("MASTER_PORT=" + port(), both);
}

}  // namespace
}  // namespace switchyard

#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/exit_code.h"
#include "switchyard/run_program.h"

namespace switchyard {

std::string read(const std::filesystem::path& path);
void write(const std::filesystem::path& path, const std::string& text);
int code(ExitCode code);

// metrics.jsonl without what depends on the clock: the last keys of each line.
std::string timeless_metrics(const std::filesystem::path& run);

// That two runs have the same metrics, and checkpoints of this step with the same bytes, written by
// that many ranks.
void expect_equal_runs(const std::filesystem::path& one, const std::filesystem::path& other,
                       int64_t step, int64_t num_ranks = 1);

// A folder with a small text, tokenized, and the settings of a small model that trains 20 steps.
class TrainingFolder : public testing::Test {
 protected:
  TrainingFolder();
  ~TrainingFolder() override;

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  // `run` is a folder of its own.
  std::string command(const std::string& run, const std::string& settings = "") const;
  ProgramResult train(const std::string& run, const std::string& settings = "") const {
    return run_program(command(run, settings));
  }

  // Of every step in a run's metrics.
  std::vector<double> losses(const std::string& run) const;

  std::filesystem::path folder_;
};

}  // namespace switchyard

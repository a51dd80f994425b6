#include "switchyard/training_folder.h"

#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <unistd.h>

namespace switchyard {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string timeless_metrics(const fs::path& run) {
  std::ifstream file(run / "metrics.jsonl");
  std::string all;
  for (std::string line; std::getline(file, line);) {
    all += line.substr(0, line.find(",\"step_time_s\"")) + "\n";
  }
  return all;
}

int code(ExitCode code) {
  return static_cast<int>(code);
}

void expect_equal_runs(const fs::path& one, const fs::path& other, int64_t step,
                       int64_t num_ranks) {
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    const std::string name = fmt::format("checkpoints/step_{}/rank_{:05}.safetensors", step, rank);
    const std::string bytes = read(one / name);
    EXPECT_GT(bytes.size(), 1000U);
    EXPECT_TRUE(bytes == read(other / name)) << "weights or moments differ";
  }
  EXPECT_EQ(timeless_metrics(one), timeless_metrics(other));
  EXPECT_NE(timeless_metrics(one).find(fmt::format("\"step\":{},", step)), std::string::npos);
}

TrainingFolder::TrainingFolder()
    : folder_(fs::path(testing::TempDir()) /
              fmt::format("training_{}_{}", getpid(),
                          testing::UnitTest::GetInstance()->current_test_info()->name())) {
  fs::remove_all(folder_);
  fs::create_directories(folder_);
  std::string text;
  for (int i = 0; i < 600; ++i) {
    text += fmt::format("line {} of {} is {}\n", i, i * i % 97, i % 3 == 0 ? "odd" : "even");
  }
  write(folder_ / "text.txt", text);
  EXPECT_EQ(
      run_program(fmt::format("tokenize {0}/text.txt --out {0}/set", folder_.string())).exit_code,
      0);
  write(folder_ / "run.yaml", R"(
model:
  num_layers: 2
  hidden_size: 16
  num_attention_heads: 2
moe:
  num_experts: 4
  ffn_hidden_size: 16
  aux_loss_coeff: 0.01
data:
  train: [)" + (folder_ / "set").string() +
                                  R"(]
  eval: [)" + (folder_ / "set").string() +
                                  R"(]
  sequence_length: 32
train:
  steps: 20
  global_batch_size: 4
  micro_batch_size: 2
  threads: 2
  eval_batches: 2
optimizer:
  lr: 1e-2
  warmup_steps: 4
checkpoint:
  keep: 10
)");
}

TrainingFolder::~TrainingFolder() {
  fs::remove_all(folder_);
}

std::string TrainingFolder::command(const std::string& run, const std::string& settings) const {
  return fmt::format("train {} run.dir={} {}", path("run.yaml"), path(run), settings);
}

std::vector<double> TrainingFolder::losses(const std::string& run) const {
  std::ifstream file(folder_ / run / "metrics.jsonl");
  std::vector<double> result;
  for (std::string line; std::getline(file, line);) {
    result.push_back(std::stod(line.substr(line.find("\"loss\":") + 7)));
  }
  return result;
}

}  // namespace switchyard

#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "base/error.h"
#include "config/settings.h"

namespace switchyard {

// Has all that training needs and breaks no rule.
inline const std::string kExample =
    "run:\n"
    "  dir: runs/example\n"
    "model:\n"
    "  num_layers: 2\n"
    "  hidden_size: 64\n"
    "  num_attention_heads: 4\n"
    "moe:\n"
    "  num_experts: 8\n"
    "  ffn_hidden_size: 96\n"
    "data:\n"
    "  train: text\n"
    "  sequence_length: 128\n"
    "train:\n"
    "  steps: 20\n"
    "  global_batch_size: 8\n"
    "optimizer:\n"
    "  lr: 1e-3\n";

// The working folder of a test, emptied when it ends, so that messages have short file names.
class FolderTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("switchyard_") + info->test_suite_name() + "_" + info->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    before_ = std::filesystem::current_path();
    std::filesystem::current_path(folder_);
  }
  void TearDown() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }

  static void write(const std::string& path, const std::string& text) {
    if (const auto parent = std::filesystem::path(path).parent_path(); !parent.empty()) {
      std::filesystem::create_directories(parent);
    }
    std::ofstream(path) << text;
  }

 private:
  std::filesystem::path folder_;
  std::filesystem::path before_;
};

// The message of the E that `action` throws.
template <class E, class Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// Every setting with a value of its own, none of them the default.
inline Config config_without_defaults() {
  Config config;
  for (const Setting& setting : settings()) {
    for (const char* text :
         {"7",          "0.3",       "true",   "false",    "x y",        "sigmoid",
          "allgather",  "fp64",      "full",   "constant", "linear",     "max",
          "relu",       "packed",    "random", "position", "cosine",     "block",
          "all_gather", "optimizer", "layer",  "none",     "zero_bubble"}) {
      if (setting.read({{text}, false}, config).empty() && !setting.has_default_value(config)) {
        break;
      }
    }
  }
  return config;
}

}  // namespace switchyard

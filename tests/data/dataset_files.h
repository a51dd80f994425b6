#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "data/byte_tokenizer.h"
#include "data/indexed_dataset_writer.h"

namespace switchyard {

// An empty folder for the running test, with a slash at the end.
inline std::string fresh_folder() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  std::string folder =
      testing::TempDir() + "switchyard." + test->test_suite_name() + "." + test->name() + "/";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

inline std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

inline std::string write_file(const std::string& path, const std::string& text) {
  // Some file systems write a file that is overwritten to disk at once, which takes milliseconds.
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

inline int64_t count_files(const std::string& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

// A data set of the byte tokenizer whose documents have these ids.
inline std::string write_dataset(const std::string& prefix,
                                 const std::vector<std::vector<int32_t>>& documents) {
  IndexedDatasetWriter writer(prefix, ByteTokenizer());
  for (const auto& document : documents) {
    writer.add_document(document);
  }
  writer.finish();
  return prefix;
}

// One document of `num_tokens` tokens: 0, 1, ... 255, 0, 1, ..., moved on by `first`.
inline std::string write_counting_dataset(const std::string& prefix, int64_t num_tokens,
                                          int64_t first = 0) {
  std::vector<int32_t> document;
  for (int64_t i = 0; i < num_tokens; ++i) {
    document.push_back(static_cast<int32_t>((first + i) % 256));
  }
  return write_dataset(prefix, {document});
}

// The text of the error of type E that `action` throws; "" when it throws none.
template <class E, class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace switchyard

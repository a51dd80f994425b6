#pragma once

#include <string>
#include <vector>

namespace switchyard {

// The words behind `switchyard train`.
struct TrainWords {
  std::string path;
  std::vector<std::string> overrides;
  bool accept_changes = false;
  bool is_shrunk = false;
};

// Reads them from the command line of another command. Throws CLI::Error.
TrainWords read_train_words(const std::vector<std::string>& words);

}  // namespace switchyard

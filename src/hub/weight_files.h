#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"

namespace switchyard {

// The weights of a Hugging Face directory: model.safetensors, or the shards that
// model.safetensors.index.json lists.
struct WeightFiles {
  struct Place {
    size_t file;  // in `files`
    const SafetensorsEntry* entry;
  };
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  std::map<std::string, Place> tensors;  // by name
};

// Opens them and reads their headers. Throws FileError, naming the file, when there are none, when
// they are pickled, when a shard is missing, damaged or cut short, and when the index and the
// shards' headers do not list the same tensors.
WeightFiles open_weight_files(const std::filesystem::path& folder);

// Whether a file of that name holds weights, in any format, or lists them.
bool is_weight_file(const std::string& name);

}  // namespace switchyard

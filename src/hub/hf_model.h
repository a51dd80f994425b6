#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "checkpoint/index.h"
#include "config/config.h"
#include "hub/family.h"
#include "hub/quantization.h"
#include "hub/tensor_map.h"

namespace switchyard {

// One tensor of a Hugging Face directory.
struct HfTensor {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  std::string file;
  std::optional<DroppedTensor::Reason> dropped;  // set: it is part of no logical tensor
};

// A Hugging Face directory, every field and tensor of it accounted for.
struct HfModel {
  std::filesystem::path path;
  const ModelFamily* family = nullptr;
  nlohmann::json fields;   // config.json as it stands there
  SettingValues settings;  // what it means
  Config config;           // the same, with the defaults of all other settings
  std::optional<Quantization> quantization;
  std::vector<HfTensor> tensors;  // in the order of the files
  // The files as a checkpoint of logical tensors, without checksums: parts of any layout are read
  // from it by PartReader, each rank its own byte ranges.
  CheckpointIndex index;
};

bool is_hf_directory(const std::filesystem::path& path);

// Reads config.json and the headers of the weights. Every tensor must be what the configuration
// makes it, and every logical tensor must be there exactly once; what the family may drop is
// compared with what it copies. Throws ConfigError and FileError, naming file, field or tensor.
HfModel open_hf_model(const std::filesystem::path& path);

}  // namespace switchyard

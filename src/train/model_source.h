#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "config/load.h"
#include "hub/hf_model.h"
#include "nn/parameters.h"

namespace switchyard {

// Where a model comes from: a Hugging Face directory, a checkpoint, or a folder of checkpoints such
// as a run directory, whose latest good one is taken.
struct ModelSource {
  std::filesystem::path path;
  std::optional<HfModel> hf;
  CheckpointRecord record;  // of a checkpoint; of a directory what its import would say
  bool is_many = false;     // a folder of checkpoints
  Config config;            // the settings that the model has
  std::string tokenizer;    // as in data.tokenizer
};

// Reads what the model is, not its weights. Throws FileError and ConfigError that name the path.
ModelSource open_model_source(const std::filesystem::path& path);

// Ids after which a text of the model is complete, besides the tokenizer's: eos_token_id, one id or
// a list, of generation_config.json, else of config.json, as transformers' generate() reads it.
// Empty for a model that has neither. Throws FileError for one that is no id.
std::vector<int64_t> end_ids_of(const ModelSource& source);

// Fills parameters and buffers, in any layout. Every tensor of the source is used and every
// parameter filled, or it throws, as load_checkpoint() does; weights that are not finite are
// refused by name. Collective over the world.
// Returns the path that was read.
std::filesystem::path load_weights(ModelSource& source, Parameters& parameters,
                                   const Groups& groups);

// load_config() and read_config() for a configuration that may name a model to start from
// (model.from): that model's settings come first, and those that decide what it computes cannot be
// changed.
LoadedConfig load_config_from_model(const std::string& path,
                                    const std::vector<std::string>& overrides, ConfigUse use);
LoadedConfig read_config_from_model(const std::string& path,
                                    const std::vector<std::string>& overrides);

}  // namespace switchyard

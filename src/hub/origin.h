#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "hub/hf_model.h"

namespace switchyard {

// What a checkpoint remembers of the Hugging Face directory that its model came from: so that
// export gives back the same names, dtypes, files and bytes.
struct Origin {
  const ModelFamily* family = nullptr;
  nlohmann::json fields;          // config.json as it stood there
  std::vector<HfTensor> tensors;  // in the order of the files
};

nlohmann::json to_json(const Origin& origin);
// Throws CheckpointError, naming `source` and the field, when one is missing or of another type.
Origin origin_from_json(const nlohmann::json& json, const std::string& source);
Origin origin_of(const HfModel& model);

// Where the tensors of a model made from scratch would come from: the family asked for by
// model_type or, when that is empty, the first that can express the settings; tensors with its
// names, in `dtype`, in one file. Throws ConfigError that says what no family, or not this one, can
// express.
Origin origin_from_scratch(const Config& config, const std::string& model_type,
                           at::ScalarType dtype);

// Names of logical tensors under which a checkpoint keeps the bytes of what was dropped:
// "origin.model.layers.0.self_attn.rotary_emb.inv_freq". No model has them.
constexpr char kOriginPrefix[] = "origin.";

// Throws FileError when a conversion would write into what is there.
void check_folder_is_free(const std::filesystem::path& folder);

// Files of a Hugging Face directory that go with the model unchanged: all but weights and folders.
// config.json is among them, since it may be what tells a tokenizer its end of text.
std::vector<std::filesystem::path> carried_files(const std::filesystem::path& folder);

}  // namespace switchyard

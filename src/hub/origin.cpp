#include "hub/origin.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/sealed_json.h"
#include "hub/hf_settings.h"
#include "hub/weight_files.h"

namespace switchyard {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kRotary = "rotary frequencies";
constexpr std::string_view kTied = "tied head";
constexpr std::string_view kScales = "scales of blocks";
constexpr std::string_view kEmbeddingCopy = "copy of the embedding";
constexpr std::string_view kHeadCopy = "copy of the head";

std::string_view word_for(DroppedTensor::Reason reason) {
  switch (reason) {
    case DroppedTensor::Reason::kRotaryFrequencies:
      return kRotary;
    case DroppedTensor::Reason::kTiedHead:
      return kTied;
    case DroppedTensor::Reason::kScales:
      return kScales;
    case DroppedTensor::Reason::kEmbeddingCopy:
      return kEmbeddingCopy;
    case DroppedTensor::Reason::kHeadCopy:
      break;
  }
  return kHeadCopy;
}

DroppedTensor::Reason reason_called(const std::string& word) {
  using Reason = DroppedTensor::Reason;
  for (const Reason reason :
       {Reason::kTiedHead, Reason::kScales, Reason::kEmbeddingCopy, Reason::kHeadCopy}) {
    if (word == word_for(reason)) {
      return reason;
    }
  }
  return Reason::kRotaryFrequencies;
}

Json to_json(const HfTensor& tensor) {
  Json json = {{"name", tensor.name},
               {"dtype", safetensors_dtype(tensor.dtype)},
               {"shape", tensor.shape},
               {"file", tensor.file}};
  if (tensor.dropped) {
    json["dropped"] = word_for(*tensor.dropped);
  }
  return json;
}

HfTensor tensor_from(const Json& json, const std::string& source) {
  HfTensor tensor;
  tensor.name = json_field<std::string>(json, "name", source);
  tensor.dtype = dtype_from_safetensors(json_field<std::string>(json, "dtype", source), source);
  tensor.shape = json_field<std::vector<int64_t>>(json, "shape", source);
  tensor.file = json_field<std::string>(json, "file", source);
  if (json.contains("dropped")) {
    tensor.dropped = reason_called(json_field<std::string>(json, "dropped", source));
  }
  return tensor;
}

const ModelFamily& family_called(const std::string& model_type) {
  const ModelFamily* family = find_family_by_type(model_type);
  std::vector<std::string> known;
  for (const ModelFamily& one : families()) {
    known.push_back(one.model_type);
  }
  check<ConfigError>(family != nullptr, "there is no family \"{}\"; known are: {}", model_type,
                     fmt::join(known, ", "));
  return *family;
}

// The one of that type, or the first that can express the settings.
const ModelFamily& family_for(const Config& config, const std::string& model_type) {
  if (!model_type.empty()) {
    const ModelFamily& family = family_called(model_type);
    const std::vector<std::string> differences = not_expressed(family, config);
    check<ConfigError>(differences.empty(), "the family {} has no such model: {}", model_type,
                       fmt::join(differences, ", "));
    return family;
  }
  const ModelFamily* nearest = nullptr;
  std::vector<std::string> fewest;
  for (const ModelFamily& family : families()) {
    if (family.only_on_request) {
      continue;
    }
    std::vector<std::string> differences = not_expressed(family, config);
    if (differences.empty()) {
      return family;
    }
    if (nearest == nullptr || differences.size() < fewest.size()) {
      nearest = &family;
      fewest = std::move(differences);
    }
  }
  throw ConfigError(
      fmt::format("no Hugging Face family has such a model. The nearest is {}, but {}; --family "
                  "says it of another",
                  nearest->model_type, fmt::join(fewest, ", ")));
}

}  // namespace

Json to_json(const Origin& origin) {
  Json tensors = Json::array();
  for (const HfTensor& tensor : origin.tensors) {
    tensors.push_back(to_json(tensor));
  }
  return {{"model_type", origin.family->model_type},
          {"config", origin.fields},
          {"tensors", std::move(tensors)}};
}

Origin origin_from_json(const Json& json, const std::string& source) {
  Origin origin;
  const auto type = json_field<std::string>(json, "model_type", source);
  origin.family = find_family_by_type(type);
  check<CheckpointError>(origin.family != nullptr,
                         "{}: its model is of type \"{}\", which this version does not know",
                         source, type);
  origin.fields = json_field<Json>(json, "config", source);
  for (const Json& tensor : json_field<Json>(json, "tensors", source)) {
    origin.tensors.push_back(tensor_from(tensor, source));
  }
  return origin;
}

Origin origin_of(const HfModel& model) {
  return {model.family, model.fields, model.tensors};
}

Origin origin_from_scratch(const Config& config, const std::string& model_type,
                           at::ScalarType dtype) {
  Origin origin;
  origin.family = &family_for(config, model_type);
  origin.fields = write_hf_fields(*origin.family, config);
  for (const MappedTensor& mapped : map_tensors(*origin.family, logical_shapes(config))) {
    if (!mapped.is_other_spelling) {
      origin.tensors.push_back({mapped.name, dtype, mapped.shape, "model.safetensors", {}});
    }
  }
  return origin;
}

void check_folder_is_free(const std::filesystem::path& folder) {
  const bool is_free = !std::filesystem::exists(folder) ||
                       (std::filesystem::is_directory(folder) && std::filesystem::is_empty(folder));
  check<FileError>(is_free, "{} is there already: choose another folder, or remove it first",
                   folder.string());
}

std::vector<std::filesystem::path> carried_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && !is_weight_file(name)) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace switchyard

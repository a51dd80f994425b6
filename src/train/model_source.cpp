#include "train/model_source.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "config/settings.h"
#include "hub/hf_settings.h"
#include "hub/origin.h"
#include "optim/publish.h"

namespace switchyard {
namespace {

std::filesystem::path folder_of_checkpoints(const std::filesystem::path& path) {
  return std::filesystem::is_directory(path / "checkpoints") ? path / "checkpoints" : path;
}

ModelSource from_hf(const std::filesystem::path& path) {
  ModelSource source;
  source.path = path;
  source.hf = open_hf_model(path);
  source.config = source.hf->config;
  source.record.origin = to_json(origin_of(*source.hf));
  source.record.assets = carried_files(path);
  return source;
}

ModelSource from_checkpoint(const std::filesystem::path& path) {
  ModelSource source;
  source.path = folder_of_checkpoints(path);
  source.is_many = !is_checkpoint_folder(source.path);
  const auto candidate = source.is_many ? find_latest(source.path) : std::optional(source.path);
  check<CheckpointError>(
      candidate.has_value(),
      "{} is no model: expected a Hugging Face directory, a checkpoint, or a run "
      "directory with checkpoints",
      path.string());
  source.record = read_record(*candidate);
  source.config =
      load_config_text(source.record.configuration, candidate->string(), ConfigUse::kDescribe)
          .config;
  return source;
}

bool is_tokenizer_file(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  return name == "tokenizer.json" || name == "tekken.json" || name == "tokenizer.model" ||
         name.ends_with(".tiktoken");
}

// What training goes on with unless the configuration says otherwise.
bool is_carried_along(const std::string& setting) {
  constexpr std::array<std::string_view, 6> kCarried = {
      "model.max_position",        "moe.aux_loss_coeff", "moe.step_aux_loss_coeff",
      "moe.global_aux_loss_coeff", "moe.z_loss_coeff",   "moe.bias_update_rate"};
  return std::find(kCarried.begin(), kCarried.end(), setting) != kCarried.end();
}

// The settings of the model to start from, in front of those of the configuration.
GivenSettings settings_of(const ModelSource& source) {
  GivenSettings given;
  given.origin = (source.hf ? source.path / "config.json" : source.path).string();
  for (const Setting& setting : settings()) {
    if (decides_the_model(setting.name)) {
      given.values[setting.name] = raw_value(setting.print(source.config));
      given.binding.insert(setting.name);
    }
  }
  if (source.hf) {
    for (const auto& [name, value] : source.hf->settings) {
      given.values[name] = value;
    }
  } else {
    for (const Setting& setting : settings()) {
      if (is_carried_along(setting.name)) {
        given.values[setting.name] = raw_value(setting.print(source.config));
      }
    }
  }
  if (!source.tokenizer.empty()) {
    given.values["data.tokenizer"] = {{source.tokenizer}, false};
  }
  return given;
}

GivenSettings settings_of_start(const std::string& path,
                                const std::vector<std::string>& overrides) {
  const std::string from = read_config(path, overrides).config.model.from;
  return from.empty() ? GivenSettings{} : settings_of(open_model_source(from));
}

}  // namespace

ModelSource open_model_source(const std::filesystem::path& path) {
  check<FileError>(std::filesystem::exists(path), "{} does not exist: expected a model",
                   path.string());
  ModelSource source = is_hf_directory(path) ? from_hf(path) : from_checkpoint(path);
  const std::string given = source.hf ? "" : source.config.data.tokenizer;
  source.tokenizer = given;
  for (const std::filesystem::path& file : source.record.assets) {
    if (is_tokenizer_file(file)) {
      source.tokenizer = file.parent_path().string();
    }
  }
  return source;
}

std::vector<int64_t> end_ids_of(const ModelSource& source) {
  using Json = nlohmann::json;
  Json value;
  std::string file = "config.json";
  if (source.record.origin.contains("config")) {
    value = source.record.origin["config"].value("eos_token_id", Json());
  }
  for (const std::filesystem::path& asset : source.record.assets) {
    if (asset.filename() != "generation_config.json") {
      continue;
    }
    const Json generation = Json::parse(read_text(asset), nullptr, /*allow_exceptions=*/false);
    check<FileError>(generation.is_object(), "{} is not a JSON object", asset.string());
    if (const Json given = generation.value("eos_token_id", Json()); !given.is_null()) {
      value = given;
      file = asset.string();
    }
  }
  std::vector<int64_t> ids;
  for (const Json& id : value.is_array() || value.is_null() ? value : Json::array({value})) {
    check<FileError>(id.is_number_integer() && id.get<int64_t>() >= 0 &&
                         id.get<int64_t>() < source.config.model.vocab_size,
                     "{}: eos_token_id holds {}, which is no id of a vocabulary of {}", file,
                     id.dump(), source.config.model.vocab_size);
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

std::filesystem::path load_weights(ModelSource& source, Parameters& parameters,
                                   const Groups& groups) {
  const LoadOptions options{.ignored_prefixes = {"optimizer.", kOriginPrefix}, .check_record = {}};
  const auto parts = model_parts(parameters);
  const Group& world = groups[GroupName::kWorld];
  std::filesystem::path path = source.path;
  if (source.hf) {
    load_parts(source.path, source.hf->index, parts, world, options, source.path.string());
  } else if (source.is_many) {
    const auto latest = load_latest_checkpoint(source.path, parts, world, options);
    source.record = latest->record;
    path = latest->path;
  } else {
    source.record = load_checkpoint(source.path, parts, world, options);
  }
  publish_parameters(parameters);
  return path;
}

LoadedConfig load_config_from_model(const std::string& path,
                                    const std::vector<std::string>& overrides, ConfigUse use) {
  return load_config(path, overrides, use, settings_of_start(path, overrides));
}

LoadedConfig read_config_from_model(const std::string& path,
                                    const std::vector<std::string>& overrides) {
  return read_config(path, overrides, settings_of_start(path, overrides));
}

}  // namespace switchyard

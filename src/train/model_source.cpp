#include "train/model_source.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/convert.h"
#include "checkpoint/safetensors.h"
#include "config/settings.h"
#include "data/tokenizers/tokenizer_files.h"
#include "hub/hf_settings.h"
#include "hub/origin.h"
#include "optim/publish.h"
#include "train/model_assets.h"
#include "train/non_finite.h"

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

// Of the first that is not damaged; returns which that is.
std::filesystem::path read_first_record(const std::vector<std::filesystem::path>& candidates,
                                        CheckpointRecord& record) {
  for (size_t i = 0; i + 1 < candidates.size(); ++i) {
    try {
      record = read_record(candidates[i]);
      return candidates[i];
    } catch (const DamagedCheckpoint&) {  // loading says what is wrong with it
    }
  }
  record = read_record(candidates.back());
  return candidates.back();
}

ModelSource from_checkpoint(const std::filesystem::path& path) {
  ModelSource source;
  source.path = folder_of_checkpoints(path);
  source.is_many = !is_checkpoint_folder(source.path);
  const auto candidates =
      source.is_many ? checkpoints_to_try(source.path) : std::vector{source.path};
  check<CheckpointError>(
      !candidates.empty(),
      "{} is no model: expected a Hugging Face directory, a checkpoint, or a run "
      "directory with checkpoints",
      path.string());
  const std::filesystem::path read = read_first_record(candidates, source.record);
  source.config =
      load_config_text(source.record.configuration, read.string(), ConfigUse::kDescribe).config;
  return source;
}

// The tokenizer that a checkpoint of a run names. What an import wrote names none.
std::string named_tokenizer(const ModelSource& source) {
  const bool is_of_run = !source.hf && source.record.step > 0;
  return is_of_run ? source.config.data.tokenizer : "";
}

// What training goes on with unless the configuration says otherwise.
bool is_carried_along(const std::string& setting) {
  constexpr std::array<std::string_view, 7> kCarried = {
      "model.max_position",        "model.init_std",
      "moe.aux_loss_coeff",        "moe.step_aux_loss_coeff",
      "moe.global_aux_loss_coeff", "moe.z_loss_coeff",
      "moe.bias_update_rate"};
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

// A run that was begun needs nothing but itself: what it started from may be gone.
GivenSettings settings_of_start(const std::string& path,
                                const std::vector<std::string>& overrides) {
  const Config config = read_config(path, overrides).config;
  if (config.model.from.empty()) {
    return {};
  }
  if (!find_latest(std::filesystem::path(config.run.dir) / "checkpoints")) {
    return settings_of(open_model_source(config.model.from));
  }
  ModelSource source = open_model_source(config.run.dir);
  source.tokenizer = kept_tokenizer(config.run.dir).value_or(source.tokenizer);
  return settings_of(source);
}

// What the directory calls the first tensor with a value that is not finite, out of those that
// `logical` is made of.
std::string name_of_broken(const HfModel& model, const std::string& logical) {
  for (const FileIndex& file : model.index.files) {
    const SafetensorsFile opened(model.path / file.file);
    for (const IndexEntry& entry : file.entries) {
      if (entry.tensor == logical && !is_finite(opened.tensor(entry.key))) {
        return entry.key;
      }
    }
  }
  return logical;
}

}  // namespace

ModelSource open_model_source(const std::filesystem::path& path) {
  check<FileError>(std::filesystem::exists(path), "{} does not exist: expected a model",
                   path.string());
  ModelSource source = is_hf_directory(path) ? from_hf(path) : from_checkpoint(path);
  source.tokenizer = named_tokenizer(source);
  for (const std::filesystem::path& file : source.record.assets) {
    if (is_tokenizer(file)) {
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
  if (const auto broken = first_non_finite_weight(parameters)) {
    throw FileError(fmt::format(
        "{}: the weights {} are not finite: they hold NaN or infinity, and so would all results",
        path.string(), source.hf ? name_of_broken(*source.hf, *broken) : *broken));
  }
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

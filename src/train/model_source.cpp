#include "train/model_source.h"

#include "base/error.h"
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

#include "train/trainable_model.h"

#include "config/load.h"

namespace switchyard {
namespace {

std::vector<at::Tensor> moments(const AdamW& optimizer, at::Tensor AdamWMoments::*which) {
  std::vector<at::Tensor> tensors;
  for (const AdamWMoments& one : optimizer.moments()) {
    tensors.push_back(one.*which);
  }
  return tensors;
}

void append(std::vector<TensorPart>& all, std::vector<TensorPart> more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

void publish_masters(Parameters& parameters) {
  for (const auto& storage : parameters.storages()) {
    storage->publish_master();
  }
}

// The folder step_N that `path` means.
std::filesystem::path checkpoint_folder(const std::filesystem::path& path) {
  return std::filesystem::is_directory(path / "checkpoints") ? path / "checkpoints" : path;
}

}  // namespace

TrainableModel::TrainableModel(const Config& config, const Groups& groups)
    : parameters(groups, Dtypes::of(config.train.precision),
                 static_cast<uint64_t>(config.run.seed)),
      model(parameters, config),
      optimizer(parameters, config.optimizer) {}

std::vector<TensorPart> TrainableModel::parts() const {
  std::vector<TensorPart> all = model_parts(parameters);
  append(all, storage_parts(parameters, "optimizer.first_moment.",
                            moments(optimizer, &AdamWMoments::first)));
  append(all, storage_parts(parameters, "optimizer.second_moment.",
                            moments(optimizer, &AdamWMoments::second)));
  return all;
}

void TrainableModel::after_load(int64_t num_steps) {
  publish_masters(parameters);
  optimizer.set_num_steps(num_steps);
}

LoadedModel load_model(const std::filesystem::path& path, const Groups& groups) {
  const std::filesystem::path folder = checkpoint_folder(path);
  const bool is_single = std::filesystem::exists(folder / "record.json");
  const auto candidate = is_single ? std::optional(folder) : find_latest(folder);
  check<CheckpointError>(
      candidate.has_value(),
      "{} holds no checkpoint: give a run directory, its checkpoints folder or one "
      "step_N of it",
      path.string());
  LoadedModel loaded;
  const CheckpointRecord first = read_record(*candidate);
  loaded.config =
      load_config_text(first.configuration, candidate->string(), ConfigUse::kDescribe).config;
  loaded.tokenizer = make_tokenizer(loaded.config.data.tokenizer);
  loaded.parameters =
      std::make_unique<Parameters>(groups, Dtypes::of(loaded.config.train.precision),
                                   static_cast<uint64_t>(loaded.config.run.seed));
  loaded.model = std::make_unique<LanguageModel>(*loaded.parameters, loaded.config);
  const LoadOptions options{.ignored_prefixes = {"optimizer."}, .check_record = {}};
  const auto parts = model_parts(*loaded.parameters);
  if (is_single) {
    loaded.record = load_checkpoint(folder, parts, groups[GroupName::kWorld], options);
    loaded.path = folder;
  } else {
    auto latest = load_latest_checkpoint(folder, parts, groups[GroupName::kWorld], options);
    loaded.record = latest->record;
    loaded.path = latest->path;
  }
  publish_masters(*loaded.parameters);
  return loaded;
}

}  // namespace switchyard

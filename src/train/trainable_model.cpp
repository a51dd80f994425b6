#include "train/trainable_model.h"

#include "base/error.h"
#include "optim/publish.h"

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

}  // namespace

TrainableModel::TrainableModel(const Config& config, const Groups& groups, FirstValues first_values)
    : parameters(groups, Dtypes::of(config.train.precision), static_cast<uint64_t>(config.run.seed),
                 first_values, config.parallel.data_sharding),
      model(parameters, config),
      partition(make_partition(parameters, config.parallel)),
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
  publish_parameters(parameters);
  optimizer.set_num_steps(num_steps);
}

std::unique_ptr<Tokenizer> LoadedModel::make_tokenizer(const std::string& name) const {
  check<ConfigError>(!name.empty() || !source.tokenizer.empty(),
                     "{} comes without a tokenizer: name one with --tokenizer",
                     source.path.string());
  auto tokenizer = switchyard::make_tokenizer(name.empty() ? source.tokenizer : name);
  check<ConfigError>(
      tokenizer->vocab_size() <= config.model.vocab_size,
      "tokenizer {} has {} tokens, the vocabulary of {} has {}: it belongs to another "
      "model",
      tokenizer->name(), tokenizer->vocab_size(), source.path.string(), config.model.vocab_size);
  return tokenizer;
}

LoadedModel load_model(const std::filesystem::path& path, const Groups& groups,
                       const LoadModelOptions& options) {
  LoadedModel loaded;
  loaded.source = open_model_source(path);
  loaded.config = loaded.source.config;
  loaded.config.train.precision = options.precision.value_or(loaded.config.train.precision);
  if (!options.auxiliary_losses) {
    loaded.config.moe.aux_loss_coeff = 0;
    loaded.config.moe.step_aux_loss_coeff = 0;
    loaded.config.moe.global_aux_loss_coeff = 0;
    loaded.config.moe.z_loss_coeff = 0;
    loaded.config.mtp.loss_coeff = 0;
  }
  loaded.parameters = std::make_unique<Parameters>(
      groups, Dtypes::of(loaded.config.train.precision),
      static_cast<uint64_t>(loaded.config.run.seed), FirstValues::kUnset);
  loaded.model = std::make_unique<LanguageModel>(*loaded.parameters, loaded.config);
  loaded.path = load_weights(loaded.source, *loaded.parameters, groups);
  return loaded;
}

}  // namespace switchyard

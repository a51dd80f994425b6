#include "support/small_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/random.h"

namespace switchyard {

Config small_config() {
  Config config;
  config.run.seed = 3;
  config.model.num_layers = 2;
  config.model.hidden_size = 16;
  config.model.ffn_hidden_size = 24;
  config.model.num_attention_heads = 4;
  config.model.num_query_groups = 2;
  config.model.head_dim = 4;
  config.model.vocab_size = 32;
  config.model.init_std = 0.3;  // large, so that routing and attention are far from uniform
  config.moe.num_experts = 4;
  config.moe.top_k = 2;
  config.moe.ffn_hidden_size = 12;
  config.moe.shared_expert_ffn_hidden_size = 8;
  config.moe.aux_loss_coeff = 0.05;
  config.moe.z_loss_coeff = 0.02;
  config.train.precision = Precision::kFp64;
  config.optimizer.lr = 1e-2;
  config.optimizer.weight_decay = 0.1;
  config.optimizer.clip_grad_norm = 0.5;
  return config;
}

TokenBatch random_batch(const Config& config, const std::vector<int64_t>& lengths, int64_t padding,
                        uint64_t seed) {
  int64_t num_real = 0;
  for (const int64_t length : lengths) {
    num_real += length;
  }
  const int64_t num_tokens = num_real + padding;
  TokenBatch batch;
  batch.table = SequenceTable::from_lengths(lengths, num_tokens);
  batch.tokens = at::zeros({num_tokens}, at::kLong);
  batch.labels = at::full({num_tokens}, -100, at::kLong);
  batch.weights = at::zeros({num_tokens}, at::kFloat);
  const RandomStream stream(seed, "random_batch");
  const auto vocab = static_cast<uint64_t>(config.model.vocab_size);
  for (int64_t i = 0; i < num_real; ++i) {
    const auto index = static_cast<uint64_t>(3 * i);
    batch.tokens[i] = static_cast<int64_t>(stream.below(index, vocab));
    const bool is_ignored = stream.below(index + 1, 8) == 0;
    if (!is_ignored) {
      batch.labels[i] = static_cast<int64_t>(stream.below(index + 2, vocab));
      batch.weights[i] = i % 3 == 0 ? 0.5 : 1.0;
    }
  }
  return batch;
}

void fill_zero_parameters(Parameters& parameters) {
  const at::NoGradGuard no_grad;
  for (const auto& storage : parameters.storages()) {
    for (size_t i = 0; i < storage->pieces.size(); ++i) {
      ParameterSpec spec = storage->pieces[i].spec();
      if (spec.init.kind != Init::Kind::kZeros) {
        continue;
      }
      spec.init = Init::normal(0.5);
      at::Tensor piece = storage->piece(storage->master, i);
      piece.copy_(Parameter(spec, parameters.groups()).initial_values(11, piece.scalar_type()));
    }
    storage->publish_master();
  }
}

MeshShape Layout::mesh() const {
  return {
      .world_size = world_size, .tensor = tensor, .expert = expert, .expert_tensor = expert_tensor};
}

Config Layout::apply(Config config) const {
  config.parallel.tensor_size = tensor;
  config.parallel.expert_size = expert;
  config.parallel.expert_tensor_size = expert_tensor;
  config.parallel.sequence_parallel = sequence_parallel;
  return config;
}

}  // namespace switchyard

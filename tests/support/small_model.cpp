#include "support/small_model.h"

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

Config small_varied_config() {
  Config varied = small_config();
  varied.model.norm = NormKind::kLayer;
  varied.model.norm_plus_one = true;
  varied.model.logit_softcap = 2;
  varied.model.activation_clamp = 0.5;
  varied.model.activation_offset = 1;
  varied.multipliers.embedding = 4;
  varied.multipliers.logits = 0.5;
  varied.multipliers.mlp_gate = 0.75;
  varied.multipliers.mlp_output = 1.25;
  varied.moe.latent_size = 10;
  varied.moe.shared_expert_bias = true;
  varied.moe.pre_softmax = true;
  varied.moe.renormalize = true;
  varied.moe.expert_bias = true;
  return varied;
}

MeshShape Layout::mesh() const {
  return mesh_shape(apply({}).parallel, world_size);
}

Config Layout::apply(Config config) const {
  config.parallel.tensor_size = tensor;
  config.parallel.expert_size = expert;
  config.parallel.expert_tensor_size = expert_tensor;
  config.parallel.sequence_parallel = sequence_parallel;
  config.parallel.pipeline_size = pipeline;
  config.parallel.virtual_pipeline_size = virtual_pipeline;
  std::string stages = pipeline_layout;
  if (!stages.empty()) {
    stages.insert(stages.size() - 1, static_cast<size_t>(config.mtp.num_layers), 'm');
  }
  config.parallel.pipeline_layout = stages;
  config.parallel.context_size = context;
  config.parallel.context_exchange = exchange;
  config.parallel.ranks_per_node = ranks_per_node;
  return config;
}

}  // namespace switchyard

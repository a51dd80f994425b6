#include "config/settings.h"

#include <gtest/gtest.h>

#include "config/example.h"

namespace switchyard {
namespace {

// Scripts and recipes rely on these names. Renaming one breaks them: do it on purpose only.
const std::vector<std::string> kAllNames = {
    "run.dir",
    "run.seed",
    "model.from",
    "model.num_layers",
    "model.layer_pattern",
    "model.hidden_size",
    "model.ffn_hidden_size",
    "model.activation",
    "model.gated_mlp",
    "model.activation_clamp",
    "model.activation_offset",
    "model.mlp_bias",
    "model.num_attention_heads",
    "model.num_query_groups",
    "model.head_dim",
    "model.vocab_size",
    "model.max_position",
    "model.norm",
    "model.norm_plus_one",
    "model.post_norms",
    "model.norm_epsilon",
    "model.logit_softcap",
    "model.tie_embeddings",
    "model.init_std",
    "attention.qkv_bias",
    "attention.output_bias",
    "attention.qk_norm",
    "attention.qkv_clip",
    "attention.scale",
    "attention.softcap",
    "attention.sinks",
    "attention.output_gate",
    "attention.window",
    "attention.window_layers",
    "mla.kv_lora_rank",
    "mla.q_lora_rank",
    "mla.qk_nope_head_dim",
    "mla.qk_rope_head_dim",
    "mla.v_head_dim",
    "mla.norm_epsilon",
    "rope.type",
    "rope.base",
    "rope.partial_factor",
    "rope.interleaved",
    "rope.window_base",
    "rope.factor",
    "rope.original_max_position",
    "rope.low_freq_factor",
    "rope.high_freq_factor",
    "rope.beta_fast",
    "rope.beta_slow",
    "rope.mscale",
    "rope.mscale_all_dim",
    "rope.attention_factor",
    "rope.truncate",
    "moe.num_experts",
    "moe.top_k",
    "moe.ffn_hidden_size",
    "moe.layers",
    "moe.first_dense_layers",
    "moe.overrides",
    "moe.shared_expert_ffn_hidden_size",
    "moe.shared_expert_gate",
    "moe.shared_expert_bias",
    "moe.latent_size",
    "moe.linear_bias",
    "moe.score_function",
    "moe.pre_softmax",
    "moe.renormalize",
    "moe.scaling_factor",
    "moe.num_groups",
    "moe.group_top_k",
    "moe.group_score",
    "moe.router_dtype",
    "moe.router_bias",
    "moe.expert_bias",
    "moe.bias_update_rate",
    "moe.aux_loss_coeff",
    "moe.step_aux_loss_coeff",
    "moe.global_aux_loss_coeff",
    "moe.z_loss_coeff",
    "moe.dispatcher",
    "routing.method",
    "routing.input_jitter",
    "routing.logit_noise",
    "routing.capacity_factor",
    "routing.capacity_drop",
    "routing.capacity_padding",
    "mamba.state_size",
    "mamba.num_heads",
    "mamba.head_dim",
    "mamba.num_groups",
    "mamba.inner_size",
    "mamba.dt_rank",
    "mamba.conv_width",
    "mamba.conv_bias",
    "mamba.input_bias",
    "mamba.output_bias",
    "mamba.norm",
    "mamba.chunk_size",
    "mamba.min_dt",
    "mamba.max_dt",
    "mamba.init_min_dt",
    "mamba.init_max_dt",
    "mamba.init_dt_floor",
    "delta_net.num_key_heads",
    "delta_net.num_value_heads",
    "delta_net.key_head_dim",
    "delta_net.value_head_dim",
    "delta_net.conv_width",
    "delta_net.chunk_size",
    "mtp.num_layers",
    "mtp.loss_coeff",
    "mtp.repeated_layer",
    "mtp.layer_pattern",
    "multipliers.embedding",
    "multipliers.logits",
    "multipliers.attention_input",
    "multipliers.key",
    "multipliers.attention_output",
    "multipliers.mlp_gate",
    "multipliers.mlp_output",
    "multipliers.mamba_input",
    "multipliers.mamba_z",
    "multipliers.mamba_x",
    "multipliers.mamba_b",
    "multipliers.mamba_c",
    "multipliers.mamba_dt",
    "multipliers.mamba_output",
    "data.train",
    "data.eval",
    "data.tokenizer",
    "data.sequence_length",
    "data.documents",
    "data.mask_end_of_document",
    "train.steps",
    "train.minutes",
    "train.global_batch_size",
    "train.micro_batch_size",
    "train.precision",
    "train.recompute",
    "train.recompute_modules",
    "train.recompute_method",
    "train.recompute_layers",
    "train.offload_modules",
    "train.eval_every",
    "train.eval_batches",
    "train.max_skipped_steps",
    "train.threads",
    "train.log_every",
    "optimizer.lr",
    "optimizer.min_lr",
    "optimizer.initial_lr",
    "optimizer.warmup_steps",
    "optimizer.schedule",
    "optimizer.decay_steps",
    "optimizer.decay_shape",
    "optimizer.beta1",
    "optimizer.beta2",
    "optimizer.epsilon",
    "optimizer.weight_decay",
    "optimizer.weight_decay_schedule",
    "optimizer.final_weight_decay",
    "optimizer.clip_grad_norm",
    "optimizer.offload",
    "parallel.tensor_size",
    "parallel.pipeline_size",
    "parallel.virtual_pipeline_size",
    "parallel.pipeline_layout",
    "parallel.pipeline_schedule",
    "parallel.context_size",
    "parallel.context_exchange",
    "parallel.expert_size",
    "parallel.expert_tensor_size",
    "parallel.expert_overlap",
    "parallel.ranks_per_node",
    "parallel.sequence_parallel",
    "parallel.data_sharding",
    "parallel.prefetch_layers",
    "parallel.order",
    "parallel.timeout_s",
    "parallel.verify_calls",
    "parallel.slow_link",
    "parallel.link_latency_us",
    "parallel.link_gb_per_s",
    "checkpoint.every",
    "checkpoint.keep",
    "checkpoint.asynchronous",
    "metrics.tensorboard",
    "metrics.peak_tflops",
};

TEST(Settings, HaveTheNamesThatScriptsRelyOn) {
  std::vector<std::string> names;
  for (const Setting& setting : settings()) {
    names.push_back(setting.name);
  }
  EXPECT_EQ(names, kAllNames);
}

TEST(Settings, AcceptTheirOwnDefaults) {
  for (const Setting& setting : settings()) {
    Config config;
    const std::string text = setting.print(config);
    const bool is_quoted = text.front() == '"';
    const RawValue raw =
        text == "[]" ? RawValue{{}, true}
                     : RawValue{{is_quoted ? text.substr(1, text.size() - 2) : text}, false};
    if (setting.need == Need::kOptional) {
      EXPECT_EQ(setting.read(raw, config), "") << setting.name;
      EXPECT_TRUE(setting.has_default_value(config)) << setting.name;
    }
  }
}

TEST(Settings, ChangeTheirOwnValueAndNoOther) {
  const Config changed = config_without_defaults();
  for (const Setting& setting : settings()) {
    const std::string text = setting.print(changed);
    EXPECT_FALSE(setting.has_default_value(changed)) << setting.name << " " << text;
    Config config;
    const std::string word = text.substr(text.find_first_not_of("[\""));
    setting.read({{word.substr(0, word.find_last_not_of("]\"") + 1)}, false}, config);
    for (const Setting& other : settings()) {
      EXPECT_EQ(other.has_default_value(config), other.name != setting.name)
          << setting.name << " " << other.name;
    }
  }
}

TEST(Settings, ReachTheMembersOfTheirNames) {
  Config config;
  find_setting("moe.top_k")->read({{"5"}, false}, config);
  find_setting("optimizer.min_lr")->read({{"0.25"}, false}, config);
  find_setting("train.precision")->read({{"bf16"}, false}, config);
  find_setting("data.eval")->read({{"a", "b"}, true}, config);
  EXPECT_EQ(config.moe.top_k, 5);
  EXPECT_EQ(config.optimizer.min_lr, 0.25);
  EXPECT_EQ(config.train.precision, Precision::kBf16);
  EXPECT_EQ(config.data.eval, (std::vector<std::string>{"a", "b"}));
}

TEST(Settings, ExplainThemselvesInASentenceWithoutAFullStop) {
  for (const Setting& setting : settings()) {
    EXPECT_GT(setting.help.size(), 10U) << setting.name;
    EXPECT_NE(setting.help.back(), '.') << setting.name;
    EXPECT_EQ(setting.help.find('|'), std::string::npos) << setting.name << " breaks the table";
  }
}

TEST(MeantSetting, LooksAtOtherNamesThenOtherSectionsThenMisspellings) {
  EXPECT_EQ(meant_setting("moe", "num_experts_per_tok"), "moe.top_k");
  EXPECT_EQ(meant_setting("train", "learning_rate"), "optimizer.lr");
  EXPECT_EQ(meant_setting("model", "top_k"), "moe.top_k");
  EXPECT_EQ(meant_setting("moe", "num_expert"), "moe.num_experts");
  EXPECT_EQ(meant_setting("model", "topk"), "moe.top_k");
  EXPECT_EQ(meant_setting("run", "dri"), "run.dir");
  EXPECT_EQ(meant_setting("no_section", "warmup_step"), "optimizer.warmup_steps");
  EXPECT_EQ(meant_setting("moe", "banana"), "");
}

TEST(MeantSectionOrSetting, KnowsSectionsToo) {
  EXPECT_EQ(meant_section_or_setting("modle"), "model");
  EXPECT_EQ(meant_section_or_setting("training"), "train");
  EXPECT_EQ(meant_section_or_setting("checkpointing"), "checkpoint");
  EXPECT_EQ(meant_section_or_setting("train_iters"), "train.steps");
  EXPECT_EQ(meant_section_or_setting("lr"), "optimizer.lr");
  EXPECT_EQ(meant_section_or_setting("banana"), "");
}

TEST(ModelConfig, DerivesWhatIsZero) {
  ModelConfig model;
  model.hidden_size = 96;
  model.num_attention_heads = 6;
  EXPECT_EQ(model.head_size(), 16);
  EXPECT_EQ(model.query_groups(), 6);
  model.head_dim = 32;
  model.num_query_groups = 2;
  EXPECT_EQ(model.head_size(), 32);
  EXPECT_EQ(model.query_groups(), 2);
}

}  // namespace
}  // namespace switchyard

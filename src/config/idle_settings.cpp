#include "config/idle_settings.h"

#include <algorithm>

#include <fmt/format.h>

#include "config/rules/questions.h"
#include "config/settings.h"

namespace switchyard {
namespace {

// What the types of rotary positions leave unused.
std::vector<IdleSettings> idle_rope_settings(const Config& config) {
  const RopeConfig& rope = config.rope;
  const std::string type = fmt::format("rope.type is {}", rope_type_word(config));
  const bool is_yarn = rope.type == RopeType::kYarn;
  return {
      {rope.partial_factor == 0.0,
       {"rope.type", "rope.base", "rope.interleaved", "rope.window_base"},
       "rope.partial_factor is 0: no feature is rotated"},
      {config.attention.window == 0, {"rope.window_base"}, "attention.window is 0"},
      {rope.type == RopeType::kDefault, {"rope.factor"}, type},
      {!scales_from_original(config), {"rope.original_max_position"}, type},
      {rope.type != RopeType::kLlama3, {"rope.low_freq_factor", "rope.high_freq_factor"}, type},
      {!is_yarn,
       {"rope.beta_fast", "rope.beta_slow", "rope.mscale", "rope.mscale_all_dim",
        "rope.attention_factor", "rope.truncate"},
       type},
      {is_yarn && rope.attention_factor > 0.0, {"rope.mscale"}, "rope.attention_factor is given"},
      {is_yarn && rope.attention_factor > 0.0 && !config.mla.is_used(),
       {"rope.mscale_all_dim"},
       "rope.attention_factor is given"},
      {is_yarn && rope.attention_factor == 0.0 && rope.mscale_all_dim == 0.0,
       {"rope.mscale"},
       "rope.mscale_all_dim is not given"},
      {is_yarn && rope.attention_factor == 0.0 && rope.mscale == 0.0 && !config.mla.is_used(),
       {"rope.mscale_all_dim"},
       "rope.mscale is not given"},
  };
}

std::string reason_for_no_dense_layers(const Config& config) {
  if (!config.model.layer_pattern.empty()) {
    return "no layer of model.layer_pattern is dense (-)";
  }
  return config.moe.layers.empty() ? "no layer is dense: moe.first_dense_layers is 0"
                                   : "no layer is dense: moe.layers holds every layer";
}

std::string reason_for_no_experts(const Config& config) {
  if (!config.model.layer_pattern.empty()) {
    return "no layer of model.layer_pattern has experts (E)";
  }
  return config.moe.layers.empty() ? "moe.first_dense_layers makes every layer dense"
                                   : "moe.first_dense_layers makes every layer of moe.layers dense";
}

}  // namespace

std::vector<IdleSettings> idle_settings(const Config& config) {
  const MoeConfig& moe = config.moe;
  const std::string& pattern = config.model.layer_pattern;
  const bool is_softmax = moe.score_function == ScoreFunction::kSoftmax;
  const bool is_dense = !has_experts(config);
  const OptimizerConfig& optimizer = config.optimizer;
  std::vector<IdleSettings> idle = {
      {config.attention.window == 0, {"attention.window_layers"}, "attention.window is 0"},
      {!config.mla.is_used(), {"mla"}, "mla.kv_lora_rank is 0"},
      {config.mla.is_used(), {"model.head_dim"}, "mla gives the widths of heads"},
      {is_dense,
       {"moe", "routing", "parallel.expert_size", "parallel.expert_tensor_size",
        "parallel.ranks_per_node", "parallel.expert_overlap"},
       "moe.num_experts is 0"},
      {!is_dense && !is_softmax,
       {"moe.pre_softmax"},
       fmt::format("moe.score_function is {}", score_word(moe))},
      {!is_dense && is_softmax && !moe.pre_softmax,
       {"moe.renormalize"},
       "moe.pre_softmax is false: softmax over the chosen experts sums to 1 already"},
      {!is_dense && !moe.expert_bias, {"moe.bias_update_rate"}, "moe.expert_bias is false"},
      {!is_dense && !has_groups(config),
       {"moe.group_top_k", "moe.group_score"},
       "moe.num_groups is 1"},
      {has_groups(config) && moe.group_top_k == moe.num_groups,
       {"moe.num_groups", "moe.group_score"},
       "moe.group_top_k allows every group"},
      {!is_dense && config.routing.method == RoutingMethod::kSinkhorn,
       {"moe.score_function", "moe.pre_softmax", "moe.renormalize"},
       "routing.method is sinkhorn"},
      {!is_dense && config.routing.method == RoutingMethod::kRandom,
       {"routing.logit_noise"},
       "routing.method is random"},
      {!is_dense && config.routing.capacity_factor == 0,
       {"routing.capacity_drop", "routing.capacity_padding"},
       "routing.capacity_factor is 0"},
      {!is_dense && moe.shared_expert_ffn_hidden_size == 0,
       {"moe.shared_expert_gate", "moe.shared_expert_bias"},
       "moe.shared_expert_ffn_hidden_size is 0"},
      {!is_dense && config.train.precision == Precision::kFp64,
       {"moe.router_dtype"},
       "train.precision is fp64"},
      {!pattern.empty(),
       {"moe.layers", "moe.first_dense_layers"},
       "model.layer_pattern says which layers have experts"},
      {!has_dense_layers(config),
       {"model.ffn_hidden_size", "model.mlp_bias", "multipliers.mlp_gate",
        "multipliers.mlp_output"},
       reason_for_no_dense_layers(config)},
      {!config.model.gated_mlp, {"multipliers.mlp_gate"}, "model.gated_mlp is false"},
      {!is_dense && !has_moe_layers(config), {"moe.num_experts"}, reason_for_no_experts(config)},
      {!has_attention(config),
       {"attention", "mla", "rope", "model.num_attention_heads", "model.num_query_groups",
        "model.head_dim"},
       "no layer of model.layer_pattern has attention (*)"},
      {!has_attention(config) || config.mla.is_used(),
       {"multipliers.attention_input", "multipliers.key", "multipliers.attention_output"},
       has_attention(config) ? "latent attention has none"
                             : "no layer of model.layer_pattern has attention (*)"},
      {!has_mixer(config, MixerKind::kMamba2),
       {"mamba.num_heads", "mamba.head_dim", "mamba.num_groups", "mamba.norm", "mamba.chunk_size",
        "mamba.min_dt", "mamba.max_dt", "multipliers.mamba_input", "multipliers.mamba_z",
        "multipliers.mamba_x", "multipliers.mamba_b", "multipliers.mamba_c", "multipliers.mamba_dt",
        "multipliers.mamba_output"},
       "no layer of model.layer_pattern is M"},
      {!has_mixer(config, MixerKind::kMamba1),
       {"mamba.inner_size", "mamba.dt_rank"},
       "no layer of model.layer_pattern is S"},
      {!has_mixer(config, MixerKind::kMamba1) && !has_mixer(config, MixerKind::kMamba2),
       {"mamba.state_size", "mamba.conv_width", "mamba.conv_bias", "mamba.input_bias",
        "mamba.output_bias", "mamba.init_min_dt", "mamba.init_max_dt", "mamba.init_dt_floor"},
       "no layer of model.layer_pattern is M or S"},
      {!has_mixer(config, MixerKind::kDeltaNet),
       {"delta_net"},
       "no layer of model.layer_pattern is G"},
      {config.mtp.num_layers == 0, {"mtp"}, "mtp.num_layers is 0"},
      {config.parallel.tensor_size == 1,
       {"parallel.sequence_parallel"},
       "parallel.tensor_size is 1"},
      {config.parallel.pipeline_size == 1,
       {"parallel.pipeline_schedule"},
       "parallel.pipeline_size is 1"},
      {!is_dense && config.parallel.expert_size * config.parallel.expert_tensor_size == 1,
       {"parallel.expert_overlap"},
       "parallel.expert_size and expert_tensor_size are 1: no token travels"},
      {config.parallel.slow_link.empty(),
       {"parallel.link_latency_us", "parallel.link_gb_per_s"},
       "parallel.slow_link names no group"},
      {config.parallel.context_size == 1,
       {"parallel.context_exchange"},
       "parallel.context_size is 1"},
      {!is_dense && moe.dispatcher != DispatcherKind::kFlex,
       {"parallel.ranks_per_node"},
       "moe.dispatcher is not flex"},
      {config.parallel.data_sharding != DataSharding::kParameters,
       {"parallel.prefetch_layers"},
       "parallel.data_sharding is not parameters"},
      {optimizer.schedule == LrSchedule::kConstant,
       {"optimizer.min_lr"},
       "optimizer.schedule is constant"},
      {optimizer.schedule != LrSchedule::kWsd,
       {"optimizer.decay_steps", "optimizer.decay_shape"},
       "optimizer.schedule is not wsd"},
      {optimizer.warmup_steps == 0, {"optimizer.initial_lr"}, "optimizer.warmup_steps is 0"},
      {optimizer.weight_decay_schedule == WeightDecaySchedule::kConstant,
       {"optimizer.final_weight_decay"},
       "optimizer.weight_decay_schedule is constant"},
      {config.data.documents == Documents::kPacked,
       {"data.mask_end_of_document"},
       "data.documents is packed: no document foretells the next"},
      {config.train.steps > 0, {"train.minutes"}, "train.steps says when the run ends"},
      {config.train.recompute != Recompute::kModules,
       {"train.recompute_modules"},
       "train.recompute is not modules"},
      {config.train.recompute != Recompute::kFull,
       {"train.recompute_method", "train.recompute_layers"},
       "train.recompute is not full"},
      {true,  // of the ranks that there are
       {"train.offload_modules", "optimizer.offload"},
       "ranks compute on the CPU, where everything is in host memory"},
      {config.data.eval.empty(), {"train.eval_every", "train.eval_batches"}, "data.eval is empty"},
  };
  const std::vector<IdleSettings> rope = idle_rope_settings(config);
  idle.insert(idle.end(), rope.begin(), rope.end());
  return idle;
}

bool IdleSettings::contain(std::string_view name) const {
  const std::string_view section = name.substr(0, name.find('.'));
  return std::any_of(names.begin(), names.end(),
                     [&](std::string_view own) { return own == name || own == section; });
}

std::set<std::string> names_of_idle_settings(const Config& config) {
  std::set<std::string> names;
  for (const IdleSettings& idle : idle_settings(config)) {
    for (const Setting& setting : settings()) {
      if (idle.are_idle && idle.contain(setting.name)) {
        names.insert(setting.name);
      }
    }
  }
  return names;
}

}  // namespace switchyard

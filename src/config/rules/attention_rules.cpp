#include "config/rules/attention_rules.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "config/layer_set.h"
#include "config/rules/lines.h"
#include "config/rules/questions.h"
#include "config/values.h"

namespace switchyard {
namespace {

std::string heads_divide_hidden_size(const Config& config) {
  const ModelConfig& model = config.model;
  if (model.head_dim > 0 || config.mla.is_used()) {
    return "";
  }
  return multiple_of("model.hidden_size", model.hidden_size, "model.num_attention_heads",
                     model.num_attention_heads, ", or model.head_dim be given");
}

std::string head_dim_is_even(const Config& config) {
  const ModelConfig& model = config.model;
  if (config.mla.is_used() || config.rope.partial_factor == 0.0) {
    return "";  // latent_heads_have_widths speaks of latent heads
  }
  if (model.head_dim > 0) {
    return unless(model.head_dim % 2 == 0,
                  "model.head_dim ({}) must be even: rotary positions turn pairs of features",
                  model.head_dim);
  }
  if (!heads_divide_hidden_size(config).empty()) {
    return "";
  }
  return unless(model.head_size() % 2 == 0,
                "model.hidden_size / model.num_attention_heads ({} / {} = {}) must be even: rotary "
                "positions turn pairs of features",
                model.hidden_size, model.num_attention_heads, model.head_size());
}

std::string query_groups_divide_heads(const Config& config) {
  return multiple_of("model.num_attention_heads", config.model.num_attention_heads,
                     "model.num_query_groups", config.model.query_groups());
}

std::string window_layers_are_layers(const Config& config) {
  return wrong_layer_set("attention.window_layers", config.attention.window_layers,
                         config.model.num_layers);
}

std::string latent_heads_have_widths(const Config& config) {
  const MlaConfig& mla = config.mla;
  if (!mla.is_used()) {
    return "";
  }
  const std::array<std::pair<std::string_view, int64_t>, 3> widths = {
      {{"mla.qk_nope_head_dim", mla.qk_nope_head_dim},
       {"mla.qk_rope_head_dim", mla.qk_rope_head_dim},
       {"mla.v_head_dim", mla.v_head_dim}}};
  for (const auto& [name, width] : widths) {
    if (width == 0) {
      return fmt::format("{} must be given: mla.kv_lora_rank is {}", name, mla.kv_lora_rank);
    }
  }
  return unless(mla.qk_rope_head_dim % 2 == 0,
                "mla.qk_rope_head_dim ({}) must be even: rotary positions turn pairs of features",
                mla.qk_rope_head_dim);
}

// What attention with keys and values of its own can have, and latent attention cannot.
std::string latent_attention_is_plain(const Config& config) {
  if (!config.mla.is_used()) {
    return "";
  }
  const AttentionConfig& attention = config.attention;
  const auto refused = [&](std::string_view name, const auto& value, std::string_view needed) {
    return fmt::format(
        "{} ({}) does not go with latent attention (mla.kv_lora_rank {}): it must "
        "be {}",
        name, value, config.mla.kv_lora_rank, needed);
  };
  if (attention.qkv_bias || attention.output_bias) {
    return refused(attention.qkv_bias ? "attention.qkv_bias" : "attention.output_bias", "true",
                   "false");
  }
  if (attention.qk_norm != QkNormKind::kNone) {
    return refused("attention.qk_norm", word_of(kQkNormWords, attention.qk_norm), "none");
  }
  if (attention.qkv_clip > 0) {
    return refused("attention.qkv_clip", attention.qkv_clip, "0");
  }
  if (attention.scale > 0) {
    return refused("attention.scale", attention.scale, "0");
  }
  if (attention.softcap > 0) {
    return refused("attention.softcap", attention.softcap, "0");
  }
  if (attention.sinks || attention.output_gate) {
    return refused(attention.sinks ? "attention.sinks" : "attention.output_gate", "true", "false");
  }
  if (config.model.query_groups() != config.model.num_attention_heads) {
    return refused("model.num_query_groups", config.model.num_query_groups,
                   "0, or model.num_attention_heads: every head has keys and values of its own");
  }
  return config.rope.partial_factor == 1.0
             ? ""
             : refused("rope.partial_factor", config.rope.partial_factor,
                       "1: mla.qk_rope_head_dim says how much is rotated");
}

std::string rotary_dim_is_even(const Config& config) {
  const double share = config.rope.partial_factor;  // 0 for no rotary positions
  if (share == 1.0 || share == 0.0 || !head_dim_is_even(config).empty()) {
    return "";
  }
  const int64_t dim = config.rotary_dim();
  return unless(dim > 0 && dim % 2 == 0,
                "rope.partial_factor ({}) of the head dim ({}) rotates {} features of a head: an "
                "even number from 2 up is expected, or a factor of 0 for no positions",
                share, config.model.head_size(), dim);
}

std::string window_base_is_a_base(const Config& config) {
  const double base = config.rope.window_base;
  return unless(base == 0.0 || base >= 1.0,
                "rope.window_base ({}) must be 1 or more, or 0 for none", base);
}

std::string dynamic_rope_can_stretch(const Config& config) {
  if (config.rope.type != RopeType::kDynamic || config.rope.partial_factor == 0.0 ||
      !head_dim_is_even(config).empty()) {
    return "";
  }
  if (config.model.max_position == 0) {
    return "model.max_position must be given: rope.type dynamic scales for longer sequences than "
           "that";
  }
  return unless(config.rotary_dim() > 2,
                "rope.type dynamic needs more than 2 rotated features per head, got {}",
                config.rotary_dim());
}

std::string scaled_rope_has_an_origin(const Config& config) {
  return unless(!scales_from_original(config) || config.rope.original_max_position > 0,
                "rope.original_max_position must be given: rope.type is {}",
                rope_type_word(config));
}

std::string llama3_frequencies_are_in_order(const Config& config) {
  return unless(config.rope.type != RopeType::kLlama3 ||
                    config.rope.high_freq_factor > config.rope.low_freq_factor,
                "rope.high_freq_factor ({}) must exceed rope.low_freq_factor ({})",
                config.rope.high_freq_factor, config.rope.low_freq_factor);
}

std::string yarn_range_is_in_order(const Config& config) {
  return unless(
      config.rope.type != RopeType::kYarn || config.rope.beta_fast >= config.rope.beta_slow,
      "rope.beta_fast ({}) must not be below rope.beta_slow ({})", config.rope.beta_fast,
      config.rope.beta_slow);
}

std::string yarn_base_has_a_logarithm(const Config& config) {
  return unless(config.rope.type != RopeType::kYarn || config.rope.base > 1.0,
                "rope.base ({}) must be above 1 for rope.type yarn", config.rope.base);
}

std::string tensor_ranks_share_heads(const Config& config) {
  return multiple_of("model.num_attention_heads", config.model.num_attention_heads,
                     "parallel.tensor_size", config.parallel.tensor_size);
}

// Where there are fewer key and value heads than ranks, several ranks use one.
std::string tensor_ranks_share_query_groups(const Config& config) {
  const int64_t groups = config.model.query_groups();
  const int64_t ranks = config.parallel.tensor_size;
  return unless(
      !tensor_ranks_share_heads(config).empty() || groups % ranks == 0 || ranks % groups == 0,
      "model.num_query_groups ({}) must be a multiple or a divisor of "
      "parallel.tensor_size ({})",
      groups, ranks);
}

// all_to_all gives a context rank some of the heads that its tensor rank has.
std::string context_ranks_share_heads(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t ranks = parallel.context_size;
  const int64_t heads = config.model.num_attention_heads / parallel.tensor_size;
  return unless(
      ranks == 1 || parallel.context_exchange != ContextExchange::kAllToAll || heads % ranks == 0,
      "model.num_attention_heads / parallel.tensor_size ({} / {} = {}) must be a "
      "multiple of parallel.context_size ({}) for parallel.context_exchange all_to_all",
      config.model.num_attention_heads, parallel.tensor_size, heads, ranks);
}

std::string context_ranks_share_query_groups(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t ranks = parallel.context_size;
  const int64_t groups = std::max<int64_t>(1, config.model.query_groups() / parallel.tensor_size);
  return unless(
      ranks == 1 || parallel.context_exchange != ContextExchange::kAllToAll ||
          groups % ranks == 0 || ranks % groups == 0,
      "the key/value heads of a tensor rank ({} / {} = {}) must be a multiple of "
      "parallel.context_size ({}), or divide it, for parallel.context_exchange all_to_all: "
      "model.num_query_groups / parallel.tensor_size, at least 1",
      config.model.query_groups(), parallel.tensor_size, groups, ranks);
}

}  // namespace

std::vector<std::string> attention_rules(const Config& config) {
  if (!has_attention(config)) {
    return {};
  }
  if (config.model.num_attention_heads == 0) {  // what the other rules divide by
    return {"model.num_attention_heads (0) must be 1 or more: layers have attention"};
  }
  return broken_lines({
      heads_divide_hidden_size(config),
      head_dim_is_even(config),
      query_groups_divide_heads(config),
      window_layers_are_layers(config),
      latent_heads_have_widths(config),
      latent_attention_is_plain(config),
      rotary_dim_is_even(config),
      window_base_is_a_base(config),
      dynamic_rope_can_stretch(config),
      scaled_rope_has_an_origin(config),
      llama3_frequencies_are_in_order(config),
      yarn_range_is_in_order(config),
      yarn_base_has_a_logarithm(config),
      tensor_ranks_share_heads(config),
      tensor_ranks_share_query_groups(config),
      context_ranks_share_heads(config),
      context_ranks_share_query_groups(config),
  });
}

}  // namespace switchyard

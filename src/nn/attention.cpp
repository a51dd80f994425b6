#include "nn/attention.h"

#include <ATen/ATen.h>

#include "nn/init.h"
#include "nn/key_value_cache.h"
#include "ops/rope.h"

namespace switchyard {
namespace {

constexpr Site kInput{"attention.input", Purpose::kTensorParallel};
constexpr Site kOutput{"attention.output", Purpose::kTensorParallel};

constexpr Site kQueryNorm{"attention.q_norm", Purpose::kTensorParallel};
constexpr Site kKeyNorm{"attention.k_norm", Purpose::kTensorParallel};

ParameterSpec head_weight(const Scope& scope, const ModelConfig& model, const std::string& name,
                          int64_t num_heads, const Placement& placement) {
  return {.name = scope.name(name),
          .shape = {num_heads, model.head_size(), model.hidden_size},
          .init = Init::normal(model.init_std),
          .tensor = placement};
}

ParameterSpec head_bias(const Scope& scope, const ModelConfig& model, const std::string& name,
                        int64_t num_heads, const Placement& placement) {
  return {.name = scope.name(name),
          .shape = {num_heads, model.head_size()},
          .init = Init::zeros(),
          .has_weight_decay = false,
          .tensor = placement};
}

// With more tp ranks than key/value heads each rank holds all of these.
bool has_all_kv_heads(const Scope& scope, const Config& config) {
  return config.model.query_groups() < scope.groups().tensor().size();
}

ColumnLinear make_projections(const Scope& scope, const Config& config) {
  const ModelConfig& model = config.model;
  const int64_t heads = model.num_attention_heads;
  const int64_t kv_heads = model.query_groups();
  const Placement cut = Placement::sharded(0, heads);
  const Placement kv_cut =
      has_all_kv_heads(scope, config) ? Placement::replicated() : Placement::sharded(0, kv_heads);
  struct Piece {
    std::string name;
    int64_t num_heads;
    Placement placement;
  };
  std::vector<Piece> pieces = {{"q", heads, cut}, {"k", kv_heads, kv_cut}, {"v", kv_heads, kv_cut}};
  if (config.attention.output_gate) {
    pieces.push_back({"gate", heads, cut});
  }
  std::vector<ParameterSpec> weights;
  std::vector<ParameterSpec> biases;
  for (const Piece& piece : pieces) {
    weights.push_back(head_weight(scope, model, piece.name, piece.num_heads, piece.placement));
    if (config.attention.qkv_bias) {
      biases.push_back(
          head_bias(scope, model, piece.name + "_bias", piece.num_heads, piece.placement));
    }
  }
  return {scope, weights, model.hidden_size, kInput, biases};
}

AttentionOptions make_options(const Scope& scope, const Config& config, int64_t window) {
  const AttentionConfig& attention = config.attention;
  AttentionOptions options{.window = window, .softcap = attention.softcap};
  if (attention.scale > 0) {
    options.scale = attention.scale;
  }
  if (attention.sinks) {
    const int64_t heads = config.model.num_attention_heads;
    options.sinks = scope.parameters.declare({{.name = scope.name("sinks"),
                                               .shape = {heads},
                                               .init = Init::normal(config.model.init_std),
                                               .has_weight_decay = false,
                                               .tensor = Placement::sharded(0, heads)}},
                                             {heads / scope.groups().tensor().size()});
  }
  return options;
}

RowLinear make_output(const Scope& scope, const Config& config) {
  const ModelConfig& model = config.model;
  return {scope,
          {.name = scope.name("o"),
           .shape = {model.hidden_size, model.num_attention_heads, model.head_size()},
           .init = Init::normal(output_init_std(model)),
           .tensor = Placement::sharded(1, model.num_attention_heads)},
          kOutput,
          row_bias(config.attention.output_bias, scope, "o_bias", config)};
}

}  // namespace

Attention::Attention(const Scope& scope, const Config& config, int64_t window)
    : num_heads_(config.model.num_attention_heads / scope.groups().tensor().size()),
      num_kv_heads_(has_all_kv_heads(scope, config)
                        ? config.model.query_groups()
                        : config.model.query_groups() / scope.groups().tensor().size()),
      head_dim_(config.model.head_size()),
      rotary_dim_(config.rotary_dim()),
      rotates_neighbours_(config.rope.interleaved),
      has_window_rotary_(window > 0 && config.rope.window_base > 0),
      has_gate_(config.attention.output_gate),
      options_(make_options(scope, config, window)),
      clip_(config.attention.qkv_clip),
      multipliers_(config.multipliers),
      qkv_(make_projections(scope, config)),
      query_norm_(scope, config, "q_norm", config.model.num_attention_heads, HeadsHere::kOwn,
                  kQueryNorm),
      key_norm_(scope, config, "k_norm", config.model.query_groups(),
                has_all_kv_heads(scope, config) ? HeadsHere::kAll : HeadsHere::kOwn, kKeyNorm),
      output_(make_output(scope, config)),
      core_(config, scope.groups()[GroupName::kContext]) {
  if (has_all_kv_heads(scope, config)) {
    const Group& group = scope.groups().tensor();
    used_kv_head_ = group.rank() * num_kv_heads_ / group.size();
  }
}

at::Tensor Attention::rotated(const at::Tensor& heads, const ForwardContext& context) const {
  if (rotary_dim_ == 0) {
    return heads;
  }
  const RotaryTable& table = has_window_rotary_ ? context.window_rotary : context.rotary;
  if (!rotates_neighbours_) {
    return rotate(heads, context.table.positions, table);
  }
  const at::Tensor turning = pairs_apart(heads.narrow(2, 0, rotary_dim_));
  const bool is_whole = rotary_dim_ == head_dim_;
  const at::Tensor apart =
      is_whole ? turning
               : at::cat({turning, heads.narrow(2, rotary_dim_, head_dim_ - rotary_dim_)}, 2);
  return rotate(apart, context.table.positions, table);
}

std::unique_ptr<MixerCache> Attention::new_cache() const {
  return std::make_unique<KeyValueCache>();
}

Placed Attention::forward(const Placed& hidden, const ForwardContext& context,
                          const MixerCaches* caches) const {
  const int64_t num_gates = has_gate_ ? num_heads_ : 0;
  const at::Tensor qkv =
      qkv_.forward({scaled(hidden.tensor, multipliers_.attention_input), hidden.placement})
          .view({-1, num_heads_ + 2 * num_kv_heads_ + num_gates, head_dim_});
  const auto parts = qkv.split_with_sizes({num_heads_, num_kv_heads_, num_kv_heads_, num_gates}, 1);
  const auto clipped = [&](const at::Tensor& heads) {
    return clip_ > 0 ? heads.clamp(-clip_, clip_) : heads;
  };
  const auto used = [&](const at::Tensor& heads) {
    return used_kv_head_.has_value() ? heads.narrow(1, *used_kv_head_, 1) : heads;
  };
  // [tokens, heads/tp, head_dim] and [tokens, kv_heads/tp or 1, head_dim]
  const at::Tensor q = rotated(clipped(query_norm_.forward(parts[0])), context);
  const at::Tensor k =
      rotated(scaled(clipped(used(key_norm_.forward(parts[1]))), multipliers_.key), context);
  const at::Tensor v = clipped(used(parts[2]));
  at::Tensor attended = caches == nullptr ? core_.forward(q, k, v, context.table, options_)
                                          : attend_after(*caches, q, k, v, context.table, options_);
  if (has_gate_) {
    attended = attended * parts[3].sigmoid();
  }
  const Placed output =
      output_.forward(attended.reshape({-1, num_heads_ * head_dim_}), hidden.placement);
  return {scaled(output.tensor, multipliers_.attention_output), output.placement};
}

}  // namespace switchyard

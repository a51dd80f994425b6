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

ParameterSpec head_weight(const Scope& scope, const ModelConfig& model, const char* name,
                          int64_t num_heads, const Placement& placement) {
  return {.name = scope.name(name),
          .shape = {num_heads, model.head_size(), model.hidden_size},
          .init = Init::normal(model.init_std),
          .tensor = placement};
}

ParameterSpec head_bias(const Scope& scope, const ModelConfig& model, const char* name,
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
  std::vector<ParameterSpec> biases;
  if (config.attention.qkv_bias) {
    biases = {head_bias(scope, model, "q_bias", heads, cut),
              head_bias(scope, model, "k_bias", kv_heads, kv_cut),
              head_bias(scope, model, "v_bias", kv_heads, kv_cut)};
  }
  return {
      scope,
      {head_weight(scope, model, "q", heads, cut), head_weight(scope, model, "k", kv_heads, kv_cut),
       head_weight(scope, model, "v", kv_heads, kv_cut)},
      model.hidden_size,
      kInput,
      biases};
}

RowLinear make_output(const Scope& scope, const Config& config) {
  const ModelConfig& model = config.model;
  std::optional<ParameterSpec> bias;
  if (config.attention.output_bias) {
    bias = row_bias(scope.name("o_bias"), model.hidden_size, config.parallel.sequence_parallel);
  }
  return {scope,
          {.name = scope.name("o"),
           .shape = {model.hidden_size, model.num_attention_heads, model.head_size()},
           .init = Init::normal(output_init_std(model)),
           .tensor = Placement::sharded(1, model.num_attention_heads)},
          kOutput,
          bias};
}

}  // namespace

Attention::Attention(const Scope& scope, const Config& config, int64_t window)
    : num_heads_(config.model.num_attention_heads / scope.groups().tensor().size()),
      num_kv_heads_(has_all_kv_heads(scope, config)
                        ? config.model.query_groups()
                        : config.model.query_groups() / scope.groups().tensor().size()),
      head_dim_(config.model.head_size()),
      options_{.scale = {}, .window = window},
      clip_(config.attention.qkv_clip),
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

std::unique_ptr<MixerCache> Attention::new_cache() const {
  return std::make_unique<KeyValueCache>();
}

Placed Attention::forward(const Placed& hidden, const ForwardContext& context,
                          const MixerCaches* caches) const {
  const at::Tensor qkv = qkv_.forward(hidden).view({-1, num_heads_ + 2 * num_kv_heads_, head_dim_});
  const auto parts = qkv.split_with_sizes({num_heads_, num_kv_heads_, num_kv_heads_}, 1);
  const auto clipped = [&](const at::Tensor& heads) {
    return clip_ > 0 ? heads.clamp(-clip_, clip_) : heads;
  };
  const auto rotated = [&](const at::Tensor& heads) {
    return rotate(heads, context.table.positions, context.rotary);
  };
  const auto used = [&](const at::Tensor& heads) {
    return used_kv_head_.has_value() ? heads.narrow(1, *used_kv_head_, 1) : heads;
  };
  // [tokens, heads/tp, head_dim] and [tokens, kv_heads/tp or 1, head_dim]
  const at::Tensor q = rotated(clipped(query_norm_.forward(parts[0])));
  const at::Tensor k = rotated(clipped(used(key_norm_.forward(parts[1]))));
  const at::Tensor v = clipped(used(parts[2]));
  const at::Tensor attended = caches == nullptr
                                  ? core_.forward(q, k, v, context.table, options_)
                                  : attend_after(*caches, q, k, v, context.table, options_);
  return output_.forward(attended.reshape({-1, num_heads_ * head_dim_}), hidden.placement);
}

}  // namespace switchyard

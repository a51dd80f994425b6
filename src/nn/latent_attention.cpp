#include "nn/latent_attention.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <ATen/ATen.h>

#include "nn/init.h"
#include "nn/key_value_cache.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"

namespace switchyard {
namespace {

constexpr Site kInput{"attention.input", Purpose::kTensorParallel};
constexpr Site kLatent{"attention.latent", Purpose::kTensorParallel};
constexpr Site kOutput{"attention.output", Purpose::kTensorParallel};

int64_t qk_head_dim(const MlaConfig& mla) {
  return mla.qk_nope_head_dim + mla.qk_rope_head_dim;
}

ParameterSpec weight_spec(const Scope& scope, const Config& config, const char* name,
                          std::vector<int64_t> shape, const Placement& placement) {
  return {.name = scope.name(name),
          .shape = std::move(shape),
          .init = Init::normal(config.model.init_std),
          .tensor = placement};
}

ColumnLinear make_down(const Scope& scope, const Config& config) {
  const MlaConfig& mla = config.mla;
  const int64_t heads = config.model.num_attention_heads;
  const int64_t hidden = config.model.hidden_size;
  const Placement whole = Placement::replicated();
  ParameterSpec queries =
      mla.q_lora_rank > 0 ? weight_spec(scope, config, "q_down", {mla.q_lora_rank, hidden}, whole)
                          : weight_spec(scope, config, "q", {heads, qk_head_dim(mla), hidden},
                                        Placement::sharded(0, heads));
  return {
      scope,
      {std::move(queries), weight_spec(scope, config, "kv_down",
                                       {mla.kv_lora_rank + mla.qk_rope_head_dim, hidden}, whole)},
      hidden,
      kInput};
}

ColumnLinear make_up(const Scope& scope, const Config& config, const char* name, int64_t features,
                     int64_t rank) {
  const int64_t heads = config.model.num_attention_heads;
  return {scope,
          {weight_spec(scope, config, name, {heads, features, rank}, Placement::sharded(0, heads))},
          rank,
          kLatent};
}

at::Tensor declare_norm(const Scope& scope, const char* name, int64_t rank) {
  // Each rank uses it for its own heads: the gradient is the sum over them.
  return scope.parameters.declare({{.name = scope.name(name),
                                    .shape = {rank},
                                    .init = Init::ones(),
                                    .has_weight_decay = false,
                                    .tensor = Placement::replicated()}},
                                  {rank});
}

RowLinear make_output(const Scope& scope, const Config& config) {
  const ModelConfig& model = config.model;
  return {scope,
          {.name = scope.name("o"),
           .shape = {model.hidden_size, model.num_attention_heads, config.mla.v_head_dim},
           .init = Init::normal(output_init_std(model)),
           .tensor = Placement::sharded(1, model.num_attention_heads)},
          kOutput};
}

at::Tensor widened(const at::Tensor& heads, int64_t width) {
  return heads.size(2) == width ? heads : at::constant_pad_nd(heads, {0, width - heads.size(2)});
}

}  // namespace

double latent_attention_scale(const Config& config) {
  const RopeConfig& rope = config.rope;
  const double plain = 1 / std::sqrt(static_cast<double>(qk_head_dim(config.mla)));
  if (rope.type != RopeType::kYarn || rope.mscale_all_dim == 0 || rope.factor <= 1) {
    return plain;
  }
  const double magnitude = 0.1 * rope.mscale_all_dim * std::log(rope.factor) + 1;
  return plain * magnitude * magnitude;
}

LatentAttention::LatentAttention(const Scope& scope, const Config& config, int64_t window)
    : mla_(config.mla),
      num_heads_(config.model.num_attention_heads / scope.groups().tensor().size()),
      is_interleaved_(config.rope.interleaved),
      options_{.scale = latent_attention_scale(config), .window = window},
      down_(make_down(scope, config)),
      q_norm_(mla_.q_lora_rank > 0 ? declare_norm(scope, "q_norm", mla_.q_lora_rank)
                                   : at::Tensor()),
      kv_norm_(declare_norm(scope, "kv_norm", mla_.kv_lora_rank)),
      q_up_(mla_.q_lora_rank > 0 ? std::make_unique<ColumnLinear>(make_up(
                                       scope, config, "q_up", qk_head_dim(mla_), mla_.q_lora_rank))
                                 : nullptr),
      kv_up_(make_up(scope, config, "kv_up", mla_.qk_nope_head_dim + mla_.v_head_dim,
                     mla_.kv_lora_rank)),
      output_(make_output(scope, config)),
      core_(config, scope.groups()[GroupName::kContext]) {}

LatentAttention::Projections LatentAttention::project(const Placed& hidden,
                                                      const ForwardContext& context) const {
  const int64_t rope = mla_.qk_rope_head_dim;
  const int64_t query_width = q_up_ == nullptr ? num_heads_ * qk_head_dim(mla_) : mla_.q_lora_rank;
  const auto parts =
      down_.forward(hidden).split_with_sizes({query_width, mla_.kv_lora_rank, rope}, 1);
  const auto rotated = [&](const at::Tensor& heads) {
    return rotate(is_interleaved_ ? pairs_apart(heads) : heads, context.table.positions,
                  context.rotary);
  };
  at::Tensor queries = parts[0];
  if (q_up_ != nullptr) {
    queries = q_up_->forward(
        {rms_norm(parts[0].contiguous(), q_norm_, mla_.norm_epsilon), Placement::replicated()});
  }
  const auto of_heads = queries.view({-1, num_heads_, qk_head_dim(mla_)})
                            .split_with_sizes({mla_.qk_nope_head_dim, rope}, 2);
  return {of_heads[0], rotated(of_heads[1]),
          rms_norm(parts[1].contiguous(), kv_norm_, mla_.norm_epsilon),
          rotated(parts[2].unsqueeze(1))};
}

// With keys and values of every head, all made as wide as the wider of them: the kernel knows one
// width, and zeros change neither scores nor sums.
at::Tensor LatentAttention::attend(const Projections& projections,
                                   const ForwardContext& context) const {
  const int64_t width = std::max(qk_head_dim(mla_), mla_.v_head_dim);
  const auto keys_values = kv_up_.forward({projections.latent, Placement::replicated()})
                               .view({-1, num_heads_, mla_.qk_nope_head_dim + mla_.v_head_dim})
                               .split_with_sizes({mla_.qk_nope_head_dim, mla_.v_head_dim}, 2);
  const at::Tensor k_rope = projections.k_rope.expand({-1, num_heads_, -1});
  const at::Tensor q = at::cat({projections.q_nope, projections.q_rope}, 2);
  const at::Tensor k = at::cat({keys_values[0], k_rope}, 2);
  return core_
      .forward(widened(q, width), widened(k, width), widened(keys_values[1], width), context.table,
               options_)
      .narrow(2, 0, mla_.v_head_dim);
}

// In the space of the latents: kv_up is multiplied into the queries and into what they gather, so
// that a token's cache is its latent and its one rotated key, and no key or value is made.
at::Tensor LatentAttention::attend_to_caches(const Projections& projections,
                                             const ForwardContext& context,
                                             const MixerCaches& caches) const {
  const auto up = kv_up_.weight()
                      .view({num_heads_, -1, mla_.kv_lora_rank})
                      .split_with_sizes({mla_.qk_nope_head_dim, mla_.v_head_dim}, 1);
  const at::Tensor q_latent = at::bmm(projections.q_nope.transpose(0, 1), up[0]).transpose(0, 1);
  const at::Tensor q = at::cat({q_latent, projections.q_rope}, 2);
  const at::Tensor new_keys = at::cat({projections.latent.unsqueeze(1), projections.k_rope}, 2);
  // The first features of the keys are the values.
  const at::Tensor latents =
      attend_after(caches, q, new_keys, at::Tensor(), context.table, options_)
          .narrow(2, 0, mla_.kv_lora_rank);
  return at::bmm(latents.transpose(0, 1), up[1].transpose(1, 2)).transpose(0, 1);
}

std::unique_ptr<MixerCache> LatentAttention::new_cache() const {
  return std::make_unique<KeyValueCache>();
}

Placed LatentAttention::forward(const Placed& hidden, const ForwardContext& context,
                                const MixerCaches* caches) const {
  const Projections projections = project(hidden, context);
  const at::Tensor attended = caches == nullptr ? attend(projections, context)
                                                : attend_to_caches(projections, context, *caches);
  return output_.forward(attended.reshape({-1, num_heads_ * mla_.v_head_dim}), hidden.placement);
}

}  // namespace switchyard

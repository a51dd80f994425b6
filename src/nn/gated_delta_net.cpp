#include "nn/gated_delta_net.h"

#include <cmath>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "nn/init.h"
#include "ops/gated_delta_rule.h"
#include "ops/gated_norm.h"

namespace switchyard {
namespace {

constexpr Site kInput{"delta_net.input", Purpose::kTensorParallel};
constexpr Site kOutput{"delta_net.output", Purpose::kTensorParallel};
constexpr Site kChannels{"delta_net.context_channels", Purpose::kContextParallel};
constexpr Site kSteps{"delta_net.context_steps", Purpose::kContextParallel};
constexpr Site kTokens{"delta_net.context_tokens", Purpose::kContextParallel};

int64_t values_per_key(const DeltaNetConfig& sizes) {
  return sizes.num_value_heads / sizes.num_key_heads;
}

// Declares what has one part per key head.
class PieceMaker {
 public:
  PieceMaker(const Scope& scope, const Config& config)
      : scope_(scope),
        keys_{config.delta_net.num_key_heads, config.delta_net.key_head_dim},
        values_{config.delta_net.num_key_heads, values_per_key(config.delta_net),
                config.delta_net.value_head_dim},
        steps_{config.delta_net.num_key_heads, values_per_key(config.delta_net)} {}

  ParameterSpec of_keys(const char* name, int64_t row, Init init) const {
    return with_rows(name, keys_, row, init);
  }
  ParameterSpec of_values(const char* name, int64_t row, Init init) const {
    return with_rows(name, values_, row, init);
  }
  ParameterSpec of_steps(const char* name, int64_t row, Init init) const {
    return with_rows(name, steps_, row, init);
  }
  // What sets how fast a head forgets: one number each.
  ParameterSpec of_decay(const char* name, Init init) const {
    ParameterSpec spec = cut(name, steps_, init);
    spec.has_weight_decay = false;
    spec.stays_wide = true;
    return spec;
  }

 private:
  ParameterSpec with_rows(const char* name, std::vector<int64_t> shape, int64_t row,
                          Init init) const {
    shape.push_back(row);
    return cut(name, std::move(shape), init);
  }
  ParameterSpec cut(const char* name, std::vector<int64_t> shape, Init init) const {
    return {.name = scope_.name(name),
            .shape = std::move(shape),
            .init = init,
            .tensor = Placement::sharded(0, keys_[0])};
  }

  const Scope& scope_;
  std::vector<int64_t> keys_;
  std::vector<int64_t> values_;
  std::vector<int64_t> steps_;
};

ColumnLinear make_input(const Scope& scope, const Config& config) {
  const PieceMaker make(scope, config);
  const int64_t hidden = config.model.hidden_size;
  const Init init = Init::normal(config.model.init_std);
  return {scope,
          {make.of_keys("q", hidden, init), make.of_keys("k", hidden, init),
           make.of_values("v", hidden, init), make.of_values("z", hidden, init),
           make.of_steps("b", hidden, init), make.of_steps("a", hidden, init)},
          hidden,
          kInput};
}

RowLinear make_output(const Scope& scope, const Config& config) {
  const DeltaNetConfig& sizes = config.delta_net;
  return {scope,
          {.name = scope.name("output"),
           .shape = {config.model.hidden_size, sizes.num_key_heads, values_per_key(sizes),
                     sizes.value_head_dim},
           .init = Init::normal(output_init_std(config.model)),
           .tensor = Placement::sharded(1, sizes.num_key_heads)},
          kOutput};
}

}  // namespace

GatedDeltaNet::GatedDeltaNet(const Scope& scope, const Config& config)
    : ScanMixer(scope.groups()[GroupName::kContext], {kChannels, kSteps, kTokens}),
      sizes_(config.delta_net),
      norm_epsilon_(config.model.norm_epsilon),
      key_heads_(sizes_.num_key_heads / scope.groups().tensor().size()),
      value_heads_(sizes_.num_value_heads / scope.groups().tensor().size()),
      input_(make_input(scope, config)),
      output_(make_output(scope, config)) {
  const PieceMaker make(scope, config);
  const int64_t channels =
      2 * key_heads_ * sizes_.key_head_dim + value_heads_ * sizes_.value_head_dim;
  const double bound = 1 / std::sqrt(static_cast<double>(sizes_.conv_width));
  const Init conv_init = Init::uniform(-bound, bound);
  Parameters& parameters = scope.parameters;
  conv_weight_ = parameters.declare({make.of_keys("conv_q", sizes_.conv_width, conv_init),
                                     make.of_keys("conv_k", sizes_.conv_width, conv_init),
                                     make.of_values("conv_v", sizes_.conv_width, conv_init)},
                                    {channels, sizes_.conv_width});
  // As transformers begins: decays from 0.01 to 16, time steps from softplus(1) on.
  a_log_ =
      parameters.declare({make.of_decay("a_log", Init::log_of_uniform(0.01, 16))}, {value_heads_});
  dt_bias_ = parameters.declare({make.of_decay("dt_bias", Init::ones())}, {value_heads_});
  norm_weight_ = parameters.declare({{.name = scope.name("norm"),
                                      .shape = {sizes_.value_head_dim},
                                      .init = Init::ones(),
                                      .has_weight_decay = false,
                                      .tensor = Placement::replicated()}},
                                    {sizes_.value_head_dim});
}

// q, k and v of the part, out of those of the rank.
at::Tensor GatedDeltaNet::channels_of(const HeadPart& part, const at::Tensor& all,
                                      int64_t dim) const {
  if (part.count == 1) {
    return all;
  }
  const int64_t keys = key_heads_ * sizes_.key_head_dim;
  const int64_t values = value_heads_ * sizes_.value_head_dim;
  const int64_t own_keys = keys / part.count;
  const int64_t own_values = values / part.count;
  return at::cat({all.narrow(dim, part.index * own_keys, own_keys),
                  all.narrow(dim, keys + part.index * own_keys, own_keys),
                  all.narrow(dim, 2 * keys + part.index * own_values, own_values)},
                 dim);
}

// b and a of the part.
at::Tensor GatedDeltaNet::steps_of(const HeadPart& part, const at::Tensor& all) const {
  const int64_t heads = value_heads_ / part.count;
  return at::cat({all.narrow(1, part.index * heads, heads),
                  all.narrow(1, value_heads_ + part.index * heads, heads)},
                 1);
}

at::Tensor GatedDeltaNet::scan(const HeadPart& part, const at::Tensor& channels,
                               const at::Tensor& steps, const SequenceTable& table,
                               ScanCache* cache) const {
  const int64_t key_heads = key_heads_ / part.count;
  const int64_t value_heads = value_heads_ / part.count;
  const auto of_heads = [&](const at::Tensor& per_head) {
    return widened(per_head.narrow(0, part.index * value_heads, value_heads));
  };
  const at::Tensor mixed = convolve(channels, channels_of(part, conv_weight_, 0), {}, table, cache);
  const int64_t keys = key_heads * sizes_.key_head_dim;
  const auto parts = mixed.split_with_sizes({keys, keys, value_heads * sizes_.value_head_dim}, 1);
  const at::Tensor a = widened(steps.narrow(1, value_heads, value_heads));
  const bool follows = cache != nullptr && cache->state.defined();
  const DeltaRuleInputs inputs{
      .q = parts[0].unflatten(1, {key_heads, sizes_.key_head_dim}),
      .k = parts[1].unflatten(1, {key_heads, sizes_.key_head_dim}),
      .v = parts[2].unflatten(1, {value_heads, sizes_.value_head_dim}),
      .log_decay = -of_heads(a_log_).exp() * at::softplus(a + of_heads(dt_bias_)),
      .beta = widened(steps.narrow(1, 0, value_heads).sigmoid()),
      .state = follows ? std::optional(cache->state) : std::optional<at::Tensor>()};
  const ScanOutput scanned = follows && table.num_tokens <= kFewTokens
                                 ? step_delta_rule(inputs)
                                 : gated_delta_rule(inputs, table, sizes_.chunk_size);
  if (cache != nullptr) {
    cache->state = scanned.state;
  }
  return scanned.out;
}

Placed GatedDeltaNet::forward(const Placed& hidden, const ForwardContext& context,
                              const MixerCaches* caches) const {
  const at::Tensor projected = input_.forward(hidden);
  const int64_t values = value_heads_ * sizes_.value_head_dim;
  const int64_t channels = 2 * key_heads_ * sizes_.key_head_dim + values;
  const auto parts = projected.split_with_sizes({channels, values, 2 * value_heads_}, 1);
  const at::Tensor scanned = scan_tokens(parts[0], parts[2], context.table, caches);
  const at::Tensor z = parts[1].unflatten(1, {value_heads_, sizes_.value_head_dim});
  const at::Tensor gated = gated_norm(scanned, z, norm_weight_, norm_epsilon_,
                                      sizes_.value_head_dim, GateOrder::kNormThenGate);
  return output_.forward(gated.flatten(1), hidden.placement);
}

}  // namespace switchyard

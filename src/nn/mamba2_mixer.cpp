#include "nn/mamba2_mixer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <ATen/ATen.h>

#include "config/mixer_sizes.h"
#include "nn/init.h"
#include "ops/chunked_scan.h"
#include "ops/gated_norm.h"

namespace switchyard {
namespace {

constexpr Site kInput{"mamba2.input", Purpose::kTensorParallel};
constexpr Site kOutput{"mamba2.output", Purpose::kTensorParallel};
constexpr Site kChannels{"mamba2.context_channels", Purpose::kContextParallel};
constexpr Site kSteps{"mamba2.context_steps", Purpose::kContextParallel};
constexpr Site kTokens{"mamba2.context_tokens", Purpose::kContextParallel};

bool has_all_groups(const Scope& scope, const Config& config) {
  return config.mamba.num_groups < scope.groups().tensor().size();
}

// The shape of a parameter of one number per feature, or of one row per feature where `row` is
// given.
std::vector<int64_t> shape_of(std::vector<int64_t> features, std::optional<int64_t> row) {
  if (row) {
    features.push_back(*row);
  }
  return features;
}

// Declares alike what belongs to x, b and c (and z and dt, where the caller wants them).
class PieceMaker {
 public:
  PieceMaker(const Scope& scope, const Config& config)
      : scope_(scope),
        by_head_({mamba2_heads(config), config.mamba.head_dim}),
        by_group_({config.mamba.num_groups, config.mamba.state_size}),
        group_placement_(has_all_groups(scope, config)
                             ? Placement::replicated()
                             : Placement::sharded(0, config.mamba.num_groups)) {}

  ParameterSpec of_heads(const std::string& name, std::optional<int64_t> row, Init init) const {
    return make(name, shape_of(by_head_, row), init, Placement::sharded(0, by_head_[0]), row);
  }
  ParameterSpec of_groups(const std::string& name, std::optional<int64_t> row, Init init) const {
    return make(name, shape_of(by_group_, row), init, group_placement_, row);
  }
  // One number a head, or a row of them.
  ParameterSpec of_steps(const std::string& name, std::optional<int64_t> row, Init init) const {
    return make(name, shape_of({by_head_[0]}, row), init, Placement::sharded(0, by_head_[0]), row);
  }
  // What sets how fast a head forgets: one number each.
  ParameterSpec of_decay(const std::string& name, Init init) const {
    ParameterSpec spec = of_steps(name, {}, init);
    spec.stays_wide = true;
    return spec;
  }

 private:
  ParameterSpec make(const std::string& name, std::vector<int64_t> shape, Init init,
                     const Placement& placement, std::optional<int64_t> row) const {
    return {.name = scope_.name(name),
            .shape = std::move(shape),
            .init = init,
            .has_weight_decay = row.has_value(),
            .tensor = placement};
  }

  const Scope& scope_;
  std::vector<int64_t> by_head_;
  std::vector<int64_t> by_group_;
  Placement group_placement_;
};

ColumnLinear make_input(const Scope& scope, const Config& config) {
  const PieceMaker make(scope, config);
  const auto pieces = [&](const std::string& suffix, std::optional<int64_t> row, Init init) {
    return std::vector{
        make.of_heads("z" + suffix, row, init), make.of_heads("x" + suffix, row, init),
        make.of_groups("b" + suffix, row, init), make.of_groups("c" + suffix, row, init),
        make.of_steps("dt" + suffix, row, init)};
  };
  std::vector<ParameterSpec> biases;
  if (config.mamba.input_bias) {
    biases = pieces("_input_bias", {}, Init::zeros());
  }
  return {scope, pieces("", config.model.hidden_size, Init::normal(config.model.init_std)),
          config.model.hidden_size, kInput, biases};
}

RowLinear make_output(const Scope& scope, const Config& config) {
  const int64_t heads = mamba2_heads(config);
  return {scope,
          {.name = scope.name("output"),
           .shape = {config.model.hidden_size, heads, config.mamba.head_dim},
           .init = Init::normal(output_init_std(config.model)),
           .tensor = Placement::sharded(1, heads)},
          kOutput,
          row_bias(config.mamba.output_bias, scope, "output_bias", config)};
}

}  // namespace

Mamba2Mixer::Mamba2Mixer(const Scope& scope, const Config& config)
    : ScanMixer(scope.groups()[GroupName::kContext], {kChannels, kSteps, kTokens}),
      mamba_(config.mamba),
      multipliers_(config.multipliers),
      norm_epsilon_(config.model.norm_epsilon),
      heads_(mamba2_heads(config) / scope.groups().tensor().size()),
      groups_(has_all_groups(scope, config) ? mamba_.num_groups
                                            : mamba_.num_groups / scope.groups().tensor().size()),
      used_({0, heads_, 0, groups_}),
      input_(make_input(scope, config)),
      output_(make_output(scope, config)) {
  if (has_all_groups(scope, config)) {
    const Group& group = scope.groups().tensor();
    used_.first_group = group.rank() * groups_ / group.size();
    used_.groups = 1;
  }
  const PieceMaker make(scope, config);
  const auto conv_pieces = [&](const std::string& suffix, std::optional<int64_t> row, Init init) {
    return std::vector{make.of_heads("conv_x" + suffix, row, init),
                       make.of_groups("conv_b" + suffix, row, init),
                       make.of_groups("conv_c" + suffix, row, init)};
  };
  const int64_t channels = heads_ * mamba_.head_dim + 2 * groups_ * mamba_.state_size;
  const double bound = 1 / std::sqrt(static_cast<double>(mamba_.conv_width));
  Parameters& parameters = scope.parameters;
  conv_weight_ =
      parameters.declare(conv_pieces("", mamba_.conv_width, Init::uniform(-bound, bound)),
                         {channels, mamba_.conv_width});
  if (mamba_.conv_bias) {
    conv_bias_ =
        parameters.declare(conv_pieces("_bias", {}, Init::uniform(-bound, bound)), {channels});
  }
  a_log_ = parameters.declare({make.of_decay("a_log", Init::log_of_uniform(1, 16))}, {heads_});
  d_ = parameters.declare({make.of_decay("d", Init::ones())}, {heads_});
  const Init first_steps =
      Init::time_step(mamba_.init_min_dt, mamba_.init_max_dt, mamba_.init_dt_floor);
  dt_bias_ = parameters.declare({make.of_decay("dt_bias", first_steps)}, {heads_});
  if (mamba_.norm != MambaNorm::kNone) {
    norm_weight_ =
        parameters.declare({make.of_heads("norm", {}, Init::ones())}, {heads_ * mamba_.head_dim});
  }
}

Mamba2Mixer::HeadShare Mamba2Mixer::share_of(const HeadPart& part) const {
  const int64_t heads = heads_ / part.count;
  return {part.index * heads, heads, used_.first_group + part.index * used_.groups / part.count,
          std::max<int64_t>(1, used_.groups / part.count)};
}

// x, B and C of the part, out of those of the rank.
at::Tensor Mamba2Mixer::channels_of(const HeadPart& part, const at::Tensor& all,
                                    int64_t dim) const {
  const HeadShare share = share_of(part);
  if (share.heads == heads_ && share.groups == groups_) {
    return all;
  }
  const int64_t state = mamba_.state_size;
  const int64_t b_begin = heads_ * mamba_.head_dim;
  const int64_t c_begin = b_begin + groups_ * state;
  return at::cat(
      {all.narrow(dim, share.first_head * mamba_.head_dim, share.heads * mamba_.head_dim),
       all.narrow(dim, b_begin + share.first_group * state, share.groups * state),
       all.narrow(dim, c_begin + share.first_group * state, share.groups * state)},
      dim);
}

at::Tensor Mamba2Mixer::steps_of(const HeadPart& part, const at::Tensor& all) const {
  const HeadShare share = share_of(part);
  return all.narrow(1, share.first_head, share.heads);
}

at::Tensor Mamba2Mixer::scan(const HeadPart& part, const at::Tensor& channels, const at::Tensor& dt,
                             const SequenceTable& table, ScanCache* cache) const {
  const HeadShare share = share_of(part);
  const auto of_heads = [&](const at::Tensor& per_head) {
    return widened(per_head.narrow(0, share.first_head, share.heads));
  };
  const auto bias = conv_bias_.defined() ? std::optional(channels_of(part, conv_bias_, 0))
                                         : std::optional<at::Tensor>();
  const at::Tensor mixed =
      convolve(channels, channels_of(part, conv_weight_, 0), bias, table, cache);
  const int64_t inner = share.heads * mamba_.head_dim;
  const int64_t by_group = share.groups * mamba_.state_size;
  const auto parts = mixed.split_with_sizes({inner, by_group, by_group}, 1);
  const double max_dt = mamba_.max_dt > 0 ? mamba_.max_dt : std::numeric_limits<double>::infinity();
  const bool follows = cache != nullptr && cache->state.defined();
  const ChunkedScanInputs inputs{
      .x = parts[0].unflatten(1, {share.heads, mamba_.head_dim}),
      .dt = at::softplus(widened(dt) + of_heads(dt_bias_)).clamp(mamba_.min_dt, max_dt),
      .a = -of_heads(a_log_).exp(),
      .b = parts[1].unflatten(1, {share.groups, mamba_.state_size}),
      .c = parts[2].unflatten(1, {share.groups, mamba_.state_size}),
      .d = of_heads(d_),
      .state = follows ? std::optional(cache->state) : std::optional<at::Tensor>()};
  const ScanOutput scanned = follows && table.num_tokens <= kFewTokens
                                 ? step_scan(inputs)
                                 : chunked_scan(inputs, table, mamba_.chunk_size);
  if (cache != nullptr) {
    cache->state = scanned.state;
  }
  return scanned.out;
}

// scanned [held tokens, heads/tp, head_dim], z [held tokens, heads/tp x head_dim] -> as z
at::Tensor Mamba2Mixer::gated(const at::Tensor& scanned, const at::Tensor& z) const {
  const at::Tensor flat = scanned.flatten(1);
  if (mamba_.norm == MambaNorm::kNone) {
    return flat * at::silu(z);
  }
  const auto order =
      mamba_.norm == MambaNorm::kAfterGate ? GateOrder::kGateThenNorm : GateOrder::kNormThenGate;
  return gated_norm(flat, z, norm_weight_, norm_epsilon_, flat.size(1) / groups_, order);
}

Placed Mamba2Mixer::forward(const Placed& hidden, const ForwardContext& context,
                            const MixerCaches* caches) const {
  const at::Tensor projected =
      input_.forward({scaled(hidden.tensor, multipliers_.mamba_input), hidden.placement});
  const int64_t inner = heads_ * mamba_.head_dim;
  const int64_t by_group = groups_ * mamba_.state_size;
  const auto parts = projected.split_with_sizes({inner, inner, by_group, by_group, heads_}, 1);
  const at::Tensor z = scaled(parts[0], multipliers_.mamba_z);
  const at::Tensor dt = scaled(parts[4], multipliers_.mamba_dt);
  // [held tokens, channels here]
  const at::Tensor channels =
      at::cat({scaled(parts[1], multipliers_.mamba_x), scaled(parts[2], multipliers_.mamba_b),
               scaled(parts[3], multipliers_.mamba_c)},
              1);
  const at::Tensor scanned = scan_tokens(channels, dt, context.table, caches);
  const Placed output = output_.forward(gated(scanned, z), hidden.placement);
  return {scaled(output.tensor, multipliers_.mamba_output), output.placement};
}

}  // namespace switchyard

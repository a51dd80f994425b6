#include "nn/mamba1_mixer.h"

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "config/mixer_sizes.h"
#include "nn/init.h"
#include "nn/row_exchange.h"
#include "ops/causal_conv.h"
#include "ops/dense_linear.h"
#include "ops/selective_scan.h"

namespace switchyard {
namespace {

constexpr Site kInput{"mamba1.input", Purpose::kTensorParallel};
constexpr Site kSelect{"mamba1.select", Purpose::kTensorParallel};
constexpr Site kSelected{"mamba1.selected", Purpose::kTensorParallel};
constexpr Site kOutput{"mamba1.output", Purpose::kTensorParallel};
constexpr Site kConvRows{"mamba1.context_conv_rows", Purpose::kContextParallel};
constexpr Site kConvTokens{"mamba1.context_conv_tokens", Purpose::kContextParallel};
constexpr Site kScanRows{"mamba1.context_scan_rows", Purpose::kContextParallel};
constexpr Site kScanTokens{"mamba1.context_scan_tokens", Purpose::kContextParallel};

// Of one row per channel, or one number.
ParameterSpec of_channels(const Scope& scope, const Config& config, const char* name,
                          std::optional<int64_t> row, Init init) {
  const int64_t inner = mamba1_channels(config);
  return {.name = scope.name(name),
          .shape = row ? std::vector<int64_t>{inner, *row} : std::vector<int64_t>{inner},
          .init = init,
          .has_weight_decay = row.has_value(),
          .tensor = Placement::sharded(0, inner)};
}

// What sets how fast a channel forgets.
ParameterSpec of_decay(const Scope& scope, const Config& config, const char* name,
                       std::optional<int64_t> row, Init init) {
  ParameterSpec spec = of_channels(scope, config, name, row, init);
  spec.has_weight_decay = false;
  spec.stays_wide = true;
  return spec;
}

ColumnLinear make_input(const Scope& scope, const Config& config) {
  const int64_t hidden = config.model.hidden_size;
  const Init init = Init::normal(config.model.init_std);
  std::vector<ParameterSpec> biases;
  if (config.mamba.input_bias) {
    biases = {of_channels(scope, config, "x_input_bias", {}, Init::zeros()),
              of_channels(scope, config, "z_input_bias", {}, Init::zeros())};
  }
  return {scope,
          {of_channels(scope, config, "x", hidden, init),
           of_channels(scope, config, "z", hidden, init)},
          hidden,
          kInput,
          biases};
}

RowLinear make_select(const Scope& scope, const Config& config) {
  const int64_t inner = mamba1_channels(config);
  return {scope,
          {.name = scope.name("select"),
           .shape = {mamba1_dt_rank(config) + 2 * config.mamba.state_size, inner},
           .init = Init::normal(config.model.init_std),
           .tensor = Placement::sharded(1, inner)},
          kSelect};
}

RowLinear make_output(const Scope& scope, const Config& config) {
  const int64_t inner = mamba1_channels(config);
  return {scope,
          {.name = scope.name("output"),
           .shape = {config.model.hidden_size, inner},
           .init = Init::normal(output_init_std(config.model)),
           .tensor = Placement::sharded(1, inner)},
          kOutput,
          row_bias(config.mamba.output_bias, scope, "output_bias", config)};
}

at::Tensor narrowed(const at::Tensor& all, int64_t dim, int64_t parts, int64_t index) {
  const int64_t size = all.size(dim) / parts;
  return all.narrow(dim, index * size, size);
}

}  // namespace

Mamba1Mixer::Mamba1Mixer(const Scope& scope, const Config& config)
    : tensor_group_(scope.groups().tensor()),
      context_group_(scope.groups()[GroupName::kContext]),
      channels_(mamba1_channels(config) / tensor_group_.size()),
      state_size_(config.mamba.state_size),
      dt_rank_(mamba1_dt_rank(config)),
      input_(make_input(scope, config)),
      select_(make_select(scope, config)),
      output_(make_output(scope, config)) {
  const MambaConfig& mamba = config.mamba;
  const auto bound = [](int64_t fan_in) { return 1 / std::sqrt(static_cast<double>(fan_in)); };
  const double conv_bound = bound(mamba.conv_width);
  const double dt_bound = bound(dt_rank_);
  Parameters& parameters = scope.parameters;
  conv_weight_ = parameters.declare({of_channels(scope, config, "conv", mamba.conv_width,
                                                 Init::uniform(-conv_bound, conv_bound))},
                                    {channels_, mamba.conv_width});
  if (mamba.conv_bias) {
    conv_bias_ = parameters.declare(
        {of_channels(scope, config, "conv_bias", {}, Init::uniform(-conv_bound, conv_bound))},
        {channels_});
  }
  dt_weight_ = parameters.declare(
      {of_channels(scope, config, "dt_weight", dt_rank_, Init::uniform(-dt_bound, dt_bound))},
      {channels_, dt_rank_});
  const Init first_steps =
      Init::time_step(mamba.init_min_dt, mamba.init_max_dt, mamba.init_dt_floor);
  dt_bias_ = parameters.declare({of_decay(scope, config, "dt_bias", {}, first_steps)}, {channels_});
  a_log_ = parameters.declare(
      {of_decay(scope, config, "a_log", state_size_, Init::log_of_count(state_size_))},
      {channels_, state_size_});
  d_ = parameters.declare({of_decay(scope, config, "d", {}, Init::ones())}, {channels_});
}

std::unique_ptr<MixerCache> Mamba1Mixer::new_cache() const {
  return std::make_unique<ScanCache>();
}

// Sums over the channels of all tp ranks; each then uses them for its own channels.
Mamba1Mixer::ScannedTokens Mamba1Mixer::select(const at::Tensor& mixed) const {
  const Placed sums = select_.forward(mixed, Placement::invariant());
  const at::Tensor selected =
      convert(sums, Placement::replicated(), tensor_group_, kSelected).tensor;
  const auto parts = selected.split_with_sizes({dt_rank_, state_size_, state_size_}, 1);
  const at::Tensor raw = widened(dense_linear(parts[0], dt_weight_)) + widened(dt_bias_);
  return {mixed, at::softplus(raw).to(mixed.scalar_type()), parts[1], parts[2]};
}

at::Tensor Mamba1Mixer::scan(const ScannedTokens& tokens, int64_t first, const SequenceTable& table,
                             ScanCache* cache) const {
  const auto own = [&](const at::Tensor& all) {
    return widened(all.narrow(0, first, tokens.x.size(1)));
  };
  const bool follows = cache != nullptr && cache->state.defined();
  const ScanOutput scanned =
      selective_scan({.x = tokens.x,
                      .dt = tokens.dt,
                      .a = -own(a_log_).exp(),
                      .b = tokens.b,
                      .c = tokens.c,
                      .d = own(d_),
                      .state = follows ? std::optional(cache->state) : std::optional<at::Tensor>()},
                     table);
  if (cache != nullptr) {
    cache->state = scanned.state;
  }
  return scanned.out;
}

at::Tensor Mamba1Mixer::convolve_shared_row(const at::Tensor& x, const SequenceTable& table) const {
  const int64_t ranks = context_group_.size();
  const int64_t own = context_group_.rank();
  std::vector<at::Tensor> for_ranks;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for_ranks.push_back(narrowed(x, 1, ranks, rank));
  }
  const auto bias = conv_bias_.defined() ? std::optional(narrowed(conv_bias_, 0, ranks, own))
                                         : std::optional<at::Tensor>();
  const at::Tensor mixed = causal_conv(take_row(for_ranks, table, context_group_, kConvRows),
                                       narrowed(conv_weight_, 0, ranks, own), bias, table);
  return return_row(mixed, table, context_group_, kConvTokens);
}

at::Tensor Mamba1Mixer::scan_shared_row(const ScannedTokens& tokens,
                                        const SequenceTable& table) const {
  const int64_t ranks = context_group_.size();
  const int64_t channels = channels_ / ranks;
  std::vector<at::Tensor> for_ranks;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for_ranks.push_back(at::cat({narrowed(tokens.x, 1, ranks, rank),
                                 narrowed(tokens.dt, 1, ranks, rank), tokens.b, tokens.c},
                                1));
  }
  const at::Tensor row = take_row(for_ranks, table, context_group_, kScanRows);
  const auto parts = row.split_with_sizes({channels, channels, state_size_, state_size_}, 1);
  const at::Tensor out = scan({parts[0], parts[1], parts[2], parts[3]},
                              context_group_.rank() * channels, table, nullptr);
  return return_row(out, table, context_group_, kScanTokens);
}

// Sequence by sequence: each has a cache of its own.
at::Tensor Mamba1Mixer::mix_after_caches(const at::Tensor& x, const SequenceTable& table,
                                         const MixerCaches& caches) const {
  const auto bias = conv_bias_.defined() ? std::optional(conv_bias_) : std::optional<at::Tensor>();
  std::vector<at::Tensor> scanned;
  for (int64_t i = 0; i < table.num_sequences(); ++i) {
    const int64_t length = table.length(i);
    const SequenceTable own = SequenceTable::from_lengths({length});
    auto& cache = dynamic_cast<ScanCache&>(*caches.at(static_cast<size_t>(i)));
    const at::Tensor unseen = x.narrow(0, table.starts[static_cast<size_t>(i)], length);
    const at::Tensor mixed = convolve(unseen, conv_weight_, bias, own, &cache);
    scanned.push_back(scan(select(mixed), 0, own, &cache));
  }
  return at::cat(scanned);
}

// Convolution and scan: [held tokens, channels] -> the same.
at::Tensor Mamba1Mixer::mix(const at::Tensor& x, const SequenceTable& table) const {
  if (table.num_shares > 1) {
    return scan_shared_row(select(convolve_shared_row(x, table)), table);
  }
  const auto bias = conv_bias_.defined() ? std::optional(conv_bias_) : std::optional<at::Tensor>();
  return scan(select(convolve(x, conv_weight_, bias, table, nullptr)), 0, table, nullptr);
}

Placed Mamba1Mixer::forward(const Placed& hidden, const ForwardContext& context,
                            const MixerCaches* caches) const {
  const at::Tensor projected = input_.forward(hidden);
  const auto parts = projected.split_with_sizes({channels_, channels_}, 1);
  const at::Tensor scanned = caches == nullptr ? mix(parts[0], context.table)
                                               : mix_after_caches(parts[0], context.table, *caches);
  return output_.forward(scanned * at::silu(parts[1]), hidden.placement);
}

}  // namespace switchyard

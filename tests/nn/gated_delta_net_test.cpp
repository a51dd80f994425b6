#include "nn/gated_delta_net.h"

#include <gtest/gtest.h>

#include "nn/mixer_checks.h"

namespace switchyard {
namespace {

// Two key heads of width 4, each read by three value heads of width 5.
Config small_delta_net() {
  Config config;
  config.model.hidden_size = 10;
  config.model.num_layers = 2;
  config.model.init_std = 0.4;
  config.delta_net.num_key_heads = 2;
  config.delta_net.num_value_heads = 6;
  config.delta_net.key_head_dim = 4;
  config.delta_net.value_head_dim = 5;
  config.delta_net.conv_width = 3;
  config.delta_net.chunk_size = 4;
  return config;
}

std::unique_ptr<Mixer> make_delta_net(const Scope& scope, const Config& config) {
  return std::make_unique<GatedDeltaNet>(scope, config);
}

at::Tensor projected(const NamedTensors& p, const std::string& name, const at::Tensor& hidden) {
  return at::matmul(hidden, p.at(name).flatten(0, -2).t());
}

at::Tensor divided_by_norm(const at::Tensor& x) {
  return x / (x.square().sum(-1, true) + 1e-6).sqrt();
}

MixerFormula formula_of(const Config& config) {
  return [config](const NamedTensors& p, const at::Tensor& hidden) {
    const DeltaNetConfig& sizes = config.delta_net;
    const int64_t tokens = hidden.size(0);
    const int64_t per_key = sizes.num_value_heads / sizes.num_key_heads;
    const auto mixed = [&](const std::string& name) {
      return convolved(projected(p, name, hidden), p.at("conv_" + name).flatten(0, -2), {});
    };
    const auto by_value_head = [&](const at::Tensor& keys) {
      return divided_by_norm(keys.view({tokens, sizes.num_key_heads, sizes.key_head_dim}))
          .repeat_interleave(per_key, 1);
    };
    const at::Tensor q =
        by_value_head(mixed("q")) / std::sqrt(static_cast<double>(sizes.key_head_dim));
    const at::Tensor k = by_value_head(mixed("k"));
    const at::Tensor v = mixed("v").view({tokens, sizes.num_value_heads, sizes.value_head_dim});
    const at::Tensor beta = projected(p, "b", hidden).sigmoid();
    const at::Tensor raw = projected(p, "a", hidden) + p.at("dt_bias").flatten();
    const at::Tensor decay = (-p.at("a_log").flatten().exp() * at::log1p(raw.exp())).exp();
    at::Tensor state = at::zeros({sizes.num_value_heads, sizes.key_head_dim, sizes.value_head_dim},
                                 hidden.options());
    std::vector<at::Tensor> rows;
    for (int64_t t = 0; t < tokens; ++t) {
      state = decay[t].view({-1, 1, 1}) * state;
      const at::Tensor known = (state * k[t].unsqueeze(2)).sum(1);  // [heads, value_dim]
      const at::Tensor written = beta[t].unsqueeze(1) * (v[t] - known);
      state = state + k[t].unsqueeze(2) * written.unsqueeze(1);
      rows.push_back((state * q[t].unsqueeze(2)).sum(1));
    }
    const at::Tensor scanned = at::stack(rows);
    const at::Tensor z = projected(p, "z", hidden).view(scanned.sizes());
    const at::Tensor mean_square = scanned.square().mean(-1, true);
    const at::Tensor normed =
        scanned / (mean_square + config.model.norm_epsilon).sqrt() * p.at("norm");
    return at::matmul((normed * z * z.sigmoid()).flatten(1), p.at("output").flatten(1).t());
  };
}

TEST(GatedDeltaNet, EqualsTheRecurrenceTokenByToken) {
  expect_equals_formula(small_delta_net(), make_delta_net, formula_of(small_delta_net()));
}

TEST(GatedDeltaNet, EqualsItWithOneValueHeadPerKeyHead) {
  Config config = small_delta_net();
  config.delta_net.num_value_heads = 2;
  config.delta_net.conv_width = 1;
  expect_equals_formula(config, make_delta_net, formula_of(config));
}

TEST(GatedDeltaNet, DecodesTokenByTokenToTheTrainingForward) {
  expect_decoding_equals_forward(small_delta_net(), make_delta_net, Dtypes::fp32(), 1e-5);
  expect_decoding_equals_forward(small_delta_net(), make_delta_net, Dtypes::fp64(), 1e-12);
}

TEST(GatedDeltaNet, KeepsWhatSetsDecayInTheMasterDtype) {
  expect_wide(MixerAlone(small_delta_net(), make_delta_net, Dtypes::bf16()), {"a_log", "dt_bias"});
}

}  // namespace
}  // namespace switchyard

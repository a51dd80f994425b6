#include "nn/mamba2_mixer.h"

#include <limits>

#include <gtest/gtest.h>

#include "nn/mixer_checks.h"

namespace switchyard {
namespace {

// Six heads of width 3 that share two groups.
Config small_mamba2() {
  Config config;
  config.model.hidden_size = 10;
  config.model.num_layers = 2;
  config.model.init_std = 0.4;
  config.mamba.num_heads = 6;
  config.mamba.num_groups = 2;
  config.mamba.head_dim = 3;
  config.mamba.state_size = 5;
  config.mamba.conv_width = 3;
  config.mamba.chunk_size = 4;
  return config;
}

std::unique_ptr<Mixer> make_mamba2(const Scope& scope, const Config& config) {
  return std::make_unique<Mamba2Mixer>(scope, config);
}

// W x with the first dims of W flattened, with a bias where there is one.
at::Tensor projected(const NamedTensors& p, const std::string& name, const at::Tensor& hidden) {
  const at::Tensor& weight = p.at(name);
  const at::Tensor product = at::matmul(hidden, weight.flatten(0, -2).t());
  const auto bias = p.find(name + "_input_bias");
  return bias == p.end() ? product : product + bias->second.flatten();
}

at::Tensor mixed(const NamedTensors& p, const std::string& name, const at::Tensor& x) {
  const auto bias = p.find(name + "_bias");
  return convolved(x, p.at(name).flatten(0, -2),
                   bias == p.end() ? at::Tensor() : bias->second.flatten());
}

at::Tensor normed(const at::Tensor& x, const at::Tensor& weight, int64_t groups, double epsilon) {
  const at::Tensor grouped = x.view({x.size(0), groups, -1});
  const at::Tensor mean_square = grouped.square().mean(-1, true);
  return (grouped / (mean_square + epsilon).sqrt()).flatten(1) * weight.flatten();
}

MixerFormula formula_of(const Config& config) {
  return [config](const NamedTensors& p, const at::Tensor& input) {
    const MambaConfig& mamba = config.mamba;
    const MultipliersConfig& factors = config.multipliers;
    const at::Tensor hidden = input * factors.mamba_input;
    const int64_t tokens = hidden.size(0);
    const at::Tensor z = projected(p, "z", hidden) * factors.mamba_z;
    const at::Tensor x = mixed(p, "conv_x", projected(p, "x", hidden) * factors.mamba_x)
                             .view({tokens, mamba.num_heads, mamba.head_dim});
    const int64_t per_group = mamba.num_heads / mamba.num_groups;
    const auto by_head = [&](const at::Tensor& flat) {
      return flat.view({tokens, mamba.num_groups, mamba.state_size})
          .repeat_interleave(per_group, 1);
    };
    const at::Tensor b = by_head(mixed(p, "conv_b", projected(p, "b", hidden) * factors.mamba_b));
    const at::Tensor c = by_head(mixed(p, "conv_c", projected(p, "c", hidden) * factors.mamba_c));
    const at::Tensor raw = projected(p, "dt", hidden) * factors.mamba_dt + p.at("dt_bias");
    const double largest =
        mamba.max_dt > 0 ? mamba.max_dt : std::numeric_limits<double>::infinity();
    const at::Tensor dt = at::log1p(raw.exp()).clamp(mamba.min_dt, largest);  // [tokens, heads]
    at::Tensor state = at::zeros({mamba.num_heads, mamba.head_dim, mamba.state_size}, x.options());
    std::vector<at::Tensor> rows;
    for (int64_t t = 0; t < tokens; ++t) {
      const at::Tensor decay = (-dt[t] * p.at("a_log").exp()).exp();
      state = decay.view({-1, 1, 1}) * state +
              (dt[t].unsqueeze(1) * x[t]).unsqueeze(2) * b[t].unsqueeze(1);
      rows.push_back((state * c[t].unsqueeze(1)).sum(2) + p.at("d").unsqueeze(1) * x[t]);
    }
    const at::Tensor scanned = at::stack(rows).flatten(1);
    const at::Tensor gate = z * z.sigmoid();
    at::Tensor gated = scanned * gate;
    const double epsilon = config.model.norm_epsilon;
    if (mamba.norm == MambaNorm::kAfterGate) {
      gated = normed(gated, p.at("norm"), mamba.num_groups, epsilon);
    } else if (mamba.norm == MambaNorm::kBeforeGate) {
      gated = normed(scanned, p.at("norm"), mamba.num_groups, epsilon) * gate;
    }
    const at::Tensor out = at::matmul(gated, p.at("output").flatten(1).t());
    const auto bias = p.find("output_bias");
    return (bias == p.end() ? out : out + bias->second) * factors.mamba_output;
  };
}

void expect_equals_its_formula(const Config& config) {
  expect_equals_formula(config, make_mamba2, formula_of(config));
}

TEST(Mamba2Mixer, EqualsTheRecurrenceTokenByToken) {
  expect_equals_its_formula(small_mamba2());
}

TEST(Mamba2Mixer, EqualsItWithBiasesAndTheNormBeforeTheGate) {
  Config config = small_mamba2();
  config.mamba.input_bias = true;
  config.mamba.output_bias = true;
  config.mamba.norm = MambaNorm::kBeforeGate;
  config.mamba.num_groups = 3;
  expect_equals_its_formula(config);
}

TEST(Mamba2Mixer, EqualsItWithoutNormAndBiasAndWithLimitsOfTheTimeStep) {
  Config config = small_mamba2();
  config.mamba.conv_bias = false;
  config.mamba.norm = MambaNorm::kNone;
  config.mamba.num_groups = 1;
  config.mamba.min_dt = 0.005;  // both limits act on some time steps
  config.mamba.max_dt = 0.05;
  config.mamba.conv_width = 1;
  expect_equals_its_formula(config);
}

TEST(Mamba2Mixer, MultipliesEachPart) {
  Config config = small_mamba2();
  config.multipliers.mamba_input = 0.7;
  config.multipliers.mamba_z = 1.3;
  config.multipliers.mamba_x = 0.6;
  config.multipliers.mamba_b = 1.7;
  config.multipliers.mamba_c = 0.4;
  config.multipliers.mamba_dt = 1.2;
  config.multipliers.mamba_output = 2.5;
  expect_equals_its_formula(config);
}

TEST(Mamba2Mixer, DecodesTokenByTokenToTheTrainingForward) {
  expect_decoding_equals_forward(small_mamba2(), make_mamba2, Dtypes::fp32(), 1e-5);
  expect_decoding_equals_forward(small_mamba2(), make_mamba2, Dtypes::fp64(), 1e-12);
  Config config = small_mamba2();
  config.mamba.conv_width = 1;  // nothing to remember of it
  expect_decoding_equals_forward(config, make_mamba2, Dtypes::fp64(), 1e-12);
}

TEST(Mamba2Mixer, KeepsWhatSetsDecayInTheMasterDtype) {
  expect_wide(MixerAlone(small_mamba2(), make_mamba2, Dtypes::bf16()), {"a_log", "d", "dt_bias"});
}

TEST(Mamba2Mixer, StartsWithTimeStepsAndDecaysOfItsRange) {
  Config config = small_mamba2();
  config.mamba.num_heads = 2000;
  config.mamba.head_dim = 1;
  config.mamba.init_min_dt = 0.01;
  config.mamba.init_max_dt = 0.5;
  config.mamba.init_dt_floor = 0.02;
  const std::unique_ptr<Groups> groups = Groups::single();
  Parameters parameters(*groups, Dtypes::fp64(), 5);
  const Mamba2Mixer mixer(Scope{parameters, "mixer"}, config);
  NamedTensors start;
  for (const auto& storage : parameters.storages()) {
    for (size_t i = 0; i < storage->pieces.size(); ++i) {
      start[storage->pieces[i].name()] = storage->piece(storage->master, i);
    }
  }
  const at::Tensor steps = at::softplus(start.at("mixer.dt_bias"));
  EXPECT_NEAR(steps.min().item<double>(), 0.02, 1e-12);
  EXPECT_LT(steps.max().item<double>(), 0.5);
  // Equal chances on a logarithmic scale: half of them are below the geometric mean.
  const double below = (steps < std::sqrt(0.01 * 0.5)).to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(below, 0.5, 0.05);
  const at::Tensor decays = start.at("mixer.a_log").exp();
  EXPECT_GE(decays.min().item<double>(), 1.0);
  EXPECT_LT(decays.max().item<double>(), 16.0);
  EXPECT_NEAR(decays.mean().item<double>(), 8.5, 0.3);
  EXPECT_EQ(start.at("mixer.d").min().item<double>(), 1.0);
}

}  // namespace
}  // namespace switchyard

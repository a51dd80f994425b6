#include "nn/mamba1_mixer.h"

#include <gtest/gtest.h>

#include "nn/mixer_checks.h"

namespace switchyard {
namespace {

Config small_mamba1() {
  Config config;
  config.model.hidden_size = 10;
  config.model.num_layers = 2;
  config.model.init_std = 0.4;
  config.mamba.inner_size = 6;
  config.mamba.state_size = 5;
  config.mamba.dt_rank = 3;
  config.mamba.conv_width = 3;
  return config;
}

std::unique_ptr<Mixer> make_mamba1(const Scope& scope, const Config& config) {
  return std::make_unique<Mamba1Mixer>(scope, config);
}

MixerFormula formula_of(const Config& config) {
  return [config](const NamedTensors& p, const at::Tensor& hidden) {
    const auto given = [&](const char* name) {
      const auto found = p.find(name);
      return found == p.end() ? at::zeros({1}, hidden.options()) : found->second;
    };
    const int64_t state_size = config.mamba.state_size;
    const int64_t rank = config.mamba.dt_rank;
    const at::Tensor z = at::matmul(hidden, p.at("z").t()) + given("z_input_bias");
    const at::Tensor x =
        convolved(at::matmul(hidden, p.at("x").t()) + given("x_input_bias"), p.at("conv"),
                  given("conv_bias").expand({config.mamba.inner_size}));
    const at::Tensor selected = at::matmul(x, p.at("select").t());
    const at::Tensor raw =
        at::matmul(selected.narrow(1, 0, rank), p.at("dt_weight").t()) + p.at("dt_bias");
    const at::Tensor dt = at::log1p(raw.exp());  // [tokens, channels]
    const at::Tensor a = -p.at("a_log").exp();
    at::Tensor state = at::zeros({config.mamba.inner_size, state_size}, hidden.options());
    std::vector<at::Tensor> rows;
    for (int64_t t = 0; t < hidden.size(0); ++t) {
      const at::Tensor b = selected[t].narrow(0, rank, state_size);
      const at::Tensor c = selected[t].narrow(0, rank + state_size, state_size);
      state = (dt[t].unsqueeze(1) * a).exp() * state + (dt[t] * x[t]).unsqueeze(1) * b.unsqueeze(0);
      rows.push_back((state * c).sum(1) + p.at("d") * x[t]);
    }
    const at::Tensor gated = at::stack(rows) * z * z.sigmoid();
    return at::matmul(gated, p.at("output").t()) + given("output_bias");
  };
}

TEST(Mamba1Mixer, EqualsTheRecurrenceTokenByToken) {
  expect_equals_formula(small_mamba1(), make_mamba1, formula_of(small_mamba1()));
}

TEST(Mamba1Mixer, EqualsItWithBiasesInAllPlacesOrNone) {
  Config config = small_mamba1();
  config.mamba.input_bias = true;
  config.mamba.output_bias = true;
  expect_equals_formula(config, make_mamba1, formula_of(config));
  config = small_mamba1();
  config.mamba.conv_bias = false;
  config.mamba.conv_width = 1;
  expect_equals_formula(config, make_mamba1, formula_of(config));
}

TEST(Mamba1Mixer, DecodesTokenByTokenToTheTrainingForward) {
  expect_decoding_equals_forward(small_mamba1(), make_mamba1, Dtypes::fp32(), 1e-5);
  expect_decoding_equals_forward(small_mamba1(), make_mamba1, Dtypes::fp64(), 1e-12);
}

TEST(Mamba1Mixer, KeepsWhatSetsDecayInTheMasterDtype) {
  expect_wide(MixerAlone(small_mamba1(), make_mamba1, Dtypes::bf16()), {"a_log", "d", "dt_bias"});
}

TEST(Mamba1Mixer, StartsWithDecaysThatCountUp) {
  const std::unique_ptr<Groups> groups = Groups::single();
  Parameters parameters(*groups, Dtypes::fp64(), 5);
  const Mamba1Mixer mixer(Scope{parameters, "mixer"}, small_mamba1());
  for (const auto& storage : parameters.storages()) {
    if (storage->pieces.front().name() == "mixer.a_log") {
      const at::Tensor counts = at::arange(1, 6, at::kDouble).expand({6, 5});
      EXPECT_TRUE(at::allclose(storage->master.exp(), counts));
      return;
    }
  }
  FAIL() << "no a_log";
}

}  // namespace
}  // namespace switchyard

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "nn/mixer.h"
#include "ops/op_checks.h"
#include "optim/gradients.h"
#include "parallel/groups.h"
#include "selfcheck/layout_run.h"

// What the tests of mixers share: a mixer against its formula, written out token by token.
namespace switchyard {

using NamedTensors = std::map<std::string, at::Tensor>;

// A mixer alone on one rank, all of its parameters random.
struct MixerAlone {
  using Make = std::function<std::unique_ptr<Mixer>(const Scope&, const Config&)>;

  MixerAlone(const Config& config, const Make& make, Dtypes dtypes = Dtypes::fp64())
      : groups(Groups::single()), parameters(*groups, dtypes, 5) {
    mixer = make(Scope{parameters, "mixer"}, config);
    randomize_constant_parameters(parameters);
  }

  at::Tensor forward(const at::Tensor& hidden, const SequenceTable& table,
                     const MixerCaches* caches = nullptr) const {
    ForwardContext context;
    context.table = table;
    return mixer->forward({hidden, Placement::invariant()}, context, caches).tensor;
  }

  // Parameters, or what `of` a storage has, without their prefix: "a_log".
  NamedTensors named(const std::function<at::Tensor(const ParameterStorage&)>& of) const {
    NamedTensors tensors;
    for (const auto& storage : parameters.storages()) {
      for (size_t i = 0; i < storage->pieces.size(); ++i) {
        const std::string name = storage->pieces[i].name().substr(std::string("mixer.").size());
        tensors[name] = storage->piece(of(*storage), i);
      }
    }
    return tensors;
  }

  std::unique_ptr<Groups> groups;
  Parameters parameters;
  std::unique_ptr<Mixer> mixer;
};

// Causal convolution and SiLU, one token at a time: x [tokens, channels], weight [channels, width],
// bias [channels] or undefined.
inline at::Tensor convolved(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  std::vector<at::Tensor> rows;
  for (int64_t t = 0; t < x.size(0); ++t) {
    at::Tensor sum = bias.defined() ? bias : at::zeros({x.size(1)}, x.options());
    for (int64_t back = 0; back < weight.size(1) && back <= t; ++back) {
      sum = sum + weight.select(1, weight.size(1) - 1 - back) * x[t - back];
    }
    rows.push_back(sum * sum.sigmoid());
  }
  return at::stack(rows);
}

// hidden [tokens, hidden] of one sequence -> the same.
using MixerFormula = std::function<at::Tensor(const NamedTensors&, const at::Tensor& hidden)>;

// The formula sequence by sequence.
inline at::Tensor by_sequence(const MixerFormula& formula, const NamedTensors& parameters,
                              const at::Tensor& hidden, const SequenceTable& table) {
  std::vector<at::Tensor> parts;
  for (int64_t i = 0; i < table.num_sequences(); ++i) {
    parts.push_back(formula(
        parameters, hidden.narrow(0, table.starts[static_cast<size_t>(i)], table.length(i))));
  }
  return at::cat(parts);
}

// Output and every gradient, in fp64, over packed sequences and padding.
inline void expect_equals_formula(const Config& config, const MixerAlone::Make& make,
                                  const MixerFormula& formula, double tolerance = 1e-10) {
  at::manual_seed(3);
  const MixerAlone alone(config, make);
  const SequenceTable table = SequenceTable::from_lengths({5, 1, 9, 2}, 19);
  const auto draw = [&] {
    return at::randn({table.num_tokens, config.model.hidden_size}, at::kDouble);
  };
  const at::Tensor hidden = draw().requires_grad_();
  const at::Tensor probe = draw().narrow(0, 0, table.num_real_tokens());
  const at::Tensor out = alone.forward(hidden, table).narrow(0, 0, table.num_real_tokens());
  (out * probe).sum().backward();

  NamedTensors copies = alone.named([](const ParameterStorage& one) { return one.leaf.detach(); });
  for (auto& [name, tensor] : copies) {
    tensor = tensor.clone().requires_grad_();
  }
  const at::Tensor copied_hidden = hidden.detach().clone().requires_grad_();
  const at::Tensor expected = by_sequence(formula, copies, copied_hidden, table);
  (expected * probe).sum().backward();

  EXPECT_LE(relative_error(out, expected), tolerance);
  EXPECT_LE(relative_error(hidden.grad(), copied_hidden.grad()), tolerance);
  for (const auto& [name, gradient] :
       alone.named([](const ParameterStorage& one) { return one.leaf.grad(); })) {
    ASSERT_TRUE(copies.at(name).grad().defined()) << name;
    EXPECT_GT(gradient.abs().max().item<double>(), 0) << name;
    EXPECT_LE(relative_error(gradient, copies.at(name).grad()), tolerance) << name;
  }
}

// Two texts written token by token, and some at once, against one forward pass over each.
inline void expect_decoding_equals_forward(const Config& config, const MixerAlone::Make& make,
                                           Dtypes dtypes, double tolerance) {
  at::manual_seed(4);
  const MixerAlone alone(config, make, dtypes);
  const at::NoGradGuard no_grad;
  const std::vector<std::vector<int64_t>> steps = {{6, 3}, {1, 1}, {1, 25}, {2, 1}, {1, 1}};
  std::vector<int64_t> lengths = {0, 0};
  for (const auto& step : steps) {
    lengths[0] += step[0];
    lengths[1] += step[1];
  }
  const SequenceTable table = SequenceTable::from_lengths(lengths);
  const at::Tensor hidden =
      at::randn({table.num_tokens, config.model.hidden_size}, at::kDouble).to(dtypes.compute);
  const auto expected = alone.forward(hidden, table).split_with_sizes(lengths);
  const auto texts = hidden.split_with_sizes(lengths);

  const std::vector<std::unique_ptr<MixerCache>> owned = [&] {
    std::vector<std::unique_ptr<MixerCache>> made;
    made.push_back(alone.mixer->new_cache());
    made.push_back(alone.mixer->new_cache());
    return made;
  }();
  const MixerCaches caches = {owned[0].get(), owned[1].get()};
  std::vector<int64_t> met = {0, 0};
  for (const auto& step : steps) {
    const at::Tensor unseen =
        at::cat({texts[0].narrow(0, met[0], step[0]), texts[1].narrow(0, met[1], step[1])});
    const auto out =
        alone.forward(unseen, SequenceTable::from_lengths(step), &caches).split_with_sizes(step);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_LE(relative_error(out[i], expected[i].narrow(0, met[i], step[i])), tolerance)
          << "text " << i << " from token " << met[i];
      met[i] += step[i];
    }
  }
}

// In bf16 the parameters named are fp32, others are not; the output is bf16.
inline void expect_wide(const MixerAlone& alone, const std::set<std::string>& wide) {
  const NamedTensors leaves =
      alone.named([](const ParameterStorage& one) { return one.leaf.detach(); });
  for (const std::string& name : wide) {
    EXPECT_TRUE(leaves.contains(name)) << name;
  }
  for (const auto& [name, leaf] : leaves) {
    EXPECT_EQ(leaf.scalar_type(), wide.contains(name) ? at::kFloat : at::kBFloat16) << name;
  }
  const SequenceTable table = SequenceTable::from_lengths({7, 3});
  const at::Tensor hidden = at::randn({10, 10}).to(at::kBFloat16);
  EXPECT_EQ(alone.forward(hidden, table).scalar_type(), at::kBFloat16);
}

}  // namespace switchyard

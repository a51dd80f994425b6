#include "ops/selective_scan.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "ops/scan_checks.h"

namespace switchyard {
namespace {

// Longer than what is between two saved states; 5 tokens of padding.
const SequenceTable kPacked = SequenceTable::from_lengths({3, 70, 1, 130}, 209);

// x, dt, a, b, c, d, state.
Tensors draw_inputs(const SequenceTable& table, int64_t channels, int64_t state_size) {
  const auto normal = [](std::vector<int64_t> shape) { return at::randn(shape, at::kDouble); };
  return {normal({table.num_tokens, channels}),
          at::softplus(normal({table.num_tokens, channels})),
          -at::exp(normal({channels, state_size})),
          normal({table.num_tokens, state_size}),
          normal({table.num_tokens, state_size}),
          normal({channels}),
          normal({table.num_sequences(), channels, state_size})};
}

Tensors to_type(const Tensors& in, at::ScalarType type) {
  const auto wide = type == at::kDouble ? at::kDouble : at::kFloat;
  return {in[0].to(type), in[1].to(type), in[2].to(wide), in[3].to(type),
          in[4].to(type), in[5].to(wide), in[6].to(wide)};
}

Tensors scan(const Tensors& in, const SequenceTable& table) {
  const ScanOutput out = selective_scan({in[0], in[1], in[2], in[3], in[4], in[5], in[6]}, table);
  return {out.out, out.state};
}

// Token by token, as the formula stands.
Tensors reference_scan(const Tensors& in, const SequenceTable& table) {
  Tensors outputs;
  Tensors states;
  for (int64_t i = 0; i < table.num_sequences(); ++i) {
    at::Tensor h = in[6][i];
    for (int64_t t = table.starts[static_cast<size_t>(i)];
         t < table.starts[static_cast<size_t>(i) + 1]; ++t) {
      const at::Tensor dt = in[1][t].unsqueeze(1);
      h = at::exp(dt * in[2]) * h + dt * in[0][t].unsqueeze(1) * in[3][t];
      outputs.push_back(at::mv(h, in[4][t]) + in[5] * in[0][t]);
    }
    states.push_back(h);
  }
  for (int64_t t = table.num_real_tokens(); t < table.num_tokens; ++t) {
    outputs.push_back(at::zeros({in[0].size(1)}, at::kDouble));
  }
  return {at::stack(outputs), at::stack(states)};
}

const ScanCase kWhole{[](const Tensors& in) { return scan(in, kPacked); },
                      [](const Tensors& in) { return reference_scan(in, kPacked); }, to_type};

TEST(SelectiveScan, EqualsTheReferenceInEveryDtype) {
  at::manual_seed(1);
  for (const auto& [channels, state_size] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {50, 16}, {64, 3}}) {
    const Tensors in = draw_inputs(kPacked, channels, state_size);
    expect_equals_reference(kWhole, in, 1e-13);
    expect_rounds_only_inputs_and_outputs(kWhole, in);
  }
}

TEST(SelectiveScan, GradientsMatchDifferences) {
  at::manual_seed(2);
  const SequenceTable table = SequenceTable::from_lengths({2, 4}, 7);
  expect_gradients_match_differences([&](const Tensors& values) { return scan(values, table); },
                                     draw_inputs(table, 3, 2));
}

TEST(SelectiveScan, GradientsEqualThoseOfTheReference) {
  at::manual_seed(3);
  expect_gradients_equal_reference(kWhole, draw_inputs(kPacked, 40, 5), 1e-12);
}

TEST(SelectiveScan, PackedEqualsSeparateBitForBit) {
  at::manual_seed(4);
  const Tensors in = to_type(draw_inputs(kPacked, 40, 5), at::kFloat);
  const Tensors whole = scan(in, kPacked);
  for (int64_t i = 0; i < kPacked.num_sequences(); ++i) {
    const int64_t start = kPacked.starts[static_cast<size_t>(i)];
    const int64_t end = start + kPacked.length(i);
    const auto rows = [&](const at::Tensor& tensor) { return tensor.slice(0, start, end); };
    const Tensors alone = scan({rows(in[0]), rows(in[1]), in[2], rows(in[3]), rows(in[4]), in[5],
                                in[6].slice(0, i, i + 1)},
                               SequenceTable::from_lengths({end - start}));
    EXPECT_TRUE(same_bytes(alone[0], rows(whole[0])));
    EXPECT_TRUE(same_bytes(alone[1][0], whole[1][i]));
  }
}

TEST(SelectiveScan, TokenByTokenWithStateEqualsTheWholeBitForBit) {
  at::manual_seed(5);
  const SequenceTable table = SequenceTable::from_lengths({9});
  Tensors in = to_type(draw_inputs(table, 40, 5), at::kFloat);
  const Tensors whole = scan(in, table);
  at::Tensor state = in[6];
  for (int64_t i = 0; i < 9; ++i) {
    const auto row = [&](const at::Tensor& tensor) { return tensor.slice(0, i, i + 1); };
    const Tensors one = scan({row(in[0]), row(in[1]), in[2], row(in[3]), row(in[4]), in[5], state},
                             SequenceTable::from_lengths({1}));
    EXPECT_TRUE(same_bytes(one[0], row(whole[0])));
    state = one[1];
  }
  EXPECT_TRUE(same_bytes(state, whole[1]));
}

TEST(SelectiveScan, StartsFromZerosWithoutAState) {
  at::manual_seed(6);
  Tensors in = draw_inputs(kPacked, 4, 3);
  in[6].zero_();
  const ScanOutput out =
      selective_scan({in[0], in[1], in[2], in[3], in[4], in[5], std::nullopt}, kPacked);
  EXPECT_TRUE(same_bytes(out.out, scan(in, kPacked)[0]));
}

TEST(SelectiveScan, GivesTheSameBytesForAllThreadCountsAndWritesEveryRow) {
  at::manual_seed(7);
  expect_deterministic_and_whole(kWhole, draw_inputs(kPacked, 100, 4));
}

TEST(SelectiveScan, AcceptsZeroTokens) {
  const SequenceTable none = SequenceTable::from_lengths({}, 0);
  const Tensors in = draw_inputs(none, 4, 3);
  const Tensors grads =
      gradients([&](const Tensors& values) { return Tensors{scan(values, none)[0]}; }, in,
                {at::zeros({0, 4}, at::kDouble)});
  EXPECT_EQ(grads[0].sizes(), at::IntArrayRef({0, 4}));
  EXPECT_TRUE(at::equal(grads[2], at::zeros({4, 3}, at::kDouble)));
}

TEST(SelectiveScan, RefusesInputsThatDoNotFit) {
  const SequenceTable table = SequenceTable::from_lengths({2});
  Tensors in = draw_inputs(table, 4, 3);
  in[3] = at::ones({2, 5}, at::kDouble);
  EXPECT_EQ(message_of([&] { scan(in, table); }),
            "selective_scan: b must have shape [2, 3], got [2, 5]");
  in = to_type(draw_inputs(table, 4, 3), at::kBFloat16);
  in[2] = in[2].to(at::kBFloat16);
  EXPECT_EQ(message_of([&] { scan(in, table); }),
            "selective_scan: a is BFloat16 and d Float; with x of BFloat16 they must be Float");
}

}  // namespace
}  // namespace switchyard

#include "ops/gated_delta_rule.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "ops/scan_checks.h"

namespace switchyard {
namespace {

const SequenceTable kPacked = SequenceTable::from_lengths({3, 70, 1, 130}, 209);

struct Sizes {
  int64_t key_heads, value_heads, key_dim, value_dim;
};
constexpr Sizes kSmall{2, 4, 3, 5};

// q, k, v, log_decay, beta, state.
Tensors draw_inputs(const SequenceTable& table, const Sizes& sizes) {
  const auto normal = [](std::vector<int64_t> shape) { return at::randn(shape, at::kDouble); };
  const int64_t tokens = table.num_tokens;
  return {normal({tokens, sizes.key_heads, sizes.key_dim}),
          normal({tokens, sizes.key_heads, sizes.key_dim}),
          normal({tokens, sizes.value_heads, sizes.value_dim}),
          -at::softplus(normal({tokens, sizes.value_heads})),
          at::sigmoid(normal({tokens, sizes.value_heads})),
          normal({table.num_sequences(), sizes.value_heads, sizes.key_dim, sizes.value_dim})};
}

Tensors to_type(const Tensors& in, at::ScalarType type) {
  const auto wide = type == at::kDouble ? at::kDouble : at::kFloat;
  return {in[0].to(type), in[1].to(type), in[2].to(type),
          in[3].to(wide), in[4].to(wide), in[5].to(wide)};
}

Tensors rule(const Tensors& in, const SequenceTable& table, int64_t chunk_size) {
  const ScanOutput out =
      gated_delta_rule({in[0], in[1], in[2], in[3], in[4], in[5]}, table, chunk_size);
  return {out.out, out.state};
}

// Token by token, as HF's torch_recurrent_gated_delta_rule.
Tensors reference_rule(const Tensors& in, const SequenceTable& table) {
  const auto unit = [&](const at::Tensor& x) {
    const at::Tensor normed = x * at::rsqrt((x * x).sum(-1, /*keepdim=*/true) + 1e-6);
    return normed.repeat_interleave(in[2].size(1) / x.size(1), 1);
  };
  const at::Tensor q = unit(in[0]) / std::sqrt(static_cast<double>(in[0].size(2)));
  const at::Tensor k = unit(in[1]);
  Tensors outputs;
  Tensors states;
  for (int64_t i = 0; i < table.num_sequences(); ++i) {
    at::Tensor s = in[5][i];
    for (int64_t t = table.starts[static_cast<size_t>(i)];
         t < table.starts[static_cast<size_t>(i) + 1]; ++t) {
      s = s * in[3][t].exp().view({-1, 1, 1});
      const at::Tensor read = (s * k[t].unsqueeze(2)).sum(1);
      const at::Tensor delta = (in[2][t] - read) * in[4][t].unsqueeze(1);
      s = s + k[t].unsqueeze(2) * delta.unsqueeze(1);
      outputs.push_back((s * q[t].unsqueeze(2)).sum(1));
    }
    states.push_back(s);
  }
  for (int64_t t = table.num_real_tokens(); t < table.num_tokens; ++t) {
    outputs.push_back(at::zeros_like(in[2][t]));
  }
  return {at::stack(outputs), at::stack(states)};
}

ScanCase in_chunks_of(int64_t chunk_size) {
  return {[=](const Tensors& in) { return rule(in, kPacked, chunk_size); },
          [](const Tensors& in) { return reference_rule(in, kPacked); }, to_type};
}

TEST(GatedDeltaRule, EqualsTheRecurrenceInEveryDtypeForEveryChunkSize) {
  at::manual_seed(1);
  for (const Sizes& sizes : {Sizes{1, 1, 1, 1}, kSmall, Sizes{3, 3, 17, 33}, Sizes{2, 4, 64, 32}}) {
    const Tensors in = draw_inputs(kPacked, sizes);
    for (const int64_t chunk_size : {1, 7, 64, 100, 1000}) {
      expect_equals_reference(in_chunks_of(chunk_size), in, 1e-12);
    }
    expect_rounds_only_inputs_and_outputs(in_chunks_of(64), in);
  }
}

TEST(GatedDeltaRule, GradientsMatchDifferences) {
  at::manual_seed(2);
  const SequenceTable table = SequenceTable::from_lengths({2, 5}, 8);
  expect_gradients_match_differences([&](const Tensors& values) { return rule(values, table, 3); },
                                     draw_inputs(table, {1, 2, 2, 3}));
}

TEST(GatedDeltaRule, GradientsEqualThoseOfTheRecurrenceForEveryChunkSize) {
  at::manual_seed(3);
  for (const Sizes& sizes : {kSmall, Sizes{2, 4, 40, 20}}) {
    const Tensors in = draw_inputs(kPacked, sizes);
    for (const int64_t chunk_size : {1, 7, 64, 1000}) {
      expect_gradients_equal_reference(in_chunks_of(chunk_size), in, 1e-11);
    }
  }
}

TEST(GatedDeltaRule, GradientsOfOneOutputAloneAreRight) {
  at::manual_seed(4);
  const SequenceTable table = SequenceTable::from_lengths({2, 5}, 8);
  const Tensors in = draw_inputs(table, {1, 2, 2, 3});
  for (const size_t output : {0, 1}) {
    expect_gradients_match_differences(
        [&](const Tensors& values) { return Tensors{rule(values, table, 3)[output]}; }, in);
  }
}

TEST(GatedDeltaRule, PackedEqualsSeparateBitForBit) {
  at::manual_seed(5);
  const Tensors in = to_type(draw_inputs(kPacked, kSmall), at::kFloat);
  const Tensors whole = rule(in, kPacked, 64);
  for (int64_t i = 0; i < kPacked.num_sequences(); ++i) {
    const int64_t start = kPacked.starts[static_cast<size_t>(i)];
    const int64_t end = start + kPacked.length(i);
    const auto rows = [&](const at::Tensor& tensor) { return tensor.slice(0, start, end); };
    const Tensors alone = rule(
        {rows(in[0]), rows(in[1]), rows(in[2]), rows(in[3]), rows(in[4]), in[5].slice(0, i, i + 1)},
        SequenceTable::from_lengths({end - start}), 64);
    EXPECT_TRUE(same_bytes(alone[0], rows(whole[0])));
    EXPECT_TRUE(same_bytes(alone[1][0], whole[1][i]));
  }
}

TEST(GatedDeltaRule, StartsFromZerosWithoutAState) {
  at::manual_seed(6);
  Tensors in = draw_inputs(kPacked, kSmall);
  in[5].zero_();
  const ScanOutput out =
      gated_delta_rule({in[0], in[1], in[2], in[3], in[4], std::nullopt}, kPacked, 64);
  EXPECT_TRUE(same_bytes(out.out, rule(in, kPacked, 64)[0]));
}

TEST(GatedDeltaRule, GivesTheSameBytesForAllThreadCountsAndWritesEveryRow) {
  at::manual_seed(7);
  expect_deterministic_and_whole(in_chunks_of(32), draw_inputs(kPacked, {3, 6, 10, 12}));
}

TEST(GatedDeltaRule, AcceptsZeroTokens) {
  const SequenceTable none = SequenceTable::from_lengths({}, 0);
  const Tensors grads =
      gradients([&](const Tensors& values) { return Tensors{rule(values, none, 4)[0]}; },
                draw_inputs(none, kSmall), {at::zeros({0, 4, 5}, at::kDouble)});
  EXPECT_EQ(grads[0].sizes(), at::IntArrayRef({0, 2, 3}));
}

TEST(GatedDeltaRule, RefusesInputsThatDoNotFit) {
  const SequenceTable table = SequenceTable::from_lengths({2});
  Tensors in = draw_inputs(table, {2, 3, 3, 5});
  EXPECT_EQ(message_of([&] { rule(in, table, 4); }),
            "gated_delta_rule: the value heads (3) must be a multiple of the key heads (2)");
  in = to_type(draw_inputs(table, kSmall), at::kBFloat16);
  in[4] = in[4].to(at::kBFloat16);
  EXPECT_EQ(message_of([&] { rule(in, table, 4); }),
            "gated_delta_rule: log_decay is Float and beta BFloat16; with q of BFloat16 they must "
            "be Float");
}

TEST(StepDeltaRule, TokenByTokenEqualsTheWhole) {
  at::manual_seed(8);
  const SequenceTable table = SequenceTable::from_lengths({40});
  for (const auto& [type, tolerance] : std::vector<std::pair<at::ScalarType, double>>{
           {at::kDouble, 1e-12}, {at::kFloat, 1e-5}, {at::kBFloat16, 1e-2}}) {
    const Tensors in = to_type(draw_inputs(table, {2, 6, 17, 33}), type);
    const Tensors whole = rule(in, table, 16);
    at::Tensor state = in[5];
    Tensors outputs;
    for (const auto& [begin, end] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 20}, {20, 21}, {21, 40}}) {
      const auto rows = [&, begin = begin, end = end](const at::Tensor& tensor) {
        return tensor.slice(0, begin, end);
      };
      const ScanOutput some =
          step_delta_rule({rows(in[0]), rows(in[1]), rows(in[2]), rows(in[3]), rows(in[4]), state});
      outputs.push_back(some.out);
      state = some.state;
    }
    EXPECT_LE(relative_error(at::cat(outputs), whole[0]), tolerance);
    EXPECT_LE(relative_error(state, whole[1]), tolerance);
  }
}

}  // namespace
}  // namespace switchyard

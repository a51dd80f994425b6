#include "ops/attention.h"

#include <cmath>
#include <numeric>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "ops/op_checks.h"

namespace switchyard {
namespace {

struct Qkv {
  at::Tensor q, k, v;

  Tensors list() const { return {q, k, v}; }
};

Qkv random_qkv(int64_t tokens, int64_t heads, int64_t kv_heads, int64_t head_dim,
               at::ScalarType type = at::kDouble) {
  return {at::randn({tokens, heads, head_dim}, at::kDouble).to(type),
          at::randn({tokens, kv_heads, head_dim}, at::kDouble).to(type),
          at::randn({tokens, kv_heads, head_dim}, at::kDouble).to(type)};
}

at::Tensor bend(const at::Tensor& scores, double cap) {
  return cap > 0 ? at::tanh(scores / cap) * cap : scores;
}

// One sequence and head at a time, in fp64, with a naive softmax.
AttentionOutput reference_attention(const Qkv& in, const std::vector<int64_t>& starts,
                                    const AttentionOptions& options) {
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(in.q.size(2))));
  const int64_t group = in.q.size(1) / in.k.size(1);
  AttentionOutput expected{at::zeros(in.q.sizes(), at::kDouble),
                           at::zeros({in.q.size(0), in.q.size(1)}, at::kDouble)};
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    for (int64_t head = 0; head < in.q.size(1); ++head) {
      const auto rows = [&](const at::Tensor& tensor, int64_t from_head) {
        return tensor.narrow(0, starts[s], starts[s + 1] - starts[s])
            .select(1, from_head)
            .to(at::kDouble);
      };
      const at::Tensor scores =
          bend(at::matmul(rows(in.q, head), rows(in.k, head / group).t()) * scale, options.softcap);
      at::Tensor weights = at::tril(scores.exp());  // [queries, keys]
      if (options.window > 0) {
        weights = at::triu(weights, 1 - options.window);
      }
      at::Tensor sums = weights.sum(1);
      if (options.sinks.defined()) {
        sums = sums + options.sinks.to(at::kDouble)[head].exp();
      }
      const at::Tensor out = at::matmul(weights, rows(in.v, head / group)) / sums.unsqueeze(1);
      expected.out.narrow(0, starts[s], out.size(0)).select(1, head).copy_(out);
      expected.log_sum_exp.narrow(0, starts[s], out.size(0)).select(1, head).copy_(sums.log());
    }
  }
  return expected;
}

AttentionOutput reference_attention(const Qkv& in, const std::vector<int64_t>& starts, double scale,
                                    int64_t window = 0) {
  return reference_attention(in, starts, {.scale = scale, .window = window});
}

// Of q, k, v and, where there are four, sinks.
std::function<Tensors(const Tensors&)> attention_op(const SequenceTable& table,
                                                    const AttentionOptions& options = {}) {
  return [&table, options](const Tensors& in) {
    AttentionOptions all = options;
    all.sinks = in.size() > 3 ? in[3] : options.sinks;
    return Tensors{attention(in[0], in[1], in[2], table, all).out};
  };
}

TEST(Attention, EqualsTheReferenceOnPackedSequencesAndPadding) {
  at::manual_seed(1);
  // Lengths around the sizes of blocks, equal neighbours, padding.
  const auto table = SequenceTable::from_lengths({1, 5, 5, 63, 64, 65, 130, 2}, 340);
  for (const auto& [heads, kv_heads, head_dim] :
       std::vector<std::array<int64_t, 3>>{{2, 2, 32}, {4, 2, 8}, {3, 1, 5}, {2, 1, 64}}) {
    const Qkv in = random_qkv(table.num_tokens, heads, kv_heads, head_dim);
    const double scale = 1 / std::sqrt(static_cast<double>(head_dim));
    const AttentionOutput expected = reference_attention(in, table.starts, scale);
    const AttentionOutput out = attention(in.q, in.k, in.v, table);
    EXPECT_LE(relative_error(out.out, expected.out), 1e-13);
    EXPECT_LE(relative_error(out.log_sum_exp, expected.log_sum_exp), 1e-13);
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const Qkv low{in.q.to(type), in.k.to(type), in.v.to(type)};
      const AttentionOutput low_expected = reference_attention(low, table.starts, scale);
      const AttentionOutput low_out = attention(low.q, low.k, low.v, table);
      EXPECT_EQ(low_out.out.scalar_type(), type);
      EXPECT_EQ(low_out.log_sum_exp.scalar_type(), at::kFloat);
      const double tolerance = type == at::kFloat ? 2e-6 : 8e-3;
      EXPECT_LE(relative_error(low_out.out, low_expected.out), tolerance);
      EXPECT_LE(relative_error(low_out.log_sum_exp, low_expected.log_sum_exp), tolerance);
    }
  }
}

TEST(Attention, TakesAScale) {
  at::manual_seed(2);
  const auto table = SequenceTable::from_lengths({9});
  const Qkv in = random_qkv(9, 2, 2, 4);
  const AttentionOptions options{.scale = 0.37, .window = 0};
  EXPECT_LE(relative_error(attention(in.q, in.k, in.v, table, options).out,
                           reference_attention(in, table.starts, 0.37).out),
            1e-13);
  expect_gradients_match_differences(attention_op(table, options), in.list());
}

TEST(Attention, GradientsMatchDifferences) {
  at::manual_seed(3);
  const auto table = SequenceTable::from_lengths({3, 3, 1, 6}, 15);
  expect_gradients_match_differences(attention_op(table), random_qkv(15, 2, 2, 4).list());
  expect_gradients_match_differences(attention_op(table), random_qkv(15, 4, 2, 3).list());
}

// Gradients of a softmax written out over the whole row of tokens, by autograd: of q, k, v and,
// with sinks, of these.
Tensors reference_gradients(const Qkv& in, const SequenceTable& table, const at::Tensor& probe,
                            const AttentionOptions& options = {}) {
  const auto op = [&](const Tensors& leaves) {
    const int64_t group = leaves[0].size(1) / leaves[1].size(1);
    const at::Tensor q = leaves[0].transpose(0, 1);
    const at::Tensor k = leaves[1].repeat_interleave(group, 1).transpose(0, 1);
    const at::Tensor v = leaves[2].repeat_interleave(group, 1).transpose(0, 1);
    const at::Tensor ids = table.sequence_ids();
    const at::Tensor order = at::arange(table.num_tokens);
    const at::Tensor distance = order.unsqueeze(1) - order.unsqueeze(0);
    at::Tensor hidden = (ids.unsqueeze(1) != ids.unsqueeze(0)).logical_or(distance < 0);
    if (options.window > 0) {
      hidden = hidden.logical_or(distance >= options.window);
    }
    const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(in.q.size(2))));
    at::Tensor scores = bend(at::matmul(q, k.transpose(1, 2)) * scale, options.softcap)
                            .masked_fill(hidden, -INFINITY);
    if (leaves.size() > 3) {
      const at::Tensor sinks = leaves[3].view({-1, 1, 1}).expand({q.size(0), q.size(1), 1});
      scores = at::cat({scores, sinks}, -1);
    }
    const at::Tensor real = (ids >= 0).view({-1, 1, 1});
    const at::Tensor weights = at::softmax(scores, -1).narrow(-1, 0, k.size(1));
    const at::Tensor out = at::matmul(weights, v).transpose(0, 1);
    return Tensors{at::where(real, out, at::zeros_like(out))};
  };
  Tensors wide{in.q.to(at::kDouble), in.k.to(at::kDouble), in.v.to(at::kDouble)};
  if (options.sinks.defined()) {
    wide.push_back(options.sinks.to(at::kDouble));
  }
  return gradients(op, wide, {probe.to(at::kDouble)});
}

TEST(Attention, GradientsEqualThoseOfAMaskedSoftmax) {
  at::manual_seed(4);
  const auto table = SequenceTable::from_lengths({64, 64, 1, 200, 63, 129}, 530);
  for (const auto& [heads, kv_heads, head_dim] :
       std::vector<std::array<int64_t, 3>>{{2, 2, 32}, {4, 2, 24}, {4, 1, 64}}) {
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      const Qkv in = random_qkv(table.num_tokens, heads, kv_heads, head_dim, type);
      const at::Tensor probe = at::randn(in.q.sizes()).to(type);
      const Tensors expected = reference_gradients(in, table, probe);
      const Tensors actual = gradients(attention_op(table), in.list(), {probe});
      const double tolerance = type == at::kDouble ? 1e-12 : (type == at::kFloat ? 3e-6 : 1.5e-2);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(actual[i].scalar_type(), type);
        EXPECT_LE(relative_error(actual[i], expected[i]), tolerance)
            << "gradient " << i << " in " << type << " with head_dim " << head_dim;
      }
    }
  }
}

// As relative_error, but for gradients that are 0 in truth: those of queries and keys where only
// one key is seen.
// `scale`: of the scores, which gradients of queries and keys grow with, and their rounding too.
double gradient_error(const at::Tensor& actual, const at::Tensor& expected, double scale = 0.25) {
  const double size = expected.to(at::kDouble).abs().max().item<double>();
  return relative_error(actual, expected) * std::min(1.0, std::max(size, 1e-30) / (2 * scale));
}

TEST(Attention, SeesTheWindowOnly) {
  at::manual_seed(10);
  const auto table = SequenceTable::from_lengths({1, 5, 47, 48, 49, 200, 2}, 356);
  for (const int64_t window : {1, 2, 5, 31, 32, 33, 48, 100, 199, 200, 100000}) {
    const AttentionOptions options{.scale = {}, .window = window};
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      const Qkv in = random_qkv(table.num_tokens, 4, 2, 16, type);
      const AttentionOutput expected = reference_attention(in, table.starts, 0.25, window);
      const AttentionOutput out = attention(in.q, in.k, in.v, table, options);
      const double tolerance = type == at::kDouble ? 1e-13 : (type == at::kFloat ? 2e-6 : 8e-3);
      EXPECT_LE(relative_error(out.out, expected.out), tolerance) << window;
      EXPECT_LE(relative_error(out.log_sum_exp, expected.log_sum_exp), tolerance) << window;
      const at::Tensor probe = at::randn(in.q.sizes()).to(type);
      const Tensors expected_grads = reference_gradients(in, table, probe, options);
      const Tensors grads = gradients(attention_op(table, options), in.list(), {probe});
      const double looser = type == at::kDouble ? 1e-12 : (type == at::kFloat ? 3e-6 : 1.5e-2);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_LE(gradient_error(grads[i], expected_grads[i]), looser) << window << " " << i;
      }
    }
  }
}

TEST(Attention, WindowGradientsMatchDifferences) {
  at::manual_seed(11);
  const auto table = SequenceTable::from_lengths({7, 3}, 11);
  const AttentionOptions options{.scale = {}, .window = 3};
  expect_gradients_match_differences(attention_op(table, options), random_qkv(11, 4, 2, 3).list());
}

// Sequences longer than one block of keys (512) and one slice of queries (1008), odd lengths,
// groups of heads, several in a row, with and without a window across the blocks' borders.
TEST(Attention, EqualsTheReferenceBeyondOneBlockOfKeys) {
  at::manual_seed(12);
  struct Case {
    std::vector<int64_t> lengths;
    int64_t heads, kv_heads, head_dim, window;
  };
  for (const Case& one : std::vector<Case>{{{511, 512, 513}, 2, 1, 16, 0},
                                           {{1, 1023, 5, 777}, 2, 2, 8, 0},
                                           {{1009, 3, 1700}, 3, 1, 5, 0},
                                           {{1, 1023, 5, 777}, 2, 2, 8, 513},
                                           {{1009}, 2, 1, 12, 600},
                                           {{3000}, 1, 1, 8, 37},
                                           {{1500}, 1, 1, 8, 1}}) {
    const int64_t num_real = std::accumulate(one.lengths.begin(), one.lengths.end(), int64_t{0});
    const auto table = SequenceTable::from_lengths(one.lengths, num_real + 2);
    const AttentionOptions options{.scale = {}, .window = one.window};
    const double scale = 1 / std::sqrt(static_cast<double>(one.head_dim));
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      const Qkv in = random_qkv(num_real + 2, one.heads, one.kv_heads, one.head_dim, type);
      const at::Tensor probe = at::randn(in.q.sizes()).to(type);
      const AttentionOutput expected = reference_attention(in, table.starts, scale, one.window);
      const AttentionOutput out = attention(in.q, in.k, in.v, table, options);
      const double tolerance = type == at::kDouble ? 1e-13 : (type == at::kFloat ? 2e-6 : 8e-3);
      EXPECT_LE(relative_error(out.out, expected.out), tolerance) << type << " " << num_real;
      EXPECT_LE(relative_error(out.log_sum_exp, expected.log_sum_exp), tolerance) << type;
      const Tensors grads = gradients(attention_op(table, options), in.list(), {probe});
      for (int64_t s = 0; s < table.num_sequences(); ++s) {  // one at a time, for the memory
        const auto part = [&](const at::Tensor& tensor) {
          return tensor.narrow(0, table.starts[static_cast<size_t>(s)], table.length(s));
        };
        const Tensors expected_grads = reference_gradients(
            {part(in.q), part(in.k), part(in.v)}, SequenceTable::from_lengths({table.length(s)}),
            part(probe), options);
        const double looser = type == at::kDouble ? 1e-12 : (type == at::kFloat ? 3e-6 : 1.5e-2);
        for (size_t i = 0; i < 3; ++i) {
          EXPECT_LE(gradient_error(part(grads[i]), expected_grads[i]), looser)
              << type << ", sequence of " << table.length(s) << ", gradient " << i;
        }
      }
    }
  }
}

// Every mix of a soft cap, sinks and a window: one that bends hard, one that hardly bends; sinks
// that take nearly nothing and nearly all.
std::vector<AttentionOptions> mixed_options(int64_t heads) {
  const at::Tensor sinks = at::linspace(-6, 5, heads, at::kDouble);
  std::vector<AttentionOptions> all;
  for (const int64_t window : {0, 1, 5, 33, 600}) {
    all.push_back({.scale = {}, .window = window, .softcap = 0.8});
    all.push_back({.scale = 0.7, .window = window, .softcap = 30});
    all.push_back({.scale = {}, .window = window, .sinks = sinks});
    all.push_back({.scale = 0.7, .window = window, .softcap = 2, .sinks = sinks});
  }
  return all;
}

TEST(Attention, BendsScoresAndCountsSinks) {
  at::manual_seed(14);
  const std::vector<int64_t> lengths{1, 5, 63, 700, 2};
  const auto table = SequenceTable::from_lengths(lengths, 774);
  for (const AttentionOptions& mixed : mixed_options(4)) {
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      AttentionOptions options = mixed;
      const Qkv in = random_qkv(table.num_tokens, 4, 2, 16, type);
      Tensors inputs = in.list();
      if (options.sinks.defined()) {
        options.sinks = options.sinks.to(type);
        inputs.push_back(options.sinks);
      }
      const std::string what =
          fmt::format("type {}, window {}, soft cap {}, sinks {}", c10::toString(type),
                      options.window, options.softcap, options.sinks.defined());
      const AttentionOutput expected = reference_attention(in, table.starts, options);
      const AttentionOutput out = attention(in.q, in.k, in.v, table, options);
      const double tolerance = type == at::kDouble ? 1e-13 : (type == at::kFloat ? 2e-6 : 8e-3);
      EXPECT_LE(relative_error(out.out, expected.out), tolerance) << what;
      EXPECT_LE(relative_error(out.log_sum_exp, expected.log_sum_exp), tolerance) << what;
      const at::Tensor probe = at::randn(in.q.sizes()).to(type);
      const Tensors expected_grads = reference_gradients(in, table, probe, options);
      const Tensors grads = gradients(attention_op(table, options), inputs, {probe});
      ASSERT_EQ(grads.size(), expected_grads.size());
      const double looser = type == at::kDouble ? 1e-12 : (type == at::kFloat ? 3e-6 : 1.5e-2);
      for (size_t i = 0; i < grads.size(); ++i) {
        EXPECT_EQ(grads[i].scalar_type(), type);
        EXPECT_LE(gradient_error(grads[i], expected_grads[i], options.scale.value_or(0.25)), looser)
            << what << ", gradient " << i;
      }
    }
  }
}

TEST(Attention, SoftCapAndSinkGradientsMatchDifferences) {
  at::manual_seed(15);
  const auto table = SequenceTable::from_lengths({7, 1, 3}, 13);
  const AttentionOptions options{.scale = 0.9, .window = 3, .softcap = 1.1};
  Tensors inputs = random_qkv(13, 4, 2, 3).list();
  inputs.push_back(at::tensor({-2.0, 0.3, 1.0, 4.0}, at::kDouble));
  expect_gradients_match_differences(attention_op(table, options), inputs);
}

// Scores far above the cap: all keys weigh the same, and the sink, e^cap smaller.
TEST(Attention, SoftCapSaturates) {
  const auto table = SequenceTable::from_lengths({3});
  const at::Tensor large = at::full({3, 1, 4}, 100.0F);
  const at::Tensor v = at::tensor({1.0F, 2.0F, 3.0F}).view({3, 1, 1}).expand({3, 1, 4});
  const AttentionOptions options{.scale = {}, .softcap = 2, .sinks = at::tensor({2.0F})};
  const AttentionOutput out = attention(large, large, v.contiguous(), table, options);
  EXPECT_TRUE(at::allclose(out.out.select(2, 0).view({3}), at::tensor({0.5F, 1.0F, 1.5F})));
  const Tensors grads =
      gradients(attention_op(table, options), {large, large, v}, {at::ones({3, 1, 4})});
  EXPECT_TRUE(at::equal(grads[0], at::zeros_like(large)));
}

std::vector<std::pair<at::ScalarType, AttentionOptions>> every_pair(
    const std::vector<at::ScalarType>& types, const std::vector<AttentionOptions>& options) {
  std::vector<std::pair<at::ScalarType, AttentionOptions>> pairs;
  for (const at::ScalarType type : types) {
    for (const AttentionOptions& one : options) {
      pairs.emplace_back(type, one);
    }
  }
  return pairs;
}

TEST(Attention, PackedEqualsEachSequenceAlone) {
  at::manual_seed(5);
  const std::vector<int64_t> lengths{7, 70, 70, 1, 33};
  const auto table = SequenceTable::from_lengths(lengths, 190);
  const AttentionOptions bent{
      .scale = {}, .softcap = 3, .sinks = at::tensor({1.0, -1.0, 0.5, 2.0}, at::kDouble)};
  const auto types = {at::kDouble, at::kFloat, at::kBFloat16};
  for (const auto& [type, options] : every_pair(types, {AttentionOptions{}, bent})) {
    const Qkv in = random_qkv(table.num_tokens, 4, 2, 32, type);
    const at::Tensor probe = at::randn(in.q.sizes()).to(type);
    const AttentionOutput packed = attention(in.q, in.k, in.v, table, options);
    const Tensors packed_grads = gradients(attention_op(table, options), in.list(), {probe});
    for (int64_t s = 0; s < table.num_sequences(); ++s) {
      const int64_t start = table.starts[static_cast<size_t>(s)];
      const int64_t length = table.length(s);
      const auto alone = [&](const at::Tensor& tensor) { return tensor.narrow(0, start, length); };
      const auto one = SequenceTable::from_lengths({length});
      const AttentionOutput out = attention(alone(in.q), alone(in.k), alone(in.v), one, options);
      EXPECT_TRUE(same_bytes(out.out, alone(packed.out)));
      EXPECT_TRUE(same_bytes(out.log_sum_exp, alone(packed.log_sum_exp)));
      const Tensors grads = gradients(attention_op(one, options),
                                      {alone(in.q), alone(in.k), alone(in.v)}, {alone(probe)});
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(same_bytes(grads[i], alone(packed_grads[i])));
      }
    }
  }
}

TEST(Attention, PaddingGivesZerosAndTakesNothing) {
  at::manual_seed(6);
  const auto table = SequenceTable::from_lengths({4, 3}, 10);
  Qkv in = random_qkv(10, 2, 1, 8, at::kFloat);
  for (const at::Tensor& tensor : in.list()) {
    tensor.narrow(0, 7, 3).fill_(NAN);
  }
  const AttentionOutput out = attention(in.q, in.k, in.v, table);
  EXPECT_TRUE(at::equal(out.out.narrow(0, 7, 3), at::zeros({3, 2, 8})));
  EXPECT_TRUE(at::equal(out.log_sum_exp.narrow(0, 7, 3), at::zeros({3, 2})));
  EXPECT_TRUE(at::isfinite(out.out).all().item<bool>());
  const Tensors grads = gradients(attention_op(table), in.list(), {at::ones({10, 2, 8})});
  for (const at::Tensor& grad : grads) {
    EXPECT_TRUE(at::isfinite(grad).all().item<bool>());
    EXPECT_TRUE(at::equal(grad.narrow(0, 7, 3), at::zeros_like(grad.narrow(0, 7, 3))));
  }
}

TEST(Attention, SurvivesScoresThatOverflowExp) {
  const auto table = SequenceTable::from_lengths({3});
  const at::Tensor q = at::full({3, 1, 4}, 100.0F);
  const at::Tensor k = at::tensor({1.0F, -1.0F, 2.0F}).view({3, 1, 1}).expand({3, 1, 4});
  const at::Tensor v = at::tensor({1.0F, 2.0F, 3.0F}).view({3, 1, 1}).expand({3, 1, 4});
  const AttentionOutput out = attention(q, k.contiguous(), v.contiguous(), table);
  EXPECT_TRUE(at::equal(out.out.select(2, 0).view({3}), at::tensor({1.0F, 1.0F, 3.0F})));
  EXPECT_TRUE(at::equal(out.log_sum_exp.view({3}), at::tensor({200.0F, 200.0F, 400.0F})));
}

TEST(Attention, ReadsViewsOfAFusedProjection) {
  at::manual_seed(7);
  const auto table = SequenceTable::from_lengths({40, 40});
  const at::Tensor qkv = at::randn({80, 8, 16});
  const at::Tensor q = qkv.narrow(1, 0, 4);
  const at::Tensor k = qkv.narrow(1, 4, 2);
  const at::Tensor v = qkv.narrow(1, 6, 2);
  EXPECT_TRUE(same_bytes(attention(q, k, v, table).out,
                         attention(q.contiguous(), k.contiguous(), v.contiguous(), table).out));
  const at::Tensor probe = at::randn({80, 4, 16});
  const at::Tensor turned = probe.transpose(0, 1).contiguous().transpose(0, 1);
  const Tensors expected =
      gradients(attention_op(table), {q.contiguous(), k.contiguous(), v.contiguous()}, {probe});
  const Tensors actual = gradients(attention_op(table), {q, k, v}, {turned});
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(same_bytes(actual[i], expected[i]));
  }
}

TEST(Attention, GivesTheSameBytesForAllThreadCounts) {
  at::manual_seed(8);
  const auto table = SequenceTable::from_lengths({100, 100, 7, 300, 64}, 600);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const Qkv in = random_qkv(table.num_tokens, 4, 2, 32, type);
    const at::Tensor probe = at::randn(in.q.sizes()).to(type);
    expect_same_bytes_for_all_thread_counts([&] {
      Tensors out = gradients(attention_op(table), in.list(), {probe});
      const at::Tensor sinks = at::tensor({1.0, -1.0, 0.5, 2.0}, at::kDouble).to(type);
      const AttentionOptions bent{.scale = {}, .softcap = 3};
      for (const at::Tensor& grad :
           gradients(attention_op(table, bent), {in.q, in.k, in.v, sinks}, {probe})) {
        out.push_back(grad);
      }
      const AttentionOutput forward = attention(in.q, in.k, in.v, table);
      out.push_back(forward.out);
      out.push_back(forward.log_sum_exp);
      return out;
    });
  }
}

TEST(Attention, AcceptsZeroTokens) {
  const auto table = SequenceTable::from_lengths({});
  const Qkv in = random_qkv(0, 2, 1, 8, at::kFloat);
  EXPECT_EQ(attention(in.q, in.k, in.v, table).out.sizes(), at::IntArrayRef({0, 2, 8}));
  EXPECT_EQ(gradients(attention_op(table), in.list(), {in.q})[1].sizes(),
            at::IntArrayRef({0, 1, 8}));
}

TEST(Attention, RefusesWhatDoesNotFit) {
  const auto table = SequenceTable::from_lengths({4});
  const at::Tensor three_heads = at::zeros({4, 3, 8});
  const at::Tensor two_heads = at::zeros({4, 2, 8});
  EXPECT_EQ(message_of([&] { attention(three_heads, two_heads, two_heads, table); }),
            "attention: the number of heads (3) must be a multiple of kv_heads (2)");
  EXPECT_EQ(message_of([&] { attention(two_heads, two_heads, three_heads, table); }),
            "attention: v must have shape [4, 2, 8], got [4, 3, 8]");
  EXPECT_EQ(message_of([&] { attention(two_heads, two_heads.to(at::kDouble), two_heads, table); }),
            "attention: q is Float, k Double and v Float; they must have one dtype");
  const auto longer = SequenceTable::from_lengths({5});
  EXPECT_EQ(message_of([&] { attention(two_heads, two_heads, two_heads, longer); }),
            "attention: q has 4 tokens and k 4, the sequence table has 5");
  EXPECT_EQ(message_of([&] { attention_with_cache(two_heads, two_heads, two_heads, 1); }),
            "attention_with_cache: 4 new tokens from position 1 on need as many keys, got 4");
  const AttentionOptions negative{.scale = {}, .window = -1};
  EXPECT_EQ(message_of([&] { attention(two_heads, two_heads, two_heads, table, negative); }),
            "attention: the window (-1) must be 0 or more");
  const AttentionOptions bent{.scale = {}, .softcap = -2};
  EXPECT_EQ(message_of([&] { attention(two_heads, two_heads, two_heads, table, bent); }),
            "attention: the soft cap (-2) must be 0 or more");
  const AttentionOptions sunk{.scale = {}, .sinks = at::zeros({3})};
  EXPECT_EQ(message_of([&] { attention(two_heads, two_heads, two_heads, table, sunk); }),
            "attention: sinks must have shape [2], got [3]");
}

TEST(AttentionWithCache, EqualsTheLastRowsOfTheWholeSequence) {
  at::manual_seed(9);
  struct Case {
    int64_t tokens, heads, kv_heads, head_dim, window;
    double softcap = 0;
    bool has_sinks = false;
  };
  for (const Case& one : std::vector<Case>{{70, 6, 2, 16, 0},
                                           {70, 6, 2, 16, 5},
                                           {70, 6, 2, 16, 5, 1.5},
                                           {1300, 4, 1, 64, 0, 0, true},
                                           {1300, 4, 2, 20, 600, 1.5, true},
                                           {1300, 4, 1, 64, 0},
                                           {1300, 4, 4, 20, 0},
                                           {1300, 2, 1, 7, 600},
                                           {3000, 2, 1, 64, 0}}) {
    const auto table = SequenceTable::from_lengths({one.tokens});
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      const AttentionOptions options{
          .scale = {},
          .window = one.window,
          .softcap = one.softcap,
          .sinks =
              one.has_sinks ? at::linspace(-3, 7, one.heads, at::kDouble).to(type) : at::Tensor()};
      const Qkv in = random_qkv(one.tokens, one.heads, one.kv_heads, one.head_dim, type);
      const at::Tensor whole = reference_attention(in, table.starts, options).out;
      // The cache is longer than what is written to it so far.
      const at::Tensor unwritten = at::full({9, one.kv_heads, one.head_dim}, NAN).to(type);
      const at::Tensor keys = at::cat({in.k, unwritten});
      const at::Tensor values = at::cat({in.v, unwritten});
      for (const int64_t num_new : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{64}, one.tokens}) {
        const int64_t first = one.tokens - num_new;
        const at::Tensor out =
            attention_with_cache(in.q.narrow(0, first, num_new), keys, values, first, options);
        EXPECT_EQ(out.scalar_type(), type);
        const double tolerance = type == at::kDouble ? 1e-13 : (type == at::kFloat ? 2e-6 : 8e-3);
        EXPECT_LE(relative_error(out, whole.narrow(0, first, num_new)), tolerance)
            << type << ", " << num_new << " of " << one.tokens;
      }
    }
  }
}

TEST(AttentionWithCache, GivesTheSameBytesForAllThreadCounts) {
  at::manual_seed(13);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const Qkv in = random_qkv(1100, 4, 2, 32, type);
    expect_same_bytes_for_all_thread_counts([&] {
      return Tensors{attention_with_cache(in.q.narrow(0, 1099, 1), in.k, in.v, 1099),
                     attention_with_cache(in.q.narrow(0, 1000, 100), in.k, in.v, 1000)};
    });
  }
}

}  // namespace
}  // namespace switchyard

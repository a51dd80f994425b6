#include "ops/causal_conv.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "ops/op_checks.h"

namespace switchyard {
namespace {

const SequenceTable kPacked = SequenceTable::from_lengths({3, 70, 1, 9}, 88);  // 5 of padding

// torch's own convolution of each sequence, after its history.
at::Tensor reference_conv(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                          const SequenceTable& table, const at::Tensor& history) {
  at::Tensor out = at::zeros_like(x);
  for (int64_t i = 0; i < table.num_sequences(); ++i) {
    const int64_t start = table.starts[static_cast<size_t>(i)];
    const int64_t end = start + table.length(i);
    const at::Tensor inputs = at::cat({history[i], x.slice(0, start, end)}).t().unsqueeze(0);
    const at::Tensor sums =
        at::conv1d(inputs, weight.unsqueeze(1), bias, at::IntArrayRef{1}, at::IntArrayRef{0},
                   at::IntArrayRef{1}, x.size(1));  // [1, channels, tokens]
    out.slice(0, start, end).copy_(at::silu(sums[0].t()));
  }
  return out;
}

struct ConvCase {
  at::Tensor x, weight, bias, history;

  ConvCase(const SequenceTable& table, int64_t channels, int64_t width)
      : x(at::randn({table.num_tokens, channels}, at::kDouble)),
        weight(at::randn({channels, width}, at::kDouble)),
        bias(at::randn({channels}, at::kDouble)),
        history(at::randn({table.num_sequences(), width - 1, channels}, at::kDouble)) {}
};

TEST(CausalConv, EqualsTheReferenceInEveryDtype) {
  at::manual_seed(1);
  for (const int64_t width : {1, 2, 4, 7}) {
    const ConvCase in(kPacked, 300, width);
    const at::Tensor expected = reference_conv(in.x, in.weight, in.bias, kPacked, in.history);
    EXPECT_LE(relative_error(causal_conv(in.x, in.weight, in.bias, kPacked, in.history), expected),
              1e-14);
    const at::Tensor no_history = at::zeros_like(in.history);
    EXPECT_LE(relative_error(causal_conv(in.x, in.weight, std::nullopt, kPacked),
                             reference_conv(in.x, in.weight, {}, kPacked, no_history)),
              1e-14);
    const auto narrow = [&](at::ScalarType type) {
      return causal_conv(in.x.to(type), in.weight.to(type), in.bias.to(type), kPacked,
                         in.history.to(type));
    };
    EXPECT_EQ(narrow(at::kBFloat16).scalar_type(), at::kBFloat16);
    EXPECT_LE(relative_error(narrow(at::kFloat), expected), 1e-6);
    EXPECT_LE(relative_error(narrow(at::kBFloat16), expected), 2e-2);
  }
}

TEST(CausalConv, GradientsMatchDifferences) {
  at::manual_seed(2);
  const SequenceTable table = SequenceTable::from_lengths({2, 5, 1}, 9);
  const ConvCase in(table, 3, 4);
  expect_gradients_match_differences(
      [&](const Tensors& values) {
        return Tensors{causal_conv(values[0], values[1], values[2], table, values[3])};
      },
      {in.x, in.weight, in.bias, in.history});
  expect_gradients_match_differences(
      [&](const Tensors& values) {
        return Tensors{causal_conv(values[0], values[1], std::nullopt, table)};
      },
      {in.x, in.weight});
}

TEST(CausalConv, PackedEqualsSeparateBitForBit) {
  at::manual_seed(3);
  const ConvCase in(kPacked, 20, 4);
  const at::Tensor out = causal_conv(in.x, in.weight, in.bias, kPacked, in.history);
  for (int64_t i = 0; i < kPacked.num_sequences(); ++i) {
    const int64_t start = kPacked.starts[static_cast<size_t>(i)];
    const int64_t end = start + kPacked.length(i);
    EXPECT_TRUE(same_bytes(
        causal_conv(in.x.slice(0, start, end), in.weight, in.bias,
                    SequenceTable::from_lengths({end - start}), in.history.slice(0, i, i + 1)),
        out.slice(0, start, end)));
  }
  EXPECT_TRUE(at::equal(out.slice(0, 83), at::zeros({5, 20}, at::kDouble)));
}

TEST(CausalConv, TokenByTokenWithHistoryEqualsTheWhole) {
  at::manual_seed(4);
  const SequenceTable whole = SequenceTable::from_lengths({9});
  const SequenceTable one = SequenceTable::from_lengths({1});
  for (const int64_t width : {1, 4}) {
    const ConvCase in(whole, 20, width);
    const at::Tensor expected = causal_conv(in.x, in.weight, in.bias, whole, in.history);
    at::Tensor history = in.history;
    for (int64_t i = 0; i < 9; ++i) {
      const at::Tensor x = in.x.slice(0, i, i + 1);
      EXPECT_TRUE(same_bytes(causal_conv(x, in.weight, in.bias, one, history),
                             expected.slice(0, i, i + 1)));
      history = conv_history(x, width, one, history);
    }
    EXPECT_TRUE(at::equal(history, conv_history(in.x, width, whole, in.history)));
  }
}

TEST(CausalConv, GivesTheSameBytesForAllThreadCountsAndWritesEveryRow) {
  at::manual_seed(5);
  const PoisonNewTensors poison;
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const ConvCase in(kPacked, 40, 4);
    const Tensors inputs{in.x.to(type), in.weight.to(type), in.bias.to(type), in.history.to(type)};
    const at::Tensor probe = at::randn({88, 40}).to(type);
    expect_same_bytes_for_all_thread_counts([&] {
      const auto op = [](const Tensors& values) {
        return Tensors{causal_conv(values[0], values[1], values[2], kPacked, values[3])};
      };
      Tensors out = gradients(op, inputs, {probe});
      out.push_back(op(inputs)[0]);
      for (const at::Tensor& tensor : out) {
        EXPECT_FALSE(tensor.isnan().any().item<bool>());
      }
      return out;
    });
  }
}

TEST(CausalConv, AcceptsZeroTokens) {
  const SequenceTable none = SequenceTable::from_lengths({}, 0);
  const Tensors grads = gradients(
      [&](const Tensors& values) {
        return Tensors{causal_conv(values[0], values[1], std::nullopt, none)};
      },
      {at::zeros({0, 8}), at::ones({8, 4})}, {at::zeros({0, 8})});
  EXPECT_EQ(grads[0].sizes(), at::IntArrayRef({0, 8}));
  EXPECT_TRUE(at::equal(grads[1], at::zeros({8, 4})));
}

TEST(CausalConv, RefusesInputsThatDoNotFit) {
  const SequenceTable table = SequenceTable::from_lengths({2});
  EXPECT_EQ(message_of([&] {
              causal_conv(at::ones({2, 4}), at::ones({4, 3}, at::kDouble), std::nullopt, table);
            }),
            "causal_conv: weight is Double, but x is Float");
  EXPECT_EQ(message_of([&] {
              causal_conv(at::ones({3, 4}), at::ones({4, 3}), std::nullopt, table);
            }),
            "causal_conv: x must have shape [2, *], got [3, 4]");
  EXPECT_EQ(
      message_of([&] {
        causal_conv(at::ones({2, 4}), at::ones({4, 3}), std::nullopt, table, at::ones({1, 3, 4}));
      }),
      "causal_conv: history must have shape [1, 2, 4], got [1, 3, 4]");
}

}  // namespace
}  // namespace switchyard

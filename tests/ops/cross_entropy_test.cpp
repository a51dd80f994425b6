#include "ops/cross_entropy.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "ops/op_checks.h"

namespace switchyard {
namespace {

struct Problem {
  at::Tensor hidden;         // [tokens, hidden]
  at::Tensor weight;         // [vocab, hidden]
  at::Tensor labels;         // [tokens], some ignored
  at::Tensor token_weights;  // [tokens]
};

Problem random_problem(int64_t tokens, int64_t hidden, int64_t vocab, at::ScalarType type) {
  Problem problem{at::randn({tokens, hidden}, at::kDouble).to(type),
                  at::randn({vocab, hidden}, at::kDouble).to(type),
                  at::randint(vocab, {tokens}, at::kLong),
                  at::rand({tokens}, type == at::kDouble ? at::kDouble : at::kFloat)};
  for (int64_t i = 0; i < tokens; i += 5) {
    problem.labels[i] = kIgnoredLabel;
  }
  return problem;
}

// Loss of each token, one at a time, in fp64.
at::Tensor reference_losses(const Problem& problem) {
  const at::Tensor hidden = problem.hidden.to(at::kDouble);
  const at::Tensor weight = problem.weight.to(at::kDouble);
  at::Tensor losses = at::zeros({hidden.size(0)}, at::kDouble);
  for (int64_t i = 0; i < hidden.size(0); ++i) {
    const int64_t label = problem.labels[i].item<int64_t>();
    if (label != kIgnoredLabel) {
      const at::Tensor logits = (weight * hidden[i]).sum(1);
      losses[i] = at::logsumexp(logits, 0) - logits[label];
    }
  }
  return losses;
}

std::function<Tensors(const Tensors&)> loss_op(const Problem& problem,
                                               const VocabReduce& reduce = {}) {
  return [&problem, reduce](const Tensors& in) {
    return Tensors{linear_cross_entropy(in[0], in[1], problem.labels, problem.token_weights, reduce)
                       .weighted_loss_sum};
  };
}

// Gradients of hidden and weight for loss sum x `factor`, by autograd of libtorch's operators.
Tensors reference_gradients(const Problem& problem, double factor) {
  const auto op = [&](const Tensors& in) {
    const at::Tensor losses = at::cross_entropy_loss(at::mm(in[0], in[1].t()), problem.labels, {},
                                                     at::Reduction::None, kIgnoredLabel);
    return Tensors{(losses * problem.token_weights.to(at::kDouble)).sum()};
  };
  return gradients(op, {problem.hidden.to(at::kDouble), problem.weight.to(at::kDouble)},
                   {at::full({}, factor, at::kDouble)});
}

TEST(LinearCrossEntropy, LossesEqualTheReference) {
  at::manual_seed(1);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const Problem problem = random_problem(150, 20, 33, type);
    const CrossEntropyOutput out =
        linear_cross_entropy(problem.hidden, problem.weight, problem.labels, problem.token_weights);
    const at::Tensor expected = reference_losses(problem);
    const double tolerance = type == at::kDouble ? 1e-14 : 2e-6;
    EXPECT_LE(relative_error(out.token_losses, expected), tolerance);
    const at::Tensor sum = (expected * problem.token_weights.to(at::kDouble)).sum();
    EXPECT_LE(relative_error(out.weighted_loss_sum, sum), tolerance);
    EXPECT_EQ(out.weighted_loss_sum.dim(), 0);
    EXPECT_EQ(out.token_losses.scalar_type(), problem.token_weights.scalar_type());
  }
}

TEST(LinearCrossEntropy, GradientsMatchDifferences) {
  at::manual_seed(2);
  const Problem problem = random_problem(7, 4, 6, at::kDouble);
  expect_gradients_match_differences(loss_op(problem), {problem.hidden, problem.weight});
}

TEST(LinearCrossEntropy, GradientsEqualThoseOfWholeLogitsOverSeveralChunks) {
  at::manual_seed(3);
  // 2,100 tokens are more than two chunks at any vocabulary.
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const Problem problem = random_problem(2100, 24, 50, type);
    const Tensors expected = reference_gradients(problem, 0.125);
    const Tensors actual = gradients(loss_op(problem), {problem.hidden, problem.weight},
                                     {at::full({}, 0.125, problem.token_weights.options())});
    const double tolerance = type == at::kDouble ? 1e-13 : (type == at::kFloat ? 2e-6 : 8e-3);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(actual[i].scalar_type(), type);
      EXPECT_LE(relative_error(actual[i], expected[i]), tolerance) << "gradient " << i;
    }
  }
}

TEST(LinearCrossEntropy, BendsLogitsAndTheirGradients) {
  at::manual_seed(9);
  for (const LogitFunction function :
       {LogitFunction{0.5, 0}, LogitFunction{1, 3}, LogitFunction{2, 1.5}}) {
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      const Problem problem = random_problem(150, 20, 33, type);
      const auto reference = [&](const Tensors& in) {
        at::Tensor logits = at::mm(in[0], in[1].t()) * function.multiplier;
        if (function.softcap > 0) {
          logits = function.softcap * at::tanh(logits / function.softcap);
        }
        const at::Tensor losses =
            at::cross_entropy_loss(logits, problem.labels, {}, at::Reduction::None, kIgnoredLabel);
        return Tensors{(losses * problem.token_weights.to(at::kDouble)).sum()};
      };
      const auto ours = [&](const Tensors& in) {
        return Tensors{
            linear_cross_entropy(in[0], in[1], problem.labels, problem.token_weights, {}, function)
                .weighted_loss_sum};
      };
      const Tensors inputs{problem.hidden, problem.weight};
      const Tensors wide{inputs[0].to(at::kDouble), inputs[1].to(at::kDouble)};
      const double tolerance = type == at::kDouble ? 1e-13 : type == at::kFloat ? 2e-6 : 1e-2;
      EXPECT_LE(relative_error(ours(inputs)[0], reference(wide)[0]), tolerance) << type;
      const at::Tensor one = at::ones({}, at::kDouble);
      const Tensors actual = gradients(ours, inputs, {one.to(problem.token_weights.scalar_type())});
      const Tensors expected = gradients(reference, wide, {one});
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_LE(relative_error(actual[i], expected[i]), tolerance) << type << i;
      }
    }
  }
}

TEST(LinearCrossEntropy, CanBeDifferentiatedTwiceWithOneGraph) {
  at::manual_seed(4);
  const Problem problem = random_problem(10, 4, 6, at::kFloat);
  const at::Tensor hidden = problem.hidden.detach().requires_grad_();
  const at::Tensor weight = problem.weight.detach().requires_grad_();
  const at::Tensor loss =
      linear_cross_entropy(hidden, weight, problem.labels, problem.token_weights).weighted_loss_sum;
  const Tensors first = torch::autograd::grad({loss}, {hidden, weight}, {}, /*retain_graph=*/true);
  const Tensors twice = torch::autograd::grad({loss}, {hidden, weight}, {at::full({}, 2.0F)});
  EXPECT_TRUE(same_bytes(first[0] * 2, twice[0]));
  EXPECT_TRUE(same_bytes(first[1] * 2, twice[1]));
}

TEST(LinearCrossEntropy, GivesOnlyTheGradientsThatAreAskedFor) {
  at::manual_seed(11);
  const Problem problem = random_problem(70, 6, 9, at::kFloat);
  const Tensors both =
      gradients(loss_op(problem), {problem.hidden, problem.weight}, {at::ones({})});
  const auto only_hidden = [&](const Tensors& in) {
    return loss_op(problem)({in[0], problem.weight});
  };
  const auto only_weight = [&](const Tensors& in) {
    return loss_op(problem)({problem.hidden, in[0]});
  };
  EXPECT_TRUE(same_bytes(gradients(only_hidden, {problem.hidden}, {at::ones({})})[0], both[0]));
  EXPECT_TRUE(same_bytes(gradients(only_weight, {problem.weight}, {at::ones({})})[0], both[1]));
}

TEST(LinearCrossEntropy, IgnoredTokensChangeNothing) {
  at::manual_seed(5);
  Problem problem = random_problem(20, 8, 12, at::kFloat);
  problem.token_weights[0] = 1e30F;  // token 0 is ignored
  const CrossEntropyOutput out =
      linear_cross_entropy(problem.hidden, problem.weight, problem.labels, problem.token_weights);
  EXPECT_EQ(out.token_losses[0].item<float>(), 0);
  EXPECT_LT(out.weighted_loss_sum.item<float>(), 1e6F);
  const Tensors grads =
      gradients(loss_op(problem), {problem.hidden, problem.weight}, {at::ones({})});
  EXPECT_TRUE(at::equal(grads[0][0], at::zeros({8})));
  EXPECT_TRUE(at::isfinite(grads[1]).all().item<bool>());
}

// The vocabulary in two parts, one after the other: what the all-reduces of two ranks do, by hand,
// with the row maxima and sums of the whole vocabulary known from one rank.
TEST(LinearCrossEntropy, PartsOfASplitVocabularyAddUpToTheWhole) {
  at::manual_seed(6);
  const Problem problem = random_problem(300, 16, 40, at::kDouble);
  const at::Tensor logits = at::mm(problem.hidden, problem.weight.t());
  const at::Tensor whole_max = std::get<0>(logits.max(1));
  const at::Tensor whole_sum = (logits - whole_max.unsqueeze(1)).exp().sum(1);
  const at::Tensor of_label = (logits - whole_max.unsqueeze(1))
                                  .gather(1, problem.labels.clamp_min(0).unsqueeze(1))
                                  .squeeze(1);
  const Tensors expected = gradients(loss_op(problem), {problem.hidden, problem.weight},
                                     {at::full({}, 0.5, at::kDouble)});
  const CrossEntropyOutput whole =
      linear_cross_entropy(problem.hidden, problem.weight, problem.labels, problem.token_weights);

  at::Tensor grad_hidden = at::zeros_like(problem.hidden);
  at::Tensor label_logits = at::zeros({300}, at::kDouble);
  for (const auto& [offset, rows] : std::vector<std::pair<int64_t, int64_t>>{{0, 17}, {17, 23}}) {
    int64_t max_at = 0;
    int64_t sum_at = 0;
    VocabReduce reduce{.vocab_offset = offset, .vocab_size = 40, .max = {}, .sum = {}};
    reduce.max = [&](at::Tensor& row_max) {
      const int64_t chunk = row_max.size(0);
      EXPECT_TRUE((row_max <= whole_max.narrow(0, max_at, chunk) + 1e-12).all().item<bool>());
      row_max.copy_(whole_max.narrow(0, max_at, chunk));
      max_at += chunk;
    };
    reduce.sum = [&](at::Tensor& sums) {
      const int64_t chunk = sums.size(1);
      label_logits.narrow(0, sum_at, chunk).add_(sums[1]);
      sums[0].copy_(whole_sum.narrow(0, sum_at, chunk));
      sums[1].copy_(of_label.narrow(0, sum_at, chunk));
      sum_at += chunk;
    };
    const at::Tensor part = problem.weight.narrow(0, offset, rows);
    EXPECT_LE(relative_error(linear_cross_entropy(problem.hidden, part, problem.labels,
                                                  problem.token_weights, reduce)
                                 .token_losses,
                             whole.token_losses),
              1e-12);
    EXPECT_EQ(max_at, 300);
    EXPECT_EQ(sum_at, 300);
    max_at = sum_at = 0;
    const Tensors grads = gradients(loss_op(problem, reduce), {problem.hidden, part},
                                    {at::full({}, 0.5, at::kDouble)});
    grad_hidden += grads[0];
    EXPECT_LE(relative_error(grads[1], expected[1].narrow(0, offset, rows)), 1e-12);
  }
  EXPECT_LE(relative_error(grad_hidden, expected[0]), 1e-12);
  // Each rank gives the label's logit where it holds the label; both were called twice.
  const at::Tensor real = problem.labels != kIgnoredLabel;
  EXPECT_LE(relative_error(label_logits, at::where(real, of_label * 2, at::zeros_like(of_label))),
            1e-12);
}

TEST(LinearCrossEntropy, GivesTheSameBytesForAllThreadCounts) {
  at::manual_seed(7);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const Problem problem = random_problem(1500, 64, 301, type);
    expect_same_bytes_for_all_thread_counts([&] {
      Tensors out = gradients(loss_op(problem), {problem.hidden, problem.weight},
                              {at::full({}, 0.3, problem.token_weights.options())});
      out.push_back(linear_cross_entropy(problem.hidden, problem.weight, problem.labels,
                                         problem.token_weights)
                        .token_losses);
      return out;
    });
  }
}

TEST(LinearCrossEntropy, AcceptsZeroTokens) {
  const Problem problem = random_problem(0, 4, 6, at::kFloat);
  const Tensors grads =
      gradients(loss_op(problem), {problem.hidden, problem.weight}, {at::ones({})});
  EXPECT_EQ(grads[0].sizes(), at::IntArrayRef({0, 4}));
  EXPECT_TRUE(at::equal(grads[1], at::zeros({6, 4})));
  EXPECT_EQ(loss_op(problem)({problem.hidden, problem.weight})[0].item<float>(), 0);
}

TEST(LinearCrossEntropy, RefusesWhatDoesNotFit) {
  const at::Tensor hidden = at::zeros({2, 4});
  const at::Tensor weight = at::zeros({6, 4});
  const at::Tensor labels = at::tensor({0, 6}, at::kLong);
  const at::Tensor ones = at::ones({2});
  EXPECT_EQ(message_of([&] { linear_cross_entropy(hidden, weight, labels, ones); }),
            "linear_cross_entropy: label 6 of token 1 is outside the vocabulary of 6 and is not "
            "-100");
  EXPECT_EQ(message_of([&] { linear_cross_entropy(hidden, weight.to(at::kDouble), labels, ones); }),
            "linear_cross_entropy: weight is Double, but hidden is Float");
  EXPECT_EQ(message_of([&] { linear_cross_entropy(hidden, weight, labels, ones.to(at::kDouble)); }),
            "linear_cross_entropy: token_weights must be Float for hidden of Float, got Double");
  EXPECT_EQ(message_of([&] { linear_cross_entropy(hidden, weight, labels.to(at::kInt), ones); }),
            "linear_cross_entropy: labels must be int64, got Int");
}

TEST(CrossEntropyPieces, EqualHandArithmetic) {
  at::Tensor logits = at::tensor({0.0, std::log(3.0), 0.0, 0.0}, at::kDouble).view({2, 2});
  const at::Tensor labels = at::tensor({11, 7}, at::kLong);  // this rank holds 10 and 11
  const at::Tensor largest = row_max(logits);
  EXPECT_TRUE(at::equal(largest, at::tensor({std::log(3.0), 0.0}, at::kDouble)));
  at::Tensor sums = exponentiate_(logits, largest, labels, 10);
  EXPECT_LE(relative_error(sums, at::tensor({4.0 / 3, 2.0, 0.0, 0.0}, at::kDouble).view({2, 2})),
            1e-15);
  EXPECT_LE(relative_error(logits, at::tensor({1.0 / 3, 1.0, 1.0, 1.0}, at::kDouble).view({2, 2})),
            1e-15);
  exponentials_to_gradient(logits, sums, labels, at::tensor({1.0, 6.0}, at::kDouble), 10, logits);
  EXPECT_LE(relative_error(logits, at::tensor({0.25, -0.25, 3.0, 3.0}, at::kDouble).view({2, 2})),
            1e-15);
}

TEST(CrossEntropyPieces, ExponentialsAreWithinTwoUnits) {
  at::Tensor logits = at::linspace(-100, 0, 200001, at::kFloat).view({1, -1});
  const at::Tensor expected = logits.to(at::kDouble).exp();
  exponentiate_(logits, at::zeros({1}), at::zeros({1}, at::kLong), 0);
  const at::Tensor normal = expected >= std::numeric_limits<float>::min();
  const at::Tensor error = ((logits.to(at::kDouble) - expected) / expected).abs();
  EXPECT_LE(at::where(normal, error, at::zeros_like(error)).max().item<double>(), 2.4e-7);
  EXPECT_TRUE(at::where(normal, at::zeros_like(logits), logits).eq(0).all().item<bool>());
}

TEST(CrossEntropyPieces, KeepNotANumberAndMinusInfinity) {
  const float inf = std::numeric_limits<float>::infinity();
  at::Tensor logits = at::tensor({-inf, 1.0F, NAN, 0.0F}).view({2, 2});
  const at::Tensor largest = row_max(logits);
  EXPECT_EQ(largest[0].item<float>(), 1.0F);
  EXPECT_EQ(largest[1].item<float>(), 0.0F);  // the NaN shows in the sum
  const at::Tensor sums = exponentiate_(logits, largest, at::zeros({2}, at::kLong), 5);
  EXPECT_EQ(sums[0][0].item<float>(), 1.0F);
  EXPECT_TRUE(std::isnan(sums[0][1].item<float>()));
  EXPECT_EQ(row_max(at::zeros({1, 0}))[0].item<float>(), -inf);
}

}  // namespace
}  // namespace switchyard

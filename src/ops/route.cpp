#include "ops/route.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/shape.h"
#include "ops/lanes.h"
#include "ops/ranking.h"

namespace switchyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Enough logits to be worth waking another thread.
constexpr int64_t kLogitsPerTask = 8192;

// Added to sums that something is divided by, as DeepSeek-V3 and Megatron do.
constexpr double kSumEpsilon = 1e-20;

// --- Scores of one token

template <class T>
SWITCHYARD_INLINE void softmax_body(const T* logits, int64_t count, T* scores) {
  T largest = -std::numeric_limits<T>::infinity();
  for (int64_t i = 0; i < count; ++i) {
    largest = logits[i] > largest ? logits[i] : largest;
  }
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    scores[i] = vector_exp(logits[i] - largest);
  }
  const T sum = lane_sum<T>(
      count, [scores](int64_t i) __attribute__((always_inline)) { return scores[i]; });
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    scores[i] /= sum;
  }
}
SWITCHYARD_VECTOR_CLONES void softmax_row(const double* logits, int64_t count, double* scores) {
  softmax_body(logits, count, scores);
}
SWITCHYARD_VECTOR_CLONES void softmax_row(const float* logits, int64_t count, float* scores) {
  softmax_body(logits, count, scores);
}

template <class T>
SWITCHYARD_INLINE void sigmoid_body(const T* logits, int64_t count, T* scores) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    scores[i] = 1 / (1 + vector_exp(-logits[i]));
  }
}
SWITCHYARD_VECTOR_CLONES void sigmoid_row(const double* logits, int64_t count, double* scores) {
  sigmoid_body(logits, count, scores);
}
SWITCHYARD_VECTOR_CLONES void sigmoid_row(const float* logits, int64_t count, float* scores) {
  sigmoid_body(logits, count, scores);
}

template <class T>
T softplus(T x) {
  return std::max(x, T{0}) + std::log1p(std::exp(-std::abs(x)));
}

template <class T>
void score_row(ScoreFunction function, const T* logits, int64_t count, T* scores) {
  switch (function) {
    case ScoreFunction::kSoftmax:
      softmax_row(logits, count, scores);
      return;
    case ScoreFunction::kSigmoid:
      sigmoid_row(logits, count, scores);
      return;
    case ScoreFunction::kSqrtSoftplus:
      for (int64_t i = 0; i < count; ++i) {
        scores[i] = std::sqrt(softplus(logits[i]));
      }
      return;
  }
}

// Turns a gradient of the scores into one of the logits, in place.
template <class T>
void score_row_backward(ScoreFunction function, const T* logits, const T* scores, int64_t count,
                        T* gradient) {
  switch (function) {
    case ScoreFunction::kSoftmax: {
      T dot = 0;
      for (int64_t i = 0; i < count; ++i) {
        dot += gradient[i] * scores[i];
      }
      for (int64_t i = 0; i < count; ++i) {
        gradient[i] = scores[i] * (gradient[i] - dot);
      }
      return;
    }
    case ScoreFunction::kSigmoid:
      for (int64_t i = 0; i < count; ++i) {
        gradient[i] *= scores[i] * (1 - scores[i]);
      }
      return;
    case ScoreFunction::kSqrtSoftplus:
      for (int64_t i = 0; i < count; ++i) {
        // The slope of a score that underflows to 0 has underflowed too.
        const T sigmoid = 1 / (1 + std::exp(-logits[i]));
        gradient[i] *= scores[i] > 0 ? sigmoid / (2 * scores[i]) : T{0};
      }
      return;
  }
}

template <class T>
T sum_of(const T* values, int64_t count) {
  T sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += values[i];
  }
  return sum;
}

// --- One token

template <class T>
class TokenRouter {
 public:
  TokenRouter(const RouteOptions& options, int64_t num_experts, const T* bias, bool has_ids)
      : options_(options),
        num_experts_(num_experts),
        bias_(bias),
        has_ids_(has_ids),
        scores_(static_cast<size_t>(num_experts)),
        ranking_(static_cast<size_t>(num_experts)),
        best_(static_cast<size_t>(
            std::max({options.top_k, options.scores_per_group, options.group_top_k}))),
        group_scores_(static_cast<size_t>(options.num_groups)),
        ids_(static_cast<size_t>(
            std::max({options.top_k, options.scores_per_group, options.num_groups}))) {}

  // Reads or writes ids [top_k]; writes weights [top_k] and, unless null, probabilities.
  void forward(const T* logits, int64_t* ids, T* weights, T* probabilities) {
    if (needs_scores() || probabilities != nullptr) {
      score_row(options_.score_function, logits, num_experts_, scores_.data());
    }
    if (!has_ids_) {
      rank(ranking_of(logits), num_experts_, options_.top_k, best_.data(), ids);
    }
    T sum = unscaled_weights(logits, ids, weights);
    const T factor = static_cast<T>(options_.scaling_factor);
    if (divides()) {
      for (int64_t slot = 0; slot < options_.top_k; ++slot) {
        weights[slot] /= sum;
      }
    }
    for (int64_t slot = 0; slot < options_.top_k; ++slot) {
      weights[slot] *= factor;
    }
    if (probabilities != nullptr) {
      sum = probability_divisor();
      for (int64_t expert = 0; expert < num_experts_; ++expert) {
        probabilities[expert] = scores_[index(expert)] / sum;
      }
    }
  }

  // Gradients of weights and probabilities (either may be null) to one of the logits.
  void backward(const T* logits, const int64_t* ids, const T* grad_weights,
                const T* grad_probabilities, T* grad_logits) {
    std::fill_n(grad_logits, num_experts_, T{0});
    const bool has_score_gradient = needs_scores() || grad_probabilities != nullptr;
    if (has_score_gradient) {
      score_row(options_.score_function, logits, num_experts_, scores_.data());
    }
    if (grad_probabilities != nullptr) {
      add_probability_gradient(grad_probabilities, grad_logits);
    }
    if (grad_weights != nullptr && needs_scores()) {
      add_weight_gradient(logits, ids, grad_weights, grad_logits);
    }
    if (has_score_gradient) {
      score_row_backward(options_.score_function, logits, scores_.data(), num_experts_,
                         grad_logits);
    }
    if (grad_weights != nullptr && !needs_scores()) {
      add_weight_gradient(logits, ids, grad_weights, grad_logits);
    }
  }

 private:
  static size_t index(int64_t i) { return static_cast<size_t>(i); }
  bool is_softmax() const { return options_.score_function == ScoreFunction::kSoftmax; }
  // Are the weights made of scores over all experts?
  bool needs_scores() const { return !is_softmax() || !options_.softmax_over_chosen; }
  // Are they divided by their sum?
  bool divides() const { return !needs_scores() || options_.renormalize; }
  T probability_divisor() const {
    // Softmax adds up to 1 already.
    return is_softmax() ? T{1} : sum_of(scores_.data(), num_experts_) + static_cast<T>(kSumEpsilon);
  }

  const T* ranking_of(const T* logits) {
    const bool has_groups = options_.num_groups > 1;
    const bool ranks_scores = needs_scores() && (has_groups || bias_ != nullptr || !is_softmax());
    const T* ranking = ranks_scores ? scores_.data() : logits;
    if (bias_ == nullptr && !has_groups) {
      return ranking;
    }
    for (int64_t expert = 0; expert < num_experts_; ++expert) {
      ranking_[index(expert)] = ranking[expert] + (bias_ == nullptr ? T{0} : bias_[expert]);
    }
    if (has_groups) {
      mask_groups();
    }
    return ranking_.data();
  }

  void mask_groups() {
    const int64_t group_size = num_experts_ / options_.num_groups;
    for (int64_t group = 0; group < options_.num_groups; ++group) {
      rank(ranking_.data() + group * group_size, group_size, options_.scores_per_group,
           best_.data(), ids_.data());
      group_scores_[index(group)] = sum_of(best_.data(), options_.scores_per_group);
    }
    rank(group_scores_.data(), options_.num_groups, options_.group_top_k, best_.data(),
         ids_.data());
    const auto kept_end = ids_.begin() + options_.group_top_k;
    for (int64_t group = 0; group < options_.num_groups; ++group) {
      if (std::find(ids_.begin(), kept_end, group) == kept_end) {
        std::fill_n(ranking_.begin() + group * group_size, group_size,
                    -std::numeric_limits<T>::infinity());
      }
    }
  }

  // Weights before they are divided by what it returns, where divides(), and scaled.
  T unscaled_weights(const T* logits, const int64_t* ids, T* weights) const {
    const int64_t k = options_.top_k;
    if (needs_scores()) {
      for (int64_t slot = 0; slot < k; ++slot) {
        weights[slot] = scores_[index(ids[slot])];
      }
      return sum_of(weights, k) + static_cast<T>(kSumEpsilon);
    }
    T largest = -std::numeric_limits<T>::infinity();
    for (int64_t slot = 0; slot < k; ++slot) {
      largest = std::max(largest, logits[ids[slot]]);
    }
    for (int64_t slot = 0; slot < k; ++slot) {
      weights[slot] = std::exp(logits[ids[slot]] - largest);
    }
    return sum_of(weights, k);
  }

  void add_probability_gradient(const T* grad_probabilities, T* grad_scores) const {
    const T divisor = probability_divisor();
    T dot = 0;
    for (int64_t expert = 0; expert < num_experts_ && !is_softmax(); ++expert) {
      dot += grad_probabilities[expert] * scores_[index(expert)] / divisor;
    }
    for (int64_t expert = 0; expert < num_experts_; ++expert) {
      grad_scores[expert] += (grad_probabilities[expert] - dot) / divisor;
    }
  }

  // To the scores of the ids, or, for softmax over the chosen, to their logits.
  void add_weight_gradient(const T* logits, const int64_t* ids, const T* grad_weights,
                           T* gradient) {
    const int64_t k = options_.top_k;
    const T factor = static_cast<T>(options_.scaling_factor);
    T* weights = best_.data();
    const T sum = unscaled_weights(logits, ids, weights);
    T dot = 0;
    for (int64_t slot = 0; slot < k && divides(); ++slot) {
      dot += grad_weights[slot] * weights[slot] / sum;
    }
    for (int64_t slot = 0; slot < k; ++slot) {
      const T slope = (grad_weights[slot] - dot) * factor;
      gradient[ids[slot]] += !needs_scores() ? slope * weights[slot] / sum
                             : divides()     ? slope / sum
                                             : slope;
    }
  }

  RouteOptions options_;
  int64_t num_experts_;
  const T* bias_;  // null: none
  bool has_ids_;
  std::vector<T> scores_;
  std::vector<T> ranking_;
  std::vector<T> best_;
  std::vector<T> group_scores_;
  std::vector<int64_t> ids_;
};

// --- All tokens

template <class Visit>
void visit_score_type(at::ScalarType type, Visit&& visit) {
  if (type == at::kDouble) {
    visit(double{});
  } else {
    visit(float{});
  }
}

// Calls `work(router, token)` for all tokens, in parallel.
template <class T, class Work>
void for_each_token(const RouteOptions& options, int64_t tokens, int64_t num_experts, const T* bias,
                    bool has_ids, Work work) {
  at::parallel_for(0, tokens, 1 + kLogitsPerTask / num_experts, [&](int64_t begin, int64_t end) {
    TokenRouter<T> router(options, num_experts, bias, has_ids);
    for (int64_t token = begin; token < end; ++token) {
      work(router, token);
    }
  });
}

// Everything of `route` but the gradient. `ids` is filled unless has_ids.
template <class T>
void route_tokens(const at::Tensor& logits, const at::Tensor& bias, at::Tensor& ids, bool has_ids,
                  const RouteOptions& options, at::Tensor& weights, at::Tensor& probabilities) {
  const int64_t num_experts = logits.size(1);
  const int64_t k = options.top_k;
  const auto* in = logits.const_data_ptr<T>();
  auto* id = ids.mutable_data_ptr<int64_t>();
  auto* weight = weights.mutable_data_ptr<T>();
  auto* probability = probabilities.defined() ? probabilities.mutable_data_ptr<T>() : nullptr;
  for_each_token<T>(
      options, logits.size(0), num_experts, bias.defined() ? bias.const_data_ptr<T>() : nullptr,
      has_ids, [&](TokenRouter<T>& router, int64_t token) {
        router.forward(in + token * num_experts, id + token * k, weight + token * k,
                       probability == nullptr ? nullptr : probability + token * num_experts);
      });
}

template <class T>
at::Tensor logit_gradient(const at::Tensor& logits, const at::Tensor& ids,
                          const RouteOptions& options, const at::Tensor& grad_weights,
                          const at::Tensor& grad_probabilities) {
  at::Tensor result = at::empty_like(logits);
  const int64_t num_experts = logits.size(1);
  const int64_t k = options.top_k;
  const auto* in = logits.const_data_ptr<T>();
  const auto* id = ids.const_data_ptr<int64_t>();
  const T* weight = grad_weights.defined() ? grad_weights.const_data_ptr<T>() : nullptr;
  const T* probability =
      grad_probabilities.defined() ? grad_probabilities.const_data_ptr<T>() : nullptr;
  auto* out = result.mutable_data_ptr<T>();
  for_each_token<T>(
      options, logits.size(0), num_experts, nullptr, true,
      [&](TokenRouter<T>& router, int64_t token) {
        const int64_t row = token * num_experts;
        router.backward(in + row, id + token * k, weight == nullptr ? nullptr : weight + token * k,
                        probability == nullptr ? nullptr : probability + row, out + row);
      });
  return result;
}

struct Route : torch::autograd::Function<Route> {
  // Without probabilities the second result is an empty tensor.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& logits,
                               const std::optional<at::Tensor>& bias, at::Tensor ids, bool has_ids,
                               const RouteOptions& options, bool wants_probabilities) {
    at::Tensor weights = at::empty({logits.size(0), options.top_k}, logits.options());
    at::Tensor probabilities = wants_probabilities ? at::empty_like(logits) : at::Tensor();
    visit_score_type(logits.scalar_type(), [&](auto type) {
      route_tokens<decltype(type)>(logits, bias.value_or(at::Tensor()), ids, has_ids, options,
                                   weights, probabilities);
    });
    ctx->save_for_backward({logits, ids});
    ctx->set_materialize_grads(false);
    ctx->saved_data["top_k"] = options.top_k;
    ctx->saved_data["score_function"] = static_cast<int64_t>(options.score_function);
    ctx->saved_data["softmax_over_chosen"] = options.softmax_over_chosen;
    ctx->saved_data["renormalize"] = options.renormalize;
    ctx->saved_data["scaling_factor"] = options.scaling_factor;
    return {weights, wants_probabilities ? probabilities : at::empty({0}, logits.options())};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    RouteOptions options;
    options.top_k = ctx->saved_data["top_k"].toInt();
    options.score_function = static_cast<ScoreFunction>(ctx->saved_data["score_function"].toInt());
    options.softmax_over_chosen = ctx->saved_data["softmax_over_chosen"].toBool();
    options.renormalize = ctx->saved_data["renormalize"].toBool();
    options.scaling_factor = ctx->saved_data["scaling_factor"].toDouble();
    const auto contiguous = [](const at::Tensor& grad) {
      return grad.defined() && grad.numel() > 0 ? grad.contiguous() : at::Tensor();
    };
    at::Tensor grad_logits;
    visit_score_type(saved[0].scalar_type(), [&](auto type) {
      grad_logits = logit_gradient<decltype(type)>(saved[0], saved[1], options,
                                                   contiguous(grads[0]), contiguous(grads[1]));
    });
    return {grad_logits, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

void check_options(const RouteOptions& options, int64_t num_experts) {
  check<ShapeError>(options.top_k >= 1 && options.top_k <= num_experts,
                    "route: top_k ({}) must be 1 to num_experts ({})", options.top_k, num_experts);
  check<ShapeError>(options.num_groups >= 1 && num_experts % options.num_groups == 0,
                    "route: num_experts ({}) must be a multiple of num_groups ({})", num_experts,
                    options.num_groups);
  const int64_t group_size = num_experts / options.num_groups;
  check<ShapeError>(
      options.group_top_k >= 1 && options.group_top_k <= options.num_groups &&
          options.top_k <= options.group_top_k * group_size,
      "route: group_top_k ({}) of {} groups of {} experts must leave top_k ({}) to choose from",
      options.group_top_k, options.num_groups, group_size, options.top_k);
  check<ShapeError>(options.scores_per_group >= 1 && options.scores_per_group <= group_size,
                    "route: scores_per_group ({}) must be 1 to the {} experts of a group",
                    options.scores_per_group, group_size);
}

// Routing that was recorded or replayed must be a routing.
void check_expert_ids(const at::Tensor& expert_ids, int64_t tokens, int64_t k,
                      int64_t num_experts) {
  check<ShapeError>(expert_ids.scalar_type() == at::kLong && expert_ids.is_contiguous(),
                    "route: expert_ids must be contiguous int64");
  check_shape("route: expert_ids", expert_ids, {tokens, k});
  const auto* ids = expert_ids.const_data_ptr<int64_t>();
  for (int64_t token = 0; token < tokens; ++token) {
    const int64_t* row = ids + token * k;
    for (int64_t slot = 0; slot < k; ++slot) {
      check<ShapeError>(row[slot] >= 0 && row[slot] < num_experts,
                        "route: expert_ids must be 0 to {}, got {} for token {}", num_experts - 1,
                        row[slot], token);
      check<ShapeError>(std::find(row, row + slot, row[slot]) == row + slot,
                        "route: expert_ids holds expert {} twice for token {}", row[slot], token);
    }
  }
}

}  // namespace

Routes route(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& expert_ids,
             const RouteOptions& options, bool wants_probabilities) {
  check<ShapeError>(logits.defined() && logits.device().is_cpu() &&
                        (logits.scalar_type() == at::kFloat || logits.scalar_type() == at::kDouble),
                    "route: logits must be fp32 or fp64 on the CPU");
  check_shape("route: logits", logits, {kAnySize, kAnySize});
  const int64_t tokens = logits.size(0);
  const int64_t num_experts = logits.size(1);
  check_options(options, num_experts);
  std::optional<at::Tensor> given_bias;
  if (bias.defined()) {
    check_shape("route: bias", bias, {num_experts});
    given_bias = bias.detach().to(logits.scalar_type()).contiguous();
  }
  const bool has_ids = expert_ids.defined();
  if (has_ids) {
    check_expert_ids(expert_ids, tokens, options.top_k, num_experts);
  }
  Routes routes;
  routes.expert_ids =
      has_ids ? expert_ids : at::empty({tokens, options.top_k}, logits.options().dtype(at::kLong));
  const variable_list results = Route::apply(logits.contiguous(), given_bias, routes.expert_ids,
                                             has_ids, options, wants_probabilities);
  routes.weights = results[0];
  if (wants_probabilities) {
    routes.probabilities = results[1];
  }
  return routes;
}

}  // namespace switchyard

#pragma once

// One row of activation(gate) x up x weight, or activation(up) x weight, and of its gradients. Only
// for the kernels_*.cpp files.

#include "ops/cpu/kernels.h"
#include "ops/cpu/vector.h"

namespace switchyard {
namespace {

template <class V>
V sigmoid(V x) {
  return 1 / (1 + exponential(-x));
}

// A value of an activation, and its slope there.
template <class V>
struct ValueAndSlope {
  V value;
  V slope;
};

struct Silu {
  template <class V>
  static V value(V x) {
    return x * sigmoid(x);
  }
  template <class V>
  static ValueAndSlope<V> with_slope(V x) {
    const V share = sigmoid(x);
    const V silu = x * share;
    return {silu, share + silu * (1 - share)};
  }
};

struct QuickGelu {
  template <class V>
  static V value(V x) {
    return x * sigmoid(x * scale(x));
  }
  template <class V>
  static ValueAndSlope<V> with_slope(V x) {
    const V share = sigmoid(x * scale(x));
    return {x * share, share + x * scale(x) * share * (1 - share)};
  }

 private:
  static constexpr float scale(const Vector<float>& /*x*/) { return 1.702F; }
  static constexpr double scale(const Vector<double>& /*x*/) { return 1.702; }
};

// (1 + tanh(u)) / 2 = sigmoid(2 u), with 2 u = x (a + b x^2).
struct GeluTanh {
  template <class V>
  static V value(V x) {
    return x * sigmoid(x * (linear(x) + cubic(x) * x * x));
  }
  template <class V>
  static ValueAndSlope<V> with_slope(V x) {
    const V square = x * x;
    const V share = sigmoid(x * (linear(x) + cubic(x) * square));
    const V slope_of_argument = linear(x) + 3 * cubic(x) * square;
    return {x * share, share + x * share * (1 - share) * slope_of_argument};
  }

 private:
  static constexpr double kLinear = 1.5957691216057307117597842397375;  // 2 sqrt(2 / pi)
  static constexpr double kCubic = 0.044715 * kLinear;
  static constexpr float linear(const Vector<float>& /*x*/) { return static_cast<float>(kLinear); }
  static constexpr double linear(const Vector<double>& /*x*/) { return kLinear; }
  static constexpr float cubic(const Vector<float>& /*x*/) { return static_cast<float>(kCubic); }
  static constexpr double cubic(const Vector<double>& /*x*/) { return kCubic; }
};

// With the C library's error function, a lane at a time.
struct Gelu {
  template <class V>
  static V value(V x) {
    return x * normal_share(x);
  }
  template <class V>
  static ValueAndSlope<V> with_slope(V x) {
    const V share = normal_share(x);
    return {x * share, share + x * density(x)};
  }

 private:
  static Vector<float> normal_share(Vector<float> x) {
    for (int64_t i = 0; i < kLanes<float>; ++i) {
      x[i] = 0.5F * __builtin_erfcf(x[i] * -0.70710678F);
    }
    return x;
  }
  static Vector<double> normal_share(Vector<double> x) {
    for (int64_t i = 0; i < kLanes<double>; ++i) {
      x[i] = 0.5 * __builtin_erfc(x[i] * -0.70710678118654752440);
    }
    return x;
  }
  static Vector<float> density(Vector<float> x) { return 0.39894228F * exponential(x * x * -0.5F); }
  static Vector<double> density(Vector<double> x) {
    return 0.39894228040143267794 * exponential(x * x * -0.5);
  }
};

// NaN stays NaN.
struct Relu {
  template <class V>
  static V value(V x) {
    return x <= 0 ? V{} : x;
  }
  template <class V>
  static ValueAndSlope<V> with_slope(V x) {
    return {value(x), x <= 0 ? V{} : V{} + 1};
  }
};

struct ReluSquared {
  template <class V>
  static V value(V x) {
    const V relu = Relu::value(x);
    return relu * relu;
  }
  template <class V>
  static ValueAndSlope<V> with_slope(V x) {
    const V relu = Relu::value(x);
    return {relu * relu, 2 * relu};
  }
};

// input [2 x ffn], gate first, or [ffn] without a gate -> out [ffn]
template <class T, class Function, bool kIsGated>
void activate(const T* input, double weight, int64_t ffn, T* out) {
  constexpr int64_t kWidth = kLanes<Sum<T>>;
  const T* up = kIsGated ? input + ffn : nullptr;
  const auto weights = broadcast(static_cast<Sum<T>>(weight));
  int64_t i = 0;
  for (; i + kWidth <= ffn; i += kWidth) {
    auto value = Function::value(load_sums(input + i));
    if constexpr (kIsGated) {
      value = value * load_sums(up + i);
    }
    store_sums(out + i, value * weights);
  }
  if (i < ffn) {
    auto value = Function::value(load_sums(input + i, ffn - i));
    if constexpr (kIsGated) {
      value = value * load_sums(up + i, ffn - i);
    }
    store_sums(out + i, value * weights, ffn - i);
  }
}

template <class V>
struct ActivationGradients {
  V input;   // of the activation's argument
  V up;      // only with a gate
  V weight;  // terms of the sum
  V out;     // not a gradient: the output
};

template <class Function, bool kIsGated, class V>
ActivationGradients<V> activation_gradients(V input, V up, V weight, V grad_out) {
  const ValueAndSlope<V> at_input = Function::with_slope(input);
  const V weighted = grad_out * weight;
  if constexpr (kIsGated) {
    return {weighted * up * at_input.slope, weighted * at_input.value,
            grad_out * at_input.value * up, at_input.value * up * weight};
  } else {
    return {weighted * at_input.slope, V{}, grad_out * at_input.value, at_input.value * weight};
  }
}

template <class T, class Function, bool kIsGated>
double activate_backward(const T* input, double weight, const T* grad_out, int64_t ffn,
                         T* grad_input, T* out) {
  constexpr int64_t kWidth = kLanes<Sum<T>>;
  const T* up = kIsGated ? input + ffn : input;
  T* grad_up = grad_input + ffn;
  const auto weights = broadcast(static_cast<Sum<T>>(weight));
  Vector<Sum<T>> weight_sums = {};
  int64_t i = 0;
  for (; i + kWidth <= ffn; i += kWidth) {
    const auto grads = activation_gradients<Function, kIsGated>(
        load_sums(input + i), load_sums(up + i), weights, load_sums(grad_out + i));
    store_sums(grad_input + i, grads.input);
    if constexpr (kIsGated) {
      store_sums(grad_up + i, grads.up);
    }
    if (out != nullptr) {
      store_sums(out + i, grads.out);
    }
    weight_sums += grads.weight;
  }
  if (i < ffn) {
    const int64_t rest = ffn - i;
    const auto grads = activation_gradients<Function, kIsGated>(load_sums(input + i, rest),
                                                                load_sums(up + i, rest), weights,
                                                                load_sums(grad_out + i, rest));
    store_sums(grad_input + i, grads.input, rest);
    if constexpr (kIsGated) {
      store_sums(grad_up + i, grads.up, rest);
    }
    if (out != nullptr) {
      store_sums(out + i, grads.out, rest);
    }
    weight_sums += grads.weight;
  }
  return sum_of_lanes<Sum<T>>(weight_sums);
}

template <class T, class Function, bool kIsGated>
constexpr ActivationKernels<T> activation_kernels() {
  return {activate<T, Function, kIsGated>, activate_backward<T, Function, kIsGated>};
}

// Both kinds, without and with a gate.
template <class T, class Function>
constexpr ActivationPair<T> activation_pair() {
  return {activation_kernels<T, Function, false>(), activation_kernels<T, Function, true>()};
}

}  // namespace
}  // namespace switchyard

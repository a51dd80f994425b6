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

enum class GateKind { kNone, kPlain, kLimited };

// What goes into the function and what multiplies it, out of a gate and an up.
template <class V>
struct GateInputs {
  V gate;
  V up;
};

// The limits of MlpFunction, in lanes. A clamp of 0 is none. NaN stays NaN.
template <class V, class S>
class Limits {
 public:
  explicit Limits(const MlpFunction& function)
      : clamp_(broadcast(static_cast<S>(function.clamp == 0 ? __builtin_inf() : function.clamp))),
        offset_(broadcast(static_cast<S>(function.offset))) {}

  GateInputs<V> apply(V gate, V up) const {
    const V below = up > clamp_ ? clamp_ : up;
    return {gate > clamp_ ? clamp_ : gate, (below < -clamp_ ? -clamp_ : below) + offset_};
  }
  // The gradients of apply()'s inputs from those of its outputs: none at a limit, as libtorch.
  GateInputs<V> backward(V gate, V up, const GateInputs<V>& grads) const {
    return {gate >= clamp_ ? V{} : grads.gate, up >= clamp_ || up <= -clamp_ ? V{} : grads.up};
  }

 private:
  V clamp_;
  V offset_;
};

// input [2 x ffn], gate first, or [ffn] without a gate -> out [ffn]
template <class T, class Function, GateKind kGate>
void activate(const T* input, double weight, int64_t ffn, T* out, const MlpFunction& function) {
  constexpr int64_t kWidth = kLanes<Sum<T>>;
  const auto weights = broadcast(static_cast<Sum<T>>(weight));
  const Limits<Vector<Sum<T>>, Sum<T>> limits(function);
  const auto run = [&](int64_t i, const auto&... rest) __attribute__((always_inline)) {
    auto value = load_sums(input + i, rest...);
    if constexpr (kGate == GateKind::kNone) {
      value = Function::value(value);
    } else {
      GateInputs<Vector<Sum<T>>> inputs{value, load_sums(input + ffn + i, rest...)};
      if constexpr (kGate == GateKind::kLimited) {
        inputs = limits.apply(inputs.gate, inputs.up);
      }
      value = Function::value(inputs.gate) * inputs.up;
    }
    store_sums(out + i, value * weights, rest...);
  };
  int64_t i = 0;
  for (; i + kWidth <= ffn; i += kWidth) {
    run(i);
  }
  if (i < ffn) {
    run(i, ffn - i);
  }
}

template <class V>
struct ActivationGradients {
  V input;   // of the activation's argument
  V up;      // only with a gate
  V weight;  // terms of the sum
  V out;     // not a gradient: the output
};

template <class Function, GateKind kGate, class V, class Limits>
ActivationGradients<V> activation_gradients(V input, V up, V weight, V grad_out,
                                            const Limits& limits) {
  const V weighted = grad_out * weight;
  if constexpr (kGate == GateKind::kNone) {
    const ValueAndSlope<V> at_input = Function::with_slope(input);
    return {weighted * at_input.slope, V{}, grad_out * at_input.value, at_input.value * weight};
  } else {
    GateInputs<V> inputs{input, up};
    if constexpr (kGate == GateKind::kLimited) {
      inputs = limits.apply(input, up);
    }
    const ValueAndSlope<V> at_gate = Function::with_slope(inputs.gate);
    GateInputs<V> grads{weighted * inputs.up * at_gate.slope, weighted * at_gate.value};
    if constexpr (kGate == GateKind::kLimited) {
      grads = limits.backward(input, up, grads);
    }
    return {grads.gate, grads.up, grad_out * at_gate.value * inputs.up,
            at_gate.value * inputs.up * weight};
  }
}

template <class T, class Function, GateKind kGate>
double activate_backward(const T* input, double weight, const T* grad_out, int64_t ffn,
                         T* grad_input, T* out, const MlpFunction& function) {
  constexpr int64_t kWidth = kLanes<Sum<T>>;
  constexpr bool kIsGated = kGate != GateKind::kNone;
  const T* up = kIsGated ? input + ffn : input;
  T* grad_up = grad_input + ffn;
  const auto weights = broadcast(static_cast<Sum<T>>(weight));
  const Limits<Vector<Sum<T>>, Sum<T>> limits(function);
  Vector<Sum<T>> weight_sums = {};
  const auto run = [&](int64_t i, const auto&... rest) __attribute__((always_inline)) {
    const auto grads = activation_gradients<Function, kGate>(
        load_sums(input + i, rest...), load_sums(up + i, rest...), weights,
        load_sums(grad_out + i, rest...), limits);
    store_sums(grad_input + i, grads.input, rest...);
    if constexpr (kIsGated) {
      store_sums(grad_up + i, grads.up, rest...);
    }
    if (out != nullptr) {
      store_sums(out + i, grads.out, rest...);
    }
    weight_sums += grads.weight;
  };
  int64_t i = 0;
  for (; i + kWidth <= ffn; i += kWidth) {
    run(i);
  }
  if (i < ffn) {
    run(i, ffn - i);
  }
  return sum_of_lanes<Sum<T>>(weight_sums);
}

template <class T, class Function>
constexpr KernelsOfActivation<T> kernels_of_activation() {
  return {
      {activate<T, Function, GateKind::kNone>, activate_backward<T, Function, GateKind::kNone>},
      {activate<T, Function, GateKind::kPlain>, activate_backward<T, Function, GateKind::kPlain>},
      {activate<T, Function, GateKind::kLimited>,
       activate_backward<T, Function, GateKind::kLimited>}};
}

}  // namespace
}  // namespace switchyard

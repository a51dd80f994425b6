#pragma once

// One row of silu(gate) x up x weight and of its gradients. Only for the kernels_*.cpp files.

#include "ops/cpu/kernels.h"
#include "ops/cpu/vector.h"

namespace switchyard {
namespace {

template <class V>
V sigmoid(V x) {
  return 1 / (1 + exponential(-x));
}

template <class V>
V swiglu_values(V gate, V up, V weight) {
  return gate * sigmoid(gate) * up * weight;
}

template <class T>
void swiglu(const T* gate_up, double weight, int64_t ffn, T* out) {
  constexpr int64_t kWidth = kLanes<Sum<T>>;
  const T* up = gate_up + ffn;
  const auto weights = broadcast(static_cast<Sum<T>>(weight));
  int64_t i = 0;
  for (; i + kWidth <= ffn; i += kWidth) {
    store_sums(out + i, swiglu_values(load_sums(gate_up + i), load_sums(up + i), weights));
  }
  if (i < ffn) {
    const auto value =
        swiglu_values(load_sums(gate_up + i, ffn - i), load_sums(up + i, ffn - i), weights);
    store_sums(out + i, value, ffn - i);
  }
}

template <class V>
struct SwigluGradients {
  V gate;
  V up;
  V weight;
  V out;
};

template <class V>
SwigluGradients<V> swiglu_gradients(V gate, V up, V weight, V grad_out) {
  const V share = sigmoid(gate);
  const V silu = gate * share;
  const V weighted = grad_out * weight;
  return {weighted * up * (share + silu * (1 - share)), weighted * silu, grad_out * silu * up,
          silu * up * weight};
}

template <class T>
double swiglu_backward(const T* gate_up, double weight, const T* grad_out, int64_t ffn,
                       T* grad_gate_up, T* out) {
  constexpr int64_t kWidth = kLanes<Sum<T>>;
  const T* up = gate_up + ffn;
  T* grad_up = grad_gate_up + ffn;
  const auto weights = broadcast(static_cast<Sum<T>>(weight));
  Vector<Sum<T>> weight_sums = {};
  int64_t i = 0;
  for (; i + kWidth <= ffn; i += kWidth) {
    const auto grads = swiglu_gradients(load_sums(gate_up + i), load_sums(up + i), weights,
                                        load_sums(grad_out + i));
    store_sums(grad_gate_up + i, grads.gate);
    store_sums(grad_up + i, grads.up);
    if (out != nullptr) {
      store_sums(out + i, grads.out);
    }
    weight_sums += grads.weight;
  }
  if (i < ffn) {
    const int64_t rest = ffn - i;
    const auto grads = swiglu_gradients(load_sums(gate_up + i, rest), load_sums(up + i, rest),
                                        weights, load_sums(grad_out + i, rest));
    store_sums(grad_gate_up + i, grads.gate, rest);
    store_sums(grad_up + i, grads.up, rest);
    if (out != nullptr) {
      store_sums(out + i, grads.out, rest);
    }
    weight_sums += grads.weight;
  }
  return sum_of_lanes<Sum<T>>(weight_sums);
}

}  // namespace
}  // namespace switchyard

#include "ops/rope.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/shape.h"
#include "ops/float_types.h"
#include "ops/lanes.h"

namespace switchyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Enough elements to be worth waking another thread.
constexpr int64_t kElementsPerTask = 16384;

template <class T>
struct RotateTokens {
  const T* x;
  int64_t token_stride;
  int64_t head_stride;
  int64_t heads;
  int64_t head_dim;
  const int64_t* positions;
  const Accumulator<T>* cosine;
  const Accumulator<T>* sine;
  int64_t half;
  Accumulator<T> direction;  // 1 rotates forwards, -1 back
  T* out;
};

template <class T>
SWITCHYARD_INLINE void rotate_tokens_body(const RotateTokens<T>& args, int64_t begin, int64_t end) {
  using A = Accumulator<T>;
  const int64_t half = args.half;
  const A direction = args.direction;
  for (int64_t token = begin; token < end; ++token) {
    const A* cosine = args.cosine + args.positions[token] * half;
    const A* sine = args.sine + args.positions[token] * half;
    for (int64_t head = 0; head < args.heads; ++head) {
      const T* x = args.x + token * args.token_stride + head * args.head_stride;
      T* out = args.out + (token * args.heads + head) * args.head_dim;
#pragma omp simd
      for (int64_t i = 0; i < half; ++i) {
        const A first = widen(x[i]);
        const A second = widen(x[half + i]);
        const A signed_sine = direction * sine[i];
        narrow(first * cosine[i] - second * signed_sine, out[i]);
        narrow(second * cosine[i] + first * signed_sine, out[half + i]);
      }
      std::copy(x + 2 * half, x + args.head_dim, out + 2 * half);
    }
  }
}

SWITCHYARD_VECTOR_CLONES void rotate_tokens(const RotateTokens<double>& args, int64_t begin,
                                            int64_t end) {
  rotate_tokens_body(args, begin, end);
}
SWITCHYARD_VECTOR_CLONES void rotate_tokens(const RotateTokens<float>& args, int64_t begin,
                                            int64_t end) {
  rotate_tokens_body(args, begin, end);
}
SWITCHYARD_VECTOR_CLONES void rotate_tokens(const RotateTokens<at::BFloat16>& args, int64_t begin,
                                            int64_t end) {
  rotate_tokens_body(args, begin, end);
}

at::Tensor rotate_by(const at::Tensor& x, const at::Tensor& positions, const at::Tensor& cosine,
                     const at::Tensor& sine, int direction) {
  const at::Tensor in = x.stride(2) == 1 ? x : x.contiguous();
  at::Tensor out = at::empty(x.sizes(), x.options());
  visit_float_type(x.scalar_type(), [&](auto type) {
    using T = decltype(type);
    using A = Accumulator<T>;
    const RotateTokens<T> args{in.const_data_ptr<T>(),
                               in.stride(0),
                               in.stride(1),
                               in.size(1),
                               in.size(2),
                               positions.const_data_ptr<int64_t>(),
                               cosine.const_data_ptr<A>(),
                               sine.const_data_ptr<A>(),
                               cosine.size(1),
                               static_cast<A>(direction),
                               out.mutable_data_ptr<T>()};
    at::parallel_for(0, x.size(0),
                     1 + kElementsPerTask / std::max<int64_t>(x.size(1) * x.size(2), 1),
                     [&](int64_t begin, int64_t end) { rotate_tokens(args, begin, end); });
  });
  return out;
}

struct Rotate : torch::autograd::Function<Rotate> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& positions,
                            const at::Tensor& cosine, const at::Tensor& sine) {
    ctx->save_for_backward({positions, cosine, sine});
    return rotate_by(x, positions, cosine, sine, 1);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    return {rotate_by(grads[0], saved[0], saved[1], saved[2], -1), {}, {}, {}};
  }
};

void check_positions(const at::Tensor& positions, int64_t tokens, int64_t max_position) {
  check_shape("rotate: positions", positions, {tokens});
  check<ShapeError>(positions.scalar_type() == at::kLong, "rotate: positions must be int64, got {}",
                    c10::toString(positions.scalar_type()));
  const auto* position = positions.const_data_ptr<int64_t>();
  for (int64_t token = 0; token < tokens; ++token) {
    check<ShapeError>(position[token] >= 0 && position[token] < max_position,
                      "rotate: position {} of token {} is outside the table of {} positions",
                      position[token], token, max_position);
  }
}

}  // namespace

RotaryTable make_rotary_table(int64_t max_position, int64_t rotary_dim, double base,
                              at::ScalarType dtype) {
  check<ConfigError>(rotary_dim > 0 && rotary_dim % 2 == 0,
                     "the rotary dim ({}) must be even and above 0", rotary_dim);
  at::Tensor frequencies = at::empty({rotary_dim / 2}, at::kDouble);
  auto* frequency = frequencies.mutable_data_ptr<double>();
  for (int64_t i = 0; i < rotary_dim / 2; ++i) {
    frequency[i] =
        1.0 / std::pow(base, 2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
  }
  return make_rotary_table(max_position, frequencies, dtype);
}

RotaryTable make_rotary_table(int64_t max_position, const at::Tensor& inverse_frequencies,
                              at::ScalarType dtype, double factor) {
  check_shape("rotary frequencies", inverse_frequencies, {kAnySize});
  const at::ScalarType type = accumulator_type(dtype);
  const at::Tensor frequencies = inverse_frequencies.to(type).contiguous();
  const int64_t half = frequencies.size(0);
  RotaryTable table{at::empty({max_position, half}, type), at::empty({max_position, half}, type)};
  const auto fill = [&](auto zero) {
    using A = decltype(zero);
    const auto* frequency = frequencies.const_data_ptr<A>();
    auto* cosine = table.cosine.mutable_data_ptr<A>();
    auto* sine = table.sine.mutable_data_ptr<A>();
    for (int64_t position = 0; position < max_position; ++position) {
      for (int64_t i = 0; i < half; ++i) {
        const A angle = static_cast<A>(position) * frequency[i];
        const int64_t index = position * half + i;
        cosine[index] =
            static_cast<A>(std::cos(static_cast<double>(angle))) * static_cast<A>(factor);
        sine[index] = static_cast<A>(std::sin(static_cast<double>(angle))) * static_cast<A>(factor);
      }
    }
  };
  if (type == at::kDouble) {
    fill(double{});
  } else {
    fill(float{});
  }
  return table;
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& positions, const RotaryTable& table) {
  if (table.rotary_dim() == 0) {
    return x;
  }
  check_float_cpu("rotate: x", x);
  check_shape("rotate: x", x, {kAnySize, kAnySize, kAnySize});
  check<ShapeError>(table.rotary_dim() <= x.size(2),
                    "rotate: the table's rotary dim ({}) exceeds head_dim ({})", table.rotary_dim(),
                    x.size(2));
  check<ShapeError>(table.cosine.scalar_type() == accumulator_type(x.scalar_type()),
                    "rotate: the table is {}, which does not serve x of {}",
                    c10::toString(table.cosine.scalar_type()), c10::toString(x.scalar_type()));
  check_positions(positions, x.size(0), table.max_position());
  return Rotate::apply(x, positions.contiguous(), table.cosine, table.sine);
}

at::Tensor pairs_apart(const at::Tensor& x) {
  check<ShapeError>(x.size(-1) % 2 == 0, "pairs_apart: head_dim ({}) is odd", x.size(-1));
  return x.unflatten(-1, {x.size(-1) / 2, 2}).transpose(-1, -2).flatten(-2);
}

}  // namespace switchyard

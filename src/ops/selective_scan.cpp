#include "ops/selective_scan.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/shape.h"
#include "ops/float_types.h"
#include "ops/lanes.h"
#include "ops/parallel_tasks.h"
#include "ops/sequence_chunks.h"
#include "ops/thread_scratch.h"

namespace switchyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Tokens from one saved state to the next.
constexpr int64_t kTokensPerChunk = 64;

// Channels of one task lie side by side in arrays of kLanes, which end with zeros.
template <class T>
struct ScanArrays {
  const T* x;      // [tokens, channels]
  const T* dt;     // [tokens, channels]
  const T* a;      // [channels, state_size]
  const T* b;      // [tokens, state_size]
  const T* c;      // [tokens, state_size]
  const T* d;      // [channels]
  const T* state;  // [num_sequences, channels, state_size]; null: zeros
  int64_t channels;
  int64_t state_size;
};

template <class T>
SWITCHYARD_INLINE void load_lanes(const T* from, int64_t count, T* to) {
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    to[lane] = lane < count ? from[lane] : T{0};
  }
}

// [channels, state_size] from `first` on -> [state_size, kLanes]; null: zeros.
template <class T>
SWITCHYARD_INLINE void load_states(const T* from, int64_t first, int64_t count, int64_t state_size,
                                   T* to) {
  for (int64_t n = 0; n < state_size; ++n) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      to[n * kLanes + lane] =
          from != nullptr && lane < count ? from[(first + lane) * state_size + n] : T{0};
    }
  }
}

template <class T>
SWITCHYARD_INLINE void store_states(const T* from, int64_t first, int64_t count, int64_t state_size,
                                    T* to) {
  for (int64_t n = 0; n < state_size; ++n) {
    for (int64_t lane = 0; lane < count; ++lane) {
      to[(first + lane) * state_size + n] = from[n * kLanes + lane];
    }
  }
}

// The states after a token from those before it, both [state_size, kLanes].
template <class T>
SWITCHYARD_INLINE void next_states(const T* dt, const T* x, const T* a, const T* b,
                                   int64_t state_size, const T* before, T* after) {
  for (int64_t n = 0; n < state_size; ++n) {
    const T b_n = b[n];
    const T* a_n = a + n * kLanes;
    const T* h = before + n * kLanes;
    T* to = after + n * kLanes;
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      to[lane] = vector_exp(dt[lane] * a_n[lane]) * h[lane] + dt[lane] * x[lane] * b_n;
    }
  }
}

template <class T>
struct ScanResults {
  T* out;     // [tokens, channels]
  T* starts;  // [chunks, channels, state_size]: the states before each chunk
  T* state;   // [num_sequences, channels, state_size]
};

// Channels first to first + count - 1, all sequences. `memory` [2, state_size, kLanes].
template <class T>
SWITCHYARD_INLINE void scan_channels_body(const ScanArrays<T>& in,
                                          const std::vector<SequenceChunk>& chunks, int64_t first,
                                          int64_t count, T* memory, const ScanResults<T>& to) {
  const int64_t size = in.state_size;
  const int64_t per_state = in.channels * size;
  T* a = memory;
  T* h = memory + size * kLanes;
  T x[kLanes];
  T dt[kLanes];
  T d[kLanes];
  T sum[kLanes];
  load_states(in.a, first, count, size, a);
  load_lanes(in.d + first, count, d);
  for (size_t i = 0; i < chunks.size(); ++i) {
    const SequenceChunk& chunk = chunks[i];
    if (chunk.is_first) {
      const T* given = in.state == nullptr ? nullptr : in.state + chunk.sequence * per_state;
      load_states(given, first, count, size, h);
    }
    store_states(h, first, count, size, to.starts + static_cast<int64_t>(i) * per_state);
    for (int64_t token = chunk.begin; token < chunk.begin + chunk.size; ++token) {
      load_lanes(in.x + token * in.channels + first, count, x);
      load_lanes(in.dt + token * in.channels + first, count, dt);
      next_states(dt, x, a, in.b + token * size, size, h, h);
#pragma omp simd
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        sum[lane] = d[lane] * x[lane];
      }
      for (int64_t n = 0; n < size; ++n) {
        const T c = in.c[token * size + n];
#pragma omp simd
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          sum[lane] += h[n * kLanes + lane] * c;
        }
      }
      std::copy_n(sum, count, to.out + token * in.channels + first);
    }
    if (chunk.is_last) {
      store_states(h, first, count, size, to.state + chunk.sequence * per_state);
    }
  }
}

SWITCHYARD_VECTOR_CLONES void scan_channels(const ScanArrays<double>& in,
                                            const std::vector<SequenceChunk>& chunks, int64_t first,
                                            int64_t count, double* memory,
                                            const ScanResults<double>& to) {
  scan_channels_body(in, chunks, first, count, memory, to);
}
SWITCHYARD_VECTOR_CLONES void scan_channels(const ScanArrays<float>& in,
                                            const std::vector<SequenceChunk>& chunks, int64_t first,
                                            int64_t count, float* memory,
                                            const ScanResults<float>& to) {
  scan_channels_body(in, chunks, first, count, memory, to);
}

template <class T>
struct ScanGradArrays {
  const T* starts;      // as in ScanResults
  const T* grad_out;    // [tokens, channels]
  const T* grad_state;  // [num_sequences, channels, state_size]; null: zeros
  T* x;                 // [tokens, channels]
  T* dt;                // [tokens, channels]
  T* a;                 // [channels, state_size]
  T* b;                 // [tokens, state_size]: of these channels alone
  T* c;                 // [tokens, state_size]: of these channels alone
  T* d;                 // [channels]
  T* state;             // [num_sequences, channels, state_size]
};

template <class T>
SWITCHYARD_INLINE T sum_of_lanes(T* lanes) {
  add_half<kLanes / 2>(lanes);
  add_half<kLanes / 4>(lanes);
  add_half<kLanes / 8>(lanes);
  add_half<kLanes / 16>(lanes);
  add_half<kLanes / 32>(lanes);
  return lanes[0];
}

// Arrays of [state_size, kLanes] that scan_channel_grads works in.
constexpr int64_t kGradArrays = 3 + kTokensPerChunk + 1;

// What one token gives to the gradients. `before` and `after`: the states; `grad_h`: the gradient
// of `after` from the tokens that follow, which becomes that of `before`.
template <class T>
SWITCHYARD_INLINE void token_grads(const ScanArrays<T>& in, int64_t token, int64_t first,
                                   int64_t count, const T* a, const T* before, const T* after,
                                   T* grad_h, T* grad_a, T* grad_d, const ScanGradArrays<T>& to,
                                   const T* d) {
  const int64_t size = in.state_size;
  const int64_t at = token * in.channels + first;
  T x[kLanes];
  T dt[kLanes];
  T grad[kLanes];
  T grad_x[kLanes];  // of dt x, until the end
  T grad_dt[kLanes];
  T products[kLanes];
  load_lanes(in.x + at, count, x);
  load_lanes(in.dt + at, count, dt);
  load_lanes(to.grad_out + at, count, grad);
  std::fill_n(grad_x, kLanes, T{0});
  std::fill_n(grad_dt, kLanes, T{0});
  for (int64_t n = 0; n < size; ++n) {
    const T b = in.b[token * size + n];
    const T c = in.c[token * size + n];
    T* g = grad_h + n * kLanes;
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      products[lane] = after[n * kLanes + lane] * grad[lane];
      g[lane] += c * grad[lane];
    }
    to.c[token * size + n] = sum_of_lanes(products);
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const T decay = vector_exp(dt[lane] * a[n * kLanes + lane]);
      const T grad_exponent = g[lane] * before[n * kLanes + lane] * decay;
      products[lane] = g[lane] * dt[lane] * x[lane];
      grad_x[lane] += g[lane] * b;
      grad_dt[lane] += grad_exponent * a[n * kLanes + lane];
      grad_a[n * kLanes + lane] += grad_exponent * dt[lane];
      g[lane] *= decay;
    }
    to.b[token * size + n] = sum_of_lanes(products);
  }
#pragma omp simd
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    grad_dt[lane] += grad_x[lane] * x[lane];
    grad_x[lane] = grad_x[lane] * dt[lane] + d[lane] * grad[lane];
    grad_d[lane] += grad[lane] * x[lane];
  }
  std::copy_n(grad_x, count, to.x + at);
  std::copy_n(grad_dt, count, to.dt + at);
}

// `memory` [kGradArrays, state_size, kLanes].
template <class T>
SWITCHYARD_INLINE void scan_channel_grads_body(const ScanArrays<T>& in,
                                               const std::vector<SequenceChunk>& chunks,
                                               int64_t first, int64_t count, T* memory,
                                               const ScanGradArrays<T>& to) {
  const int64_t size = in.state_size;
  const int64_t lanes = size * kLanes;
  const int64_t per_state = in.channels * size;
  T* a = memory;
  T* grad_a = memory + lanes;
  T* grad_h = memory + 2 * lanes;
  T* states = memory + 3 * lanes;  // before each token of a chunk, and after the last
  T d[kLanes];
  T grad_d[kLanes] = {};
  load_states(in.a, first, count, size, a);
  load_lanes(in.d + first, count, d);
  std::fill_n(grad_a, lanes, T{0});
  for (size_t i = chunks.size(); i-- > 0;) {
    const SequenceChunk& chunk = chunks[i];
    if (chunk.is_last) {
      const T* given =
          to.grad_state == nullptr ? nullptr : to.grad_state + chunk.sequence * per_state;
      load_states(given, first, count, size, grad_h);
    }
    load_states(to.starts + static_cast<int64_t>(i) * per_state, first, count, size, states);
    for (int64_t j = 0; j < chunk.size; ++j) {
      const int64_t token = chunk.begin + j;
      T x[kLanes];
      T dt[kLanes];
      load_lanes(in.x + token * in.channels + first, count, x);
      load_lanes(in.dt + token * in.channels + first, count, dt);
      next_states(dt, x, a, in.b + token * size, size, states + j * lanes,
                  states + (j + 1) * lanes);
    }
    for (int64_t j = chunk.size - 1; j >= 0; --j) {
      token_grads(in, chunk.begin + j, first, count, a, states + j * lanes,
                  states + (j + 1) * lanes, grad_h, grad_a, grad_d, to, d);
    }
    if (chunk.is_first) {
      store_states(grad_h, first, count, size, to.state + chunk.sequence * per_state);
    }
  }
  store_states(grad_a, first, count, size, to.a);
  std::copy_n(grad_d, count, to.d + first);
}

SWITCHYARD_VECTOR_CLONES void scan_channel_grads(const ScanArrays<double>& in,
                                                 const std::vector<SequenceChunk>& chunks,
                                                 int64_t first, int64_t count, double* memory,
                                                 const ScanGradArrays<double>& to) {
  scan_channel_grads_body(in, chunks, first, count, memory, to);
}
SWITCHYARD_VECTOR_CLONES void scan_channel_grads(const ScanArrays<float>& in,
                                                 const std::vector<SequenceChunk>& chunks,
                                                 int64_t first, int64_t count, float* memory,
                                                 const ScanGradArrays<float>& to) {
  scan_channel_grads_body(in, chunks, first, count, memory, to);
}

// The inputs in the type that is computed in.
struct WideInputs {
  at::Tensor x, dt, a, b, c, d;
  at::Tensor state;  // undefined: zeros

  explicit WideInputs(const variable_list& inputs) {
    const auto wide = accumulator_type(inputs[0].scalar_type());
    const auto widened = [&](const at::Tensor& tensor) { return tensor.to(wide).contiguous(); };
    x = widened(inputs[0]);
    dt = widened(inputs[1]);
    a = inputs[2].contiguous();
    b = widened(inputs[3]);
    c = widened(inputs[4]);
    d = inputs[5].contiguous();
    state = inputs[6].defined() ? inputs[6].contiguous() : at::Tensor();
  }

  template <class T>
  ScanArrays<T> arrays() const {
    return {x.const_data_ptr<T>(),
            dt.const_data_ptr<T>(),
            a.const_data_ptr<T>(),
            b.const_data_ptr<T>(),
            c.const_data_ptr<T>(),
            d.const_data_ptr<T>(),
            state.defined() ? state.const_data_ptr<T>() : nullptr,
            a.size(0),
            a.size(1)};
  }
};

// Calls run(first, count, memory) for blocks of channels, with `arrays` arrays of
// [state_size, kLanes] as memory.
template <class T, class Run>
void for_channel_blocks(int64_t channels, int64_t state_size, int64_t arrays, Run run) {
  run_tasks((channels + kLanes - 1) / kLanes, [&](int64_t task) {
    const int64_t first = task * kLanes;
    auto* memory = static_cast<T*>(
        thread_scratch(arrays * state_size * kLanes * static_cast<int64_t>(sizeof(T))));
    run(task, first, std::min(kLanes, channels - first), memory);
  });
}

struct SelectiveScan : torch::autograd::Function<SelectiveScan> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& dt,
                               const at::Tensor& a, const at::Tensor& b, const at::Tensor& c,
                               const at::Tensor& d, const std::optional<at::Tensor>& state,
                               const std::vector<int64_t>& starts) {
    const variable_list inputs{x, dt, a, b, c, d, state.value_or(at::Tensor())};
    const WideInputs wide(inputs);
    const std::vector<SequenceChunk> chunks = sequence_chunks(starts, kTokensPerChunk);
    const auto num_sequences = static_cast<int64_t>(starts.size()) - 1;
    at::Tensor out = at::empty_like(wide.x);
    out.slice(0, starts.back()).zero_();
    at::Tensor chunk_starts =
        at::empty({static_cast<int64_t>(chunks.size()), a.size(0), a.size(1)}, wide.a.options());
    at::Tensor last = at::empty({num_sequences, a.size(0), a.size(1)}, wide.a.options());
    visit_wide_type(wide.x.scalar_type(), [&](auto type) {
      using T = decltype(type);
      const ScanArrays<T> arrays = wide.arrays<T>();
      const ScanResults<T> to{out.mutable_data_ptr<T>(), chunk_starts.mutable_data_ptr<T>(),
                              last.mutable_data_ptr<T>()};
      for_channel_blocks<T>(a.size(0), a.size(1), 2,
                            [&](int64_t, int64_t first, int64_t count, T* memory) {
                              scan_channels(arrays, chunks, first, count, memory, to);
                            });
    });
    variable_list saved = inputs;
    saved.push_back(chunk_starts);
    ctx->save_for_backward(saved);
    ctx->saved_data["starts"] = starts;
    ctx->set_materialize_grads(false);
    return {out.to(x.scalar_type()), last};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const std::vector<int64_t> starts = ctx->saved_data["starts"].toIntVector();
    const std::vector<SequenceChunk> chunks = sequence_chunks(starts, kTokensPerChunk);
    const WideInputs wide(saved);
    const auto wide_type = wide.x.scalar_type();
    const at::Tensor grad_out =
        grads[0].defined() ? grads[0].to(wide_type).contiguous() : at::zeros_like(wide.x);
    const at::Tensor grad_state = grads[1].defined() ? grads[1].contiguous() : at::Tensor();
    const int64_t num_blocks = (wide.a.size(0) + kLanes - 1) / kLanes;
    at::Tensor x = at::empty_like(wide.x);
    at::Tensor dt = at::empty_like(wide.x);
    x.slice(0, starts.back()).zero_();
    dt.slice(0, starts.back()).zero_();
    at::Tensor a = at::empty_like(wide.a);
    at::Tensor d = at::empty_like(wide.d);
    at::Tensor b = at::zeros({num_blocks, wide.b.size(0), wide.b.size(1)}, wide.a.options());
    at::Tensor c = at::zeros_like(b);
    at::Tensor state =
        at::empty({static_cast<int64_t>(starts.size()) - 1, wide.a.size(0), wide.a.size(1)},
                  wide.a.options());
    visit_wide_type(wide_type, [&](auto type) {
      using T = decltype(type);
      const ScanArrays<T> arrays = wide.arrays<T>();
      const ScanGradArrays<T> to{saved[7].const_data_ptr<T>(),
                                 grad_out.const_data_ptr<T>(),
                                 grad_state.defined() ? grad_state.const_data_ptr<T>() : nullptr,
                                 x.mutable_data_ptr<T>(),
                                 dt.mutable_data_ptr<T>(),
                                 a.mutable_data_ptr<T>(),
                                 b.mutable_data_ptr<T>(),
                                 c.mutable_data_ptr<T>(),
                                 d.mutable_data_ptr<T>(),
                                 state.mutable_data_ptr<T>()};
      for_channel_blocks<T>(wide.a.size(0), wide.a.size(1), kGradArrays,
                            [&](int64_t block, int64_t first, int64_t count, T* memory) {
                              ScanGradArrays<T> own = to;
                              own.b += block * wide.b.numel();
                              own.c += block * wide.b.numel();
                              scan_channel_grads(arrays, chunks, first, count, memory, own);
                            });
    });
    // The blocks in rising order.
    at::Tensor grad_b = at::zeros_like(wide.b);
    at::Tensor grad_c = at::zeros_like(wide.b);
    for (int64_t block = 0; block < num_blocks; ++block) {
      grad_b.add_(b.select(0, block));
      grad_c.add_(c.select(0, block));
    }
    const auto narrow_type = saved[0].scalar_type();
    return {x.to(narrow_type),
            dt.to(narrow_type),
            a,
            grad_b.to(narrow_type),
            grad_c.to(narrow_type),
            d,
            saved[6].defined() ? state : at::Tensor(),
            {}};
  }
};

void check_scan_inputs(const SelectiveScanInputs& in, const SequenceTable& table) {
  check_float_cpu("selective_scan: x", in.x);
  check_shape("selective_scan: x", in.x, {table.num_tokens, kAnySize});
  check_shape("selective_scan: dt", in.dt, {in.x.size(0), in.x.size(1)});
  check_shape("selective_scan: a", in.a, {in.x.size(1), kAnySize});
  check_shape("selective_scan: b", in.b, {in.x.size(0), in.a.size(1)});
  check_shape("selective_scan: c", in.c, {in.x.size(0), in.a.size(1)});
  check_shape("selective_scan: d", in.d, {in.x.size(1)});
  const auto type = in.x.scalar_type();
  check<ShapeError>(
      in.dt.scalar_type() == type && in.b.scalar_type() == type && in.c.scalar_type() == type,
      "selective_scan: x is {}, dt {}, b {} and c {}; they must have one dtype",
      c10::toString(type), c10::toString(in.dt.scalar_type()), c10::toString(in.b.scalar_type()),
      c10::toString(in.c.scalar_type()));
  const auto wide = accumulator_type(type);
  check<ShapeError>(in.a.scalar_type() == wide && in.d.scalar_type() == wide,
                    "selective_scan: a is {} and d {}; with x of {} they must be {}",
                    c10::toString(in.a.scalar_type()), c10::toString(in.d.scalar_type()),
                    c10::toString(type), c10::toString(wide));
  if (in.state) {
    check_shape("selective_scan: state", *in.state,
                {table.num_sequences(), in.x.size(1), in.a.size(1)});
    check<ShapeError>(in.state->scalar_type() == wide, "selective_scan: state is {}, but a is {}",
                      c10::toString(in.state->scalar_type()), c10::toString(wide));
  }
}

}  // namespace

ScanOutput selective_scan(const SelectiveScanInputs& inputs, const SequenceTable& table) {
  check_scan_inputs(inputs, table);
  const variable_list out = SelectiveScan::apply(inputs.x, inputs.dt, inputs.a, inputs.b, inputs.c,
                                                 inputs.d, inputs.state, table.starts);
  return {out[0], out[1]};
}

}  // namespace switchyard

#include "ops/chunked_scan.h"

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
#include "ops/row_arithmetic.h"
#include "ops/sequence_chunks.h"
#include "ops/task_memory.h"

// Within a chunk, with S(t) the sum of dt a from its first token to t, and h its state before it:
//   out[t] = sum over s <= t of (c[t] . b[s]) exp(S(t) - S(s)) dt[s] x[s]  +  exp(S(t)) h c[t]
//   state after it = exp(S(last)) h + sum over s of exp(S(last) - S(s)) dt[s] x[s] b[s]^T
// Forward: what each chunk adds to the state; the states before each chunk, one after the other;
// the outputs. Backward: what each chunk's outputs add to the gradient of the state before it; the
// gradients of the states after each chunk, from the last; the gradients of the inputs.

namespace switchyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows of a triangular product that have the same columns.
constexpr int64_t kTriangleRows = 64;

struct ScanSizes {
  int64_t tokens;
  int64_t heads;
  int64_t groups;
  int64_t head_dim;
  int64_t state_size;
  int64_t longest_chunk;

  int64_t heads_per_group() const { return heads / groups; }
  int64_t per_state() const { return head_dim * state_size; }
};

template <class T>
struct ScanArrays {
  const T* x;
  int64_t x_stride;  // from token to token
  const T* dt;       // [tokens, heads]
  const T* a;        // [heads]
  const T* b;
  int64_t b_stride;
  const T* c;
  int64_t c_stride;
  const T* d;  // [heads]
};

// The time steps of a chunk for one head, and S.
template <class T>
struct Steps {
  T* dt;        // [chunk]
  double* sum;  // [chunk]; fp64, for its differences are exponents

  double last(int64_t size) const { return sum[size - 1]; }
};

template <class T>
void load_steps(const ScanArrays<T>& in, int64_t heads, const SequenceChunk& chunk, int64_t head,
                const Steps<T>& to) {
  double sum = 0;
  for (int64_t i = 0; i < chunk.size; ++i) {
    to.dt[i] = in.dt[(chunk.begin + i) * heads + head];
    sum += static_cast<double>(to.dt[i]) * static_cast<double>(in.a[head]);
    to.sum[i] = sum;
  }
}

// to[i] = exp(S(i)): what is left of the state before the chunk.
template <class T>
void decays_from_start(const Steps<T>& steps, int64_t size, T* to) {
  for (int64_t i = 0; i < size; ++i) {
    to[i] = static_cast<T>(std::exp(steps.sum[i]));
  }
}

// to[i] = exp(S(last) - S(i)): what is left of token i after the chunk.
template <class T>
void decays_to_end(const Steps<T>& steps, int64_t size, T* to) {
  for (int64_t i = 0; i < size; ++i) {
    to[i] = static_cast<T>(std::exp(steps.last(size) - steps.sum[i]));
  }
}

// The weights of a chunk's tokens in its outputs. scores [size, size] (c[t] . b[s]) -> to
// [size, size] with zeros above the diagonal. `exponents` [size].
template <class T>
SWITCHYARD_INLINE void weigh_scores_body(const T* scores, const Steps<T>& steps, int64_t size,
                                         T* exponents, T* to) {
  for (int64_t t = 0; t < size; ++t) {
    const T* from = scores + t * size;
    T* row = to + t * size;
    const double end = steps.sum[t];
    for (int64_t s = 0; s <= t; ++s) {
      exponents[s] = static_cast<T>(end - steps.sum[s]);
    }
#pragma omp simd
    for (int64_t s = 0; s <= t; ++s) {
      row[s] = from[s] * vector_exp(exponents[s]) * steps.dt[s];
    }
    std::fill(row + t + 1, row + size, T{0});
  }
}
SWITCHYARD_VECTOR_CLONES void weigh_scores(const double* scores, const Steps<double>& steps,
                                           int64_t size, double* exponents, double* to) {
  weigh_scores_body(scores, steps, size, exponents, to);
}
SWITCHYARD_VECTOR_CLONES void weigh_scores(const float* scores, const Steps<float>& steps,
                                           int64_t size, float* exponents, float* to) {
  weigh_scores_body(scores, steps, size, exponents, to);
}

// Gradients of a chunk's steps: of dt directly, and of S.
template <class T>
struct StepGrads {
  T* dt;        // [chunk]
  double* sum;  // [chunk]; fp64, for what a token gives and takes within the chunk cancels out
};

// From grad_weights, the gradient of what weigh_scores() made: adds to grad_scores [size, size],
// steps' gradients; writes the weights again. `row` [2, size].
template <class T>
SWITCHYARD_INLINE void weigh_scores_grads_body(const T* scores, const Steps<T>& steps, int64_t size,
                                               const T* grad_weights, T* row, T* weights,
                                               T* grad_scores, const StepGrads<T>& grads) {
  T* exponents = row;
  T* parts = row + size;
  for (int64_t t = 0; t < size; ++t) {
    const T* score = scores + t * size;
    const T* grad = grad_weights + t * size;
    T* weight = weights + t * size;
    T* grad_score = grad_scores + t * size;
    const double end = steps.sum[t];
    for (int64_t s = 0; s <= t; ++s) {
      exponents[s] = static_cast<T>(end - steps.sum[s]);
    }
#pragma omp simd
    for (int64_t s = 0; s <= t; ++s) {
      const T decay = vector_exp(exponents[s]);
      const T decayed = score[s] * decay;
      weight[s] = decayed * steps.dt[s];
      grad_score[s] += grad[s] * decay * steps.dt[s];
      grads.dt[s] += grad[s] * decayed;
      parts[s] = grad[s] * weight[s];
      grads.sum[s] -= static_cast<double>(parts[s]);
    }
    std::fill(weight + t + 1, weight + size, T{0});
    grads.sum[t] += lane_sum<double>(
        t + 1, [=](int64_t s)
                   __attribute__((always_inline)) { return static_cast<double>(parts[s]); });
  }
}
SWITCHYARD_VECTOR_CLONES void weigh_scores_grads(const double* scores, const Steps<double>& steps,
                                                 int64_t size, const double* grad_weights,
                                                 double* row, double* weights, double* grad_scores,
                                                 const StepGrads<double>& grads) {
  weigh_scores_grads_body(scores, steps, size, grad_weights, row, weights, grad_scores, grads);
}
SWITCHYARD_VECTOR_CLONES void weigh_scores_grads(const float* scores, const Steps<float>& steps,
                                                 int64_t size, const float* grad_weights,
                                                 float* row, float* weights, float* grad_scores,
                                                 const StepGrads<float>& grads) {
  weigh_scores_grads_body(scores, steps, size, grad_weights, row, weights, grad_scores, grads);
}

// states[i] and what was in `carried` change places: carried = decay x carried + states[i].
template <class T>
SWITCHYARD_INLINE void pass_state_body(T decay, int64_t n, T* state, T* carried) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const T added = state[i];
    state[i] = carried[i];
    carried[i] = decay * carried[i] + added;
  }
}
SWITCHYARD_VECTOR_CLONES void pass_state(double decay, int64_t n, double* state, double* carried) {
  pass_state_body(decay, n, state, carried);
}
SWITCHYARD_VECTOR_CLONES void pass_state(float decay, int64_t n, float* state, float* carried) {
  pass_state_body(decay, n, state, carried);
}

// out = h c + d x for one token, after h = decay h + x (dt b)^T. step_b [state_size] = dt b.
template <class T>
SWITCHYARD_INLINE void step_head_body(const T* x, T decay, const T* step_b, const T* c, T d,
                                      int64_t head_dim, int64_t state_size, T* h, T* out) {
  for (int64_t p = 0; p < head_dim; ++p) {
    T* row = h + p * state_size;
    const T value = x[p];
    out[p] = d * value + lane_sum<T>(
                             state_size, [=](int64_t n) __attribute__((always_inline)) {
                               row[n] = decay * row[n] + value * step_b[n];
                               return row[n] * c[n];
                             });
  }
}
SWITCHYARD_VECTOR_CLONES void step_head(const double* x, double decay, const double* step_b,
                                        const double* c, double d, int64_t head_dim,
                                        int64_t state_size, double* h, double* out) {
  step_head_body(x, decay, step_b, c, d, head_dim, state_size, h, out);
}
SWITCHYARD_VECTOR_CLONES void step_head(const float* x, float decay, const float* step_b,
                                        const float* c, float d, int64_t head_dim,
                                        int64_t state_size, float* h, float* out) {
  step_head_body(x, decay, step_b, c, d, head_dim, state_size, h, out);
}

// The inputs in the type that is computed in, and their sizes.
struct WideInputs {
  at::Tensor x, dt, a, b, c, d;
  at::Tensor state;  // undefined: zeros
  ScanSizes sizes;

  WideInputs(const variable_list& inputs, int64_t longest_chunk) {
    const auto wide = accumulator_type(inputs[0].scalar_type());
    const auto with_adjacent_rows = [&](const at::Tensor& tensor) {
      const at::Tensor widened = tensor.to(wide);
      const bool is_adjacent =
          widened.stride(2) == 1 && widened.stride(1) == widened.size(2) && widened.size(0) > 1;
      return is_adjacent ? widened : widened.contiguous();
    };
    x = with_adjacent_rows(inputs[0]);
    dt = inputs[1].contiguous();
    a = inputs[2].contiguous();
    b = with_adjacent_rows(inputs[3]);
    c = with_adjacent_rows(inputs[4]);
    d = inputs[5].contiguous();
    state = inputs[6].defined() ? inputs[6].contiguous() : at::Tensor();
    sizes = {x.size(0), x.size(1), b.size(1), x.size(2), b.size(2), longest_chunk};
  }

  template <class T>
  ScanArrays<T> arrays() const {
    return {x.const_data_ptr<T>(), x.stride(0),           dt.const_data_ptr<T>(),
            a.const_data_ptr<T>(), b.const_data_ptr<T>(), b.stride(0),
            c.const_data_ptr<T>(), c.stride(0),           d.const_data_ptr<T>()};
  }
};

// One pass over a batch: what its stages share.
template <class T>
class ScanPass {
 public:
  ScanPass(const WideInputs& inputs, const std::vector<SequenceChunk>& chunks)
      : in_(inputs.arrays<T>()),
        sizes_(inputs.sizes),
        chunks_(chunks),
        has_first_state_(inputs.state.defined()) {}

 protected:
  // Calls run(chunk number, group) for all.
  template <class Run>
  void for_chunks_and_groups(Run run) const {
    run_tasks(static_cast<int64_t>(chunks_.size()) * sizes_.groups, [&](int64_t task) {
      run(static_cast<size_t>(task / sizes_.groups), task % sizes_.groups);
    });
  }

  template <class Run>
  void for_heads_of(int64_t group, Run run) const {
    for (int64_t head = group * sizes_.heads_per_group();
         head < (group + 1) * sizes_.heads_per_group(); ++head) {
      run(head);
    }
  }

  const T* x_of(const SequenceChunk& chunk, int64_t head) const {
    return in_.x + chunk.begin * in_.x_stride + head * sizes_.head_dim;
  }
  const T* b_of(const SequenceChunk& chunk, int64_t group) const {
    return in_.b + chunk.begin * in_.b_stride + group * sizes_.state_size;
  }
  const T* c_of(const SequenceChunk& chunk, int64_t group) const {
    return in_.c + chunk.begin * in_.c_stride + group * sizes_.state_size;
  }
  // Where head `head` of chunk `index` is in an array of [chunks, heads, head_dim, state_size].
  int64_t state_at(size_t index, int64_t head) const {
    return (static_cast<int64_t>(index) * sizes_.heads + head) * sizes_.per_state();
  }
  int64_t out_stride() const { return sizes_.heads * sizes_.head_dim; }
  bool has_state_before(const SequenceChunk& chunk) const {
    return !chunk.is_first || has_first_state_;
  }

  // scores [size, size] = c b^T, of which nobody reads what is above the diagonal blocks.
  void multiply_scores(const SequenceChunk& chunk, int64_t group, TaskMemory<T>& memory,
                       T* scores) const {
    for (int64_t row = 0; row < chunk.size; row += kTriangleRows) {
      const int64_t rows = std::min(kTriangleRows, chunk.size - row);
      memory.multiply({.a = c_of(chunk, group) + row * in_.c_stride,
                       .a_stride = in_.c_stride,
                       .b = b_of(chunk, group),
                       .b_stride = in_.b_stride,
                       .b_transposed = true,
                       .c = scores + row * chunk.size,
                       .c_stride = chunk.size,
                       .m = rows,
                       .n = row + rows,
                       .k = sizes_.state_size});
    }
  }

  ScanArrays<T> in_;
  ScanSizes sizes_;
  const std::vector<SequenceChunk>& chunks_;
  bool has_first_state_;
};

template <class T>
class ScanForward : ScanPass<T> {
 public:
  using ScanPass<T>::ScanPass;

  // states [chunks, heads, head_dim, state_size] becomes the states before each chunk; last
  // [num_sequences, heads, head_dim, state_size] holds the first states and becomes the last ones.
  void run(T* states, T* last, T* out) const {
    std::vector<double> decays(chunks_.size() * static_cast<size_t>(sizes_.heads));
    this->for_chunks_and_groups(
        [&](size_t index, int64_t group) { add_to_state(index, group, states, decays.data()); });
    run_tasks(sizes_.heads, [&](int64_t head) {
      for (size_t index = 0; index < chunks_.size(); ++index) {
        const int64_t sequence = chunks_[index].sequence * sizes_.heads + head;
        pass_state(static_cast<T>(decays[decay_at(index, head)]), sizes_.per_state(),
                   states + this->state_at(index, head), last + sequence * sizes_.per_state());
      }
    });
    this->for_chunks_and_groups(
        [&](size_t index, int64_t group) { write_outputs(index, group, states, out); });
  }

 private:
  using ScanPass<T>::in_;
  using ScanPass<T>::sizes_;
  using ScanPass<T>::chunks_;

  size_t decay_at(size_t index, int64_t head) const {
    return index * static_cast<size_t>(sizes_.heads) + static_cast<size_t>(head);
  }

  void add_to_state(size_t index, int64_t group, T* states, double* decays) const {
    const SequenceChunk& chunk = chunks_[index];
    const int64_t longest = sizes_.longest_chunk;
    TaskMemory<T> memory(longest * (2 + 2 + sizes_.head_dim), 4);
    const Steps<T> steps{memory.take(longest), reinterpret_cast<double*>(memory.take(2 * longest))};
    T* weights = memory.take(longest);
    T* weighted_x = memory.take(longest * sizes_.head_dim);
    this->for_heads_of(group, [&](int64_t head) {
      load_steps(in_, sizes_.heads, chunk, head, steps);
      decays_to_end(steps, chunk.size, weights);
      for (int64_t i = 0; i < chunk.size; ++i) {
        weights[i] *= steps.dt[i];
      }
      scale_rows(this->x_of(chunk, head), in_.x_stride, weights, chunk.size, sizes_.head_dim,
                 weighted_x);
      memory.multiply({.a = weighted_x,
                       .a_stride = sizes_.head_dim,
                       .a_transposed = true,
                       .b = this->b_of(chunk, group),
                       .b_stride = in_.b_stride,
                       .c = states + this->state_at(index, head),
                       .c_stride = sizes_.state_size,
                       .m = sizes_.head_dim,
                       .n = sizes_.state_size,
                       .k = chunk.size});
      decays[decay_at(index, head)] = std::exp(steps.last(chunk.size));
    });
  }

  void write_outputs(size_t index, int64_t group, const T* states, T* out) const {
    const SequenceChunk& chunk = chunks_[index];
    const int64_t longest = sizes_.longest_chunk;
    TaskMemory<T> memory(longest * (2 * longest + 5 + sizes_.state_size), 6);
    const Steps<T> steps{memory.take(longest), reinterpret_cast<double*>(memory.take(2 * longest))};
    T* row = memory.take(longest);
    T* scores = memory.take(longest * longest);
    T* weights = memory.take(longest * longest);
    T* decayed_c = memory.take(longest * sizes_.state_size);
    this->multiply_scores(chunk, group, memory, scores);
    this->for_heads_of(group, [&](int64_t head) {
      load_steps(in_, sizes_.heads, chunk, head, steps);
      weigh_scores(scores, steps, chunk.size, row, weights);
      T* to = out + chunk.begin * this->out_stride() + head * sizes_.head_dim;
      multiply_lower(chunk, head, weights, memory, to);
      if (this->has_state_before(chunk)) {
        decays_from_start(steps, chunk.size, row);
        scale_rows(this->c_of(chunk, group), in_.c_stride, row, chunk.size, sizes_.state_size,
                   decayed_c);
        memory.multiply({.a = decayed_c,
                         .a_stride = sizes_.state_size,
                         .b = states + this->state_at(index, head),
                         .b_stride = sizes_.state_size,
                         .b_transposed = true,
                         .c = to,
                         .c_stride = this->out_stride(),
                         .m = chunk.size,
                         .n = sizes_.head_dim,
                         .k = sizes_.state_size,
                         .wide_c = to,
                         .accumulate = true});
      }
      add_rows(this->x_of(chunk, head), in_.x_stride, in_.d[head], chunk.size, sizes_.head_dim, to,
               this->out_stride());
    });
  }

  // to = weights x, of which the weights above the diagonal are zeros.
  void multiply_lower(const SequenceChunk& chunk, int64_t head, const T* weights,
                      TaskMemory<T>& memory, T* to) const {
    for (int64_t row = 0; row < chunk.size; row += kTriangleRows) {
      const int64_t rows = std::min(kTriangleRows, chunk.size - row);
      memory.multiply({.a = weights + row * chunk.size,
                       .a_stride = chunk.size,
                       .b = this->x_of(chunk, head),
                       .b_stride = in_.x_stride,
                       .c = to + row * this->out_stride(),
                       .c_stride = this->out_stride(),
                       .m = rows,
                       .n = sizes_.head_dim,
                       .k = row + rows});
    }
  }
};

template <class T>
struct ScanGradArrays {
  T* x;   // [tokens, heads, head_dim]
  T* dt;  // [tokens, heads]
  T* a;   // [chunks, heads]: of each chunk
  T* b;   // [tokens, groups, state_size]
  T* c;   // [tokens, groups, state_size]
  T* d;   // [chunks, heads]: of each chunk
};

template <class T>
class ScanBackward : ScanPass<T> {
 public:
  // states: those before each chunk. grad_out [tokens, heads, head_dim].
  ScanBackward(const WideInputs& inputs, const std::vector<SequenceChunk>& chunks, const T* states,
               const T* grad_out, bool has_state_grad)
      : ScanPass<T>(inputs, chunks),
        states_(states),
        grad_out_(grad_out),
        has_state_grad_(has_state_grad) {}

  // grad_states [chunks, heads, head_dim, state_size]: room for the gradients of the states after
  // each chunk; grad_state [num_sequences, heads, head_dim, state_size]: those of the last states,
  // which become those of the first ones.
  void run(T* grad_states, T* grad_state, const ScanGradArrays<T>& to) const {
    this->for_chunks_and_groups(
        [&](size_t index, int64_t group) { add_to_state_grad(index, group, grad_states); });
    run_tasks(sizes_.heads, [&](int64_t head) {
      for (size_t index = chunks_.size(); index-- > 0;) {
        const SequenceChunk& chunk = chunks_[index];
        double sum = 0;
        for (int64_t token = chunk.begin; token < chunk.begin + chunk.size; ++token) {
          sum += static_cast<double>(in_.dt[token * sizes_.heads + head]) *
                 static_cast<double>(in_.a[head]);
        }
        const int64_t sequence = chunk.sequence * sizes_.heads + head;
        pass_state(static_cast<T>(std::exp(sum)), sizes_.per_state(),
                   grad_states + this->state_at(index, head),
                   grad_state + sequence * sizes_.per_state());
      }
    });
    this->for_chunks_and_groups(
        [&](size_t index, int64_t group) { write_grads(index, group, grad_states, to); });
  }

 private:
  using ScanPass<T>::in_;
  using ScanPass<T>::sizes_;
  using ScanPass<T>::chunks_;

  const T* grad_out_of(const SequenceChunk& chunk, int64_t head) const {
    return grad_out_ + chunk.begin * this->out_stride() + head * sizes_.head_dim;
  }

  // sum over t of exp(S(t)) grad_out[t] c[t]^T.
  void add_to_state_grad(size_t index, int64_t group, T* grad_states) const {
    const SequenceChunk& chunk = chunks_[index];
    const int64_t longest = sizes_.longest_chunk;
    TaskMemory<T> memory(longest * (4 + sizes_.head_dim), 4);
    const Steps<T> steps{memory.take(longest), reinterpret_cast<double*>(memory.take(2 * longest))};
    T* decays = memory.take(longest);
    T* decayed = memory.take(longest * sizes_.head_dim);
    this->for_heads_of(group, [&](int64_t head) {
      load_steps(in_, sizes_.heads, chunk, head, steps);
      decays_from_start(steps, chunk.size, decays);
      scale_rows(grad_out_of(chunk, head), this->out_stride(), decays, chunk.size, sizes_.head_dim,
                 decayed);
      memory.multiply({.a = decayed,
                       .a_stride = sizes_.head_dim,
                       .a_transposed = true,
                       .b = this->c_of(chunk, group),
                       .b_stride = in_.c_stride,
                       .c = grad_states + this->state_at(index, head),
                       .c_stride = sizes_.state_size,
                       .m = sizes_.head_dim,
                       .n = sizes_.state_size,
                       .k = chunk.size});
    });
  }

  // What the heads of a group work in.
  struct Room {
    Steps<T> steps;
    StepGrads<T> grads;
    T* factors;       // [chunk]
    T* dots;          // [chunk]
    T* row;           // [2, chunk]
    T* scores;        // [chunk, chunk]
    T* weights;       // [chunk, chunk]
    T* grad_weights;  // [chunk, chunk]
    T* grad_scores;   // [chunk, chunk], summed over the heads
    T* values;        // [chunk, head_dim]
    T* keys;          // [chunk, state_size]
    T* grad_b;        // [chunk, state_size], summed over the heads
    T* grad_c;        // [chunk, state_size], summed over the heads
  };
  static constexpr int64_t kRoomArrays = 15;

  int64_t room_elements() const {
    const int64_t longest = sizes_.longest_chunk;
    return longest * (4 * longest + 10 + sizes_.head_dim + 3 * sizes_.state_size);
  }

  Room take_room(TaskMemory<T>& memory) const {
    const int64_t longest = sizes_.longest_chunk;
    return {{memory.take(longest), reinterpret_cast<double*>(memory.take(2 * longest))},
            {memory.take(longest), reinterpret_cast<double*>(memory.take(2 * longest))},
            memory.take(longest),
            memory.take(longest),
            memory.take(2 * longest),
            memory.take(longest * longest),
            memory.take(longest * longest),
            memory.take(longest * longest),
            memory.take(longest * longest),
            memory.take(longest * sizes_.head_dim),
            memory.take(longest * sizes_.state_size),
            memory.take(longest * sizes_.state_size),
            memory.take(longest * sizes_.state_size)};
  }

  void write_grads(size_t index, int64_t group, const T* grad_states,
                   const ScanGradArrays<T>& to) const {
    const SequenceChunk& chunk = chunks_[index];
    const int64_t size = chunk.size;
    TaskMemory<T> memory(room_elements(), kRoomArrays);
    const Room room = take_room(memory);
    this->multiply_scores(chunk, group, memory, room.scores);
    std::fill_n(room.grad_scores, size * size, T{0});
    std::fill_n(room.grad_b, size * sizes_.state_size, T{0});
    std::fill_n(room.grad_c, size * sizes_.state_size, T{0});
    this->for_heads_of(group, [&](int64_t head) {
      load_steps(in_, sizes_.heads, chunk, head, room.steps);
      std::fill_n(room.grads.dt, size, T{0});
      std::fill_n(room.grads.sum, size, 0.0);
      grads_within(chunk, head, room, memory, to);
      if (this->has_state_before(chunk)) {
        grads_from_state_before(chunk, group, head, states_ + this->state_at(index, head), room,
                                memory);
      }
      if (!chunk.is_last || has_state_grad_) {
        const int64_t at = this->state_at(index, head);
        grads_from_state_after(chunk, group, head, states_ + at, grad_states + at, room, memory,
                               to);
      }
      grads_of_skip(index, head, room, to);
      grads_of_steps(index, head, room, to);
    });
    grads_of_scores(chunk, group, room, memory, to);
  }

  // Through the chunk's own tokens. Writes the gradient of x.
  void grads_within(const SequenceChunk& chunk, int64_t head, const Room& room,
                    TaskMemory<T>& memory, const ScanGradArrays<T>& to) const {
    const int64_t size = chunk.size;
    for (int64_t row = 0; row < size; row += kTriangleRows) {
      const int64_t rows = std::min(kTriangleRows, size - row);
      memory.multiply({.a = grad_out_of(chunk, head) + row * this->out_stride(),
                       .a_stride = this->out_stride(),
                       .b = this->x_of(chunk, head),
                       .b_stride = in_.x_stride,
                       .b_transposed = true,
                       .c = room.grad_weights + row * size,
                       .c_stride = size,
                       .m = rows,
                       .n = row + rows,
                       .k = sizes_.head_dim});
    }
    weigh_scores_grads(room.scores, room.steps, size, room.grad_weights, room.row, room.weights,
                       room.grad_scores, room.grads);
    T* grad_x = to.x + chunk.begin * this->out_stride() + head * sizes_.head_dim;
    for (int64_t row = 0; row < size; row += kTriangleRows) {
      const int64_t rows = std::min(kTriangleRows, size - row);
      memory.multiply({.a = room.weights + row * size + row,
                       .a_stride = size,
                       .a_transposed = true,
                       .b = grad_out_of(chunk, head) + row * this->out_stride(),
                       .b_stride = this->out_stride(),
                       .c = grad_x + row * this->out_stride(),
                       .c_stride = this->out_stride(),
                       .m = rows,
                       .n = sizes_.head_dim,
                       .k = size - row});
    }
  }

  // Through exp(S(t)) h c[t].
  void grads_from_state_before(const SequenceChunk& chunk, int64_t group, int64_t head,
                               const T* state, const Room& room, TaskMemory<T>& memory) const {
    const int64_t size = chunk.size;
    decays_from_start(room.steps, size, room.factors);
    scale_rows(grad_out_of(chunk, head), this->out_stride(), room.factors, size, sizes_.head_dim,
               room.values);
    multiply_by_state(size, room.values, state, memory, room.keys);
    dot_rows(room.keys, sizes_.state_size, this->c_of(chunk, group), in_.c_stride, size,
             sizes_.state_size, room.dots);
    add_rows(room.keys, sizes_.state_size, T{1}, size, sizes_.state_size, room.grad_c,
             sizes_.state_size);
    for (int64_t i = 0; i < size; ++i) {
      room.grads.sum[i] += static_cast<double>(room.dots[i]);
    }
  }

  // Through the state after the chunk.
  void grads_from_state_after(const SequenceChunk& chunk, int64_t group, int64_t head,
                              const T* state, const T* grad_state, const Room& room,
                              TaskMemory<T>& memory, const ScanGradArrays<T>& to) const {
    const int64_t size = chunk.size;
    // values = grad_state b, the gradient of exp(S(last) - S(s)) dt[s] x[s].
    memory.multiply({.a = this->b_of(chunk, group),
                     .a_stride = in_.b_stride,
                     .b = grad_state,
                     .b_stride = sizes_.state_size,
                     .b_transposed = true,
                     .c = room.values,
                     .c_stride = sizes_.head_dim,
                     .m = size,
                     .n = sizes_.head_dim,
                     .k = sizes_.state_size});
    dot_rows(room.values, sizes_.head_dim, this->x_of(chunk, head), in_.x_stride, size,
             sizes_.head_dim, room.dots);
    decays_to_end(room.steps, size, room.factors);
    double last = 0;
    for (int64_t i = 0; i < size; ++i) {
      room.grads.dt[i] += room.factors[i] * room.dots[i];
      room.factors[i] *= room.steps.dt[i];
      const auto part = static_cast<double>(room.factors[i] * room.dots[i]);
      room.grads.sum[i] -= part;
      last += part;
    }
    scale_rows(room.values, sizes_.head_dim, room.factors, size, sizes_.head_dim, room.values);
    T* grad_x = to.x + chunk.begin * this->out_stride() + head * sizes_.head_dim;
    add_rows(room.values, sizes_.head_dim, T{1}, size, sizes_.head_dim, grad_x, this->out_stride());
    scale_rows(this->x_of(chunk, head), in_.x_stride, room.factors, size, sizes_.head_dim,
               room.values);
    multiply_by_state(size, room.values, grad_state, memory, room.keys);
    add_rows(room.keys, sizes_.state_size, T{1}, size, sizes_.state_size, room.grad_b,
             sizes_.state_size);
    if (this->has_state_before(chunk)) {
      T dot = 0;
      dot_rows(state, 0, grad_state, 0, 1, sizes_.per_state(), &dot);
      last += std::exp(room.steps.last(size)) * static_cast<double>(dot);
    }
    room.grads.sum[size - 1] += last;
  }

  // rows [size, head_dim] x state [head_dim, state_size] -> to [size, state_size].
  void multiply_by_state(int64_t size, const T* rows, const T* state, TaskMemory<T>& memory,
                         T* to) const {
    memory.multiply({.a = rows,
                     .a_stride = sizes_.head_dim,
                     .b = state,
                     .b_stride = sizes_.state_size,
                     .c = to,
                     .c_stride = sizes_.state_size,
                     .m = size,
                     .n = sizes_.state_size,
                     .k = sizes_.head_dim});
  }

  // Through d x.
  void grads_of_skip(size_t index, int64_t head, const Room& room,
                     const ScanGradArrays<T>& to) const {
    const SequenceChunk& chunk = chunks_[index];
    dot_rows(grad_out_of(chunk, head), this->out_stride(), this->x_of(chunk, head), in_.x_stride,
             chunk.size, sizes_.head_dim, room.dots);
    T sum = 0;
    for (int64_t i = 0; i < chunk.size; ++i) {
      sum += room.dots[i];
    }
    to.d[static_cast<int64_t>(index) * sizes_.heads + head] = sum;
    add_rows(grad_out_of(chunk, head), this->out_stride(), in_.d[head], chunk.size, sizes_.head_dim,
             to.x + chunk.begin * this->out_stride() + head * sizes_.head_dim, this->out_stride());
  }

  // S(t) is a sum of dt a.
  void grads_of_steps(size_t index, int64_t head, const Room& room,
                      const ScanGradArrays<T>& to) const {
    const SequenceChunk& chunk = chunks_[index];
    double after = 0;
    double grad_a = 0;
    for (int64_t i = chunk.size - 1; i >= 0; --i) {
      after += room.grads.sum[i];
      grad_a += after * static_cast<double>(room.steps.dt[i]);
      to.dt[(chunk.begin + i) * sizes_.heads + head] =
          room.grads.dt[i] + static_cast<T>(after) * in_.a[head];
    }
    to.a[static_cast<int64_t>(index) * sizes_.heads + head] = static_cast<T>(grad_a);
  }

  // Writes the gradients of b and c: those summed so far, and those through the scores.
  void grads_of_scores(const SequenceChunk& chunk, int64_t group, const Room& room,
                       TaskMemory<T>& memory, const ScanGradArrays<T>& to) const {
    const int64_t size = chunk.size;
    const int64_t stride = sizes_.groups * sizes_.state_size;
    const int64_t at = chunk.begin * stride + group * sizes_.state_size;
    const auto multiply = [&](const T* other, int64_t other_stride, bool transposed, T* sums) {
      memory.multiply({.a = room.grad_scores,
                       .a_stride = size,
                       .a_transposed = transposed,
                       .b = other,
                       .b_stride = other_stride,
                       .c = sums,
                       .c_stride = sizes_.state_size,
                       .m = size,
                       .n = sizes_.state_size,
                       .k = size,
                       .wide_c = sums,
                       .accumulate = true});
    };
    multiply(this->b_of(chunk, group), in_.b_stride, false, room.grad_c);
    multiply(this->c_of(chunk, group), in_.c_stride, true, room.grad_b);
    for (int64_t i = 0; i < size; ++i) {
      std::copy_n(room.grad_b + i * sizes_.state_size, sizes_.state_size, to.b + at + i * stride);
      std::copy_n(room.grad_c + i * sizes_.state_size, sizes_.state_size, to.c + at + i * stride);
    }
  }

  const T* states_;
  const T* grad_out_;
  bool has_state_grad_;
};

int64_t longest_of(const std::vector<SequenceChunk>& chunks) {
  int64_t longest = 1;
  for (const SequenceChunk& chunk : chunks) {
    longest = std::max(longest, chunk.size);
  }
  return longest;
}

at::Tensor state_room(const WideInputs& in, int64_t number) {
  return at::empty({number, in.sizes.heads, in.sizes.head_dim, in.sizes.state_size},
                   in.a.options());
}

// The rows of the chunks in rising order.
at::Tensor sum_of_rows(const at::Tensor& rows) {
  at::Tensor sum = at::zeros({rows.size(1)}, rows.options());
  for (int64_t row = 0; row < rows.size(0); ++row) {
    sum.add_(rows.select(0, row));
  }
  return sum;
}

struct ChunkedScan : torch::autograd::Function<ChunkedScan> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& dt,
                               const at::Tensor& a, const at::Tensor& b, const at::Tensor& c,
                               const at::Tensor& d, const std::optional<at::Tensor>& state,
                               const std::vector<int64_t>& starts, int64_t chunk_size) {
    const variable_list inputs{x, dt, a, b, c, d, state.value_or(at::Tensor())};
    const std::vector<SequenceChunk> chunks = sequence_chunks(starts, chunk_size);
    const WideInputs wide(inputs, longest_of(chunks));
    at::Tensor states = state_room(wide, static_cast<int64_t>(chunks.size()));
    at::Tensor last = state_room(wide, static_cast<int64_t>(starts.size()) - 1);
    if (wide.state.defined()) {
      last.copy_(wide.state);
    } else {
      last.zero_();
    }
    at::Tensor out = at::empty(x.sizes(), wide.a.options());
    out.slice(0, starts.back()).zero_();
    visit_wide_type(wide.x.scalar_type(), [&](auto type) {
      using T = decltype(type);
      ScanForward<T>(wide, chunks)
          .run(states.mutable_data_ptr<T>(), last.mutable_data_ptr<T>(), out.mutable_data_ptr<T>());
    });
    variable_list saved = inputs;
    saved.push_back(states);
    ctx->save_for_backward(saved);
    ctx->saved_data["starts"] = starts;
    ctx->saved_data["chunk_size"] = chunk_size;
    ctx->set_materialize_grads(false);
    return {out.to(x.scalar_type()), last};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const std::vector<int64_t> starts = ctx->saved_data["starts"].toIntVector();
    const std::vector<SequenceChunk> chunks =
        sequence_chunks(starts, ctx->saved_data["chunk_size"].toInt());
    const WideInputs wide(saved, longest_of(chunks));
    const auto options = wide.a.options();
    const auto num_chunks = static_cast<int64_t>(chunks.size());
    const at::Tensor grad_out = grads[0].defined() ? grads[0].to(wide.a.scalar_type()).contiguous()
                                                   : at::zeros(saved[0].sizes(), options);
    at::Tensor grad_states = state_room(wide, num_chunks);
    at::Tensor grad_state = state_room(wide, static_cast<int64_t>(starts.size()) - 1);
    if (grads[1].defined()) {
      grad_state.copy_(grads[1]);
    } else {
      grad_state.zero_();
    }
    const auto room_like = [&](const at::Tensor& tensor) {
      at::Tensor room = at::empty(tensor.sizes(), options);
      room.slice(0, starts.back()).zero_();
      return room;
    };
    at::Tensor x = room_like(saved[0]);
    at::Tensor dt = room_like(saved[1]);
    at::Tensor b = room_like(saved[3]);
    at::Tensor c = room_like(saved[4]);
    at::Tensor a = at::empty({num_chunks, wide.sizes.heads}, options);
    at::Tensor d = at::empty({num_chunks, wide.sizes.heads}, options);
    visit_wide_type(wide.a.scalar_type(), [&](auto type) {
      using T = decltype(type);
      ScanBackward<T>(wide, chunks, saved[7].const_data_ptr<T>(), grad_out.const_data_ptr<T>(),
                      grads[1].defined())
          .run(grad_states.mutable_data_ptr<T>(), grad_state.mutable_data_ptr<T>(),
               {x.mutable_data_ptr<T>(), dt.mutable_data_ptr<T>(), a.mutable_data_ptr<T>(),
                b.mutable_data_ptr<T>(), c.mutable_data_ptr<T>(), d.mutable_data_ptr<T>()});
    });
    const auto type = saved[0].scalar_type();
    return {x.to(type),
            dt,
            sum_of_rows(a),
            b.to(type),
            c.to(type),
            sum_of_rows(d),
            saved[6].defined() ? grad_state : at::Tensor(),
            {},
            {}};
  }
};

void check_scan_inputs(const char* op, const ChunkedScanInputs& in, int64_t num_sequences) {
  check_float_cpu(fmt::format("{}: x", op), in.x);
  check_shape(fmt::format("{}: x", op), in.x, {kAnySize, kAnySize, kAnySize});
  check_shape(fmt::format("{}: dt", op), in.dt, {in.x.size(0), in.x.size(1)});
  check_shape(fmt::format("{}: a", op), in.a, {in.x.size(1)});
  check_shape(fmt::format("{}: b", op), in.b, {in.x.size(0), kAnySize, kAnySize});
  check_shape(fmt::format("{}: c", op), in.c, {in.x.size(0), in.b.size(1), in.b.size(2)});
  check_shape(fmt::format("{}: d", op), in.d, {in.x.size(1)});
  check<ShapeError>(in.b.size(1) > 0 && in.x.size(1) % in.b.size(1) == 0,
                    "{}: the number of heads ({}) must be a multiple of the groups ({})", op,
                    in.x.size(1), in.b.size(1));
  const auto type = in.x.scalar_type();
  check<ShapeError>(in.b.scalar_type() == type && in.c.scalar_type() == type,
                    "{}: x is {}, b {} and c {}; they must have one dtype", op, c10::toString(type),
                    c10::toString(in.b.scalar_type()), c10::toString(in.c.scalar_type()));
  const auto wide = accumulator_type(type);
  check<ShapeError>(
      in.dt.scalar_type() == wide && in.a.scalar_type() == wide && in.d.scalar_type() == wide,
      "{}: dt is {}, a {} and d {}; with x of {} they must be {}", op,
      c10::toString(in.dt.scalar_type()), c10::toString(in.a.scalar_type()),
      c10::toString(in.d.scalar_type()), c10::toString(type), c10::toString(wide));
  if (in.state) {
    check_shape(fmt::format("{}: state", op), *in.state,
                {num_sequences, in.x.size(1), in.x.size(2), in.b.size(2)});
    check<ShapeError>(in.state->scalar_type() == wide, "{}: state is {}, but dt is {}", op,
                      c10::toString(in.state->scalar_type()), c10::toString(wide));
  }
}

// Token by token, one head after the other on each thread.
template <class T>
void step_heads(const WideInputs& wide, at::Tensor& state, at::Tensor& out) {
  const ScanArrays<T> in = wide.arrays<T>();
  const ScanSizes& sizes = wide.sizes;
  T* states = state.mutable_data_ptr<T>();
  T* to = out.mutable_data_ptr<T>();
  run_tasks(sizes.heads, [&](int64_t head) {
    const int64_t group = head / sizes.heads_per_group();
    auto* step_b =
        static_cast<T*>(thread_scratch(sizes.state_size * static_cast<int64_t>(sizeof(T))));
    for (int64_t token = 0; token < sizes.tokens; ++token) {
      const T dt = in.dt[token * sizes.heads + head];
      const T* b = in.b + token * in.b_stride + group * sizes.state_size;
      for (int64_t n = 0; n < sizes.state_size; ++n) {
        step_b[n] = dt * b[n];
      }
      step_head(in.x + token * in.x_stride + head * sizes.head_dim, std::exp(dt * in.a[head]),
                step_b, in.c + token * in.c_stride + group * sizes.state_size, in.d[head],
                sizes.head_dim, sizes.state_size, states + head * sizes.per_state(),
                to + (token * sizes.heads + head) * sizes.head_dim);
    }
  });
}

}  // namespace

ScanOutput chunked_scan(const ChunkedScanInputs& inputs, const SequenceTable& table,
                        int64_t chunk_size) {
  check_scan_inputs("chunked_scan", inputs, table.num_sequences());
  check<ShapeError>(inputs.x.size(0) == table.num_tokens,
                    "chunked_scan: x has {} tokens, the sequence table {}", inputs.x.size(0),
                    table.num_tokens);
  check<ShapeError>(chunk_size > 0, "chunked_scan: the chunk size ({}) must be above 0",
                    chunk_size);
  const variable_list out = ChunkedScan::apply(inputs.x, inputs.dt, inputs.a, inputs.b, inputs.c,
                                               inputs.d, inputs.state, table.starts, chunk_size);
  return {out[0], out[1]};
}

ScanOutput step_scan(const ChunkedScanInputs& inputs) {
  check_scan_inputs("step_scan", inputs, 1);
  check<ShapeError>(inputs.state.has_value(), "step_scan: the state must be given");
  const at::NoGradGuard no_grad;
  const WideInputs wide(
      {inputs.x, inputs.dt, inputs.a, inputs.b, inputs.c, inputs.d, *inputs.state}, 1);
  at::Tensor state = wide.state.clone();
  at::Tensor out = at::empty(inputs.x.sizes(), wide.a.options());
  visit_wide_type(wide.a.scalar_type(),
                  [&](auto type) { step_heads<decltype(type)>(wide, state, out); });
  return {out.to(inputs.x.scalar_type()), state};
}

}  // namespace switchyard

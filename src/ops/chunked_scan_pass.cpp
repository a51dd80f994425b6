#include "ops/chunked_scan_pass.h"

#include <algorithm>
#include <cmath>

#include "ops/lanes.h"
#include "ops/parallel_tasks.h"
#include "ops/row_arithmetic.h"
#include "ops/task_memory.h"
#include "ops/thread_scratch.h"

// Within a chunk, with S(t) the sum of dt a from its first token to t, and h its state before it:
//   out[t] = sum over s <= t of (c[t] . b[s]) exp(S(t) - S(s)) dt[s] x[s]  +  exp(S(t)) h c[t]
//   state after it = exp(S(last)) h + sum over s of exp(S(last) - S(s)) dt[s] x[s] b[s]^T
// Forward: what each chunk adds to the state; the states before each chunk, one after the other;
// the outputs. Backward: what each chunk's outputs add to the gradient of the state before it; the
// gradients of the states after each chunk, from the last; the gradients of the inputs.

namespace switchyard {
namespace {

// Rows of a triangular product that have the same columns.
constexpr int64_t kTriangleRows = 64;

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

// One pass over a batch: what its stages share.
template <class T>
class ScanPass {
 public:
  explicit ScanPass(const ScanProblem<T>& problem)
      : in_(problem.in),
        sizes_(problem.sizes),
        chunks_(problem.chunks),
        has_first_state_(problem.has_first_state) {}

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
class ScanBackward : ScanPass<T> {
 public:
  ScanBackward(const ScanProblem<T>& problem, const ScanOutputGrads<T>& outputs)
      : ScanPass<T>(problem),
        states_(outputs.states),
        grad_out_(outputs.grad_out),
        has_state_grad_(outputs.has_state_grad) {}

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

}  // namespace

template <class T>
void scan_forward(const ScanProblem<T>& problem, T* states, T* last, T* out) {
  ScanForward<T>(problem).run(states, last, out);
}

template <class T>
void scan_backward(const ScanProblem<T>& problem, const ScanOutputGrads<T>& outputs, T* grad_states,
                   T* grad_state, const ScanGradArrays<T>& to) {
  ScanBackward<T>(problem, outputs).run(grad_states, grad_state, to);
}

template <class T>
void scan_steps(const ScanArrays<T>& in, const ScanSizes& sizes, T* states, T* out) {
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
                out + (token * sizes.heads + head) * sizes.head_dim);
    }
  });
}

template void scan_forward(const ScanProblem<float>&, float*, float*, float*);
template void scan_backward(const ScanProblem<float>&, const ScanOutputGrads<float>&, float*,
                            float*, const ScanGradArrays<float>&);
template void scan_steps(const ScanArrays<float>&, const ScanSizes&, float*, float*);
template void scan_forward(const ScanProblem<double>&, double*, double*, double*);
template void scan_backward(const ScanProblem<double>&, const ScanOutputGrads<double>&, double*,
                            double*, const ScanGradArrays<double>&);
template void scan_steps(const ScanArrays<double>&, const ScanSizes&, double*, double*);

}  // namespace switchyard

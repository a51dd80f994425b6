#include "ops/gated_delta_pass.h"

#include <algorithm>
#include <cmath>

#include "ops/lanes.h"
#include "ops/parallel_tasks.h"
#include "ops/row_arithmetic.h"
#include "ops/task_memory.h"
#include "ops/thread_scratch.h"

// Within a chunk, with G(t) the sum of log_decay from its first token to t, and s its state before
// it, w[t] = beta[t] (v[t] - s'^T k[t]), what token t writes, solves the triangular system
//   w[t] + sum over j < t of beta[t] exp(G(t) - G(j)) (k[t] . k[j]) w[j]
//     = beta[t] (v[t] - exp(G(t)) s^T k[t])
//   out[t] = exp(G(t)) s^T q[t] + sum over j <= t of exp(G(t) - G(j)) (q[t] . k[j]) w[j]
//   state after it = exp(G(last)) s + sum over j of exp(G(last) - G(j)) k[j] w[j]^T
// The chunks of a head follow one another; the heads are independent. Backward walks the chunks
// from the last one, and makes w again from the saved states.

namespace switchyard {
namespace {

template <class T>
SWITCHYARD_INLINE T dot_body(const T* a, const T* b, int64_t n) {
  return lane_sum<T>(
      n, [=](int64_t i) __attribute__((always_inline)) { return a[i] * b[i]; });
}
template <class T>
SWITCHYARD_INLINE void add_scaled_body(T scale, const T* from, int64_t n, T* to) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    to[i] += scale * from[i];
  }
}

// exp(G(t) - G(j)) for j <= t, row after row of `stride`; what is above the diagonal is left.
template <class T>
SWITCHYARD_INLINE void pair_decays_body(const double* sum, int64_t size, T* to) {
  for (int64_t t = 0; t < size; ++t) {
    const double end = sum[t];
    T* row = to + t * size;
    for (int64_t j = 0; j <= t; ++j) {
      row[j] = static_cast<T>(end - sum[j]);
    }
#pragma omp simd
    for (int64_t j = 0; j <= t; ++j) {
      row[j] = vector_exp(row[j]);
    }
  }
}
SWITCHYARD_VECTOR_CLONES void pair_decays(const double* sum, int64_t size, double* to) {
  pair_decays_body(sum, size, to);
}
SWITCHYARD_VECTOR_CLONES void pair_decays(const double* sum, int64_t size, float* to) {
  pair_decays_body(sum, size, to);
}

// Row t of `to` = scale[t] x decays x scores for j below t + 1 - strictly, zeros from there on.
template <class T>
SWITCHYARD_INLINE void weigh_lower_body(const T* scores, const T* decays, const T* scale,
                                        bool strictly, int64_t size, T* to) {
  for (int64_t t = 0; t < size; ++t) {
    const int64_t count = strictly ? t : t + 1;
    const T factor = scale == nullptr ? T{1} : scale[t];
    T* row = to + t * size;
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) {
      row[j] = factor * (scores[t * size + j] * decays[t * size + j]);
    }
    std::fill(row + count, row + size, T{0});
  }
}
SWITCHYARD_VECTOR_CLONES void weigh_lower(const double* scores, const double* decays,
                                          const double* scale, bool strictly, int64_t size,
                                          double* to) {
  weigh_lower_body(scores, decays, scale, strictly, size, to);
}
SWITCHYARD_VECTOR_CLONES void weigh_lower(const float* scores, const float* decays,
                                          const float* scale, bool strictly, int64_t size,
                                          float* to) {
  weigh_lower_body(scores, decays, scale, strictly, size, to);
}

// Solves (1 + system) w = right in place; system [size, size] is strictly lower triangular, right
// [size, width].
template <class T>
SWITCHYARD_INLINE void solve_lower_body(const T* system, int64_t size, int64_t width, T* right) {
  for (int64_t t = 1; t < size; ++t) {
    for (int64_t j = 0; j < t; ++j) {
      add_scaled_body(-system[t * size + j], right + j * width, width, right + t * width);
    }
  }
}
SWITCHYARD_VECTOR_CLONES void solve_lower(const double* system, int64_t size, int64_t width,
                                          double* right) {
  solve_lower_body(system, size, width, right);
}
SWITCHYARD_VECTOR_CLONES void solve_lower(const float* system, int64_t size, int64_t width,
                                          float* right) {
  solve_lower_body(system, size, width, right);
}

// Solves (1 + system)^T w = right in place.
template <class T>
SWITCHYARD_INLINE void solve_transposed_body(const T* system, int64_t size, int64_t width,
                                             T* right) {
  for (int64_t t = size - 1; t > 0; --t) {
    for (int64_t j = 0; j < t; ++j) {
      add_scaled_body(-system[t * size + j], right + t * width, width, right + j * width);
    }
  }
}
SWITCHYARD_VECTOR_CLONES void solve_transposed(const double* system, int64_t size, int64_t width,
                                               double* right) {
  solve_transposed_body(system, size, width, right);
}
SWITCHYARD_VECTOR_CLONES void solve_transposed(const float* system, int64_t size, int64_t width,
                                               float* right) {
  solve_transposed_body(system, size, width, right);
}

// Of weights = scale x decays x scores (see weigh_lower), from their gradient, which becomes that
// of the scores: adds to those of G and, unless null, of scale. `parts` [size].
template <class T>
SWITCHYARD_INLINE void weigh_lower_grads_body(const T* scores, const T* decays, const T* scale,
                                              bool strictly, int64_t size, T* parts, T* grad,
                                              double* grad_sum, T* grad_scale) {
  for (int64_t t = 0; t < size; ++t) {
    const int64_t count = strictly ? t : t + 1;
    const T factor = scale == nullptr ? T{1} : scale[t];
    const T* score = scores + t * size;
    const T* decay = decays + t * size;
    T* row = grad + t * size;
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) {
      const T decayed = row[j] * decay[j];
      parts[j] = decayed * score[j];
      row[j] = factor * decayed;
      grad_sum[j] -= static_cast<double>(factor) * static_cast<double>(parts[j]);
    }
    std::fill(row + count, row + size, T{0});
    const double sum = lane_sum<double>(
        count, [=](int64_t j)
                   __attribute__((always_inline)) { return static_cast<double>(parts[j]); });
    grad_sum[t] += static_cast<double>(factor) * sum;
    if (grad_scale != nullptr) {
      grad_scale[t] += static_cast<T>(sum);
    }
  }
}
SWITCHYARD_VECTOR_CLONES void weigh_lower_grads(const double* scores, const double* decays,
                                                const double* scale, bool strictly, int64_t size,
                                                double* parts, double* grad, double* grad_sum,
                                                double* grad_scale) {
  weigh_lower_grads_body(scores, decays, scale, strictly, size, parts, grad, grad_sum, grad_scale);
}
SWITCHYARD_VECTOR_CLONES void weigh_lower_grads(const float* scores, const float* decays,
                                                const float* scale, bool strictly, int64_t size,
                                                float* parts, float* grad, double* grad_sum,
                                                float* grad_scale) {
  weigh_lower_grads_body(scores, decays, scale, strictly, size, parts, grad, grad_sum, grad_scale);
}

// s = decay s; out = s^T q after s += k (beta (v - s^T k))^T, for one token. `written` [value_dim].
template <class T>
SWITCHYARD_INLINE void step_rule_body(const T* q, const T* k, const T* v, T decay, T beta,
                                      int64_t key_dim, int64_t value_dim, T* written, T* state,
                                      T* out) {
  std::fill_n(written, value_dim, T{0});
  for (int64_t i = 0; i < key_dim; ++i) {
    T* row = state + i * value_dim;
    const T key = k[i];
#pragma omp simd
    for (int64_t j = 0; j < value_dim; ++j) {
      row[j] *= decay;
      written[j] += key * row[j];
    }
  }
#pragma omp simd
  for (int64_t j = 0; j < value_dim; ++j) {
    written[j] = beta * (v[j] - written[j]);
  }
  std::fill_n(out, value_dim, T{0});
  for (int64_t i = 0; i < key_dim; ++i) {
    T* row = state + i * value_dim;
    const T key = k[i];
    const T query = q[i];
#pragma omp simd
    for (int64_t j = 0; j < value_dim; ++j) {
      row[j] += key * written[j];
      out[j] += query * row[j];
    }
  }
}
SWITCHYARD_VECTOR_CLONES void step_rule(const double* q, const double* k, const double* v,
                                        double decay, double beta, int64_t key_dim,
                                        int64_t value_dim, double* written, double* state,
                                        double* out) {
  step_rule_body(q, k, v, decay, beta, key_dim, value_dim, written, state, out);
}
SWITCHYARD_VECTOR_CLONES void step_rule(const float* q, const float* k, const float* v, float decay,
                                        float beta, int64_t key_dim, int64_t value_dim,
                                        float* written, float* state, float* out) {
  step_rule_body(q, k, v, decay, beta, key_dim, value_dim, written, state, out);
}

// [rows, width] matrices for TaskMemory::multiply.
template <class T>
struct Matrix {
  const T* data;
  int64_t stride;
  bool transposed = false;
};

// What one chunk of one head works in, and what forward and backward both make.
template <class T>
class HeadChunk {
 public:
  HeadChunk(const RuleArrays<T>& in, const RuleSizes& sizes, TaskMemory<T>& memory)
      : in_(in), sizes_(sizes), memory_(memory) {
    const int64_t longest = sizes.longest_chunk;
    sum_ = reinterpret_cast<double*>(memory.take(2 * longest));
    for (T** array : {&decay_, &to_end_, &beta_, &factors_, &dots_}) {
      *array = memory.take(longest);
    }
    for (T** array : {&key_scores_, &query_scores_, &pairs_, &system_, &weights_}) {
      *array = memory.take(longest * longest);
    }
    for (T** array : {&read_, &written_}) {
      *array = memory.take(longest * sizes.value_dim);
    }
    rows_ = memory.take(longest * std::max(sizes.key_dim, sizes.value_dim));
  }
  static constexpr int64_t kArrays = 14;
  static int64_t elements(const RuleSizes& sizes) {
    const int64_t longest = sizes.longest_chunk;
    return longest *
           (7 + 5 * longest + 2 * sizes.value_dim + std::max(sizes.key_dim, sizes.value_dim));
  }

  // The scores of a chunk, which all value heads of a key head share.
  void begin(const SequenceChunk& chunk, int64_t key_head) {
    chunk_ = chunk;
    key_head_ = key_head;
    multiply(keys(), {keys().data, keys().stride, true}, chunk.size, chunk.size, sizes_.key_dim,
             key_scores_);
    multiply(queries(), {keys().data, keys().stride, true}, chunk.size, chunk.size, sizes_.key_dim,
             query_scores_);
  }

  // What the tokens write, for one value head whose state before the chunk is `state`.
  void solve(int64_t head, const T* state) {
    head_ = head;
    load_steps();
    const int64_t size = chunk_.size;
    pair_decays(sum_, size, pairs_);
    weigh_lower(key_scores_, pairs_, beta_, true, size, system_);
    multiply(keys(), {state, sizes_.value_dim}, size, sizes_.value_dim, sizes_.key_dim, read_);
    scale_rows(values(), sizes_.value_stride(), beta_, size, sizes_.value_dim, written_);
    for (int64_t i = 0; i < size; ++i) {
      factors_[i] = -beta_[i] * decay_[i];
    }
    add_scaled_rows(read_, sizes_.value_dim, factors_, size, sizes_.value_dim, written_,
                    sizes_.value_dim);
    solve_lower(system_, size, sizes_.value_dim, written_);
    weigh_lower(query_scores_, pairs_, nullptr, false, size, weights_);
  }

  // After solve(): writes the outputs, and moves the state behind the chunk.
  void finish(T* state, T* out) {
    const int64_t size = chunk_.size;
    const int64_t stride = sizes_.value_stride();
    scale_rows(queries().data, queries().stride, decay_, size, sizes_.key_dim, rows_);
    T* to = out + chunk_.begin * stride + head_ * sizes_.value_dim;
    multiply({rows_, sizes_.key_dim}, {state, sizes_.value_dim}, size, sizes_.value_dim,
             sizes_.key_dim, to, stride);
    add_product({weights_, size}, {written_, sizes_.value_dim}, size, sizes_.value_dim, size, to,
                stride);
    scale_rows(keys().data, keys().stride, to_end_, size, sizes_.key_dim, rows_);
    scale_array(decay_[size - 1], sizes_.per_state(), state);
    add_product({rows_, sizes_.key_dim, true}, {written_, sizes_.value_dim}, sizes_.key_dim,
                sizes_.value_dim, size, state, sizes_.value_dim);
  }

 protected:
  void load_steps() {
    double sum = 0;
    for (int64_t i = 0; i < chunk_.size; ++i) {
      const int64_t at = (chunk_.begin + i) * sizes_.value_heads + head_;
      sum += static_cast<double>(in_.log_decay[at]);
      sum_[i] = sum;
      decay_[i] = static_cast<T>(std::exp(sum));
      beta_[i] = in_.beta[at];
    }
    for (int64_t i = 0; i < chunk_.size; ++i) {
      to_end_[i] = static_cast<T>(std::exp(sum - sum_[i]));
    }
  }

  Matrix<T> keys() const {
    return {in_.k + chunk_.begin * sizes_.key_stride() + key_head_ * sizes_.key_dim,
            sizes_.key_stride()};
  }
  Matrix<T> queries() const {
    return {in_.q + chunk_.begin * sizes_.key_stride() + key_head_ * sizes_.key_dim,
            sizes_.key_stride()};
  }
  const T* values() const {
    return in_.v + chunk_.begin * sizes_.value_stride() + head_ * sizes_.value_dim;
  }

  // to [m, n] = a [m, k] x b [k, n].
  void multiply(const Matrix<T>& a, const Matrix<T>& b, int64_t m, int64_t n, int64_t k, T* to,
                int64_t stride = 0) {
    product(a, b, m, n, k, to, stride, false);
  }
  void add_product(const Matrix<T>& a, const Matrix<T>& b, int64_t m, int64_t n, int64_t k, T* to,
                   int64_t stride = 0) {
    product(a, b, m, n, k, to, stride, true);
  }

  RuleArrays<T> in_;
  RuleSizes sizes_;
  TaskMemory<T>& memory_;
  SequenceChunk chunk_{};
  int64_t key_head_ = 0;
  int64_t head_ = 0;

  double* sum_;      // [chunk]: G; fp64, for its differences are exponents
  T* decay_;         // [chunk]: exp(G)
  T* to_end_;        // [chunk]: exp(G(last) - G)
  T* beta_;          // [chunk]
  T* factors_;       // [chunk]
  T* dots_;          // [chunk]
  T* key_scores_;    // [chunk, chunk]
  T* query_scores_;  // [chunk, chunk]
  T* pairs_;         // [chunk, chunk]: exp(G(t) - G(j))
  T* system_;        // [chunk, chunk]
  T* weights_;       // [chunk, chunk]: of what was written, in the outputs
  T* read_;          // [chunk, value_dim]: state^T k
  T* written_;       // [chunk, value_dim]
  T* rows_;          // [chunk, key_dim or value_dim]

 private:
  void product(const Matrix<T>& a, const Matrix<T>& b, int64_t m, int64_t n, int64_t k, T* to,
               int64_t stride, bool adds) {
    memory_.multiply({.a = a.data,
                      .a_stride = a.stride,
                      .a_transposed = a.transposed,
                      .b = b.data,
                      .b_stride = b.stride,
                      .b_transposed = b.transposed,
                      .c = to,
                      .c_stride = stride == 0 ? n : stride,
                      .m = m,
                      .n = n,
                      .k = k,
                      .wide_c = adds ? to : nullptr,
                      .accumulate = adds});
  }
};

template <class T>
class HeadChunkGrads : public HeadChunk<T> {
 public:
  HeadChunkGrads(const RuleArrays<T>& in, const RuleSizes& sizes, TaskMemory<T>& memory,
                 const T* grad_out, const RuleGradArrays<T>& to)
      : HeadChunk<T>(in, sizes, memory), grad_out_(grad_out), to_(to) {
    const int64_t longest = sizes.longest_chunk;
    grad_sum_ = reinterpret_cast<double*>(memory.take(2 * longest));
    grad_beta_ = memory.take(longest);
    grad_scores_ = memory.take(longest * longest);
    grad_written_ = memory.take(longest * sizes.value_dim);
    for (T** array : {&grad_q_, &grad_k_}) {
      *array = memory.take(longest * sizes.key_dim);
    }
  }
  static constexpr int64_t kArrays = HeadChunk<T>::kArrays + 6;
  static int64_t elements(const RuleSizes& sizes) {
    const int64_t longest = sizes.longest_chunk;
    return HeadChunk<T>::elements(sizes) +
           longest * (3 + longest + sizes.value_dim + 2 * sizes.key_dim);
  }

  void begin(const SequenceChunk& chunk, int64_t key_head) {
    HeadChunk<T>::begin(chunk, key_head);
    std::fill_n(grad_q_, chunk.size * sizes_.key_dim, T{0});
    std::fill_n(grad_k_, chunk.size * sizes_.key_dim, T{0});
  }

  // After solve(head, state). `grad_state`: of the state after the chunk, becomes that of the one
  // before it.
  void add_head(const T* state, T* grad_state) {
    const int64_t size = chunk_.size;
    std::fill_n(grad_sum_, size, 0.0);
    std::fill_n(grad_beta_, size, T{0});
    grads_of_written(grad_state);
    grads_of_query_scores();
    grads_of_state_after(state, grad_state);
    grads_of_queries_before(state, grad_state);
    solve_transposed(system_, size, sizes_.value_dim, grad_written_);
    grads_of_system();
    grads_of_right_side(state, grad_state);
    write_steps();
  }

  // Writes the gradients of queries and keys, summed over the value heads.
  void finish_keys() {
    for (int64_t i = 0; i < chunk_.size; ++i) {
      const int64_t at =
          (chunk_.begin + i) * sizes_.key_stride() + this->key_head_ * sizes_.key_dim;
      std::copy_n(grad_q_ + i * sizes_.key_dim, sizes_.key_dim, to_.q + at);
      std::copy_n(grad_k_ + i * sizes_.key_dim, sizes_.key_dim, to_.k + at);
    }
  }

 private:
  using HeadChunk<T>::sizes_;
  using HeadChunk<T>::chunk_;
  using HeadChunk<T>::system_;
  using HeadChunk<T>::pairs_;
  using HeadChunk<T>::rows_;
  using HeadChunk<T>::dots_;
  using HeadChunk<T>::factors_;
  using HeadChunk<T>::written_;
  using HeadChunk<T>::decay_;
  using HeadChunk<T>::to_end_;
  using HeadChunk<T>::beta_;
  using HeadChunk<T>::read_;

  Matrix<T> grad_out() const {
    return {grad_out_ + chunk_.begin * sizes_.value_stride() + this->head_ * sizes_.value_dim,
            sizes_.value_stride()};
  }

  // grad_written = weights^T grad_out + (exp(G(last) - G) k) grad_state.
  void grads_of_written(const T* grad_state) {
    const int64_t size = chunk_.size;
    this->multiply({this->weights_, size, true}, grad_out(), size, sizes_.value_dim, size,
                   grad_written_);
    scale_rows(this->keys().data, this->keys().stride, to_end_, size, sizes_.key_dim, rows_);
    this->add_product({rows_, sizes_.key_dim}, {grad_state, sizes_.value_dim}, size,
                      sizes_.value_dim, sizes_.key_dim, grad_written_);
  }

  // Through the weights of what was written, in the outputs.
  void grads_of_query_scores() {
    const int64_t size = chunk_.size;
    this->multiply(grad_out(), {written_, sizes_.value_dim, true}, size, size, sizes_.value_dim,
                   grad_scores_);
    weigh_lower_grads(this->query_scores_, pairs_, nullptr, false, size, dots_, grad_scores_,
                      grad_sum_, nullptr);
    this->add_product({grad_scores_, size}, this->keys(), size, sizes_.key_dim, size, grad_q_);
    this->add_product({grad_scores_, size, true}, this->queries(), size, sizes_.key_dim, size,
                      grad_k_);
  }

  // Through exp(G(last) - G(j)) k[j] w[j]^T and exp(G(last)) s; grad_state becomes what reaches s
  // this way.
  void grads_of_state_after(const T* state, T* grad_state) {
    const int64_t size = chunk_.size;
    this->multiply({written_, sizes_.value_dim}, {grad_state, sizes_.value_dim, true}, size,
                   sizes_.key_dim, sizes_.value_dim, rows_);
    dot_rows(rows_, sizes_.key_dim, this->keys().data, this->keys().stride, size, sizes_.key_dim,
             dots_);
    add_scaled_rows(rows_, sizes_.key_dim, to_end_, size, sizes_.key_dim, grad_k_, sizes_.key_dim);
    double last = 0;
    for (int64_t i = 0; i < size; ++i) {
      const auto part = static_cast<double>(to_end_[i] * dots_[i]);
      grad_sum_[i] -= part;
      last += part;
    }
    T dot = 0;
    dot_rows(state, 0, grad_state, 0, 1, sizes_.per_state(), &dot);
    grad_sum_[size - 1] += last + static_cast<double>(decay_[size - 1] * dot);
    scale_array(decay_[size - 1], sizes_.per_state(), grad_state);
  }

  // Through exp(G(t)) s^T q[t].
  void grads_of_queries_before(const T* state, T* grad_state) {
    const int64_t size = chunk_.size;
    this->multiply(grad_out(), {state, sizes_.value_dim, true}, size, sizes_.key_dim,
                   sizes_.value_dim, rows_);
    dot_rows(rows_, sizes_.key_dim, this->queries().data, this->queries().stride, size,
             sizes_.key_dim, dots_);
    for (int64_t i = 0; i < size; ++i) {
      grad_sum_[i] += static_cast<double>(decay_[i] * dots_[i]);
    }
    add_scaled_rows(rows_, sizes_.key_dim, decay_, size, sizes_.key_dim, grad_q_, sizes_.key_dim);
    scale_rows(this->queries().data, this->queries().stride, decay_, size, sizes_.key_dim, rows_);
    this->add_product({rows_, sizes_.key_dim, true}, grad_out(), sizes_.key_dim, sizes_.value_dim,
                      size, grad_state);
  }

  // Through the system, whose gradient is -(gradient of its right side) w^T. From here on
  // grad_written_ is the gradient of the right side.
  void grads_of_system() {
    const int64_t size = chunk_.size;
    this->multiply({grad_written_, sizes_.value_dim}, {written_, sizes_.value_dim, true}, size,
                   size, sizes_.value_dim, grad_scores_);
    scale_array(T{-1}, size * size, grad_scores_);
    weigh_lower_grads(this->key_scores_, pairs_, beta_, true, size, dots_, grad_scores_, grad_sum_,
                      grad_beta_);
    this->add_product({grad_scores_, size}, this->keys(), size, sizes_.key_dim, size, grad_k_);
    this->add_product({grad_scores_, size, true}, this->keys(), size, sizes_.key_dim, size,
                      grad_k_);
  }

  // Through beta[t] (v[t] - exp(G(t)) s^T k[t]).
  void grads_of_right_side(const T* state, T* grad_state) {
    const int64_t size = chunk_.size;
    const int64_t stride = sizes_.value_stride();
    dot_rows(grad_written_, sizes_.value_dim, this->values(), stride, size, sizes_.value_dim,
             dots_);
    for (int64_t i = 0; i < size; ++i) {
      grad_beta_[i] += dots_[i];
    }
    T* grad_v = to_.v + chunk_.begin * stride + this->head_ * sizes_.value_dim;
    for (int64_t i = 0; i < size; ++i) {
      scale_rows(grad_written_ + i * sizes_.value_dim, sizes_.value_dim, beta_ + i, 1,
                 sizes_.value_dim, grad_v + i * stride);
    }
    dot_rows(grad_written_, sizes_.value_dim, read_, sizes_.value_dim, size, sizes_.value_dim,
             dots_);
    for (int64_t i = 0; i < size; ++i) {
      grad_beta_[i] -= decay_[i] * dots_[i];
      grad_sum_[i] -= static_cast<double>(beta_[i] * decay_[i] * dots_[i]);
      factors_[i] = -beta_[i] * decay_[i];
    }
    // The gradient of s^T k[t].
    scale_rows(grad_written_, sizes_.value_dim, factors_, size, sizes_.value_dim, read_);
    this->add_product({read_, sizes_.value_dim}, {state, sizes_.value_dim, true}, size,
                      sizes_.key_dim, sizes_.value_dim, grad_k_);
    this->add_product({this->keys().data, this->keys().stride, true}, {read_, sizes_.value_dim},
                      sizes_.key_dim, sizes_.value_dim, size, grad_state);
  }

  // G(t) is a sum of log_decay.
  void write_steps() {
    double after = 0;
    for (int64_t i = chunk_.size - 1; i >= 0; --i) {
      const int64_t at = (chunk_.begin + i) * sizes_.value_heads + this->head_;
      after += grad_sum_[i];
      to_.log_decay[at] = static_cast<T>(after);
      to_.beta[at] = grad_beta_[i];
    }
  }

  const T* grad_out_;
  RuleGradArrays<T> to_;
  double* grad_sum_;  // [chunk]: of G; fp64, for much of it cancels out
  T* grad_beta_;      // [chunk]
  T* grad_scores_;    // [chunk, chunk]
  T* grad_written_;   // [chunk, value_dim]
  T* grad_q_;         // [chunk, key_dim], summed over the value heads
  T* grad_k_;         // as grad_q_
};

// Where head `head` of number `index` is in an array of [number, value_heads, key_dim, value_dim].
int64_t state_at(const RuleSizes& sizes, int64_t index, int64_t head) {
  return (index * sizes.value_heads + head) * sizes.per_state();
}

// Chunks first to end - 1 are a sequence's.
struct ChunksOfSequence {
  size_t first;
  size_t end;
};
std::vector<ChunksOfSequence> by_sequence(const std::vector<SequenceChunk>& chunks) {
  std::vector<ChunksOfSequence> sequences;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (chunks[i].is_first) {
      sequences.push_back({i, i});
    }
    sequences.back().end = i + 1;
  }
  return sequences;
}

}  // namespace

template <class T>
void rule_forward(const RuleArrays<T>& in, const RuleSizes& sizes,
                  const std::vector<SequenceChunk>& chunks, T* states, T* last, T* out) {
  const std::vector<ChunksOfSequence> sequences = by_sequence(chunks);
  run_tasks(static_cast<int64_t>(sequences.size()) * sizes.key_heads, [&](int64_t task) {
    const int64_t sequence = task / sizes.key_heads;
    const int64_t key_head = task % sizes.key_heads;
    TaskMemory<T> memory(HeadChunk<T>::elements(sizes), HeadChunk<T>::kArrays);
    HeadChunk<T> work(in, sizes, memory);
    const ChunksOfSequence& of = sequences[static_cast<size_t>(sequence)];
    for (size_t index = of.first; index < of.end; ++index) {
      work.begin(chunks[index], key_head);
      for (int64_t i = 0; i < sizes.values_per_key(); ++i) {
        const int64_t head = key_head * sizes.values_per_key() + i;
        T* state = last + state_at(sizes, sequence, head);
        std::copy_n(state, sizes.per_state(),
                    states + state_at(sizes, static_cast<int64_t>(index), head));
        work.solve(head, state);
        work.finish(state, out);
      }
    }
  });
}

template <class T>
void rule_backward(const RuleArrays<T>& in, const RuleSizes& sizes,
                   const std::vector<SequenceChunk>& chunks, const T* states, const T* grad_out,
                   T* grad_state, const RuleGradArrays<T>& to) {
  const std::vector<ChunksOfSequence> sequences = by_sequence(chunks);
  run_tasks(static_cast<int64_t>(sequences.size()) * sizes.key_heads, [&](int64_t task) {
    const int64_t sequence = task / sizes.key_heads;
    const int64_t key_head = task % sizes.key_heads;
    TaskMemory<T> memory(HeadChunkGrads<T>::elements(sizes), HeadChunkGrads<T>::kArrays);
    HeadChunkGrads<T> work(in, sizes, memory, grad_out, to);
    const ChunksOfSequence& of = sequences[static_cast<size_t>(sequence)];
    for (size_t index = of.end; index-- > of.first;) {
      work.begin(chunks[index], key_head);
      for (int64_t i = 0; i < sizes.values_per_key(); ++i) {
        const int64_t head = key_head * sizes.values_per_key() + i;
        const T* state = states + state_at(sizes, static_cast<int64_t>(index), head);
        work.solve(head, state);
        work.add_head(state, grad_state + state_at(sizes, sequence, head));
      }
      work.finish_keys();
    }
  });
}

template <class T>
void rule_steps(const RuleArrays<T>& in, const RuleSizes& sizes, int64_t num_tokens, T* states,
                T* out) {
  run_tasks(sizes.value_heads, [&](int64_t head) {
    const int64_t key_head = head / sizes.values_per_key();
    auto* written =
        static_cast<T*>(thread_scratch(sizes.value_dim * static_cast<int64_t>(sizeof(T))));
    for (int64_t token = 0; token < num_tokens; ++token) {
      const int64_t key = token * sizes.key_stride() + key_head * sizes.key_dim;
      const int64_t value = token * sizes.value_stride() + head * sizes.value_dim;
      const int64_t step = token * sizes.value_heads + head;
      step_rule(in.q + key, in.k + key, in.v + value, std::exp(in.log_decay[step]), in.beta[step],
                sizes.key_dim, sizes.value_dim, written, states + state_at(sizes, 0, head),
                out + value);
    }
  });
}

template void rule_forward(const RuleArrays<float>&, const RuleSizes&,
                           const std::vector<SequenceChunk>&, float*, float*, float*);
template void rule_backward(const RuleArrays<float>&, const RuleSizes&,
                            const std::vector<SequenceChunk>&, const float*, const float*, float*,
                            const RuleGradArrays<float>&);
template void rule_steps(const RuleArrays<float>&, const RuleSizes&, int64_t, float*, float*);
template void rule_forward(const RuleArrays<double>&, const RuleSizes&,
                           const std::vector<SequenceChunk>&, double*, double*, double*);
template void rule_backward(const RuleArrays<double>&, const RuleSizes&,
                            const std::vector<SequenceChunk>&, const double*, const double*,
                            double*, const RuleGradArrays<double>&);
template void rule_steps(const RuleArrays<double>&, const RuleSizes&, int64_t, double*, double*);

}  // namespace switchyard

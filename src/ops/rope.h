#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace switchyard {

// Cosines and sines of position x frequency, computed once and used by every layer.
struct RotaryTable {
  at::Tensor cosine;  // [max_position, rotary_dim / 2] fp32, or fp64 for fp64
  at::Tensor sine;    // [max_position, rotary_dim / 2]

  int64_t max_position() const { return cosine.size(0); }
  int64_t rotary_dim() const { return 2 * cosine.size(1); }
};

// Frequencies base^(-2i / rotary_dim) for i below rotary_dim / 2. `dtype` is that of the tensors to
// rotate: the table is fp64 for fp64, else fp32. Frequencies and angles are rounded to the table's
// dtype, as HF does. RoPE: Su et al. 2021, arXiv:2104.09864.
RotaryTable make_rotary_table(int64_t max_position, int64_t rotary_dim, double base,
                              at::ScalarType dtype);

// From given frequencies [rotary_dim / 2], as scaled variants of RoPE have them. Cosines and sines
// are multiplied by `factor`.
RotaryTable make_rotary_table(int64_t max_position, const at::Tensor& inverse_frequencies,
                              at::ScalarType dtype, double factor = 1);

// Rotates the pairs (i, i + rotary_dim / 2) of each head by the token's position (rotate-half, as
// HF's apply_rotary_pos_emb); dims from rotary_dim on stay as they are, all where it is 0. x
// [tokens, heads, head_dim] fp64, fp32 or bf16, any strides with adjacent head_dim; positions
// [tokens] int64 -> [tokens, heads, head_dim], contiguous. bf16 is computed in fp32 and rounded
// once.
//
// Differentiable in x: the gradient is rotated back. Throws ShapeError when sizes or dtypes do not
// fit or a position is outside the table. The same bits for every number of threads.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& positions, const RotaryTable& table);

// Features 0, 2, 4 ... of each head, then 1, 3, 5 ...: rotate() of it turns the neighbours
// (2i, 2i + 1) together. The order stays changed, which products of queries and keys do not see.
// x [tokens, heads, head_dim] -> the same shape, head_dim even.
at::Tensor pairs_apart(const at::Tensor& x);

}  // namespace switchyard

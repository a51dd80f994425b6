#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace switchyard {

struct AdamwOptions {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double gradient_scale = 1;  // multiplies the gradient first: the clip coefficient
  int64_t step = 1;           // counted from 1, for the bias corrections
};

// Flat tensors of one size: [elements].
struct AdamwState {
  at::Tensor master;         // fp32 or fp64 weights, updated
  at::Tensor gradient;       // dtype of master, read
  at::Tensor first_moment;   // dtype of master, updated
  at::Tensor second_moment;  // dtype of master, updated
  at::Tensor copy;           // bf16 weights to write, or undefined
};

// One step of AdamW with decoupled weight decay, in one pass:
//   w -= lr * weight_decay * w;  m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2
//   w -= lr / (1 - beta1^step) * m / (sqrt(v / (1 - beta2^step)) + epsilon)
// Matches torch.optim.AdamW. Element by element: the same bits for every number of threads, and
// for every way to cut a tensor into pieces. Throws ShapeError when sizes or dtypes do not fit.
// AdamW: Loshchilov and Hutter 2019, arXiv:1711.05101.
void adamw_step(const AdamwState& state, const AdamwOptions& options);

// Sum of squares of all elements of a contiguous tensor, in fp64 over blocks of fixed size: the
// same bits for every number of threads. Not finite if any element is not finite.
double sum_of_squares(const at::Tensor& tensor);

}  // namespace switchyard

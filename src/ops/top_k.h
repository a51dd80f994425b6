#pragma once

#include <ATen/core/Tensor.h>

namespace switchyard {

// The k experts of highest score for each token, best first; equal scores go to the lowest id, and
// NaN is below every number. scores [tokens, num_experts] fp64, fp32 or bf16 -> [tokens, k] int64,
// k distinct ids in each row whatever the scores. (at::topk leaves the order of ties open.)
//
// Not differentiable: gather the scores of the ids instead. Throws ShapeError unless
// 1 <= k <= num_experts. The same for every number of threads.
at::Tensor top_k_ids(const at::Tensor& scores, int64_t k);

}  // namespace switchyard

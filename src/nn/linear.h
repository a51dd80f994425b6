#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "nn/parameters.h"
#include "parallel/collectives.h"

namespace switchyard {

// The two linear layers of tensor parallelism (Megatron-LM, arXiv:1909.08053). Neither has a bias.
// forward() is collective over tp where the placements differ.

// y = x W^T with the output features cut over tp. Several logical parameters may lie one after the
// other in W, each cut on its own (q, k and v; gate and up), so that one GEMM serves them.
class ColumnLinear {
 public:
  // The last dim of each piece is in_features; all other dims together are its output features.
  ColumnLinear(const Scope& scope, std::vector<ParameterSpec> pieces, int64_t in_features,
               const Site& input_site);

  // input [tokens, in] invariant over tp, or sharded by tokens -> [tokens, out/tp]
  at::Tensor forward(const Placed& input) const;

 private:
  const Group& tensor_group_;
  Site input_site_;
  at::Tensor weight_;  // [out/tp, in]
};

// y = x W^T with the input features cut over tp: each rank makes a part of the sum.
class RowLinear {
 public:
  // The first dim of `weight` is out_features; the cut dim is in its placement.
  RowLinear(const Scope& scope, ParameterSpec weight, const Site& output_site);

  // input [tokens, in/tp] -> [tokens, out], placed as asked: invariant, or sharded by tokens.
  Placed forward(const at::Tensor& input, const Placement& output) const;

 private:
  const Group& tensor_group_;
  Site output_site_;
  at::Tensor weight_;  // [out, in/tp]
};

}  // namespace switchyard

#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "nn/parameters.h"
#include "parallel/collectives.h"

namespace switchyard {

struct Config;

// The two linear layers of tensor parallelism (Megatron-LM, arXiv:1909.08053). forward() is
// collective over tp where the placements differ.

// y = x W^T with the output features cut over tp. Several logical parameters may lie one after the
// other in W, each cut on its own (q, k and v; gate and up), so that one GEMM serves them. One that
// is replicated instead gives all of its features on every rank.
class ColumnLinear {
 public:
  // The last dim of each piece is in_features; all other dims together are its output features.
  // `biases`: none, or one per piece, of its shape without the last dim and cut alike.
  ColumnLinear(const Scope& scope, std::vector<ParameterSpec> pieces, int64_t in_features,
               const Site& input_site, std::vector<ParameterSpec> biases = {});

  // input [tokens, in] invariant over tp, or sharded by tokens -> [tokens, out here]
  at::Tensor forward(const Placed& input) const;

  const at::Tensor& weight() const { return weight_; }  // [out here, in]

 private:
  const Group& tensor_group_;
  Site input_site_;
  at::Tensor weight_;  // [out here, in]
  at::Tensor bias_;    // [out here]; undefined without
};

// y = x W^T with the input features cut over tp: each rank makes a part of the sum.
class RowLinear {
 public:
  // The first dim of `weight` is out_features; the cut dim is in its placement. `bias`: from
  // row_bias(), or none.
  RowLinear(const Scope& scope, ParameterSpec weight, const Site& output_site,
            std::optional<ParameterSpec> bias = {});

  // input [tokens, in/tp] -> [tokens, out], placed as asked: invariant, or sharded by tokens.
  Placed forward(const at::Tensor& input, const Placement& output) const;

 private:
  const Group& tensor_group_;
  Site output_site_;
  at::Tensor weight_;  // [out, in/tp]
  at::Tensor bias_;    // [out]; undefined without
};

// The bias of a RowLinear that makes the hidden size, if it has one: each rank adds it to the sum,
// once. With sequence parallelism each rank adds it to its own tokens, and its gradient is the sum
// over them.
std::optional<ParameterSpec> row_bias(bool has_bias, const Scope& scope, const std::string& name,
                                      const Config& config);

// tensor x factor, without work where the factor is 1.
at::Tensor scaled(const at::Tensor& tensor, double factor);

}  // namespace switchyard

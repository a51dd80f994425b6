#include "nn/output_head.h"

#include <ATen/ATen.h>

namespace switchyard {
namespace {

constexpr Site kInput{"head.input", Purpose::kTensorParallel};
constexpr Site kLargestLogit{"head.largest_logit", Purpose::kTensorParallel};
constexpr Site kSums{"head.sums", Purpose::kTensorParallel};
constexpr Site kLogits{"head.logits", Purpose::kTensorParallel};

}  // namespace

OutputHead::OutputHead(const Scope& scope, const Config& config, const Embedding* embedding)
    : tensor_group_(scope.groups().tensor()),
      vocab_size_(config.model.vocab_size),
      rows_(Embedding::rows_here(tensor_group_, vocab_size_)),
      function_{config.multipliers.logits, config.model.logit_softcap} {
  const ModelConfig& model = config.model;
  if (model.tie_embeddings) {
    weight_ = embedding->weight();
    return;
  }
  weight_ = scope.parameters.declare({{.name = scope.name("weight"),
                                       .shape = {model.vocab_size, model.hidden_size},
                                       .init = Init::normal(model.init_std),
                                       .tensor = Placement::sharded(0, model.vocab_size),
                                       .may_be_uneven = true}},
                                     {rows_.size(), model.hidden_size});
}

TokenLoss OutputHead::loss(const Placed& hidden, const at::Tensor& labels,
                           const at::Tensor& weights) const {
  const Placed all = convert(hidden, Placement::replicated(), tensor_group_, kInput);
  VocabReduce reduce;
  if (tensor_group_.size() > 1) {
    reduce.vocab_offset = rows_.begin;
    reduce.vocab_size = vocab_size_;
    reduce.num_parts = tensor_group_.size();
    reduce.max = [this](at::Tensor& values) {
      tensor_group_.all_reduce(values, kLargestLogit, ReduceOp::kMax);
    };
    reduce.sum = [this](at::Tensor& values) { tensor_group_.all_reduce(values, kSums); };
  }
  const auto dtype = all.tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const CrossEntropyOutput output =
      linear_cross_entropy(all.tensor, weight_, labels, weights.to(dtype), reduce, function_);
  return {output.weighted_loss_sum, output.token_losses};
}

at::Tensor OutputHead::logits(const Placed& hidden) const {
  const Placed all = convert(hidden, Placement::replicated(), tensor_group_, kInput);
  const auto dtype = all.tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor local = at::linear(all.tensor, weight_).to(dtype);  // [tokens, vocab/tp]
  apply_(local, function_, /*needs_slopes=*/false);
  return convert({local, Placement::sharded(1, vocab_size_)}, Placement::invariant(), tensor_group_,
                 kLogits)
      .tensor;
}

}  // namespace switchyard

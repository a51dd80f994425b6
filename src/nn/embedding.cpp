#include "nn/embedding.h"

#include <ATen/ATen.h>

#include "base/error.h"

namespace switchyard {
namespace {

constexpr Site kOutput{"embedding.output", Purpose::kTensorParallel};

}  // namespace

Embedding::Embedding(const Scope& scope, const Config& config, int64_t num_copies,
                     int64_t copy_index)
    : tensor_group_(scope.groups().tensor()),
      vocab_size_(config.model.vocab_size),
      rows_(rows_here(tensor_group_, vocab_size_)),
      multiplier_(config.multipliers.embedding) {
  const ModelConfig& model = config.model;
  weight_ = scope.parameters.declare({{.name = scope.name("weight"),
                                       .shape = {model.vocab_size, model.hidden_size},
                                       .init = Init::normal(model.init_std),
                                       .tensor = Placement::sharded(0, model.vocab_size),
                                       .may_be_uneven = true,
                                       .num_copies = num_copies,
                                       .copy_index = copy_index}},
                                     {rows_.size(), model.hidden_size});
}

ShardRange Embedding::rows_here(const Group& tensor_group, int64_t vocab_size) {
  return shard_range(vocab_size, tensor_group.size(), tensor_group.rank());
}

Placed Embedding::forward(const at::Tensor& ids, const Placement& output) const {
  if (ids.numel() > 0) {
    const auto [lowest, highest] = at::aminmax(ids);
    check<ShapeError>(
        lowest.item<int64_t>() >= 0 && highest.item<int64_t>() < vocab_size_,
        "token ids reach from {} to {}, the vocabulary has {} (model.vocab_size): the "
        "data belongs to another tokenizer",
        lowest.item<int64_t>(), highest.item<int64_t>(), vocab_size_);
  }
  if (tensor_group_.size() == 1) {
    return {multiplied(at::embedding(weight_, ids)), output};
  }
  const at::Tensor local = ids - rows_.begin;
  const at::Tensor is_elsewhere = (local < 0).logical_or_(local >= weight_.size(0));
  const at::Tensor rows = at::embedding(weight_, local.masked_fill(is_elsewhere, 0))
                              .masked_fill(is_elsewhere.unsqueeze(-1), 0);
  return convert({multiplied(rows), Placement::partial()}, output, tensor_group_, kOutput);
}

// By the multiplier in the embedding's own dtype, as GemmaTextScaledWordEmbedding.
at::Tensor Embedding::multiplied(const at::Tensor& rows) const {
  return multiplier_ == 1 ? rows : rows * at::scalar_tensor(multiplier_, rows.options());
}

}  // namespace switchyard

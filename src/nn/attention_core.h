#pragma once

#include <memory>

#include "config/config.h"
#include "nn/context_attention.h"

namespace switchyard {

// Attention of a micro-batch's queries to its keys and values, between the projections of a layer:
// over the ranks of cp where these divide the row, and computed again in backward where
// train.recompute_modules names core_attention.
class AttentionCore {
 public:
  // `context_group` (cp) must outlive it.
  AttentionCore(const Config& config, const Group& context_group);

  // As attention(). Collective over cp where its ranks divide the row of the table.
  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const SequenceTable& table, const AttentionOptions& options) const;

 private:
  bool is_recomputed_;
  std::unique_ptr<ContextAttention> exchange_;
};

}  // namespace switchyard

#pragma once

#include <memory>

#include "model/layer_spec.h"
#include "moe/moe_layer.h"
#include "nn/attention.h"
#include "nn/mlp.h"
#include "nn/norm.h"

namespace switchyard {

struct LayerOutput {
  Placed hidden;
  at::Tensor objective;      // [] this rank's part of the auxiliary terms; undefined without any
  MoeStatistics statistics;  // of an MoE layer; empty in a dense one
};

// Pre-norm decoder layer: x + attention(norm(x)), then x + mlp(norm(x)), dense or MoE.
class DecoderLayer {
 public:
  DecoderLayer(const Scope& scope, const Config& config, const LayerSpec& spec);

  // hidden [tokens, hidden] invariant over tp, or sharded by tokens; `caches`, one per sequence,
  // when generating. Collective as its parts are. What train.recompute_modules names is computed
  // again in backward, with the routing that `memo` holds.
  LayerOutput forward(const Placed& hidden, const ForwardContext& context,
                      const std::shared_ptr<RoutingMemo>& memo,
                      std::vector<KeyValueCache>* caches = nullptr) const;

  MoeLayer* moe() { return moe_.get(); }  // null in a dense layer

 private:
  Placed normed(const Norm& norm, const Placed& hidden) const;
  Placed attend(const Placed& hidden, const ForwardContext& context,
                std::vector<KeyValueCache>* caches) const;
  Placed forward_mlp(const Placed& hidden) const;
  MoeOutput forward_moe(const Placed& hidden, const ForwardContext& context,
                        const std::shared_ptr<RoutingMemo>& memo) const;

  const Parameters& parameters_;
  bool offloads_attention_;
  bool offloads_mlp_;
  bool recomputes_norms_;
  bool recomputes_mlp_;
  bool recomputes_moe_;
  bool drops_outputs_;  // of recomputed modules
  Norm attention_norm_;
  Attention attention_;
  Norm mlp_norm_;
  std::unique_ptr<Mlp> mlp_;
  std::unique_ptr<MoeLayer> moe_;
};

}  // namespace switchyard

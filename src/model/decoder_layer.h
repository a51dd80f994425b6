#pragma once

#include <memory>
#include <vector>

#include "model/layer_spec.h"
#include "moe/moe_layer.h"
#include "nn/mixer.h"
#include "nn/mlp.h"
#include "nn/norm.h"

namespace switchyard {

struct LayerOutput {
  Placed hidden;
  at::Tensor objective;      // [] this rank's part of the auxiliary terms; undefined without any
  MoeStatistics statistics;  // of a layer with experts; empty in others
};

// What a layer keeps of one sequence while the model generates, one per mixer.
using LayerCache = std::vector<std::unique_ptr<MixerCache>>;

// Pre-norm decoder layer: x + the sum of mixer(norm(x)) over its mixers, then x + mlp(norm(x)),
// dense or with experts; either half can be absent. With model.post_norms what a half adds is
// normalised too (Gemma 2, arXiv:2408.00118). Parameters: mixer_norm, those of the mixers,
// mixer_post_norm, mlp_norm, mlp or moe, mlp_post_norm.
class DecoderLayer {
 public:
  DecoderLayer(const Scope& scope, const Config& config, const LayerSpec& spec);

  // hidden [tokens, hidden] invariant over tp, or sharded by tokens; `caches`, one per sequence,
  // when generating, else empty. Collective as its parts are. What train.recompute_modules names is
  // computed again in backward, with the routing that `memo` holds.
  LayerOutput forward(const Placed& hidden, const ForwardContext& context,
                      const std::shared_ptr<RoutingMemo>& memo,
                      const std::vector<LayerCache*>& caches = {}) const;
  LayerCache new_cache() const;

  MoeLayer* moe() { return moe_.get(); }  // null without experts

 private:
  Placed normed(const Norm& norm, const Placed& hidden) const;
  Placed mix(const Placed& hidden, const ForwardContext& context,
             const std::vector<LayerCache*>& caches) const;
  Placed forward_mlp(const Placed& hidden) const;
  MoeOutput forward_moe(const Placed& hidden, const ForwardContext& context,
                        const std::shared_ptr<RoutingMemo>& memo) const;

  const Parameters& parameters_;
  bool offloads_mixers_;
  bool offloads_mlp_;
  bool recomputes_norms_;
  bool recomputes_mlp_;
  bool recomputes_moe_;
  bool drops_outputs_;                // of recomputed modules
  std::unique_ptr<Norm> mixer_norm_;  // null without mixers
  std::vector<std::unique_ptr<Mixer>> mixers_;
  std::unique_ptr<Norm> mixer_post_norm_;  // null without, as the other below
  std::unique_ptr<Norm> mlp_norm_;         // null where neither of these is there
  std::unique_ptr<Mlp> mlp_;
  std::unique_ptr<MoeLayer> moe_;
  std::unique_ptr<Norm> mlp_post_norm_;
};

}  // namespace switchyard

#include "model/make_mixer.h"

#include "base/error.h"
#include "nn/attention.h"
#include "nn/gated_delta_net.h"
#include "nn/latent_attention.h"
#include "nn/mamba1_mixer.h"
#include "nn/mamba2_mixer.h"

namespace switchyard {

std::unique_ptr<Mixer> make_mixer(const Scope& layer, const Config& config, MixerKind kind,
                                  const LayerSpec& spec) {
  switch (kind) {
    case MixerKind::kAttention:
      if (config.mla.is_used()) {
        return std::make_unique<LatentAttention>(layer / "attention", config,
                                                 spec.attention_window);
      }
      return std::make_unique<Attention>(layer / "attention", config, spec.attention_window);
    case MixerKind::kMamba2:
      return std::make_unique<Mamba2Mixer>(layer / "mamba2", config);
    case MixerKind::kDeltaNet:
      return std::make_unique<GatedDeltaNet>(layer / "delta_net", config);
    case MixerKind::kMamba1:
      return std::make_unique<Mamba1Mixer>(layer / "mamba1", config);
  }
  throw ConfigError("model.layer_pattern: there is no such kind of layer");
}

}  // namespace switchyard

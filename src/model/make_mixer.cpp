#include "model/make_mixer.h"

#include "base/error.h"
#include "nn/attention.h"
#include "nn/latent_attention.h"

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
    case MixerKind::kMamba1:
    case MixerKind::kMamba2:
    case MixerKind::kDeltaNet:
      break;
  }
  throw ConfigError("model.layer_pattern: this kind of layer is not built yet");
}

}  // namespace switchyard

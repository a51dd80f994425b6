#pragma once

#include <memory>

#include "model/layer_spec.h"
#include "nn/mixer.h"

namespace switchyard {

// Declares the parameters of one mixer of a layer, below `layer`: layers.N.attention.…
std::unique_ptr<Mixer> make_mixer(const Scope& layer, const Config& config, MixerKind kind,
                                  const LayerSpec& spec);

}  // namespace switchyard

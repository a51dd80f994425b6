#include "model/layer_spec.h"

namespace switchyard {

std::vector<LayerSpec> describe_layers(const ModelConfig& model, const MoeConfig& moe) {
  std::vector<LayerSpec> layers;
  for (int64_t i = 0; i < model.num_layers; ++i) {
    const bool is_moe = moe.num_experts > 0 && i >= moe.first_dense_layers;
    layers.push_back({is_moe ? FeedForward::kMoe : FeedForward::kDense});
  }
  return layers;
}

}  // namespace switchyard

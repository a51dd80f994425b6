#include "config/rules/questions.h"

#include <algorithm>

#include <fmt/format.h>

#include "config/layer_pattern.h"
#include "config/layer_set.h"
#include "config/rules/lines.h"
#include "config/values.h"

namespace switchyard {
namespace {

bool has_layers(const Config& config, FeedForward kind) {
  if (!layers_are_listed(config).empty()) {
    return false;
  }
  const std::vector<LayerKinds> layers = layer_kinds(config);
  return std::any_of(layers.begin(), layers.end(),
                     [kind](const LayerKinds& layer) { return layer.feed_forward == kind; });
}

}  // namespace

bool has_attention(const Config& config) {
  if (!layers_are_listed(config).empty()) {
    return true;
  }
  const std::vector<LayerKinds> layers = layer_kinds(config);
  return std::any_of(layers.begin(), layers.end(),
                     [](const LayerKinds& layer) { return layer.has(MixerKind::kAttention); });
}

bool has_experts(const Config& config) {
  return config.moe.num_experts > 0;
}

bool has_groups(const Config& config) {
  return has_experts(config) && config.moe.has_groups();
}

std::string layers_are_listed(const Config& config) {
  if (!config.model.layer_pattern.empty()) {
    return wrong_layer_pattern(config);
  }
  return wrong_layer_set("moe.layers", config.moe.layers, config.model.num_layers);
}

bool has_dense_layers(const Config& config) {
  return has_layers(config, FeedForward::kDense);
}

bool has_moe_layers(const Config& config) {
  return has_layers(config, FeedForward::kMoe);
}

std::string reason_for_dense_layers(const Config& config) {
  if (!config.model.layer_pattern.empty()) {
    return "model.layer_pattern has dense layers (-)";
  }
  if (!has_experts(config)) {
    return "moe.num_experts is 0, so that every layer is dense";
  }
  return config.moe.first_dense_layers > 0
             ? fmt::format("moe.first_dense_layers is {}", config.moe.first_dense_layers)
             : "moe.layers leaves layers dense";
}

std::string_view score_word(const MoeConfig& moe) {
  return word_of(kScoreFunctionWords, moe.score_function);
}

bool weights_sum_to_one(const MoeConfig& moe) {
  return moe.renormalize || (moe.score_function == ScoreFunction::kSoftmax && !moe.pre_softmax);
}

std::string_view rope_type_word(const Config& config) {
  return word_of(kRopeTypeWords, config.rope.type);
}

bool scales_from_original(const Config& config) {
  return config.rope.type == RopeType::kLlama3 || config.rope.type == RopeType::kYarn;
}

std::string order_names_every_axis(const Config& config) {
  std::vector<std::string> axes;
  const std::string& order = config.parallel.order;
  for (size_t start = 0; start <= order.size();) {
    const size_t end = std::min(order.find('-', start), order.size());
    axes.push_back(order.substr(start, end - start));
    start = end + 1;
  }
  std::sort(axes.begin(), axes.end());
  return unless(axes == std::vector<std::string>{"cp", "dp", "ep", "pp", "tp"},
                "parallel.order (\"{}\") must name tp, cp, ep, dp and pp once each, joined by "
                "dashes, as in tp-cp-ep-dp-pp",
                order);
}

}  // namespace switchyard

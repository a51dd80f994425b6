#include "config/rules/model_rules.h"

#include <fmt/format.h>

#include "config/rules/lines.h"
#include "config/rules/questions.h"

namespace switchyard {
namespace {

std::string dense_layers_fit(const Config& config) {
  return unless(!has_experts(config) || config.moe.first_dense_layers <= config.model.num_layers,
                "moe.first_dense_layers ({}) must not exceed model.num_layers ({})",
                config.moe.first_dense_layers, config.model.num_layers);
}

std::string dense_layers_have_a_width(const Config& config) {
  if (config.model.ffn_hidden_size > 0 || !has_dense_layers(config)) {
    return "";
  }
  return fmt::format("model.ffn_hidden_size must be given: {}", reason_for_dense_layers(config));
}

std::string experts_of_the_pattern_are_there(const Config& config) {
  return unless(!has_moe_layers(config) || has_experts(config),
                "model.layer_pattern has layers with experts (E): moe.num_experts must be given");
}

std::string tensor_ranks_share_projections(const Config& config) {
  return config.mtp.num_layers == 0
             ? ""
             : multiple_of("model.hidden_size", config.model.hidden_size, "parallel.tensor_size",
                           config.parallel.tensor_size,
                           " for the projections of multi-token prediction");
}

}  // namespace

std::vector<std::string> model_rules(const Config& config) {
  return broken_lines({
      dense_layers_have_a_width(config),
      layers_are_listed(config),
      experts_of_the_pattern_are_there(config),
      dense_layers_fit(config),
      tensor_ranks_share_projections(config),
  });
}

}  // namespace switchyard

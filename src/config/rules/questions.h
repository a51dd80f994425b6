#pragma once

#include <string>
#include <string_view>

#include "config/config.h"
#include "config/layer_pattern.h"

namespace switchyard {

// What several rules ask about a configuration, and words for their lines.

bool has_attention(const Config& config);  // in some layer, or who knows
// In some layer; not where the list of layers is malformed.
bool has_mixer(const Config& config, MixerKind kind);
bool has_experts(const Config& config);
bool has_groups(const Config& config);  // of experts

// Whether a layer has a dense MLP, or experts. Neither where the list of layers is malformed.
bool has_dense_layers(const Config& config);
bool has_moe_layers(const Config& config);
std::string reason_for_dense_layers(const Config& config);  // what makes some layers dense

// What is wrong with model.layer_pattern or moe.layers; "" when the layers can be listed.
std::string layers_are_listed(const Config& config);

std::string_view score_word(const MoeConfig& moe);
bool weights_sum_to_one(const MoeConfig& moe);  // whatever the router says

std::string_view rope_type_word(const Config& config);
bool scales_from_original(const Config& config);  // whether rope.original_max_position counts

// What is wrong with parallel.order; "" when it holds every axis once.
std::string order_names_every_axis(const Config& config);

}  // namespace switchyard

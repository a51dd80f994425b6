#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace switchyard {

// Layers of a model, written as a list of texts that may overlap: `3` is one layer, `0-7` the
// layers 0 to 7, `1-23/2` every second layer from 1 to 23. Layers count from 0. What an empty list
// means is up to the setting.

// What is wrong with the list, one line for the first text that is: malformed, or a layer that a
// model of `num_layers` has not. `setting` is the setting's name. "" when all is well: for rules.
std::string wrong_layer_set(std::string_view setting, const std::vector<std::string>& texts,
                            int64_t num_layers);

// For each layer of the model whether it is in the set. [num_layers] Throws ConfigError with the
// line of wrong_layer_set().
std::vector<bool> layer_set(std::string_view setting, const std::vector<std::string>& texts,
                            int64_t num_layers);

}  // namespace switchyard

#pragma once

#include <string>
#include <vector>

#include "hub/family.h"

namespace switchyard {

// What families whose layers scan share. The meaning is that of transformers 5.24.

// Embedding, norms and head of models whose layers are one Mamba layer each.
std::vector<TensorRule> pure_scan_tensors();

// Of a Mamba-2 layer, below `prefix` ("backbone.layers.{layer}.mixer."). The files keep z, x, B, C
// and dt as one projection, and x, B and C as one convolution.
std::vector<TensorRule> mamba2_tensors(const std::string& prefix);

// time_step_limit: the range of time steps, [smallest, largest], where the largest can be infinity.
FieldGroup time_step_limit();

// A number that JSON cannot write, as transformers writes it: {"__float__": "Infinity"}.
bool is_infinity(const nlohmann::json& value);
nlohmann::json infinity();

}  // namespace switchyard

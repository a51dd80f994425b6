#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"

namespace switchyard {

// What one stage of a pipeline holds: layers in a row, and at the ends what is no layer.
struct StageLayers {
  int64_t first = 0;
  int64_t end = 0;
  bool has_embedding = false;
  bool has_head = false;  // final norm, head and loss, and multi-token prediction

  bool operator==(const StageLayers&) const = default;
};

// What is wrong with parallel.pipeline_layout or the numbers of stages and layers, in one line; ""
// when all is well: for rules.
std::string wrong_pipeline_layout(const Config& config);

// What each stage holds: parallel.pipeline_layout or, when that is empty, the layers divided
// evenly; where they do not divide, the first stages have one more. Stage s is on pipeline rank s
// modulo parallel.pipeline_size. [pipeline_size x virtual_pipeline_size] Throws ConfigError with
// the line of wrong_pipeline_layout().
//
// The layout is Megatron's: stages are separated by "|"; in them stand E for the embedding, t for a
// layer, m right before L for a module of multi-token prediction, L for final norm, head and loss;
// t*3 is ttt and (tt|)*2 is tt|tt|; commas and spaces mean nothing.
std::vector<StageLayers> pipeline_layout(const Config& config);

}  // namespace switchyard

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/block_scales.h"
#include "hub/hf_config.h"

namespace switchyard {

// How the weights of a directory are quantised, by quantization_config in its config.json. They are
// decoded when they are read; how a kernel would quantise activations as well plays no part.
struct Quantization {
  // FP8 in blocks: NAME.weight is F8_E4M3 and NAME.weight_scale_inv what multiplies its blocks.
  int64_t block_rows = 0;
  int64_t block_columns = 0;
};

// nullopt where there is none. Throws ConfigError, naming the field, for another method than fp8 in
// blocks.
std::optional<Quantization> read_quantization(HfConfig& fields);

// Of the weight "model.layers.3.mlp.up_proj.weight" in F8_E4M3: the name of its scales. And of
// scales the name of their weight; empty where it is not a name of scales.
std::string scales_name(const std::string& weight);
std::string weight_of_scales(const std::string& scales);

// The blocks of a weight [.., rows, columns]. Throws FileError that starts with `where` unless
// `scales_shape` is [.., rows / block_rows, columns / block_columns], rounded up.
BlockScales blocks_of(const Quantization& quantization, const std::vector<int64_t>& weight_shape,
                      const std::vector<int64_t>& scales_shape, const std::string& where);

}  // namespace switchyard

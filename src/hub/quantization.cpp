#include "hub/quantization.h"

#include <array>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>

#include "base/error.h"

namespace switchyard {
namespace {

using Json = nlohmann::json;

constexpr const char* kField = "quantization_config";
constexpr std::string_view kScalesEnding = "_scale_inv";
constexpr std::string_view kWeightScalesEnding = ".weight_scale_inv";

void check_value(const HfConfig& fields, const Json& given, const char* name,
                 const Json& expected) {
  const Json value = given.value(name, Json());
  check<ConfigError>(value.is_null() || value == expected,
                     "{}: {} of {} is {}, only {} is supported", fields.source(), name, kField,
                     value.dump(), expected.dump());
}

}  // namespace

std::optional<Quantization> read_quantization(HfConfig& fields) {
  const Json* found = fields.find(kField);
  if (found == nullptr || found->is_null()) {
    return std::nullopt;
  }
  check<ConfigError>(found->is_object(), "{}: {} is {}: expected an object", fields.source(),
                     kField, found->dump());
  const Json method = found->value("quant_method", Json());
  check<ConfigError>(method == "fp8",
                     "{}: quant_method of {} is {}, only \"fp8\" is supported: save the model in "
                     "bf16",
                     fields.source(), kField, method.dump());
  check_value(fields, *found, "fmt", "e4m3");
  check_value(fields, *found, "scale_fmt", "float");
  check_value(fields, *found, "expert_dtype", "fp8");
  check_value(fields, *found, "activation_scheme", "dynamic");
  const Json size = found->value("weight_block_size", Json());
  const bool is_pair = size.is_array() && size.size() == 2 && size[0].is_number_integer() &&
                       size[1].is_number_integer() && size[0] > 0 && size[1] > 0;
  check<ConfigError>(is_pair,
                     "{}: weight_block_size of {} is {}: expected the rows and columns of a block, "
                     "as [128, 128]",
                     fields.source(), kField, size.dump());
  return Quantization{size[0].get<int64_t>(), size[1].get<int64_t>()};
}

std::string scales_name(const std::string& weight) {
  return weight + std::string(kScalesEnding);
}

std::string weight_of_scales(const std::string& scales) {
  const bool is_one = scales.ends_with(kWeightScalesEnding);
  return is_one ? scales.substr(0, scales.size() - kScalesEnding.size()) : "";
}

BlockScales blocks_of(const Quantization& quantization, const std::vector<int64_t>& weight_shape,
                      const std::vector<int64_t>& scales_shape, const std::string& where) {
  check<FileError>(weight_shape.size() >= 2, "{} is [{}]: expected a matrix of blocks", where,
                   fmt::join(weight_shape, ", "));
  const size_t last = weight_shape.size() - 1;
  const BlockScales blocks{.file = "",
                           .key = "",
                           .rows = weight_shape[last - 1],
                           .columns = weight_shape[last],
                           .block_rows = quantization.block_rows,
                           .block_columns = quantization.block_columns};
  std::vector<int64_t> expected = weight_shape;
  expected[last - 1] = blocks.num_block_rows();
  expected[last] = blocks.num_block_columns();
  check<FileError>(scales_shape == expected,
                   "{}: its scales are [{}], blocks of [{}, {}] in [{}] make them [{}]", where,
                   fmt::join(scales_shape, ", "), blocks.block_rows, blocks.block_columns,
                   fmt::join(weight_shape, ", "), fmt::join(expected, ", "));
  return blocks;
}

}  // namespace switchyard

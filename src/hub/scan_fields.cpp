#include "hub/scan_fields.h"

#include "base/error.h"

namespace switchyard {
namespace {

using Json = nlohmann::json;

constexpr const char* kLimit = "time_step_limit";
constexpr const char* kSpecialNumber = "__float__";

void read_limit(HfConfig& fields, SettingValues& settings) {
  const Json* found = fields.find(kLimit);
  const Json limit = found == nullptr || found->is_null() ? Json{0.0, infinity()} : *found;
  check<ConfigError>(limit.is_array() && limit.size() == 2 && limit[0].is_number() &&
                         (limit[1].is_number() || is_infinity(limit[1])),
                     "{}: {} is {}: expected the smallest and the largest time step",
                     fields.source(), kLimit, limit.dump());
  // In the settings 0 stands for no limit.
  check<ConfigError>(limit[1] != 0, "{}: {} is {}: expected a largest time step above 0",
                     fields.source(), kLimit, limit.dump());
  settings["mamba.min_dt"] = {{limit[0].dump()}, false};
  settings["mamba.max_dt"] = {{is_infinity(limit[1]) ? "0" : limit[1].dump()}, false};
}

void write_limit(const Config& config, Json& fields) {
  const double largest = config.mamba.max_dt;
  fields[kLimit] = {config.mamba.min_dt, largest > 0 ? Json(largest) : infinity()};
}

}  // namespace

bool is_infinity(const Json& value) {
  return value == infinity();
}

Json infinity() {
  return {{kSpecialNumber, "Infinity"}};
}

FieldGroup time_step_limit() {
  return {read_limit, write_limit};
}

std::vector<TensorRule> pure_scan_tensors() {
  return {{"backbone.embeddings.weight", "embedding.weight"},
          {"backbone.layers.{layer}.norm.weight", "layers.{layer}.mixer_norm.weight"},
          {"backbone.norm_f.weight", "final_norm.weight"},
          {"lm_head.weight", "head.weight"}};
}

std::vector<TensorRule> mamba2_tensors(const std::string& prefix) {
  const std::string mixer = "layers.{layer}.mamba2.";
  std::vector<TensorRule> rules;
  for (const char* piece : {"z", "x", "b", "c"}) {
    rules.push_back({prefix + "in_proj.weight", mixer + piece, {}, {2, 1}});
    rules.push_back({prefix + "in_proj.bias", mixer + piece + "_input_bias", {}, {kAllDims}});
  }
  rules.push_back({prefix + "in_proj.weight", mixer + "dt", {}, {1, 1}});
  rules.push_back({prefix + "in_proj.bias", mixer + "dt_input_bias"});
  for (const char* piece : {"conv_x", "conv_b", "conv_c"}) {
    rules.push_back({prefix + "conv1d.weight", mixer + piece, {}, {2, 0, 1}});
    rules.push_back({prefix + "conv1d.bias", mixer + piece + "_bias", {}, {kAllDims}});
  }
  const std::vector<TensorRule> rest = {
      {prefix + "A_log", mixer + "a_log"},
      {prefix + "D", mixer + "d"},
      {prefix + "dt_bias", mixer + "dt_bias"},
      {prefix + "norm.weight", mixer + "norm", {}, {kAllDims}},
      {prefix + "out_proj.weight", mixer + "output", {}, {1, 2}},
      {prefix + "out_proj.bias", mixer + "output_bias"},
  };
  rules.insert(rules.end(), rest.begin(), rest.end());
  return rules;
}

}  // namespace switchyard

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "hub/hf_config.h"

namespace switchyard {

// What a family of Hugging Face models is: one description that serves both directions. Reading a
// config.json and writing one, importing tensors and exporting them, follow from the same rows.

// One field of config.json and the setting that it means.
struct FieldRule {
  std::string field;    // "num_attention_heads"
  std::string setting;  // "model.num_attention_heads"
  // What transformers takes where the file leaves the field out.
  nlohmann::json standard = nullptr;
  // The setting's value for null; empty: null is refused.
  std::string for_null = "";
  std::vector<std::string> old_names = {};  // read as well, never written
  // For a field of words: theirs and ours. The first pair with our word is the one written.
  std::vector<std::pair<std::string, std::string>> words = {};
};

// A field that has one value this program knows how to follow.
struct FixedField {
  std::string field;
  nlohmann::json value;  // also what is written
  std::string reason;    // why no other, in words: "dropout is not implemented"
};

// A setting that every model of the family has, and no field says.
struct FixedSetting {
  std::string setting;
  std::string value;
};

// Fields that mean something only together. `read` marks every field it looks at as read.
struct FieldGroup {
  std::function<void(HfConfig& fields, SettingValues& settings)> read;
  std::function<void(const Config& config, nlohmann::json& fields)> write;
};

constexpr int64_t kExpertIndex = -1;  // in TensorRule::at: the number in {expert}
constexpr int64_t kAllDims = -1;      // in TensorRule::dims: all that are left

// One tensor of the files and the elements of a logical tensor that it holds, in the same order.
// Rules of the same tensor say that it holds several logical tensors, one after the other along its
// first dim, in the order of the rules.
struct TensorRule {
  std::string tensor;   // "model.layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight"
  std::string logical;  // "layers.{layer}.moe.experts.gate_up"
  // The first indices of the logical tensor; it fills all of the dims that follow. {expert, 1}
  std::vector<int64_t> at = {};
  // How many of the dims that follow make one dim of the file's tensor: {2, 1} for
  // [heads, head_dim, hidden] stored as [heads x head_dim, hidden], 0 for a dim of size 1. Empty:
  // one each.
  std::vector<int64_t> dims = {};
  // Another spelling, which is read and never written: some files have it in place of the rules of
  // the same logical tensor above it.
  bool is_other_spelling = false;
  // With other rules of the same tensor: it holds what belongs to index 0 of the first dim of each
  // logical tensor, then what belongs to index 1.
  bool is_interleaved = false;
  // The number in {layer} is counted from the model's last layer on: modules of multi-token
  // prediction lie behind it.
  bool is_behind_layers = false;
  // Of the only rule of a tensor: the dims that follow `at` in the order in which the file has
  // them, as {0, 2, 1} for [expert, hidden, ffn] stored as [expert, ffn, hidden]. Empty: the same.
  // `dims` counts them in this order.
  std::vector<int64_t> order = {};
};

// A tensor that files may hold besides, and why it is not needed.
struct DroppedTensor {
  enum class Reason {
    kRotaryFrequencies,  // computed from the settings, and compared with them
    kTiedHead,           // a copy of the embedding, and compared with it
    kScales,             // of the blocks of a weight, which is decoded with them
    kEmbeddingCopy,      // of a module of multi-token prediction; compared with the embedding
    kHeadCopy,           // the same of the head
  };
  std::string tensor;
  Reason reason;
};
// Whether such a tensor is a copy of one that is read.
bool is_copy(DroppedTensor::Reason reason);

struct ModelFamily {
  std::string model_type;    // in config.json: "mixtral"
  std::string architecture;  // in config.json: "MixtralForCausalLM"
  // Read as well, never written: names that publishers gave to models of the same class.
  std::vector<std::string> other_model_types = {};
  // Its directories load with their own code only, as transformers has no such class: no model made
  // from scratch becomes one unless --family asks for it.
  bool only_on_request = false;
  std::vector<FieldRule> fields;
  std::vector<FixedField> fixed_fields;
  std::vector<FixedSetting> fixed_settings;
  std::vector<FieldGroup> groups;
  std::vector<TensorRule> tensors;
  std::vector<DroppedTensor> dropped;
};

// All there are, in the order in which a model made from scratch tries them.
const std::vector<ModelFamily>& families();

// The one whose architecture or, without architectures, model_type config.json names. Throws
// ConfigError, listing those there are.
const ModelFamily& find_family(HfConfig& config);
const ModelFamily* find_family_by_type(const std::string& model_type);

}  // namespace switchyard

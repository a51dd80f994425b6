#include <algorithm>

#include "base/error.h"
#include "hub/field_groups.h"
#include "hub/layer_lists.h"

// ERNIE-4.5-21B-A3B, ERNIE-4.5-300B-A47B (modeling_ernie4_5_moe.py).
namespace switchyard {
namespace {

// Every interval-th layer from the start to the end index has experts.
FieldGroup layers_with_experts() {
  return {[](HfConfig& fields, SettingValues& settings) {
            const int64_t num_layers = whole_value(settings, "model.num_layers");
            const int64_t first = fields.get("moe_layer_start_index", int64_t{1});
            const int64_t given_last = fields.get("moe_layer_end_index", int64_t{-1});
            const int64_t last = given_last == -1 ? num_layers - 1 : given_last;
            const int64_t interval = fields.get("moe_layer_interval", int64_t{1});
            check<ConfigError>(interval >= 1, "{}: moe_layer_interval is {}: expected 1 or more",
                               fields.source(), interval);
            std::vector<bool> has_experts;
            for (int64_t layer = 0; layer < num_layers; ++layer) {
              has_experts.push_back((layer + 1) % interval == 0 && layer >= first && layer <= last);
            }
            if (std::find(has_experts.begin(), has_experts.end(), true) == has_experts.end()) {
              set_value(settings, "moe.num_experts", "0");
            }
            settings["moe.layers"] = {layer_set_of(has_experts), true};
          },
          [](const Config& config, nlohmann::json& fields) {
            const std::vector<bool> has_experts = moe_layers_of(config);
            const auto first = std::find(has_experts.begin(), has_experts.end(), true);
            const auto second =
                std::find(first + (first != has_experts.end() ? 1 : 0), has_experts.end(), true);
            const auto last = std::find(has_experts.rbegin(), has_experts.rend(), true);
            fields["moe_layer_start_index"] = first - has_experts.begin();
            fields["moe_layer_end_index"] = has_experts.rend() - last - 1;
            fields["moe_layer_interval"] = second == has_experts.end() ? 1 : second - first;
          }};
}

std::vector<TensorRule> expert_bias_of_statics() {
  return {{.tensor = in_layer("mlp.moe_statics.e_score_correction_bias"),
           .logical = logical("moe.router.expert_bias"),
           .dims = {0, 1}}};  // [1, experts]: of one group
}

}  // namespace

ModelFamily ernie4_5_moe_family() {
  return {
      .model_type = "ernie4_5_moe",
      .architecture = "Ernie4_5_MoeForCausalLM",
      .fields = joined<FieldRule>({decoder_fields({.vocab_size = 103424,
                                                   .hidden_size = 2560,
                                                   .num_layers = 28,
                                                   .num_heads = 20,
                                                   .num_kv_heads = 4,
                                                   .max_position = 131072,
                                                   .norm_epsilon = 1e-5,
                                                   .tie_embeddings = true}),
                                   {{"intermediate_size", "model.ffn_hidden_size", 12288},
                                    {"head_dim", "model.head_dim", nullptr, "0"},
                                    {"moe_num_experts", "moe.num_experts", 64, "", {"num_experts"}},
                                    {"moe_k", "moe.top_k", 6, "", {"num_experts_per_tok"}},
                                    {"moe_intermediate_size", "moe.ffn_hidden_size", 1536}}}),
      .fixed_fields = {{"use_bias", false, "the output head would have one too"},
                       {"moe_norm_min", 1e-12, "weights are divided by their sum"}},
      .fixed_settings = {{"moe.pre_softmax", "true"},
                         {"moe.renormalize", "true"},
                         {"moe.expert_bias", "true"},
                         {"rope.interleaved", "true"}},
      .groups = {rope_fields(500000), shared_experts("moe_num_shared_experts", 2),
                 layers_with_experts(), balance_loss(0.001)},
      .tensors = joined<TensorRule>({decoder_tensors(), mlp_tensors(), expert_tensors(),
                                     shared_experts_tensors(), expert_bias_of_statics()}),
      .dropped = decoder_dropped(),
  };
}

}  // namespace switchyard

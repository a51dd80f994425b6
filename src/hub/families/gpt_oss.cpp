#include <algorithm>

#include "hub/field_groups.h"

// gpt-oss-20b, gpt-oss-120b (modeling_gpt_oss.py).
namespace switchyard {
namespace {

// hidden_act is a field that the class does not look at.
std::vector<FieldRule> fields_without_activation(const DecoderStandards& standards) {
  std::vector<FieldRule> fields = decoder_fields(standards);
  std::erase_if(fields, [](const FieldRule& rule) { return rule.field == "hidden_act"; });
  return fields;
}

// The class is born with scaled positions.
FieldGroup rope_of_gpt_oss() {
  return {[](HfConfig& fields, SettingValues& settings) {
            constexpr double kBase = 150000;
            read_rope(fields, settings, {kBase});
            const auto is_given = [&](const char* field) {
              const nlohmann::json* found = fields.find(field);
              return found != nullptr && !found->is_null();
            };
            if (is_given("rope_parameters") || is_given("rope_scaling")) {
              return;
            }
            for (const auto& [name, value] :
                 {std::pair{"rope.type", "yarn"}, std::pair{"rope.factor", "32"},
                  std::pair{"rope.original_max_position", "4096"},
                  std::pair{"rope.truncate", "false"}}) {
              settings[name] = {{value}, false};
            }
          },
          write_rope};
}

// Of every two layers the first has a window.
FieldGroup alternating_windows() {
  return {[](HfConfig& fields, SettingValues& settings) {
            read_windows_by_period(fields, settings, 128, 2);
          },
          write_layer_types};
}

// In the files gate and up of an expert alternate, and inputs come before outputs:
// [expert, hidden, ffn x 2], down [expert, ffn, hidden].
std::vector<TensorRule> tensors_of_gpt_oss() {
  const std::string layer = "model.layers.{layer}.";
  const std::string experts = layer + "mlp.experts.";
  const std::string ours = "layers.{layer}.moe.";
  return {
      {layer + "self_attn.sinks", "layers.{layer}.attention.sinks"},
      {layer + "mlp.router.weight", ours + "router.weight"},
      {layer + "mlp.router.bias", ours + "router.bias"},
      {.tensor = experts + "gate_up_proj",
       .logical = ours + "experts.gate_up",
       .dims = {1, 1, 2},
       .order = {0, 3, 2, 1}},
      {.tensor = experts + "gate_up_proj_bias",
       .logical = ours + "experts.gate_up_bias",
       .dims = {1, 2},
       .order = {0, 2, 1}},
      {.tensor = experts + "down_proj", .logical = ours + "experts.down", .order = {0, 2, 1}},
      {experts + "down_proj_bias", ours + "experts.down_bias"},
  };
}

}  // namespace

ModelFamily gpt_oss_family() {
  return {
      .model_type = "gpt_oss",
      .architecture = "GptOssForCausalLM",
      .fields =
          joined<FieldRule>({fields_without_activation({.vocab_size = 201088,
                                                        .hidden_size = 2880,
                                                        .num_layers = 36,
                                                        .num_heads = 64,
                                                        .num_kv_heads = 8,
                                                        .max_position = 131072,
                                                        .norm_epsilon = 1e-5}),
                             {{"intermediate_size", "moe.ffn_hidden_size", 2880},
                              {"head_dim", "model.head_dim", 64, "0"},
                              {"attention_bias", "attention.qkv_bias", true},
                              {"attention_bias", "attention.output_bias", true},
                              {"num_local_experts", "moe.num_experts", 128, "", {"num_experts"}},
                              {"num_experts_per_tok", "moe.top_k", 4, "", {"experts_per_token"}},
                              {"swiglu_limit", "model.activation_clamp", 7.0}}}),
      .fixed_fields = {{"attention_dropout", 0.0, "dropout is not implemented"},
                       {"hidden_act", "silu",
                        "the class computes x sigmoid(1.702 x) whatever it is"},
                       {"swiglu_alpha", 1.702, "the sigmoid's factor is that of quick_gelu"}},
      .fixed_settings = {{"model.activation", "quick_gelu"},
                         {"model.activation_offset", "1"},
                         {"attention.sinks", "true"},
                         {"moe.linear_bias", "true"},
                         {"moe.router_bias", "true"}},
      .groups = {rope_of_gpt_oss(),
                 alternating_windows(),
                 balance_loss(0.001),
                 // The length before scaling; the positions say it again.
                 {[](HfConfig& fields, SettingValues&) {
                    fields.mark_read("initial_context_length");
                  },
                  [](const Config&, nlohmann::json&) {}}},
      .tensors = joined<TensorRule>(
          {decoder_tensors(), qkv_bias_tensors(), output_bias_tensors(), tensors_of_gpt_oss()}),
      .dropped = decoder_dropped(),
  };
}

}  // namespace switchyard

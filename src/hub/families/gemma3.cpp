#include <fmt/format.h>

#include "base/error.h"
#include "hub/field_groups.h"
#include "hub/gemma_rows.h"

// Gemma 3, text alone: the 1B model, and what Gemma3ForCausalLM saves (modeling_gemma3.py). The
// multimodal models, Gemma3ForConditionalGeneration, are refused by their architecture.
namespace switchyard {
namespace {

using Json = nlohmann::json;

FieldGroup windows() {
  return {[](HfConfig& fields, SettingValues& settings) {
            const int64_t period = fields.get("_sliding_window_pattern", int64_t{6});
            read_windows_by_period(fields, settings, 4096,
                                   fields.get("sliding_window_pattern", period));
          },
          write_layer_types};
}

// The rotary parameters of one kind of layer; an empty object where the file has none.
Json parameters_of(const Json* by_kind, const char* kind, const std::string& source) {
  if (by_kind == nullptr || by_kind->is_null()) {
    return Json::object();
  }
  check<ConfigError>(by_kind->is_object(), "{}: rope_parameters is {}: expected an object", source,
                     by_kind->dump());
  for (const auto& [name, value] : by_kind->items()) {
    check<ConfigError>(name == "full_attention" || name == "sliding_attention",
                       "{}: rope_parameters has \"{}\": expected full_attention and "
                       "sliding_attention",
                       source, name);
  }
  const Json found = by_kind->value(kind, Json(nullptr));
  return found.is_null() ? Json::object() : found;
}

// Layers with a window turn by a base of their own, unscaled; the others as rope_fields() has it.
void read_rope_by_kind(HfConfig& fields, SettingValues& settings) {
  const Json* by_kind = fields.find("rope_parameters");
  Json of_full = parameters_of(by_kind, "full_attention", fields.source());
  Json of_window = parameters_of(by_kind, "sliding_attention", fields.source());
  const Json* scaling = fields.find("rope_scaling");
  if (scaling != nullptr && scaling->is_object()) {
    of_full.update(*scaling);
  }
  if (const Json* base = fields.find("rope_theta");
      base != nullptr && !of_full.contains("rope_theta")) {
    of_full["rope_theta"] = *base;
  }
  HfConfig full({{"rope_parameters", of_full}}, fields.source());
  read_rope(full, settings, {.base = 1e6});

  const double local = fields.get("rope_local_base_freq", 10000.0);
  HfConfig window(of_window, fields.source() + ", rope_parameters.sliding_attention");
  const auto type = window.get("rope_type", std::string("default"));
  check<ConfigError>(type == "default", "{}: rope_type is \"{}\": only \"default\" is supported",
                     window.source(), type);
  set_value(settings, "rope.window_base", print_value(window.get("rope_theta", local)));
  check<ConfigError>(window.unread().empty(), "{} has the unknown field {}", window.source(),
                     window.unread().empty() ? "" : window.unread().front());
}

void write_rope_by_kind(const Config& config, Json& fields) {
  write_rope(config, fields);
  const Json of_full = fields["rope_parameters"];
  fields["rope_parameters"] = {
      {"full_attention", of_full},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", config.rope.window_base}}}};
}

}  // namespace

ModelFamily gemma3_family() {
  return {
      .model_type = "gemma3_text",
      .architecture = "Gemma3ForCausalLM",
      .fields =
          joined<FieldRule>({gemma_fields({.vocab_size = 262208,
                                           .hidden_size = 2304,
                                           .num_layers = 26,
                                           .num_heads = 8,
                                           .num_kv_heads = 4,
                                           .max_position = 131072,
                                           .ffn_hidden_size = 9216}),
                             {{"final_logit_softcapping", "model.logit_softcap", nullptr, "0"}}}),
      .fixed_fields = gemma_fixed_fields(),
      .fixed_settings = {{"model.norm_plus_one", "true"},
                         {"model.post_norms", "true"},
                         {"attention.qk_norm", "head"}},
      .groups = {windows(),
                 {read_rope_by_kind, write_rope_by_kind},
                 query_scalar(),
                 unused_fields({"attn_logit_softcapping"}),
                 scaled_embedding()},
      .tensors = joined<TensorRule>({post_normed_gemma_tensors(), qk_norm_tensors()}),
      .dropped = decoder_dropped(),
  };
}

}  // namespace switchyard

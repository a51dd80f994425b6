#include "hub/hf_settings.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "config/settings.h"
#include "hub/hub_tests.h"
#include "hub/origin.h"

namespace switchyard {
namespace {

using Json = nlohmann::json;

Config config_from(const Json& fields) {
  HfConfig read(fields, "config.json");
  const ModelFamily& family = find_family(read);
  return with_settings(Config{}, read_hf_settings(family, read), "config.json");
}

std::string refusal(const std::string& family, const std::function<void(Json&)>& change) {
  Json fields = read_json(golden_directory(family) / "config.json");
  change(fields);
  return message_of<ConfigError>([&] { config_from(fields); });
}

// What write_hf_fields() gives back of what was read, in the files' own words.
TEST(HfSettings, WriteWhatTheyRead) {
  for (const std::string& name : kGoldenFamilies) {
    const Json fields = read_json(golden_directory(name) / "config.json");
    const Config config = config_from(fields);
    const ModelFamily& family = *find_family_by_type(fields.at("model_type"));
    EXPECT_EQ(not_expressed(family, config), std::vector<std::string>{}) << name;
    const Json written = write_hf_fields(family, config);
    for (const auto& [field, value] : written.items()) {
      if (fields.contains(field) && field != "max_window_layers" && field != "mlp_only_layers" &&
          field != "decoder_sparse_step" && field != "router_aux_loss_coef" &&
          field != "rope_parameters" && field != "head_dim" && field != "sliding_window") {
        const bool is_off = fields[field].is_null() && value == false;  // two ways to say it
        EXPECT_TRUE(is_off || value == fields[field]) << name << " " << field << " " << value;
      }
    }
  }
}

// Published values, typed in from the files of the models.
TEST(HfSettings, UnderstandPublishedConfigurations) {
  const Config mixtral = config_from({{"architectures", {"MixtralForCausalLM"}},
                                      {"model_type", "mixtral"},
                                      {"hidden_size", 4096},
                                      {"intermediate_size", 14336},
                                      {"num_attention_heads", 32},
                                      {"num_experts_per_tok", 2},
                                      {"num_hidden_layers", 32},
                                      {"num_key_value_heads", 8},
                                      {"num_local_experts", 8},
                                      {"rms_norm_eps", 1e-05},
                                      {"rope_theta", 1000000.0},
                                      {"router_aux_loss_coef", 0.02},
                                      {"sliding_window", nullptr},
                                      {"torch_dtype", "bfloat16"},
                                      {"vocab_size", 32000}});
  EXPECT_EQ(mixtral.moe.num_experts, 8);
  EXPECT_EQ(mixtral.moe.ffn_hidden_size, 14336);
  EXPECT_FALSE(mixtral.moe.pre_softmax);
  EXPECT_EQ(mixtral.rope.base, 1e6);
  EXPECT_EQ(mixtral.attention.window, 0);
  // 0.02 x 2 of each token's copies / 32 layers.
  EXPECT_DOUBLE_EQ(mixtral.moe.aux_loss_coeff, 0.02 * 2 / 32);

  const Config llama = config_from({{"architectures", {"LlamaForCausalLM"}},
                                    {"hidden_size", 2048},
                                    {"intermediate_size", 8192},
                                    {"num_attention_heads", 32},
                                    {"num_hidden_layers", 16},
                                    {"num_key_value_heads", 8},
                                    {"head_dim", 64},
                                    {"max_position_embeddings", 131072},
                                    {"rms_norm_eps", 1e-05},
                                    {"rope_scaling",
                                     {{"factor", 32.0},
                                      {"high_freq_factor", 4.0},
                                      {"low_freq_factor", 1.0},
                                      {"original_max_position_embeddings", 8192},
                                      {"rope_type", "llama3"}}},
                                    {"rope_theta", 500000.0},
                                    {"tie_word_embeddings", true},
                                    {"vocab_size", 128256}});
  EXPECT_EQ(llama.rope.type, RopeType::kLlama3);
  EXPECT_EQ(llama.rope.factor, 32);
  EXPECT_EQ(llama.rope.original_max_position, 8192);
  EXPECT_TRUE(llama.model.tie_embeddings);
  EXPECT_EQ(llama.moe.num_experts, 0);
}

// As their files have it, but for what is the same in all of them.
Json published_latents(const Json& more) {
  Json fields = {{"architectures", {"DeepseekV3ForCausalLM"}},
                 {"attention_bias", false},
                 {"auto_map", {{"AutoConfig", "configuration_deepseek.DeepseekV3Config"}}},
                 {"aux_loss_alpha", 0.001},
                 {"ep_size", 1},
                 {"hidden_act", "silu"},
                 {"kv_lora_rank", 512},
                 {"moe_layer_freq", 1},
                 {"norm_topk_prob", true},
                 {"pretraining_tp", 1},
                 {"qk_nope_head_dim", 128},
                 {"qk_rope_head_dim", 64},
                 {"scoring_func", "sigmoid"},
                 {"seq_aux", true},
                 {"topk_method", "noaux_tc"},
                 {"v_head_dim", 128}};
  fields.update(more);
  return fields;
}

TEST(HfSettings, UnderstandModelsOfDeepseeksClasses) {
  const Config kimi = config_from(published_latents({{"model_type", "kimi_k2"},
                                                     {"first_k_dense_replace", 1},
                                                     {"hidden_size", 7168},
                                                     {"intermediate_size", 18432},
                                                     {"max_position_embeddings", 131072},
                                                     {"moe_intermediate_size", 2048},
                                                     {"n_group", 1},
                                                     {"n_routed_experts", 384},
                                                     {"n_shared_experts", 1},
                                                     {"num_attention_heads", 64},
                                                     {"num_experts_per_tok", 8},
                                                     {"num_hidden_layers", 61},
                                                     {"num_key_value_heads", 64},
                                                     {"num_nextn_predict_layers", 0},
                                                     {"q_lora_rank", 1536},
                                                     {"quantization_config",
                                                      {{"activation_scheme", "dynamic"},
                                                       {"fmt", "e4m3"},
                                                       {"quant_method", "fp8"},
                                                       {"weight_block_size", {128, 128}}}},
                                                     {"rope_scaling",
                                                      {{"beta_fast", 1.0},
                                                       {"beta_slow", 1.0},
                                                       {"factor", 32.0},
                                                       {"mscale", 1.0},
                                                       {"mscale_all_dim", 1.0},
                                                       {"original_max_position_embeddings", 4096},
                                                       {"type", "yarn"}}},
                                                     {"rope_theta", 50000.0},
                                                     {"routed_scaling_factor", 2.827},
                                                     {"topk_group", 1},
                                                     {"vocab_size", 163840}}));
  EXPECT_EQ(kimi.moe.num_experts, 384);
  EXPECT_EQ(kimi.moe.first_dense_layers, 1);
  EXPECT_EQ(kimi.moe.shared_expert_ffn_hidden_size, 2048);
  EXPECT_TRUE(kimi.moe.expert_bias);
  EXPECT_FALSE(kimi.moe.has_groups());
  EXPECT_EQ(kimi.moe.scaling_factor, 2.827);
  EXPECT_EQ(kimi.moe.aux_loss_coeff, 0.001);
  EXPECT_TRUE(kimi.rope.interleaved);
  EXPECT_EQ(kimi.rope.factor, 32);
  EXPECT_EQ(kimi.mla.q_lora_rank, 1536);
  EXPECT_EQ(kimi.mla.norm_epsilon, 1e-6);

  const Config lite = config_from({{"model_type", "deepseek_v2"},
                                   {"aux_loss_alpha", 0.001},
                                   {"first_k_dense_replace", 1},
                                   {"hidden_size", 2048},
                                   {"moe_intermediate_size", 1408},
                                   {"n_group", 1},
                                   {"n_shared_experts", 2},
                                   {"num_experts_per_tok", 6},
                                   {"num_hidden_layers", 27},
                                   {"num_attention_heads", 16},
                                   {"q_lora_rank", nullptr},
                                   {"seq_aux", false},
                                   {"topk_group", 1},
                                   {"topk_method", "greedy"}});
  EXPECT_EQ(lite.mla.q_lora_rank, 0);
  EXPECT_EQ(lite.mla.kv_lora_rank, 512);
  EXPECT_EQ(lite.moe.shared_expert_ffn_hidden_size, 2816);
  EXPECT_EQ(lite.moe.aux_loss_coeff, 0);
  EXPECT_EQ(lite.moe.step_aux_loss_coeff, 0.001);
  EXPECT_TRUE(lite.moe.pre_softmax);
  EXPECT_FALSE(lite.moe.expert_bias);
}

TEST(HfSettings, RefuseWhatDeepseeksClassesDoNotDo) {
  const auto with = [](const char* family, const char* name, const Json& value) {
    return refusal(family, [&](Json& fields) { fields[name] = value; });
  };
  EXPECT_EQ(with("deepseek_v3", "topk_method", "greedy"),
            "config.json: topk_method is \"greedy\", only \"noaux_tc\" is supported: transformers' "
            "class knows no other");
  EXPECT_EQ(with("deepseek_v2", "topk_method", "noaux_tc"),
            "config.json: topk_method is \"noaux_tc\"; known are: greedy, group_limited_greedy");
  EXPECT_EQ(with("deepseek_v2", "n_group", nullptr),
            "config.json: n_group is 0 and topk_group is 2: topk_method group_limited_greedy needs "
            "numbers from 1 on");
  EXPECT_EQ(
      with("deepseek_v2", "norm_topk_prob", true),
      "config.json: norm_topk_prob is true, only false is supported: transformers' class does "
      "not look at it");
  EXPECT_EQ(with("deepseek_v3", "n_shared_experts", 0),
            "config.json: n_shared_experts is 0: expected 1 or more");
  EXPECT_EQ(with("deepseek_v3", "kv_lora_rank", 0),
            "config.json: kv_lora_rank is 0: expected a number from 1 on");
}

// As its file has it.
const Json kLingMini = {{"architectures", {"BailingMoeV2ForCausalLM"}},
                        {"model_type", "bailing_moe"},
                        {"attention_dropout", 0.0},
                        {"embedding_dropout", 0.0},
                        {"first_k_dense_replace", 1},
                        {"head_dim", 128},
                        {"hidden_act", "silu"},
                        {"hidden_size", 2048},
                        {"intermediate_size", 5120},
                        {"max_position_embeddings", 32768},
                        {"moe_intermediate_size", 512},
                        {"moe_router_enable_expert_bias", true},
                        {"moe_shared_expert_intermediate_size", 512},
                        {"n_group", 8},
                        {"norm_topk_prob", true},
                        {"num_attention_heads", 16},
                        {"num_experts", 256},
                        {"num_experts_per_tok", 8},
                        {"num_hidden_layers", 20},
                        {"num_key_value_heads", 4},
                        {"num_shared_experts", 1},
                        {"output_dropout", 0.0},
                        {"partial_rotary_factor", 0.5},
                        {"rms_norm_eps", 1e-06},
                        {"rope_scaling", nullptr},
                        {"rope_theta", 600000},
                        {"routed_scaling_factor", 2.5},
                        {"router_dtype", "fp32"},
                        {"score_function", "sigmoid"},
                        {"tie_word_embeddings", false},
                        {"topk_group", 4},
                        {"torch_dtype", "bfloat16"},
                        {"use_bias", false},
                        {"use_cache", true},
                        {"use_qk_norm", true},
                        {"use_qkv_bias", false},
                        {"use_rmsnorm", true},
                        {"vocab_size", 157184}};

TEST(HfSettings, UnderstandModelsOfLing) {
  const Config mini = config_from(kLingMini);
  EXPECT_EQ(mini.attention.qk_norm, QkNormKind::kHead);
  EXPECT_EQ(mini.rope.base, 600000);
  EXPECT_EQ(mini.rope.partial_factor, 0.5);
  EXPECT_EQ(mini.moe.num_groups, 8);
  EXPECT_EQ(mini.moe.scaling_factor, 2.5);
  EXPECT_EQ(mini.moe.shared_expert_ffn_hidden_size, 512);
  EXPECT_TRUE(mini.moe.expert_bias);
  EXPECT_TRUE(mini.moe.renormalize);

  Json other = kLingMini;
  other.erase("partial_rotary_factor");
  other.update({{"rotary_dim", 64},
                {"num_experts_per_tok", 1},
                {"num_shared_experts", nullptr},
                {"num_nextn_predict_layers", 2},
                {"mtp_loss_scaling_factor", 0.1}});
  const Config changed = config_from(other);
  EXPECT_EQ(changed.rope.partial_factor, 0.5);
  EXPECT_FALSE(changed.moe.renormalize);
  EXPECT_EQ(changed.moe.shared_expert_ffn_hidden_size, 0);
  EXPECT_EQ(changed.mtp.num_layers, 2);
  EXPECT_DOUBLE_EQ(changed.mtp.loss_coeff, 0.2);  // of the mean of two losses
}

TEST(HfSettings, RefuseWhatLingsClassDoesNotDo) {
  const auto with = [](const char* name, const Json& value) {
    return refusal("bailing_moe_v2", [&](Json& fields) { fields[name] = value; });
  };
  EXPECT_EQ(with("rotary_dim", 8),
            "config.json: rotary_dim is 8, which is 1 of head_dim (8), but partial_rotary_factor "
            "is 0.5: keep the one that is right");
  EXPECT_EQ(with("rotary_dim", 9),
            "config.json: rotary_dim is 9: expected a number from 1 to head_dim (8)");
  EXPECT_EQ(with("moe_shared_expert_intermediate_size", 24),
            "config.json: moe_shared_expert_intermediate_size is 24, but the model's code makes a "
            "shared expert as wide as a routed one: moe_intermediate_size is 12");
  EXPECT_EQ(with("norm_topk_prob", false),
            "config.json: norm_topk_prob is false, only true is supported: the model's code "
            "divides by their sum");
  EXPECT_EQ(with("score_function", "softmax"),
            "config.json: score_function is \"softmax\", only \"sigmoid\" is supported: the "
            "model's code knows no other");
}

// transformers has GLM-4.5's class, which can express the same.
TEST(HfSettings, MakeNoModelOneOfLingUnasked) {
  Config config = config_from(read_json(golden_directory("bailing_moe_v2") / "config.json"));
  config.mtp.num_layers = 0;
  EXPECT_EQ(origin_from_scratch(config, "", at::kBFloat16).family->model_type, "glm4_moe");
  EXPECT_EQ(origin_from_scratch(config, "bailing_moe_v2", at::kBFloat16).family->model_type,
            "bailing_moe_v2");
}

// Fields left out take transformers' standard values for the family, not ours.
TEST(HfSettings, TakeTransformersStandardsForWhatIsLeftOut) {
  EXPECT_EQ(config_from({{"model_type", "mistral"}}).attention.window, 4096);
  EXPECT_EQ(config_from({{"model_type", "mixtral"}}).attention.window, 0);
  EXPECT_EQ(config_from({{"model_type", "mixtral"}}).rope.base, 1e6);
  EXPECT_EQ(config_from({{"model_type", "llama"}}).model.query_groups(), 32);
  EXPECT_EQ(config_from({{"model_type", "qwen3"}}).model.head_dim, 128);
  EXPECT_FALSE(config_from({{"model_type", "qwen3_moe"}}).moe.renormalize);
  EXPECT_TRUE(config_from({{"model_type", "qwen2_moe"}}).attention.qkv_bias);
  EXPECT_EQ(config_from({{"model_type", "olmoe"}}).model.norm_epsilon, 1e-5);
}

TEST(HfSettings, CountSparseLayersAsTransformersDoes) {
  const Json base = {{"model_type", "qwen2_moe"}, {"num_hidden_layers", 6}};
  Json step = base;
  step["decoder_sparse_step"] = 2;
  EXPECT_EQ(config_from(step).moe.layers, (std::vector<std::string>{"1", "3", "5"}));
  Json only = base;
  only["mlp_only_layers"] = {0, 4, 5};
  EXPECT_EQ(config_from(only).moe.layers, std::vector<std::string>{"1-3"});
  only["mlp_only_layers"] = {0, 1, 2, 3, 4, 5};
  EXPECT_EQ(config_from(only).moe.num_experts, 0);
}

TEST(HfSettings, RefuseRotationsThatTransformersDoesNotMake) {
  EXPECT_EQ(refusal("llama", [](Json& fields) { fields["partial_rotary_factor"] = 0.5; }),
            "config.json: partial_rotary_factor is 0.5: transformers' class of this family "
            "rotates whole heads and does not follow it; remove it, or set it to 1");
  EXPECT_EQ(refusal("llama",
                    [](Json& fields) {
                      fields["rope_parameters"] = {{"rope_type", "linear"}};
                    }),
            "config.json: rope_parameters has no factor, which type \"linear\" needs");
}

TEST(HfSettings, RefuseATypeThatContradictsTheArchitecture) {
  EXPECT_EQ(refusal("llama", [](Json& fields) { fields["model_type"] = "mistral"; }),
            "config.json: model_type is \"mistral\", architecture LlamaForCausalLM has \"llama\": "
            "one of them is wrong, and transformers goes by model_type");
}

TEST(HfSettings, RefuseWhatTheyCannotFollow) {
  EXPECT_EQ(
      refusal("llama", [](Json& fields) { fields["residual_scale"] = 2; }),
      "config.json: unknown field residual_scale for model_type llama: if it changes what the "
      "model computes, this program cannot follow it; remove it if it does not");
  EXPECT_EQ(refusal("llama", [](Json& fields) { fields["attention_dropout"] = 0.1; }),
            "config.json: attention_dropout is 0.1, only 0.0 is supported: dropout is not "
            "implemented");
  EXPECT_EQ(refusal("llama", [](Json& fields) { fields["hidden_act"] = "mish"; }),
            "config.json: hidden_act is \"mish\"; known are: silu, swish, gelu, gelu_pytorch_tanh, "
            "gelu_new, relu, relu2, quick_gelu");
  EXPECT_EQ(
      refusal("llama", [](Json& fields) { fields["rope_parameters"]["rope_type"] = "longrope"; }),
      "config.json: unknown RoPE type \"longrope\"; known are: default, linear, dynamic, "
      "llama3, yarn");
  EXPECT_EQ(refusal("llama", [](Json& fields) { fields["rope_parameters"]["gamma"] = 1; }),
            "config.json: rope_parameters has the unknown field gamma for type \"llama3\"");
  EXPECT_EQ(refusal("llama", [](Json& fields) { fields["hidden_size"] = nullptr; }),
            "config.json: hidden_size is null: this family needs a value");
  EXPECT_EQ(refusal("qwen2", [](Json& fields) { fields["layer_types"] = {"full_attention"}; }),
            "config.json: layer_types lists 1 layers, num_hidden_layers is 2");
  EXPECT_EQ(refusal("qwen2",
                    [](Json& fields) {
                      fields["layer_types"] = {"full_attention", "chunked_attention"};
                    }),
            "config.json: layer_types has \"chunked_attention\"; known are: full_attention, "
            "sliding_attention");
  EXPECT_EQ(refusal("llama", [](Json& fields) { fields["num_hidden_layers"] = 0; }),
            "config.json: model.num_layers is 0, allowed are 1 to 10000");
  const std::string unknown =
      refusal("llama", [](Json& fields) { fields["architectures"] = {"FalconForCausalLM"}; });
  EXPECT_TRUE(unknown.starts_with(
      "config.json: architecture FalconForCausalLM is not supported; these are: "))
      << unknown;
  EXPECT_NE(unknown.find("LlamaForCausalLM, "), std::string::npos) << unknown;
}

// Each as transformers 5.24 refuses it, when the configuration is read or at the first forward
// pass.
TEST(HfSettings, RefuseMistypedFields) {
  struct Case {
    const char* family;
    const char* field;
    Json value;
    const char* expected;
  };
  for (const Case& one : std::vector<Case>{
           {"llama", "num_hidden_layers", "2", "\"2\": expected integer, 1 to 10000"},
           {"llama", "hidden_size", 16.0, "16.0: expected integer, 1 to 1048576"},
           {"llama", "num_attention_heads", true, "true: expected integer, 0 to 65536"},
           {"llama", "rms_norm_eps", "1e-6", "\"1e-6\": expected number, 1e-30 to 1"},
           {"llama", "hidden_act", Json::array(),
            "[]: expected one of silu, gelu, gelu_tanh, relu, relu_squared, quick_gelu"},
           {"llama", "tie_word_embeddings", 1, "1: expected true or false"},
           {"llama", "num_key_value_heads", 0, "0: expected null, or a number from 1 on"},
           {"llama", "dtype", "bf16",
            "\"bf16\": expected float32, float16, bfloat16, float64 or null"},
           {"llama", "eos_token_id", "2", "\"2\": expected an id, a list of ids or null"},
           {"llama", "eos_token_id", {1, "2"}, "[1,\"2\"]: expected an id, a list of ids or null"},
           {"llama", "bos_token_id", 1.5, "1.5: expected an id or null"},
           {"llama", "use_cache", "yes", "\"yes\": expected true or false"},
           {"mixtral", "sliding_window", 0, "0: expected null, or a number from 1 on"},
           {"olmoe", "clip_qkv", 0.0, "0.0: expected null, or a number from 1 on"},
           {"gemma2", "attn_logit_softcapping", 0.0, "0.0: expected null, or a number from 1 on"},
           {"mixtral", "num_experts_per_tok", "2", "\"2\": expected integer, 1 to 1024"},
           {"mixtral", "router_aux_loss_coef", "0.01",
            "\"0.01\", which is of the wrong type: expected something like 0.001"},
       }) {
    EXPECT_EQ(refusal(one.family, [&](Json& fields) { fields[one.field] = one.value; }),
              fmt::format("config.json: {} is {}", one.field, one.expected));
  }
}

TEST(HfSettings, RefuseRotationsWithoutALengthOrWithAFactorOfZero) {
  const Json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"rope_theta", 1e4}};
  const auto refusal_with = [&](const char* field, const Json& value) {
    return refusal("llama", [&](Json& fields) {
      fields["rope_parameters"] = yarn;
      fields["rope_parameters"][field] = value;
    });
  };
  EXPECT_EQ(
      refusal_with("original_max_position_embeddings", nullptr),
      "config.json: original_max_position_embeddings is null: type \"yarn\" needs a number, or "
      "no such field");
  EXPECT_EQ(
      refusal_with("original_max_position_embeddings", 0),
      "config.json: original_max_position_embeddings of its rotary positions is 0: expected a "
      "number above 0");
  EXPECT_EQ(
      refusal_with("attention_factor", 0.0),
      "config.json: attention_factor of its rotary positions is 0.0: expected a number above 0");
  EXPECT_EQ(refusal_with("factor", "4"),
            "config.json: factor of its rotary positions is \"4\": expected a number");
  EXPECT_EQ(refusal_with("rope_theta", nullptr),
            "config.json: rope_theta is null: expected a number");
}

// A yarn model without a factor: as many times longer as its lengths say.
TEST(HfSettings, FindTheFactorOfLengths) {
  const Config config = config_from({{"model_type", "llama"},
                                     {"max_position_embeddings", 4096},
                                     {"rope_parameters",
                                      {{"rope_type", "yarn"},
                                       {"factor", nullptr},
                                       {"rope_theta", 1e4},
                                       {"original_max_position_embeddings", 512}}}});
  EXPECT_EQ(config.rope.factor, 8);
  EXPECT_EQ(config.rope.original_max_position, 512);
}

TEST(HfSettings, RefuseAWindowThatIsNone) {
  EXPECT_EQ(refusal("qwen2",
                    [](Json& fields) {
                      fields["use_sliding_window"] = true;
                      fields["sliding_window"] = 0;
                    }),
            "config.json: sliding_window is 0: expected null for none, or a number from 1 on");
  EXPECT_EQ(refusal("qwen2",
                    [](Json& fields) {
                      fields["use_sliding_window"] = true;
                      fields["sliding_window"] = nullptr;
                      fields["layer_types"] = {"sliding_attention", "full_attention"};
                    }),
            "config.json: layer_types has \"sliding_attention\", but sliding_window is null");
}

TEST(HfSettings, SayWhatAFamilyCannotExpress) {
  Config config = config_from(read_json(golden_directory("mixtral") / "config.json"));
  config.attention.qk_norm = QkNormKind::kHead;
  EXPECT_EQ(not_expressed(*find_family_by_type("mixtral"), config),
            std::vector<std::string>{"attention.qk_norm is none in this family, head here"});
  // Softmax over the chosen logits is softmax over all, renormalised: Qwen3-MoE can say it.
  config.model.ffn_hidden_size = 8;
  EXPECT_EQ(not_expressed(*find_family_by_type("qwen3_moe"), config), std::vector<std::string>{});
}

TEST(HfSettings, DoNotMindSettingsWithoutAMeaning) {
  Config config = config_from(read_json(golden_directory("mixtral") / "config.json"));
  const ModelFamily& mixtral = *find_family_by_type("mixtral");
  config.model.ffn_hidden_size = 48;  // no layer is dense
  config.rope.type = RopeType::kDefault;
  config.rope.factor = 4;
  EXPECT_EQ(not_expressed(mixtral, config), std::vector<std::string>{});
  // In training alone sinkhorn takes the place of the scores.
  config.routing.method = RoutingMethod::kSinkhorn;
  config.moe.score_function = ScoreFunction::kSigmoid;
  EXPECT_FALSE(not_expressed(mixtral, config).empty());
}

}  // namespace
}  // namespace switchyard

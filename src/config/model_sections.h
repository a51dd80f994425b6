#pragma once

#include <string>
#include <vector>

#include "base/activation.h"
#include "base/score_function.h"
#include "config/fields.h"

namespace switchyard {

// The sections that describe a model (see sections.h).

constexpr int64_t kMaxWidth = 1 << 20;  // features

constexpr std::array kActivationWords{
    Word{Activation::kSilu, "silu"},
    Word{Activation::kGelu, "gelu"},
    Word{Activation::kGeluTanh, "gelu_tanh"},
    Word{Activation::kRelu, "relu"},
    Word{Activation::kReluSquared, "relu_squared"},
    Word{Activation::kQuickGelu, "quick_gelu"},
};

enum class NormKind { kRms, kLayer };
constexpr std::array kNormWords{Word{NormKind::kRms, "rms"}, Word{NormKind::kLayer, "layer"}};

struct ModelConfig {
  std::string from;
  int64_t num_layers = 0;
  std::string layer_pattern;
  int64_t hidden_size = 0;
  int64_t ffn_hidden_size = 0;
  Activation activation = Activation::kSilu;
  bool gated_mlp = true;
  double activation_clamp = 0.0;
  double activation_offset = 0.0;
  bool mlp_bias = false;
  int64_t num_attention_heads = 0;
  int64_t num_query_groups = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t max_position = 0;
  NormKind norm = NormKind::kRms;
  bool norm_plus_one = false;
  bool post_norms = false;
  double norm_epsilon = 1e-6;
  double logit_softcap = 0.0;
  bool tie_embeddings = false;
  double init_std = 0.02;

  // With the zeros that stand for a derived value replaced by that value.
  int64_t query_groups() const {
    return num_query_groups > 0 ? num_query_groups : num_attention_heads;
  }
  int64_t head_size() const {
    return head_dim > 0 || num_attention_heads == 0 ? head_dim : hidden_size / num_attention_heads;
  }
  MlpFunction mlp_function() const {
    return {activation, gated_mlp, activation_clamp, activation_offset};
  }

  static constexpr auto fields() {
    return std::tuple{
        field(
            "from", &ModelConfig::from,
            "model to start from: a Hugging Face directory, a checkpoint or a run directory, which "
            "gives the settings of the model; empty: initial values are drawn"),
        field("num_layers", &ModelConfig::num_layers, {1, 10000}, "decoder layers",
              Need::kRequired),
        field("layer_pattern", &ModelConfig::layer_pattern,
              "what each layer is made of, in Megatron's letters: * attention, M Mamba-2, S "
              "Mamba-1, G gated delta net, - dense MLP, E experts; without blanks each letter is a "
              "layer of its own (MEM*-), with blanks each word is one (GE GE GE *E), in which two "
              "of * M S G stand side by side; a pattern shorter than num_layers is repeated; "
              "empty: attention and an MLP or experts in every layer"),
        field("hidden_size", &ModelConfig::hidden_size, {1, kMaxWidth},
              "width of the residual stream, in features", Need::kRequired),
        field("ffn_hidden_size", &ModelConfig::ffn_hidden_size, {0, kMaxWidth},
              "inner width of the MLP of dense layers, in features; 0 when no layer is dense"),
        field("activation", &ModelConfig::activation, kActivationWords,
              "function between the two products of an MLP, dense or expert; gelu is exact, "
              "gelu_tanh its approximation by tanh, quick_gelu x sigmoid(1.702 x)"),
        field("gated_mlp", &ModelConfig::gated_mlp,
              "true: activation(gate) x up between the products of an MLP, dense or expert; false: "
              "activation(up)"),
        field("activation_clamp", &ModelConfig::activation_clamp, {0.0, 1e6},
              "largest gate, and largest magnitude of up, before the function of an MLP; 0 clamps "
              "nothing"),
        field("activation_offset", &ModelConfig::activation_offset, {-1e6, 1e6},
              "added to up in a gated MLP, after clamping"),
        field("mlp_bias", &ModelConfig::mlp_bias, "add a bias in the linear layers of dense MLPs"),
        field("num_attention_heads", &ModelConfig::num_attention_heads, {0, 65536},
              "query heads of an attention layer; 0 when no layer has attention", Need::kRequired),
        field("num_query_groups", &ModelConfig::num_query_groups, {0, 65536},
              "key and value heads, each shared by a group of query heads; 0 for as many as "
              "query heads"),
        field("head_dim", &ModelConfig::head_dim, {0, 65536},
              "width of one attention head, in features; 0 for hidden_size / num_attention_heads"),
        field("vocab_size", &ModelConfig::vocab_size, {0, 1 << 28},
              "tokens in the vocabulary; 0 for the tokenizer's number"),
        field("max_position", &ModelConfig::max_position, {0, 1 << 28},
              "tokens of the longest sequence that the model is made for; 0: not said"),
        field("norm", &ModelConfig::norm, kNormWords, "rms: RMSNorm; layer: LayerNorm with a bias"),
        field("norm_plus_one", &ModelConfig::norm_plus_one,
              "weights of norms are kept as w - 1, so that weight decay draws them to 1 and not to "
              "0"),
        field("post_norms", &ModelConfig::post_norms,
              "norms after each mixer and MLP too, before their outputs join the residual stream"),
        field("norm_epsilon", &ModelConfig::norm_epsilon, {1e-30, 1.0},
              "added to the mean square in RMSNorm"),
        field("logit_softcap", &ModelConfig::logit_softcap, {0.0, 1e6},
              "bends logits to c tanh(logit / c), with c this; 0 leaves them alone"),
        field("tie_embeddings", &ModelConfig::tie_embeddings,
              "use the embedding as output weights too"),
        field("init_std", &ModelConfig::init_std, {0.0, 10.0},
              "standard deviation of the initial weights"),
    };
  }
};

enum class QkNormKind { kNone, kHead, kFull };
constexpr std::array kQkNormWords{Word{QkNormKind::kNone, "none"}, Word{QkNormKind::kHead, "head"},
                                  Word{QkNormKind::kFull, "full"}};

struct AttentionConfig {
  bool qkv_bias = false;
  bool output_bias = false;
  QkNormKind qk_norm = QkNormKind::kNone;
  double qkv_clip = 0.0;
  double scale = 0.0;
  double softcap = 0.0;
  bool sinks = false;
  bool output_gate = false;
  int64_t window = 0;
  std::vector<std::string> window_layers;

  static constexpr auto fields() {
    return std::tuple{
        field("qkv_bias", &AttentionConfig::qkv_bias,
              "add a bias to the query, key and value projections"),
        field("output_bias", &AttentionConfig::output_bias, "add a bias to the output projection"),
        field("qk_norm", &AttentionConfig::qk_norm, kQkNormWords,
              "RMSNorm of queries and keys; head: over each head, full: over all heads together"),
        field("qkv_clip", &AttentionConfig::qkv_clip, {0.0, 1e6},
              "largest magnitude of a query, key or value element, clipped after the norm; 0 turns "
              "clipping off"),
        field("scale", &AttentionConfig::scale, {0.0, 1e6},
              "multiplies the products of queries and keys; 0 for 1 / sqrt(head_dim)"),
        field("softcap", &AttentionConfig::softcap, {0.0, 1e6},
              "bends the scaled products to c tanh(product / c), with c this; 0 leaves them alone"),
        field("sinks", &AttentionConfig::sinks,
              "one more logit per head, learned, which takes its share of the softmax and gives "
              "nothing"),
        field("output_gate", &AttentionConfig::output_gate,
              "multiply what attention gives by the sigmoid of a gate, projected like the queries"),
        field("window", &AttentionConfig::window, {0, kNoLimit},
              "tokens that a token attends to, itself and those right before it; 0 for all before "
              "it"),
        field("window_layers", &AttentionConfig::window_layers,
              "layers that attention.window holds for: 3, 0-7 or 1-23/2 each, layers count from 0; "
              "empty for all"),
    };
  }
};

// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434).
struct MlaConfig {
  int64_t kv_lora_rank = 0;
  int64_t q_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t v_head_dim = 0;
  double norm_epsilon = 1e-6;

  bool is_used() const { return kv_lora_rank > 0; }

  static constexpr auto fields() {
    return std::tuple{
        field("kv_lora_rank", &MlaConfig::kv_lora_rank, {0, kMaxWidth},
              "width of the latent that keys and values are made from, in features; 0 for "
              "attention without latents"),
        field("q_lora_rank", &MlaConfig::q_lora_rank, {0, kMaxWidth},
              "width of the latent that queries are made from; 0 makes them from the hidden state"),
        field("qk_nope_head_dim", &MlaConfig::qk_nope_head_dim, {0, 65536},
              "features of a query or key head that are not rotated"),
        field("qk_rope_head_dim", &MlaConfig::qk_rope_head_dim, {0, 65536},
              "features of a query or key head that are rotated; of keys, one head serves all"),
        field("v_head_dim", &MlaConfig::v_head_dim, {0, 65536}, "features of a value head"),
        field("norm_epsilon", &MlaConfig::norm_epsilon, {1e-30, 1.0},
              "added to the mean square in the norms of the latents"),
    };
  }
};

enum class RopeType { kDefault, kLinear, kDynamic, kLlama3, kYarn };
constexpr std::array kRopeTypeWords{
    Word{RopeType::kDefault, "default"}, Word{RopeType::kLinear, "linear"},
    Word{RopeType::kDynamic, "dynamic"}, Word{RopeType::kLlama3, "llama3"},
    Word{RopeType::kYarn, "yarn"}};

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double base = 10000.0;
  double partial_factor = 1.0;
  bool interleaved = false;
  double window_base = 0.0;
  double factor = 1.0;
  int64_t original_max_position = 0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double mscale = 0.0;
  double mscale_all_dim = 0.0;
  double attention_factor = 0.0;
  bool truncate = true;

  static constexpr auto fields() {
    return std::tuple{
        field("type", &RopeConfig::type, kRopeTypeWords,
              "how frequencies are scaled for sequences longer than the model began with"),
        field("base", &RopeConfig::base, {1.0, 1e12}, "base of the rotary position frequencies"),
        field("partial_factor", &RopeConfig::partial_factor, {0.0, 1.0},
              "share of each head, from its first feature on, that is rotated; 0 for no rotary "
              "positions"),
        field("interleaved", &RopeConfig::interleaved,
              "turn neighbouring features (2i, 2i + 1) together instead of (i, i + d / 2)"),
        field("window_base", &RopeConfig::window_base, {0.0, 1e12},
              "base of the layers that attention.window holds for, whose frequencies are not "
              "scaled; 0: they rotate like the others"),
        field("factor", &RopeConfig::factor, {1.0, 1e6},
              "how many times longer sequences may be than those the model began with"),
        field("original_max_position", &RopeConfig::original_max_position, {0, 1 << 28},
              "tokens of the longest sequence that the model began with; for llama3 and yarn"),
        field("low_freq_factor", &RopeConfig::low_freq_factor, {1e-6, 1e6},
              "llama3: a wavelength above original_max_position / this is scaled in full"),
        field("high_freq_factor", &RopeConfig::high_freq_factor, {1e-6, 1e6},
              "llama3: a wavelength below original_max_position / this is kept"),
        field("beta_fast", &RopeConfig::beta_fast, {1e-6, 1e6},
              "yarn: from this many turns within original_max_position on a frequency is kept"),
        field("beta_slow", &RopeConfig::beta_slow, {1e-6, 1e6},
              "yarn: up to this many turns within original_max_position a frequency is scaled in "
              "full"),
        field("mscale", &RopeConfig::mscale, {0.0, 1e6},
              "yarn: weight of log(factor) in the numerator of the attention factor; 0: not given"),
        field("mscale_all_dim", &RopeConfig::mscale_all_dim, {0.0, 1e6},
              "yarn: the same in its denominator; both or neither"),
        field("attention_factor", &RopeConfig::attention_factor, {0.0, 1e6},
              "yarn: multiplies cosines and sines; 0: derived from factor, mscale and "
              "mscale_all_dim"),
        field("truncate", &RopeConfig::truncate,
              "yarn: round the ends of the range between kept and scaled to whole frequencies"),
    };
  }
};

constexpr std::array kScoreFunctionWords{Word{ScoreFunction::kSoftmax, "softmax"},
                                         Word{ScoreFunction::kSigmoid, "sigmoid"},
                                         Word{ScoreFunction::kSqrtSoftplus, "sqrtsoftplus"}};

enum class GroupScore { kMax, kTop2Sum, kTopSum };
constexpr std::array kGroupScoreWords{Word{GroupScore::kMax, "max"},
                                      Word{GroupScore::kTop2Sum, "top2_sum"},
                                      Word{GroupScore::kTopSum, "top_sum"}};

enum class RouterDtype { kFp32, kFp64 };
constexpr std::array kRouterDtypeWords{Word{RouterDtype::kFp32, "fp32"},
                                       Word{RouterDtype::kFp64, "fp64"}};

enum class DispatcherKind { kAllToAll, kAllGather, kFlex };
constexpr std::array kDispatcherWords{Word{DispatcherKind::kAllToAll, "alltoall"},
                                      Word{DispatcherKind::kAllGather, "allgather"},
                                      Word{DispatcherKind::kFlex, "flex"}};

struct MoeConfig {
  int64_t num_experts = 0;
  int64_t top_k = 2;
  int64_t ffn_hidden_size = 0;
  std::vector<std::string> layers;
  int64_t first_dense_layers = 0;
  std::vector<std::string> overrides;
  int64_t shared_expert_ffn_hidden_size = 0;
  bool shared_expert_gate = false;
  bool shared_expert_bias = false;
  int64_t latent_size = 0;
  bool linear_bias = false;
  ScoreFunction score_function = ScoreFunction::kSoftmax;
  bool pre_softmax = false;
  bool renormalize = false;
  double scaling_factor = 1.0;
  int64_t num_groups = 1;
  int64_t group_top_k = 1;
  GroupScore group_score = GroupScore::kTop2Sum;
  RouterDtype router_dtype = RouterDtype::kFp32;
  bool router_bias = false;
  bool expert_bias = false;
  double bias_update_rate = 1e-3;
  double aux_loss_coeff = 0.0;
  double step_aux_loss_coeff = 0.0;
  double global_aux_loss_coeff = 0.0;
  double z_loss_coeff = 0.0;
  DispatcherKind dispatcher = DispatcherKind::kAllToAll;

  bool has_groups() const { return num_groups > 1; }
  bool has_balance_loss() const {
    return aux_loss_coeff > 0 || step_aux_loss_coeff > 0 || global_aux_loss_coeff > 0;
  }
  // The scores of a group that add up to the group's own.
  int64_t scores_per_group() const {
    switch (group_score) {
      case GroupScore::kMax:
        return 1;
      case GroupScore::kTop2Sum:
        return 2;
      case GroupScore::kTopSum:
        return top_k / group_top_k;
    }
    return 1;
  }

  static constexpr auto fields() {
    return std::tuple{
        field("num_experts", &MoeConfig::num_experts, {0, 65536},
              "experts of an MoE layer; 0 makes every layer dense"),
        field("top_k", &MoeConfig::top_k, {1, 1024}, "experts each token is sent to"),
        field("ffn_hidden_size", &MoeConfig::ffn_hidden_size, {0, kMaxWidth},
              "inner width of one expert, in features"),
        field("layers", &MoeConfig::layers,
              "layers that have experts, of those from first_dense_layers on: a list of `3`, `0-7` "
              "or `1-23/2`, every second from 1 to 23; empty for all"),
        field("first_dense_layers", &MoeConfig::first_dense_layers, {0, 10000},
              "layers at the start of the model that are dense"),
        field("overrides", &MoeConfig::overrides,
              "settings of this section that differ in some layers: a list of texts such as `4-7: "
              "num_experts=16 ffn_hidden_size=64`; later ones win"),
        field("shared_expert_ffn_hidden_size", &MoeConfig::shared_expert_ffn_hidden_size,
              {0, kMaxWidth},
              "inner width of the expert that every token uses, in features; 0 for none"),
        field("shared_expert_gate", &MoeConfig::shared_expert_gate,
              "multiply the shared expert's output by sigmoid(x w), one learned number per token"),
        field("shared_expert_bias", &MoeConfig::shared_expert_bias,
              "add a bias in the linear layers of the shared expert"),
        field("latent_size", &MoeConfig::latent_size, {0, kMaxWidth},
              "width in which routed experts work, projected to and from by every token; 0 for the "
              "hidden size"),
        field("linear_bias", &MoeConfig::linear_bias,
              "add a bias in the linear layers of routed experts; the second is multiplied by the "
              "routing weight"),
        field("score_function", &MoeConfig::score_function, kScoreFunctionWords,
              "turns router logits into scores"),
        field("pre_softmax", &MoeConfig::pre_softmax,
              "true: softmax over all experts, then the top_k of it; false: the top_k logits, "
              "then softmax over these"),
        field("renormalize", &MoeConfig::renormalize,
              "divide the weights of the chosen experts by their sum; for pre_softmax, sigmoid and "
              "sqrtsoftplus"),
        field("scaling_factor", &MoeConfig::scaling_factor, {1e-6, 1e6},
              "multiplies the weights of the chosen experts"),
        field("num_groups", &MoeConfig::num_groups, {1, 65536},
              "equal groups that the experts are divided into, in order; 1 for no limit by group"),
        field("group_top_k", &MoeConfig::group_top_k, {1, 65536},
              "groups that a token may choose its experts from"),
        field("group_score", &MoeConfig::group_score, kGroupScoreWords,
              "a group's score, out of those of its experts: the largest, the sum of the two "
              "largest, or the sum of the top_k / group_top_k largest"),
        field("router_dtype", &MoeConfig::router_dtype, kRouterDtypeWords,
              "number format of the router's product and scores; train.precision fp64 makes it "
              "fp64"),
        field("router_bias", &MoeConfig::router_bias, "add a learned bias to the router's logits"),
        field("expert_bias", &MoeConfig::expert_bias,
              "balance by a bias per expert that acts on the choice only; for sigmoid and "
              "sqrtsoftplus"),
        field("bias_update_rate", &MoeConfig::bias_update_rate, {0.0, 1.0},
              "change of the expert bias per optimizer step"),
        field(
            "aux_loss_coeff", &MoeConfig::aux_loss_coeff, {0.0, 100.0},
            "weight of the balance loss within each sequence, which is 1 per layer when balanced; "
            "0 turns it off"),
        field("step_aux_loss_coeff", &MoeConfig::step_aux_loss_coeff, {0.0, 100.0},
              "weight of the balance loss over all tokens of an accumulation step, on all ranks; 0 "
              "turns it off"),
        field("global_aux_loss_coeff", &MoeConfig::global_aux_loss_coeff, {0.0, 100.0},
              "weight of the balance loss with the loads of all accumulation steps so far; 0 turns "
              "it off"),
        field("z_loss_coeff", &MoeConfig::z_loss_coeff, {0.0, 100.0},
              "weight of the mean squared log-sum-exp of the router logits; 0 turns it off"),
        field("dispatcher", &MoeConfig::dispatcher, kDispatcherWords,
              "how tokens travel to the ranks of their experts: each copy to its own, all tokens "
              "to all, or flex: once to each machine and from there to its ranks"),
    };
  }
};

enum class MambaNorm { kNone, kAfterGate, kBeforeGate };
constexpr std::array kMambaNormWords{Word{MambaNorm::kNone, "none"},
                                     Word{MambaNorm::kAfterGate, "after_gate"},
                                     Word{MambaNorm::kBeforeGate, "before_gate"}};

// Selective state spaces: Mamba-1 (arXiv:2312.00752) and Mamba-2 (arXiv:2405.21060).
struct MambaConfig {
  int64_t state_size = 128;
  int64_t num_heads = 0;
  int64_t head_dim = 64;
  int64_t num_groups = 8;
  int64_t inner_size = 0;
  int64_t dt_rank = 0;
  int64_t conv_width = 4;
  bool conv_bias = true;
  bool input_bias = false;
  bool output_bias = false;
  MambaNorm norm = MambaNorm::kAfterGate;
  int64_t chunk_size = 128;
  double min_dt = 0.0;
  double max_dt = 0.0;
  double init_min_dt = 0.001;
  double init_max_dt = 0.1;
  double init_dt_floor = 1e-4;

  static constexpr auto fields() {
    return std::tuple{
        field("state_size", &MambaConfig::state_size, {1, 65536}, "numbers of state per channel"),
        field("num_heads", &MambaConfig::num_heads, {0, kMaxWidth},
              "Mamba-2: heads; 0 for 2 x hidden_size / head_dim"),
        field("head_dim", &MambaConfig::head_dim, {1, 65536},
              "Mamba-2: width of one head, in features"),
        field("num_groups", &MambaConfig::num_groups, {1, 65536},
              "Mamba-2: groups of heads that share one B and one C, and are normalised together"),
        field("inner_size", &MambaConfig::inner_size, {0, kMaxWidth},
              "Mamba-1: channels; 0 for 2 x hidden_size"),
        field("dt_rank", &MambaConfig::dt_rank, {0, kMaxWidth},
              "Mamba-1: features from which the time step of each channel is made; 0 for "
              "hidden_size / 16, rounded up"),
        field("conv_width", &MambaConfig::conv_width, {1, 64},
              "tokens that the causal convolution before the scan sees"),
        field("conv_bias", &MambaConfig::conv_bias, "add a bias in the convolution"),
        field("input_bias", &MambaConfig::input_bias,
              "add a bias in the projection into the layer"),
        field("output_bias", &MambaConfig::output_bias,
              "add a bias in the projection out of the layer"),
        field("norm", &MambaConfig::norm, kMambaNormWords,
              "Mamba-2: RMSNorm of the scan's output, over each group, after or before its product "
              "with silu(gate)"),
        field("chunk_size", &MambaConfig::chunk_size, {1, 65536},
              "Mamba-2: tokens that the scan computes at once; changes speed, not the result"),
        field("min_dt", &MambaConfig::min_dt, {0.0, 1e30},
              "Mamba-2: smallest time step, after softplus"),
        field("max_dt", &MambaConfig::max_dt, {0.0, 1e30},
              "Mamba-2: largest time step, after softplus; 0 for no limit"),
        field("init_min_dt", &MambaConfig::init_min_dt, {1e-30, 1e6},
              "smallest of the initial time steps, which are drawn with equal chances on a "
              "logarithmic scale"),
        field("init_max_dt", &MambaConfig::init_max_dt, {1e-30, 1e6},
              "largest of the initial time steps"),
        field("init_dt_floor", &MambaConfig::init_dt_floor, {0.0, 1e6},
              "initial time steps below this are raised to it"),
    };
  }
};

// Gated DeltaNet (arXiv:2412.06464).
struct DeltaNetConfig {
  int64_t num_key_heads = 16;
  int64_t num_value_heads = 32;
  int64_t key_head_dim = 128;
  int64_t value_head_dim = 128;
  int64_t conv_width = 4;
  int64_t chunk_size = 64;

  static constexpr auto fields() {
    return std::tuple{
        field("num_key_heads", &DeltaNetConfig::num_key_heads, {1, 65536}, "query and key heads"),
        field("num_value_heads", &DeltaNetConfig::num_value_heads, {1, 65536},
              "value heads, a multiple of the key heads"),
        field("key_head_dim", &DeltaNetConfig::key_head_dim, {1, 65536},
              "width of one query or key head, in features"),
        field("value_head_dim", &DeltaNetConfig::value_head_dim, {1, 65536},
              "width of one value head, in features"),
        field("conv_width", &DeltaNetConfig::conv_width, {1, 64},
              "tokens that the causal convolution of queries, keys and values sees"),
        field("chunk_size", &DeltaNetConfig::chunk_size, {1, 4096},
              "tokens that the delta rule computes at once; changes speed, not the result"),
    };
  }
};

// Multi-token prediction (DeepSeek-V3, arXiv:2412.19437).
struct MtpConfig {
  int64_t num_layers = 0;
  double loss_coeff = 0.1;
  bool repeated_layer = false;
  std::string layer_pattern;

  static constexpr auto fields() {
    return std::tuple{
        field("num_layers", &MtpConfig::num_layers, {0, 64},
              "modules after the last layer, each of which predicts one token further; 0 for none"),
        field("loss_coeff", &MtpConfig::loss_coeff, {0.0, 100.0},
              "weight of the mean loss of the modules"),
        field("repeated_layer", &MtpConfig::repeated_layer,
              "all modules are one, with the same parameters"),
        field("layer_pattern", &MtpConfig::layer_pattern,
              "layers of a module, as in model.layer_pattern; empty: one like the model's last"),
    };
  }
};

struct MultipliersConfig {
  double embedding = 1.0;
  double logits = 1.0;
  double attention_input = 1.0;
  double key = 1.0;
  double attention_output = 1.0;
  double mlp_gate = 1.0;
  double mlp_output = 1.0;
  double mamba_input = 1.0;
  double mamba_z = 1.0;
  double mamba_x = 1.0;
  double mamba_b = 1.0;
  double mamba_c = 1.0;
  double mamba_dt = 1.0;
  double mamba_output = 1.0;

  static constexpr auto fields() {
    return std::tuple{
        field("embedding", &MultipliersConfig::embedding, {-1e6, 1e6}, "the embedding's output"),
        field("logits", &MultipliersConfig::logits, {-1e6, 1e6},
              "the logits, after the output head"),
        field("attention_input", &MultipliersConfig::attention_input, {-1e6, 1e6},
              "the input of attention layers"),
        field("key", &MultipliersConfig::key, {-1e6, 1e6}, "keys, before rotary positions"),
        field("attention_output", &MultipliersConfig::attention_output, {-1e6, 1e6},
              "the output of attention layers"),
        field("mlp_gate", &MultipliersConfig::mlp_gate, {-1e6, 1e6},
              "the gate of a dense MLP, before its activation"),
        field("mlp_output", &MultipliersConfig::mlp_output, {-1e6, 1e6},
              "the output of a dense MLP"),
        field("mamba_input", &MultipliersConfig::mamba_input, {-1e6, 1e6}, "Mamba-2: the input"),
        field("mamba_z", &MultipliersConfig::mamba_z, {-1e6, 1e6}, "Mamba-2: the projected gate"),
        field("mamba_x", &MultipliersConfig::mamba_x, {-1e6, 1e6}, "Mamba-2: the projected values"),
        field("mamba_b", &MultipliersConfig::mamba_b, {-1e6, 1e6}, "Mamba-2: the projected B"),
        field("mamba_c", &MultipliersConfig::mamba_c, {-1e6, 1e6}, "Mamba-2: the projected C"),
        field("mamba_dt", &MultipliersConfig::mamba_dt, {-1e6, 1e6},
              "Mamba-2: the projected time step"),
        field("mamba_output", &MultipliersConfig::mamba_output, {-1e6, 1e6}, "Mamba-2: the output"),
    };
  }
};

}  // namespace switchyard

#pragma once

#include <string>
#include <vector>

#include "base/activation.h"
#include "base/score_function.h"
#include "config/fields.h"

namespace switchyard {

// One struct per section of the YAML file. The meaning of a setting is its help text. Required
// settings hold 0 or nothing until they are read.

constexpr int64_t kMaxWidth = 1 << 20;  // features
constexpr int64_t kMaxRanks = 1 << 20;

struct RunConfig {
  std::string dir;
  int64_t seed = 1;

  static constexpr auto fields() {
    return std::tuple{
        field("dir", &RunConfig::dir, "folder of the run: checkpoints, metrics, resolved settings",
              Need::kRequiredToTrain),
        field("seed", &RunConfig::seed, {0, kNoLimit},
              "decides initial values and the order of the data"),
    };
  }
};

constexpr std::array kActivationWords{
    Word{Activation::kSilu, "silu"},
    Word{Activation::kGelu, "gelu"},
    Word{Activation::kGeluTanh, "gelu_tanh"},
    Word{Activation::kRelu, "relu"},
    Word{Activation::kReluSquared, "relu_squared"},
    Word{Activation::kQuickGelu, "quick_gelu"},
};

struct ModelConfig {
  std::string from;
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t ffn_hidden_size = 0;
  Activation activation = Activation::kSilu;
  bool gated_mlp = true;
  bool mlp_bias = false;
  int64_t num_attention_heads = 0;
  int64_t num_query_groups = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t max_position = 0;
  double norm_epsilon = 1e-6;
  bool tie_embeddings = false;
  double init_std = 0.02;

  // With the zeros that stand for a derived value replaced by that value.
  int64_t query_groups() const {
    return num_query_groups > 0 ? num_query_groups : num_attention_heads;
  }
  int64_t head_size() const { return head_dim > 0 ? head_dim : hidden_size / num_attention_heads; }
  MlpFunction mlp_function() const { return {activation, gated_mlp}; }

  static constexpr auto fields() {
    return std::tuple{
        field(
            "from", &ModelConfig::from,
            "model to start from: a Hugging Face directory, a checkpoint or a run directory, which "
            "gives the settings of the model; empty: initial values are drawn"),
        field("num_layers", &ModelConfig::num_layers, {1, 10000}, "decoder layers",
              Need::kRequired),
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
        field("mlp_bias", &ModelConfig::mlp_bias, "add a bias in the linear layers of dense MLPs"),
        field("num_attention_heads", &ModelConfig::num_attention_heads, {1, 65536},
              "query heads of an attention layer", Need::kRequired),
        field("num_query_groups", &ModelConfig::num_query_groups, {0, 65536},
              "key and value heads, each shared by a group of query heads; 0 for as many as "
              "query heads"),
        field("head_dim", &ModelConfig::head_dim, {0, 65536},
              "width of one attention head, in features; 0 for hidden_size / num_attention_heads"),
        field("vocab_size", &ModelConfig::vocab_size, {0, 1 << 28},
              "tokens in the vocabulary; 0 for the tokenizer's number"),
        field("max_position", &ModelConfig::max_position, {0, 1 << 28},
              "tokens of the longest sequence that the model is made for; 0: not said"),
        field("norm_epsilon", &ModelConfig::norm_epsilon, {1e-30, 1.0},
              "added to the mean square in RMSNorm"),
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
        field("window", &AttentionConfig::window, {0, kNoLimit},
              "tokens that a token attends to, itself and those right before it; 0 for all before "
              "it"),
        field("window_layers", &AttentionConfig::window_layers,
              "layers that attention.window holds for: 3, 0-7 or 1-23/2 each, layers count from 0; "
              "empty for all"),
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
              "share of each head, from its first feature on, that is rotated"),
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

enum class DispatcherKind { kAllToAll, kAllGather };
constexpr std::array kDispatcherWords{Word{DispatcherKind::kAllToAll, "alltoall"},
                                      Word{DispatcherKind::kAllGather, "allgather"}};

struct MoeConfig {
  int64_t num_experts = 0;
  int64_t top_k = 2;
  int64_t ffn_hidden_size = 0;
  std::vector<std::string> layers;
  int64_t first_dense_layers = 0;
  std::vector<std::string> overrides;
  int64_t shared_expert_ffn_hidden_size = 0;
  bool shared_expert_gate = false;
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
              "how tokens travel to the ranks of their experts"),
    };
  }
};

enum class Documents { kJoined, kPacked };
constexpr std::array kDocumentsWords{Word{Documents::kJoined, "joined"},
                                     Word{Documents::kPacked, "packed"}};

enum class RoutingMethod { kTopK, kSinkhorn, kRandom };
constexpr std::array kRoutingMethodWords{Word{RoutingMethod::kTopK, "top_k"},
                                         Word{RoutingMethod::kSinkhorn, "sinkhorn"},
                                         Word{RoutingMethod::kRandom, "random"}};

enum class CapacityDrop { kWeight, kPosition };
constexpr std::array kCapacityDropWords{Word{CapacityDrop::kWeight, "weight"},
                                        Word{CapacityDrop::kPosition, "position"}};

struct RoutingConfig {
  RoutingMethod method = RoutingMethod::kTopK;
  double input_jitter = 0.0;
  double logit_noise = 0.0;
  double capacity_factor = 0.0;
  CapacityDrop capacity_drop = CapacityDrop::kWeight;
  bool capacity_padding = false;

  static constexpr auto fields() {
    return std::tuple{
        field("method", &RoutingConfig::method, kRoutingMethodWords,
              "how experts are chosen; top_k: the best scores; sinkhorn: the best after balancing "
              "the scores of each sequence; random: random logits, to measure speed when balanced"),
        field("input_jitter", &RoutingConfig::input_jitter, {0.0, 0.999},
              "multiply each feature of the router's input by a random number between 1 - this and "
              "1 + this; 0 for none"),
        field("logit_noise", &RoutingConfig::logit_noise, {0.0, 100.0},
              "standard deviation of normal noise added to the router's logits; 0 for none"),
        field("capacity_factor", &RoutingConfig::capacity_factor, {0.0, 65536.0},
              "an expert takes at most this x its even share of the copies of a sequence, rounded "
              "up, and drops the others; 0 drops nothing"),
        field("capacity_drop", &RoutingConfig::capacity_drop, kCapacityDropWords,
              "which copies an expert keeps; weight: those of the largest weight, position: the "
              "first of the sequence"),
        field("capacity_padding", &RoutingConfig::capacity_padding,
              "fill each expert with empty rows up to its capacity, so that sizes do not depend on "
              "routing"),
    };
  }
};

struct DataConfig {
  std::vector<std::string> train;
  std::vector<std::string> eval;
  std::string tokenizer = "bytes";
  int64_t sequence_length = 0;
  Documents documents = Documents::kJoined;
  bool mask_end_of_document = false;

  static constexpr auto fields() {
    return std::tuple{
        field("train", &DataConfig::train, "prefixes of the tokenized files to train on",
              Need::kRequiredToTrain),
        field("eval", &DataConfig::eval,
              "prefixes of the tokenized files to evaluate on; empty for no evaluation"),
        field("tokenizer", &DataConfig::tokenizer,
              "turns text into tokens: bytes (one per byte), or the path of a tokenizer file or "
              "folder"),
        field("sequence_length", &DataConfig::sequence_length, {1, 1 << 24},
              "tokens of one training sequence", Need::kRequiredToTrain),
        field("documents", &DataConfig::documents, kDocumentsWords,
              "joined: the documents of a sample are one text; packed: each is a sequence of its "
              "own, whose positions start anew and which attends to itself only"),
        field("mask_end_of_document", &DataConfig::mask_end_of_document,
              "joined: no loss for the first token of a document, which the one before it cannot "
              "foretell"),
    };
  }
};

enum class Precision { kFp64, kFp32, kBf16 };
constexpr std::array kPrecisionWords{Word{Precision::kFp64, "fp64"}, Word{Precision::kFp32, "fp32"},
                                     Word{Precision::kBf16, "bf16"}};

enum class Recompute { kNone, kModules, kFull };
constexpr std::array kRecomputeWords{Word{Recompute::kNone, "none"},
                                     Word{Recompute::kModules, "modules"},
                                     Word{Recompute::kFull, "full"}};

enum class RecomputeMethod { kUniform, kBlock };
constexpr std::array kRecomputeMethodWords{Word{RecomputeMethod::kUniform, "uniform"},
                                           Word{RecomputeMethod::kBlock, "block"}};

struct TrainConfig {
  int64_t steps = 0;
  double minutes = 0.0;
  int64_t global_batch_size = 0;
  int64_t micro_batch_size = 1;
  Precision precision = Precision::kFp32;
  Recompute recompute = Recompute::kNone;
  std::vector<std::string> recompute_modules;
  RecomputeMethod recompute_method = RecomputeMethod::kUniform;
  int64_t recompute_layers = 1;
  int64_t eval_every = 0;
  int64_t eval_batches = 0;
  int64_t max_skipped_steps = 10;
  int64_t threads = 0;
  int64_t log_every = 10;

  static constexpr auto fields() {
    return std::tuple{
        field("steps", &TrainConfig::steps, {0, kNoLimit},
              "optimizer steps of the whole run; 0: fixed from minutes and the speed of the first "
              "steps"),
        field("minutes", &TrainConfig::minutes, {0.0, 1e7},
              "time to train for, in minutes; 0 for no limit"),
        field("global_batch_size", &TrainConfig::global_batch_size, {1, 1 << 24},
              "sequences per optimizer step, over all ranks", Need::kRequiredToTrain),
        field("micro_batch_size", &TrainConfig::micro_batch_size, {1, 1 << 24},
              "sequences that a rank computes at once"),
        field("precision", &TrainConfig::precision, kPrecisionWords,
              "number format of activations and matrix products; bf16 keeps fp32 master weights"),
        field("recompute", &TrainConfig::recompute, kRecomputeWords,
              "what is computed again in backward instead of being kept: modules of a layer, or "
              "full: whole layers, of which only the input is kept"),
        field("recompute_modules", &TrainConfig::recompute_modules,
              "for recompute: modules, which ones: core_attention, norms, mlp (of dense layers), "
              "experts, shared_expert, moe (a whole MoE layer, with its communication)"),
        field("recompute_method", &TrainConfig::recompute_method, kRecomputeMethodWords,
              "for recompute: full; uniform: every recompute_layers layers are computed again as "
              "one; block: the first recompute_layers layers of each stage, one by one"),
        field("recompute_layers", &TrainConfig::recompute_layers, {1, 10000},
              "layers that recompute_method speaks of"),
        field("eval_every", &TrainConfig::eval_every, {0, kNoLimit},
              "steps between evaluations; 0: only at the end"),
        field("eval_batches", &TrainConfig::eval_batches, {0, kNoLimit},
              "global batches per evaluation; 0 for all of data.eval"),
        field(
            "max_skipped_steps", &TrainConfig::max_skipped_steps, {1, kNoLimit},
            "steps in a row with a loss or gradient that is not finite after which the run stops; "
            "until then such a step changes nothing"),
        field("threads", &TrainConfig::threads, {0, 4096},
              "threads per rank; 0 for all cores of the machine"),
        field("log_every", &TrainConfig::log_every, {1, kNoLimit}, "steps between progress lines"),
    };
  }
};

enum class LrSchedule { kConstant, kLinear, kCosine, kInverseSqrt, kWsd };
constexpr std::array kLrScheduleWords{
    Word{LrSchedule::kConstant, "constant"}, Word{LrSchedule::kLinear, "linear"},
    Word{LrSchedule::kCosine, "cosine"}, Word{LrSchedule::kInverseSqrt, "inverse_sqrt"},
    Word{LrSchedule::kWsd, "wsd"}};

enum class DecayShape { kLinear, kCosine, kExponential, kMinusSqrt };
constexpr std::array kDecayShapeWords{
    Word{DecayShape::kLinear, "linear"}, Word{DecayShape::kCosine, "cosine"},
    Word{DecayShape::kExponential, "exponential"}, Word{DecayShape::kMinusSqrt, "minus_sqrt"}};

enum class WeightDecaySchedule { kConstant, kLinear, kCosine };
constexpr std::array kWeightDecayScheduleWords{Word{WeightDecaySchedule::kConstant, "constant"},
                                               Word{WeightDecaySchedule::kLinear, "linear"},
                                               Word{WeightDecaySchedule::kCosine, "cosine"}};

struct OptimizerConfig {
  double lr = 0.0;
  double min_lr = 0.0;
  double initial_lr = 0.0;
  int64_t warmup_steps = 0;
  LrSchedule schedule = LrSchedule::kCosine;
  int64_t decay_steps = 0;
  DecayShape decay_shape = DecayShape::kMinusSqrt;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  WeightDecaySchedule weight_decay_schedule = WeightDecaySchedule::kConstant;
  double final_weight_decay = 0.1;
  double clip_grad_norm = 1.0;

  static constexpr auto fields() {
    return std::tuple{
        field("lr", &OptimizerConfig::lr, {0.0, 100.0}, "largest learning rate",
              Need::kRequiredToTrain),
        field("min_lr", &OptimizerConfig::min_lr, {0.0, 100.0},
              "learning rate at the end of the schedule"),
        field("initial_lr", &OptimizerConfig::initial_lr, {0.0, 100.0},
              "learning rate that the warm-up rises from"),
        field("warmup_steps", &OptimizerConfig::warmup_steps, {0, kNoLimit},
              "steps over which the learning rate rises linearly to lr"),
        field("schedule", &OptimizerConfig::schedule, kLrScheduleWords,
              "course of the learning rate after the warm-up; wsd: stays, then falls at the end of "
              "the run"),
        field("decay_steps", &OptimizerConfig::decay_steps, {0, kNoLimit},
              "wsd: steps over which the learning rate falls, the last ones of the run; 0 for a "
              "tenth of it"),
        field("decay_shape", &OptimizerConfig::decay_shape, kDecayShapeWords,
              "wsd: course of the learning rate while it falls"),
        field("beta1", &OptimizerConfig::beta1, {0.0, 0.999999999},
              "decay of the first moment of AdamW"),
        field("beta2", &OptimizerConfig::beta2, {0.0, 0.999999999},
              "decay of the second moment of AdamW"),
        field("epsilon", &OptimizerConfig::epsilon, {1e-30, 1.0},
              "added to the root of the second moment of AdamW"),
        field("weight_decay", &OptimizerConfig::weight_decay, {0.0, 100.0},
              "decoupled weight decay, multiplied by the learning rate"),
        field("weight_decay_schedule", &OptimizerConfig::weight_decay_schedule,
              kWeightDecayScheduleWords,
              "course of the weight decay over the run, from weight_decay to final_weight_decay"),
        field("final_weight_decay", &OptimizerConfig::final_weight_decay, {0.0, 100.0},
              "weight decay at the end of the run, where its schedule is not constant"),
        field("clip_grad_norm", &OptimizerConfig::clip_grad_norm, {0.0, 1e12},
              "largest norm of the whole gradient; 0 turns clipping off"),
    };
  }
};

// How the ranks of cp come by the keys and values of the others.
enum class ContextExchange { kRing, kAllGather, kAllToAll };
constexpr std::array kContextExchangeWords{Word{ContextExchange::kRing, "ring"},
                                           Word{ContextExchange::kAllGather, "all_gather"},
                                           Word{ContextExchange::kAllToAll, "all_to_all"}};

// What data-parallel ranks divide instead of each keeping all of it (ZeRO, arXiv:1910.02054).
enum class DataSharding { kNone, kOptimizer };
constexpr std::array kDataShardingWords{Word{DataSharding::kNone, "none"},
                                        Word{DataSharding::kOptimizer, "optimizer"}};

struct ParallelConfig {
  int64_t tensor_size = 1;
  int64_t pipeline_size = 1;
  int64_t virtual_pipeline_size = 1;
  std::string pipeline_layout;
  int64_t context_size = 1;
  ContextExchange context_exchange = ContextExchange::kRing;
  int64_t expert_size = 1;
  int64_t expert_tensor_size = 1;
  bool sequence_parallel = false;
  DataSharding data_sharding = DataSharding::kNone;
  std::string order = "tp-cp-ep-dp-pp";
  int64_t timeout_s = 600;
  bool verify_calls = false;

  static constexpr auto fields() {
    return std::tuple{
        field("tensor_size", &ParallelConfig::tensor_size, {1, kMaxRanks},
              "ranks that share each attention and dense layer"),
        field("pipeline_size", &ParallelConfig::pipeline_size, {1, kMaxRanks},
              "ranks, one after the other, that the layers are dealt out to"),
        field("virtual_pipeline_size", &ParallelConfig::virtual_pipeline_size, {1, 10000},
              "groups of layers per pipeline rank"),
        field(
            "pipeline_layout", &ParallelConfig::pipeline_layout,
            "what each stage holds, in Megatron's notation (docs/parallelism.md): E the embedding, "
            "t a layer, L final norm, head and loss; empty: layers are divided evenly"),
        field("context_size", &ParallelConfig::context_size, {1, kMaxRanks},
              "ranks that share the tokens of each sequence"),
        field("context_exchange", &ParallelConfig::context_exchange, kContextExchangeWords,
              "how context ranks attend to each other's tokens: keys and values pass around a "
              "ring, are gathered, or heads are divided in place of tokens"),
        field("expert_size", &ParallelConfig::expert_size, {1, kMaxRanks},
              "ranks that the experts of an MoE layer are dealt out to"),
        field("expert_tensor_size", &ParallelConfig::expert_tensor_size, {1, kMaxRanks},
              "ranks that share each expert"),
        field("sequence_parallel", &ParallelConfig::sequence_parallel,
              "divide tokens over the tensor ranks between tensor-parallel layers"),
        field("data_sharding", &ParallelConfig::data_sharding, kDataShardingWords,
              "what data-parallel ranks divide among themselves: nothing, or the optimizer's "
              "moments and master weights"),
        field("order", &ParallelConfig::order,
              "axes of the rank grid, the fastest varying first: tp, cp, ep, dp, pp, each once"),
        field("timeout_s", &ParallelConfig::timeout_s, {1, 604800},
              "longest wait for another rank, in seconds"),
        field("verify_calls", &ParallelConfig::verify_calls,
              "compare every collective call across its ranks before it is made, to find the first "
              "that differs; slow"),
    };
  }
};

struct CheckpointConfig {
  int64_t every = 0;
  int64_t keep = 2;
  bool asynchronous = false;

  static constexpr auto fields() {
    return std::tuple{
        field("every", &CheckpointConfig::every, {0, kNoLimit},
              "steps between checkpoints; 0: only at the end"),
        field("keep", &CheckpointConfig::keep, {1, 1000000},
              "newest checkpoints to keep; older ones are deleted"),
        field("asynchronous", &CheckpointConfig::asynchronous,
              "write checkpoints from a copy in host memory while training goes on"),
    };
  }
};

struct MetricsConfig {
  bool tensorboard = true;

  static constexpr auto fields() {
    return std::tuple{
        field("tensorboard", &MetricsConfig::tensorboard,
              "write TensorBoard event files beside metrics.jsonl"),
    };
  }
};

}  // namespace switchyard

#pragma once

#include <string>
#include <vector>

#include "config/fields.h"
#include "config/model_sections.h"

namespace switchyard {

// One struct per section of the YAML file. The meaning of a setting is its help text. Required
// settings hold 0 or nothing until they are read.

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
  std::vector<std::string> offload_modules;
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
        field("offload_modules", &TrainConfig::offload_modules,
              "parts of a layer whose kept activations wait in host memory for backward: "
              "attention, mlp (of dense layers), experts, shared_expert"),
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
  bool offload = false;

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
        field("offload", &OptimizerConfig::offload,
              "keep the optimizer's moments and master weights in host memory, and bring them in "
              "piece by piece for its step"),
    };
  }
};

// How the ranks of cp come by the keys and values of the others.
enum class ContextExchange { kRing, kAllGather, kAllToAll };
constexpr std::array kContextExchangeWords{Word{ContextExchange::kRing, "ring"},
                                           Word{ContextExchange::kAllGather, "all_gather"},
                                           Word{ContextExchange::kAllToAll, "all_to_all"}};

// What data-parallel ranks divide instead of each keeping all of it (ZeRO, arXiv:1910.02054).
enum class DataSharding { kNone, kOptimizer, kGradients, kParameters };
constexpr std::array kDataShardingWords{
    Word{DataSharding::kNone, "none"}, Word{DataSharding::kOptimizer, "optimizer"},
    Word{DataSharding::kGradients, "gradients"}, Word{DataSharding::kParameters, "parameters"}};

// The order of a pipeline's work (docs/parallelism.md).
enum class PipelineSchedule { kOneForwardOneBackward, kZeroBubble };
constexpr std::array kPipelineScheduleWords{Word{PipelineSchedule::kOneForwardOneBackward, "1f1b"},
                                            Word{PipelineSchedule::kZeroBubble, "zero_bubble"}};

struct ParallelConfig {
  int64_t tensor_size = 1;
  int64_t pipeline_size = 1;
  int64_t virtual_pipeline_size = 1;
  std::string pipeline_layout;
  PipelineSchedule pipeline_schedule = PipelineSchedule::kOneForwardOneBackward;
  int64_t context_size = 1;
  ContextExchange context_exchange = ContextExchange::kRing;
  int64_t expert_size = 1;
  int64_t expert_tensor_size = 1;
  bool expert_overlap = false;
  int64_t ranks_per_node = 0;
  bool sequence_parallel = false;
  DataSharding data_sharding = DataSharding::kNone;
  int64_t prefetch_layers = 1;
  std::string order = "tp-cp-ep-dp-pp";
  int64_t timeout_s = 600;
  bool verify_calls = false;
  std::vector<std::string> slow_link;
  double link_latency_us = 0.0;
  double link_gb_per_s = 0.0;

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
        field("pipeline_schedule", &ParallelConfig::pipeline_schedule, kPipelineScheduleWords,
              "order of the work in a pipeline: one forward and one backward in turn, or with the "
              "gradients of weights put off to fill the time in which ranks would idle at the end"),
        field("context_size", &ParallelConfig::context_size, {1, kMaxRanks},
              "ranks that share the tokens of each sequence"),
        field("context_exchange", &ParallelConfig::context_exchange, kContextExchangeWords,
              "how context ranks attend to each other's tokens: keys and values pass around a "
              "ring, are gathered, or heads are divided in place of tokens"),
        field("expert_size", &ParallelConfig::expert_size, {1, kMaxRanks},
              "ranks that the experts of an MoE layer are dealt out to"),
        field("expert_tensor_size", &ParallelConfig::expert_tensor_size, {1, kMaxRanks},
              "ranks that share each expert"),
        field("expert_overlap", &ParallelConfig::expert_overlap,
              "hide the exchange of tokens between expert ranks: run the forward pass of one "
              "micro-batch and the backward pass of another in turn, each while the other's tokens "
              "travel"),
        field("ranks_per_node", &ParallelConfig::ranks_per_node, {0, kMaxRanks},
              "ranks per machine in the order of ranks, for moe.dispatcher: flex; 0 takes the "
              "machines that the launcher names"),
        field("sequence_parallel", &ParallelConfig::sequence_parallel,
              "divide tokens over the tensor ranks between tensor-parallel layers"),
        field("data_sharding", &ParallelConfig::data_sharding, kDataShardingWords,
              "what data-parallel ranks divide among themselves: nothing, the optimizer's moments "
              "and master weights, these and gradients, or these and parameters"),
        field("prefetch_layers", &ParallelConfig::prefetch_layers, {0, 10000},
              "layers whose parameters are gathered ahead of their use, for data_sharding: "
              "parameters"),
        field("order", &ParallelConfig::order,
              "axes of the rank grid, the fastest varying first: tp, cp, ep, dp, pp, each once"),
        field("timeout_s", &ParallelConfig::timeout_s, {1, 604800},
              "longest wait for another rank, in seconds"),
        field("verify_calls", &ParallelConfig::verify_calls,
              "compare every collective call across its ranks before it is made, to find the first "
              "that differs; slow"),
        field("slow_link", &ParallelConfig::slow_link,
              "groups, such as ep, whose transfers are slowed down to link_latency_us and "
              "link_gb_per_s, to try out on one machine how a run behaves on a slower network"),
        field("link_latency_us", &ParallelConfig::link_latency_us, {0.0, 1e7},
              "time that each transfer of a slow_link group takes besides its bytes, in "
              "microseconds"),
        field("link_gb_per_s", &ParallelConfig::link_gb_per_s, {0.0, 1e5},
              "bytes that each rank sends per second over a slow_link group, in units of 1e9; 0: "
              "without limit"),
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
  double peak_tflops = 0.0;

  static constexpr auto fields() {
    return std::tuple{
        field("tensorboard", &MetricsConfig::tensorboard,
              "write TensorBoard event files beside metrics.jsonl"),
        field("peak_tflops", &MetricsConfig::peak_tflops, {0.0, 1e6},
              "what one rank computes at best, in 10^12 floating point operations per second, "
              "which expert_matmul_efficiency is relative to; 0: measured by a large matrix "
              "product when the run starts"),
    };
  }
};

}  // namespace switchyard

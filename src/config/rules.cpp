#include "config/rules.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "config/idle_settings.h"
#include "config/layer_overrides.h"
#include "config/layer_set.h"
#include "config/moe_layers.h"
#include "config/not_built.h"
#include "config/offload_modules.h"
#include "config/pipeline_layout.h"
#include "config/recompute_modules.h"
#include "config/settings.h"
#include "config/values.h"

namespace switchyard {
namespace {

// A rule returns its line when it is broken and "" when it holds.
template <class... Args>
std::string unless(bool holds, fmt::format_string<Args...> pattern, Args&&... args) {
  return holds ? "" : fmt::format(pattern, std::forward<Args>(args)...);
}

std::string multiple_of(std::string_view name, int64_t value, std::string_view divisor_name,
                        int64_t divisor, std::string_view advice = "") {
  return unless(divisor > 0 && value % divisor == 0, "{} ({}) must be a multiple of {} ({}){}",
                name, value, divisor_name, divisor, advice);
}

bool has_experts(const Config& config) {
  return config.moe.num_experts > 0;
}

std::string moe_layers_are_layers(const Config& config) {
  return wrong_layer_set("moe.layers", config.moe.layers, config.model.num_layers);
}

// Whether a layer is dense (false) or has experts (true). Neither where moe.layers is malformed.
bool has_layers(const Config& config, bool with_experts) {
  if (!moe_layers_are_layers(config).empty()) {
    return false;
  }
  const std::vector<bool> layers = moe_layers(config);
  return std::find(layers.begin(), layers.end(), with_experts) != layers.end();
}

bool has_dense_layers(const Config& config) {
  return has_layers(config, false);
}

// What makes some layers dense, for messages.
std::string reason_for_dense_layers(const Config& config) {
  if (!has_experts(config)) {
    return "moe.num_experts is 0, so that every layer is dense";
  }
  return config.moe.first_dense_layers > 0
             ? fmt::format("moe.first_dense_layers is {}", config.moe.first_dense_layers)
             : "moe.layers leaves layers dense";
}

std::string_view score_word(const MoeConfig& moe) {
  return word_of(kScoreFunctionWords, moe.score_function);
}

// Post-softmax weights sum to 1 by construction.
bool weights_sum_to_one(const MoeConfig& moe) {
  return moe.renormalize || (moe.score_function == ScoreFunction::kSoftmax && !moe.pre_softmax);
}

// --- Model

std::string heads_divide_hidden_size(const Config& config) {
  const ModelConfig& model = config.model;
  if (model.head_dim > 0) {
    return "";
  }
  return multiple_of("model.hidden_size", model.hidden_size, "model.num_attention_heads",
                     model.num_attention_heads, ", or model.head_dim be given");
}

std::string head_dim_is_even(const Config& config) {
  const ModelConfig& model = config.model;
  if (model.head_dim > 0) {
    return unless(model.head_dim % 2 == 0,
                  "model.head_dim ({}) must be even: rotary positions turn pairs of features",
                  model.head_dim);
  }
  if (!heads_divide_hidden_size(config).empty()) {
    return "";
  }
  return unless(model.head_size() % 2 == 0,
                "model.hidden_size / model.num_attention_heads ({} / {} = {}) must be even: rotary "
                "positions turn pairs of features",
                model.hidden_size, model.num_attention_heads, model.head_size());
}

std::string query_groups_divide_heads(const Config& config) {
  return multiple_of("model.num_attention_heads", config.model.num_attention_heads,
                     "model.num_query_groups", config.model.query_groups());
}

std::string window_layers_are_layers(const Config& config) {
  return wrong_layer_set("attention.window_layers", config.attention.window_layers,
                         config.model.num_layers);
}

// --- Rotary positions

std::string_view rope_type_word(const Config& config) {
  return word_of(kRopeTypeWords, config.rope.type);
}

bool scales_from_original(const Config& config) {
  return config.rope.type == RopeType::kLlama3 || config.rope.type == RopeType::kYarn;
}

std::string rotary_dim_is_even(const Config& config) {
  if (config.rope.partial_factor == 1.0 || !head_dim_is_even(config).empty()) {
    return "";
  }
  const int64_t dim = config.rotary_dim();
  return unless(dim > 0 && dim % 2 == 0,
                "rope.partial_factor ({}) of the head dim ({}) rotates {} features of a head: an "
                "even number from 2 up is expected",
                config.rope.partial_factor, config.model.head_size(), dim);
}

std::string dynamic_rope_can_stretch(const Config& config) {
  if (config.rope.type != RopeType::kDynamic || !head_dim_is_even(config).empty()) {
    return "";
  }
  if (config.model.max_position == 0) {
    return "model.max_position must be given: rope.type dynamic scales for longer sequences than "
           "that";
  }
  return unless(config.rotary_dim() > 2,
                "rope.type dynamic needs more than 2 rotated features per head, got {}",
                config.rotary_dim());
}

std::string scaled_rope_has_an_origin(const Config& config) {
  return unless(!scales_from_original(config) || config.rope.original_max_position > 0,
                "rope.original_max_position must be given: rope.type is {}",
                rope_type_word(config));
}

std::string llama3_frequencies_are_in_order(const Config& config) {
  return unless(config.rope.type != RopeType::kLlama3 ||
                    config.rope.high_freq_factor > config.rope.low_freq_factor,
                "rope.high_freq_factor ({}) must exceed rope.low_freq_factor ({})",
                config.rope.high_freq_factor, config.rope.low_freq_factor);
}

std::string yarn_range_is_in_order(const Config& config) {
  return unless(
      config.rope.type != RopeType::kYarn || config.rope.beta_fast >= config.rope.beta_slow,
      "rope.beta_fast ({}) must not be below rope.beta_slow ({})", config.rope.beta_fast,
      config.rope.beta_slow);
}

std::string yarn_base_has_a_logarithm(const Config& config) {
  return unless(config.rope.type != RopeType::kYarn || config.rope.base > 1.0,
                "rope.base ({}) must be above 1 for rope.type yarn", config.rope.base);
}

std::string dense_layers_have_a_width(const Config& config) {
  if (config.model.ffn_hidden_size > 0 || !has_dense_layers(config)) {
    return "";
  }
  return fmt::format("model.ffn_hidden_size must be given: {}", reason_for_dense_layers(config));
}

// --- Experts

std::string experts_have_a_width(const Config& config) {
  return unless(!has_experts(config) || config.moe.ffn_hidden_size > 0,
                "moe.ffn_hidden_size must be given: moe.num_experts is {}", config.moe.num_experts);
}

std::string enough_experts_to_choose(const Config& config) {
  return unless(!has_experts(config) || config.moe.top_k <= config.moe.num_experts,
                "moe.top_k ({}) must not exceed moe.num_experts ({})", config.moe.top_k,
                config.moe.num_experts);
}

std::string dense_layers_fit(const Config& config) {
  return unless(!has_experts(config) || config.moe.first_dense_layers <= config.model.num_layers,
                "moe.first_dense_layers ({}) must not exceed model.num_layers ({})",
                config.moe.first_dense_layers, config.model.num_layers);
}

std::string expert_bias_goes_without_softmax(const Config& config) {
  return unless(!has_experts(config) || !config.moe.expert_bias ||
                    config.moe.score_function != ScoreFunction::kSoftmax,
                "moe.expert_bias (true) needs moe.score_function sigmoid or sqrtsoftplus, got "
                "softmax");
}

std::string sinkhorn_balances_alone(const Config& config) {
  const MoeConfig& moe = config.moe;
  if (!has_experts(config) || config.routing.method != RoutingMethod::kSinkhorn) {
    return "";
  }
  const auto refused = [](std::string_view name, const std::string& needed) {
    return fmt::format("routing.method sinkhorn balances the experts by itself: {} must be {}",
                       name, needed);
  };
  if (moe.aux_loss_coeff > 0 || moe.step_aux_loss_coeff > 0 || moe.global_aux_loss_coeff > 0) {
    return refused(moe.aux_loss_coeff > 0        ? "moe.aux_loss_coeff"
                   : moe.step_aux_loss_coeff > 0 ? "moe.step_aux_loss_coeff"
                                                 : "moe.global_aux_loss_coeff",
                   "0");
  }
  if (moe.expert_bias) {
    return refused("moe.expert_bias", "false");
  }
  return moe.has_groups() ? refused("moe.num_groups", "1") : "";
}

// --- Groups of experts

bool has_groups(const Config& config) {
  return has_experts(config) && config.moe.has_groups();
}

std::string groups_are_equal(const Config& config) {
  return has_groups(config) ? multiple_of("moe.num_experts", config.moe.num_experts,
                                          "moe.num_groups", config.moe.num_groups)
                            : "";
}

std::string enough_groups_to_choose(const Config& config) {
  const MoeConfig& moe = config.moe;
  return unless(!has_groups(config) || moe.group_top_k <= moe.num_groups,
                "moe.group_top_k ({}) must not exceed moe.num_groups ({})", moe.group_top_k,
                moe.num_groups);
}

std::string enough_experts_in_the_chosen_groups(const Config& config) {
  const MoeConfig& moe = config.moe;
  if (!has_groups(config) || !groups_are_equal(config).empty()) {
    return "";
  }
  const int64_t group_size = moe.num_experts / moe.num_groups;
  return unless(moe.top_k <= moe.group_top_k * group_size,
                "moe.top_k ({}) must not exceed the {} experts of moe.group_top_k ({}) groups of "
                "{}: raise moe.group_top_k",
                moe.top_k, moe.group_top_k * group_size, moe.group_top_k, group_size);
}

std::string groups_can_be_scored(const Config& config) {
  const MoeConfig& moe = config.moe;
  if (!has_groups(config) || !groups_are_equal(config).empty()) {
    return "";
  }
  const int64_t group_size = moe.num_experts / moe.num_groups;
  if (moe.group_score == GroupScore::kTopSum && moe.top_k < moe.group_top_k) {
    return fmt::format(
        "moe.group_top_k ({}) must not exceed moe.top_k ({}) for moe.group_score "
        "top_sum, which adds up top_k / group_top_k scores",
        moe.group_top_k, moe.top_k);
  }
  return unless(moe.scores_per_group() <= group_size,
                "moe.group_score {} adds up {} scores, but moe.num_groups ({}) leaves groups of {}",
                word_of(kGroupScoreWords, moe.group_score), moe.scores_per_group(), moe.num_groups,
                group_size);
}

// With one expert per token and weights that sum to 1, the weight is 1 whatever the router says.
std::string router_gets_a_gradient(const Config& config) {
  const MoeConfig& moe = config.moe;
  const bool is_sinkhorn =
      config.routing.method == RoutingMethod::kSinkhorn;  // sigmoid for top_k 1
  if (!has_experts(config) || moe.top_k > 1 || is_sinkhorn || !weights_sum_to_one(moe)) {
    return "";
  }
  return moe.renormalize
             ? "moe.top_k (1) with moe.renormalize (true) gives the router no gradient: the one "
               "weight is always 1; set moe.renormalize to false or moe.top_k to 2 or more"
             : "moe.top_k (1) with moe.pre_softmax (false) gives the router no gradient: the one "
               "weight is always 1; set moe.pre_softmax to true or moe.top_k to 2 or more";
}

// --- Training

std::string micro_batches_fill_the_batch(const Config& config) {
  return multiple_of("train.global_batch_size", config.train.global_batch_size,
                     "train.micro_batch_size", config.train.micro_batch_size);
}

std::string training_ends(const Config& config) {
  return unless(config.train.steps > 0 || config.train.minutes > 0.0,
                "train.steps or train.minutes must be given: both are 0, the run would not end");
}

std::string learning_rate_falls(const Config& config) {
  return unless(config.optimizer.min_lr <= config.optimizer.lr,
                "optimizer.min_lr ({}) must not exceed optimizer.lr ({})", config.optimizer.min_lr,
                config.optimizer.lr);
}

std::string warm_up_rises(const Config& config) {
  return unless(config.optimizer.initial_lr <= config.optimizer.lr,
                "optimizer.initial_lr ({}) must not exceed optimizer.lr ({})",
                config.optimizer.initial_lr, config.optimizer.lr);
}

// A run given minutes learns its length later, and shortens the decay where it must.
std::string decay_fits_the_run(const Config& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  return unless(optimizer.schedule != LrSchedule::kWsd || config.train.steps == 0 ||
                    optimizer.decay_steps == 0 ||
                    optimizer.decay_steps + optimizer.warmup_steps <= config.train.steps,
                "optimizer.warmup_steps + optimizer.decay_steps ({} + {}) must not exceed "
                "train.steps ({})",
                optimizer.warmup_steps, optimizer.decay_steps, config.train.steps);
}

// --- Layout

std::string pipeline_stages_hold_the_layers(const Config& config) {
  return wrong_pipeline_layout(config);
}

std::string zero_bubble_has_one_stage_per_rank(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  return unless(parallel.pipeline_schedule != PipelineSchedule::kZeroBubble ||
                    parallel.virtual_pipeline_size == 1,
                "parallel.pipeline_schedule zero_bubble is for one stage per rank: "
                "parallel.virtual_pipeline_size ({}) must be 1, or the schedule 1f1b",
                parallel.virtual_pipeline_size);
}

std::string zero_bubble_excludes_overlap(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  return unless(
      parallel.pipeline_schedule != PipelineSchedule::kZeroBubble || !parallel.expert_overlap,
      "parallel.pipeline_schedule zero_bubble and parallel.expert_overlap exclude each "
      "other: one cuts backward passes in two, the other pairs whole ones with forward "
      "passes");
}

// As parallel/mesh.h names them.
constexpr std::array<std::string_view, 11> kGroupNames = {
    "world", "tp", "cp", "dp", "dp-cp", "dp-cp-tp", "pp", "etp", "ep", "ep-etp", "edp"};

std::string slow_link_is_declared(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  for (const std::string& name : parallel.slow_link) {
    if (std::find(kGroupNames.begin(), kGroupNames.end(), name) == kGroupNames.end()) {
      return fmt::format("parallel.slow_link: there is no group {}; the groups are {}", name,
                         fmt::join(kGroupNames, ", "));
    }
  }
  return unless(
      parallel.slow_link.empty() || parallel.link_latency_us > 0 || parallel.link_gb_per_s > 0,
      "parallel.slow_link slows nothing down: parallel.link_latency_us or "
      "parallel.link_gb_per_s must be above 0");
}

std::string recompute_names_modules(const Config& config) {
  const TrainConfig& train = config.train;
  if (train.recompute != Recompute::kModules) {
    return "";
  }
  const auto& all = RecomputeModules::kAll;
  if (train.recompute_modules.empty()) {
    return fmt::format(
        "train.recompute is modules: train.recompute_modules must name at least one of {}",
        fmt::join(all, ", "));
  }
  for (const std::string& name : train.recompute_modules) {
    if (std::find(all.begin(), all.end(), name) == all.end()) {
      return fmt::format("train.recompute_modules: there is no {}; the modules are {}", name,
                         fmt::join(all, ", "));
    }
  }
  const bool holds_parts = names_module(train, RecomputeModules::kExperts) ||
                           names_module(train, RecomputeModules::kSharedExpert);
  return unless(!names_module(train, RecomputeModules::kMoe) || !holds_parts,
                "train.recompute_modules: moe computes experts and shared_expert again already: "
                "leave them out, or moe");
}

std::string divided_gradients_come_at_once(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  return unless(
      parallel.pipeline_schedule != PipelineSchedule::kZeroBubble ||
          parallel.data_sharding < DataSharding::kGradients,
      "parallel.pipeline_schedule zero_bubble puts off the gradients of weights; "
      "parallel.data_sharding {} divides those of a layer as soon as its backward pass has "
      "left it: take optimizer or none",
      word_of(kDataShardingWords, parallel.data_sharding));
}

std::string offload_names_modules(const Config& config) {
  const auto& all = OffloadModules::kAll;
  for (const std::string& name : config.train.offload_modules) {
    if (std::find(all.begin(), all.end(), name) == all.end()) {
      return fmt::format("train.offload_modules: there is no {}; the modules are {}", name,
                         fmt::join(all, ", "));
    }
  }
  return "";
}

std::string order_names_every_axis(const Config& config) {
  std::vector<std::string> axes;
  const std::string& order = config.parallel.order;
  for (size_t start = 0; start <= order.size();) {
    const size_t end = std::min(order.find('-', start), order.size());
    axes.push_back(order.substr(start, end - start));
    start = end + 1;
  }
  std::sort(axes.begin(), axes.end());
  return unless(axes == std::vector<std::string>{"cp", "dp", "ep", "pp", "tp"},
                "parallel.order (\"{}\") must name tp, cp, ep, dp and pp once each, joined by "
                "dashes, as in tp-cp-ep-dp-pp",
                order);
}

std::string tensor_ranks_share_heads(const Config& config) {
  return multiple_of("model.num_attention_heads", config.model.num_attention_heads,
                     "parallel.tensor_size", config.parallel.tensor_size);
}

// Where there are fewer key and value heads than ranks, several ranks use one.
std::string tensor_ranks_share_query_groups(const Config& config) {
  const int64_t groups = config.model.query_groups();
  const int64_t ranks = config.parallel.tensor_size;
  return unless(
      !tensor_ranks_share_heads(config).empty() || groups % ranks == 0 || ranks % groups == 0,
      "model.num_query_groups ({}) must be a multiple or a divisor of "
      "parallel.tensor_size ({})",
      groups, ranks);
}

// Parts differ by one where tp does not divide it. A size of 0 is the tokenizer's, not known yet.
std::string tensor_ranks_share_vocabulary(const Config& config) {
  const int64_t vocab_size = config.model.vocab_size;
  return unless(vocab_size == 0 || vocab_size >= config.parallel.tensor_size,
                "model.vocab_size ({}) must be at least parallel.tensor_size ({})", vocab_size,
                config.parallel.tensor_size);
}

std::string tensor_ranks_share_dense_layers(const Config& config) {
  if (!has_dense_layers(config)) {
    return "";
  }
  return multiple_of("model.ffn_hidden_size", config.model.ffn_hidden_size, "parallel.tensor_size",
                     config.parallel.tensor_size);
}

std::string tensor_ranks_share_the_shared_expert(const Config& config) {
  if (!has_experts(config)) {
    return "";
  }
  return multiple_of("moe.shared_expert_ffn_hidden_size", config.moe.shared_expert_ffn_hidden_size,
                     "parallel.tensor_size", config.parallel.tensor_size);
}

std::string tensor_ranks_share_each_expert(const Config& config) {
  if (!has_experts(config)) {
    return "";
  }
  return multiple_of("moe.ffn_hidden_size", config.moe.ffn_hidden_size,
                     "parallel.expert_tensor_size", config.parallel.expert_tensor_size);
}

// The bias of the second product is cut by hidden features, so that each element is added once.
std::string expert_tensor_ranks_share_the_bias(const Config& config) {
  if (!has_experts(config) || !config.moe.linear_bias) {
    return "";
  }
  return multiple_of("model.hidden_size", config.model.hidden_size, "parallel.expert_tensor_size",
                     config.parallel.expert_tensor_size, " for moe.linear_bias");
}

std::string expert_ranks_share_experts(const Config& config) {
  return multiple_of("moe.num_experts", config.moe.num_experts, "parallel.expert_size",
                     config.parallel.expert_size);
}

std::string sequence_parallel_divides_tokens(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  if (!parallel.sequence_parallel) {
    return "";
  }
  const int64_t tokens = config.train.micro_batch_size * config.data.sequence_length;
  if (parallel.context_size == 1) {
    return unless(tokens % parallel.tensor_size == 0,
                  "train.micro_batch_size x data.sequence_length ({} x {} = {}) must be a multiple "
                  "of parallel.tensor_size ({}) for parallel.sequence_parallel",
                  config.train.micro_batch_size, config.data.sequence_length, tokens,
                  parallel.tensor_size);
  }
  const int64_t ranks = parallel.context_size * parallel.tensor_size;
  return unless(tokens % ranks == 0,
                "train.micro_batch_size x data.sequence_length ({} x {} = {}) must be a multiple "
                "of parallel.context_size x parallel.tensor_size ({} x {} = {}) for "
                "parallel.sequence_parallel",
                config.train.micro_batch_size, config.data.sequence_length, tokens,
                parallel.context_size, parallel.tensor_size, ranks);
}

std::string context_ranks_divide_tokens(const Config& config) {
  const int64_t ranks = config.parallel.context_size;
  const int64_t tokens = config.train.micro_batch_size * config.data.sequence_length;
  return unless(ranks == 1 || tokens % (2 * ranks) == 0,
                "train.micro_batch_size x data.sequence_length ({} x {} = {}) must be a multiple "
                "of 2 x parallel.context_size (2 x {} = {}): each context rank takes a chunk from "
                "the front and one from the end",
                config.train.micro_batch_size, config.data.sequence_length, tokens, ranks,
                2 * ranks);
}

// all_to_all gives a context rank some of the heads that its tensor rank has.
std::string context_ranks_share_heads(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t ranks = parallel.context_size;
  const int64_t heads = config.model.num_attention_heads / parallel.tensor_size;
  return unless(
      ranks == 1 || parallel.context_exchange != ContextExchange::kAllToAll || heads % ranks == 0,
      "model.num_attention_heads / parallel.tensor_size ({} / {} = {}) must be a "
      "multiple of parallel.context_size ({}) for parallel.context_exchange all_to_all",
      config.model.num_attention_heads, parallel.tensor_size, heads, ranks);
}

std::string context_ranks_share_query_groups(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t ranks = parallel.context_size;
  const int64_t groups = std::max<int64_t>(1, config.model.query_groups() / parallel.tensor_size);
  return unless(
      ranks == 1 || parallel.context_exchange != ContextExchange::kAllToAll ||
          groups % ranks == 0 || ranks % groups == 0,
      "the key/value heads of a tensor rank ({} / {} = {}) must be a multiple of "
      "parallel.context_size ({}), or divide it, for parallel.context_exchange all_to_all: "
      "model.num_query_groups / parallel.tensor_size, at least 1",
      config.model.query_groups(), parallel.tensor_size, groups, ranks);
}

// --- Layout and number of ranks

std::string dense_grid_fits(const Config& config, int64_t num_ranks) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t size = parallel.tensor_size * parallel.pipeline_size * parallel.context_size;
  return unless(num_ranks % size == 0,
                "the number of ranks ({}) must be a multiple of parallel.tensor_size x "
                "parallel.pipeline_size x parallel.context_size ({} x {} x {} = {})",
                num_ranks, parallel.tensor_size, parallel.pipeline_size, parallel.context_size,
                size);
}

std::string expert_grid_fits(const Config& config, int64_t num_ranks) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t size = parallel.expert_size * parallel.expert_tensor_size * parallel.pipeline_size;
  return unless(num_ranks % size == 0,
                "the number of ranks ({}) must be a multiple of parallel.expert_size x "
                "parallel.expert_tensor_size x parallel.pipeline_size ({} x {} x {} = {})",
                num_ranks, parallel.expert_size, parallel.expert_tensor_size,
                parallel.pipeline_size, size);
}

// How many ranks lie between neighbours in the pipeline: as many as the axes before pp have.
int64_t pipeline_stride(const std::string& order, int64_t tensor, int64_t context, int64_t expert,
                        int64_t data) {
  int64_t stride = 1;
  for (size_t start = 0; order.compare(start, 2, "pp") != 0; start += 3) {
    const std::string axis = order.substr(start, 2);
    stride *= axis == "tp" ? tensor : axis == "cp" ? context : axis == "ep" ? expert : data;
  }
  return stride;
}

std::string grids_have_the_same_stages(const Config& config, int64_t num_ranks) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.pipeline_size == 1 || !order_names_every_axis(config).empty() ||
      !dense_grid_fits(config, num_ranks).empty() || !expert_grid_fits(config, num_ranks).empty()) {
    return "";
  }
  const int64_t stage_ranks = num_ranks / parallel.pipeline_size;
  const int64_t dense =
      pipeline_stride(parallel.order, parallel.tensor_size, parallel.context_size, 1,
                      stage_ranks / (parallel.tensor_size * parallel.context_size));
  const int64_t expert =
      pipeline_stride(parallel.order, parallel.expert_tensor_size, 1, parallel.expert_size,
                      stage_ranks / (parallel.expert_tensor_size * parallel.expert_size));
  return unless(
      dense == expert,
      "parallel.order ({}) puts neighbours in the pipeline {} ranks apart for dense layers "
      "and {} for experts, who would be on other stages: let it end in pp",
      parallel.order, dense, expert);
}

std::string data_ranks_share_the_batch(const Config& config, int64_t num_ranks) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t size = parallel.tensor_size * parallel.pipeline_size * parallel.context_size;
  if (num_ranks % size != 0) {
    return "";  // dense_grid_fits has said so
  }
  const int64_t data_size = num_ranks / size;
  const int64_t sequences = config.train.micro_batch_size * data_size;
  return unless(config.train.global_batch_size % sequences == 0,
                "train.global_batch_size ({}) must be a multiple of train.micro_batch_size x "
                "data-parallel ranks ({} x {} = {}); {} ranks / (tensor {} x pipeline {} x context "
                "{}) leave {} data-parallel",
                config.train.global_batch_size, config.train.micro_batch_size, data_size, sequences,
                num_ranks, parallel.tensor_size, parallel.pipeline_size, parallel.context_size,
                data_size);
}

std::string overlap_has_two_micro_batches(const Config& config, int64_t num_ranks) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t size = parallel.tensor_size * parallel.pipeline_size * parallel.context_size;
  if (num_ranks % size != 0 || !data_ranks_share_the_batch(config, num_ranks).empty()) {
    return "";
  }
  const int64_t data_size = num_ranks / size;
  const int64_t sequences = config.train.micro_batch_size * data_size;
  return unless(!parallel.expert_overlap || config.train.global_batch_size > sequences,
                "parallel.expert_overlap pairs one micro-batch with another: "
                "train.global_batch_size ({}) must be at least 2 x train.micro_batch_size x "
                "data-parallel ranks (2 x {} x {} = {})",
                config.train.global_batch_size, config.train.micro_batch_size, data_size,
                2 * sequences);
}

// --- Settings without effect

// The settings of a section or single ones, and why they do nothing.
struct Idle {
  bool is_idle;
  std::vector<std::string_view> names;  // `moe` stands for the whole section
  std::string reason;
};

// What the types of rotary positions leave unused.
std::vector<Idle> idle_rope_settings(const Config& config) {
  const RopeConfig& rope = config.rope;
  const std::string type = fmt::format("rope.type is {}", rope_type_word(config));
  const bool is_yarn = rope.type == RopeType::kYarn;
  return {
      {rope.type == RopeType::kDefault, {"rope.factor"}, type},
      {!scales_from_original(config), {"rope.original_max_position"}, type},
      {rope.type != RopeType::kLlama3, {"rope.low_freq_factor", "rope.high_freq_factor"}, type},
      {!is_yarn,
       {"rope.beta_fast", "rope.beta_slow", "rope.mscale", "rope.mscale_all_dim",
        "rope.attention_factor", "rope.truncate"},
       type},
      {is_yarn && rope.attention_factor > 0.0,
       {"rope.mscale", "rope.mscale_all_dim"},
       "rope.attention_factor is given"},
      {is_yarn && rope.attention_factor == 0.0 && rope.mscale_all_dim == 0.0,
       {"rope.mscale"},
       "rope.mscale_all_dim is not given"},
      {is_yarn && rope.attention_factor == 0.0 && rope.mscale == 0.0,
       {"rope.mscale_all_dim"},
       "rope.mscale is not given"},
  };
}

std::vector<Idle> idle_settings(const Config& config) {
  const MoeConfig& moe = config.moe;
  const bool is_softmax = moe.score_function == ScoreFunction::kSoftmax;
  const bool is_dense = !has_experts(config);
  const OptimizerConfig& optimizer = config.optimizer;
  std::vector<Idle> idle = {
      {config.attention.window == 0, {"attention.window_layers"}, "attention.window is 0"},
      {is_dense,
       {"moe", "routing", "parallel.expert_size", "parallel.expert_tensor_size",
        "parallel.ranks_per_node", "parallel.expert_overlap"},
       "moe.num_experts is 0"},
      {!is_dense && !is_softmax,
       {"moe.pre_softmax"},
       fmt::format("moe.score_function is {}", score_word(moe))},
      {!is_dense && is_softmax && !moe.pre_softmax,
       {"moe.renormalize"},
       "moe.pre_softmax is false: softmax over the chosen experts sums to 1 already"},
      {!is_dense && !moe.expert_bias, {"moe.bias_update_rate"}, "moe.expert_bias is false"},
      {!is_dense && !has_groups(config),
       {"moe.group_top_k", "moe.group_score"},
       "moe.num_groups is 1"},
      {has_groups(config) && moe.group_top_k == moe.num_groups,
       {"moe.num_groups", "moe.group_score"},
       "moe.group_top_k allows every group"},
      {!is_dense && config.routing.method == RoutingMethod::kSinkhorn,
       {"moe.score_function", "moe.pre_softmax", "moe.renormalize"},
       "routing.method is sinkhorn"},
      {!is_dense && config.routing.method == RoutingMethod::kRandom,
       {"routing.logit_noise"},
       "routing.method is random"},
      {!is_dense && config.routing.capacity_factor == 0,
       {"routing.capacity_drop", "routing.capacity_padding"},
       "routing.capacity_factor is 0"},
      {!is_dense && moe.shared_expert_ffn_hidden_size == 0,
       {"moe.shared_expert_gate"},
       "moe.shared_expert_ffn_hidden_size is 0"},
      {!is_dense && config.train.precision == Precision::kFp64,
       {"moe.router_dtype"},
       "train.precision is fp64"},
      {!has_dense_layers(config),
       {"model.ffn_hidden_size", "model.mlp_bias"},
       moe.layers.empty() ? "no layer is dense: moe.first_dense_layers is 0"
                          : "no layer is dense: moe.layers holds every layer"},
      {!is_dense && !has_layers(config, true),
       {"moe.num_experts"},
       moe.layers.empty() ? "moe.first_dense_layers makes every layer dense"
                          : "moe.first_dense_layers makes every layer of moe.layers dense"},
      {config.parallel.tensor_size == 1,
       {"parallel.sequence_parallel"},
       "parallel.tensor_size is 1"},
      {config.parallel.pipeline_size == 1,
       {"parallel.pipeline_schedule"},
       "parallel.pipeline_size is 1"},
      {!is_dense && config.parallel.expert_size * config.parallel.expert_tensor_size == 1,
       {"parallel.expert_overlap"},
       "parallel.expert_size and expert_tensor_size are 1: no token travels"},
      {config.parallel.slow_link.empty(),
       {"parallel.link_latency_us", "parallel.link_gb_per_s"},
       "parallel.slow_link names no group"},
      {config.parallel.context_size == 1,
       {"parallel.context_exchange"},
       "parallel.context_size is 1"},
      {!is_dense && moe.dispatcher != DispatcherKind::kFlex,
       {"parallel.ranks_per_node"},
       "moe.dispatcher is not flex"},
      {config.parallel.data_sharding != DataSharding::kParameters,
       {"parallel.prefetch_layers"},
       "parallel.data_sharding is not parameters"},
      {optimizer.schedule == LrSchedule::kConstant,
       {"optimizer.min_lr"},
       "optimizer.schedule is constant"},
      {optimizer.schedule != LrSchedule::kWsd,
       {"optimizer.decay_steps", "optimizer.decay_shape"},
       "optimizer.schedule is not wsd"},
      {optimizer.warmup_steps == 0, {"optimizer.initial_lr"}, "optimizer.warmup_steps is 0"},
      {optimizer.weight_decay_schedule == WeightDecaySchedule::kConstant,
       {"optimizer.final_weight_decay"},
       "optimizer.weight_decay_schedule is constant"},
      {config.data.documents == Documents::kPacked,
       {"data.mask_end_of_document"},
       "data.documents is packed: no document foretells the next"},
      {config.train.steps > 0, {"train.minutes"}, "train.steps says when the run ends"},
      {config.train.recompute != Recompute::kModules,
       {"train.recompute_modules"},
       "train.recompute is not modules"},
      {config.train.recompute != Recompute::kFull,
       {"train.recompute_method", "train.recompute_layers"},
       "train.recompute is not full"},
      {true,  // of the ranks that there are
       {"train.offload_modules", "optimizer.offload"},
       "ranks compute on the CPU, where everything is in host memory"},
      {config.data.eval.empty(), {"train.eval_every", "train.eval_batches"}, "data.eval is empty"},
  };
  const std::vector<Idle> rope = idle_rope_settings(config);
  idle.insert(idle.end(), rope.begin(), rope.end());
  return idle;
}

std::string sequences_exceed_the_model(const Config& config) {
  const int64_t longest = config.model.max_position;
  return unless(longest == 0 || config.rope.type == RopeType::kDynamic ||
                    config.data.sequence_length <= longest,
                "data.sequence_length ({}) exceeds model.max_position ({}): the model is made for "
                "shorter sequences",
                config.data.sequence_length, longest);
}

std::string warmup_is_cut_off(const Config& config) {
  return unless(config.train.steps == 0 || config.optimizer.warmup_steps <= config.train.steps,
                "optimizer.lr ({}) is never reached: optimizer.warmup_steps ({}) exceeds "
                "train.steps ({})",
                config.optimizer.lr, config.optimizer.warmup_steps, config.train.steps);
}

bool is_meant(std::string_view name, const Setting& setting) {
  return name == setting.name || name == setting.section;
}

// A setting that was given its default value loses nothing by being ignored, so that the resolved
// configuration, which gives every value, reads without warnings.
std::vector<std::string> settings_without_effect(const Config& config, const Origins& origins) {
  std::vector<std::string> lines;
  for (const Idle& idle : idle_settings(config)) {
    for (const Setting& setting : settings()) {
      const bool is_listed =
          std::any_of(idle.names.begin(), idle.names.end(),
                      [&](std::string_view name) { return is_meant(name, setting); });
      if (idle.is_idle && is_listed && origins.is_set(setting.name) &&
          !setting.has_default_value(config)) {
        lines.push_back(fmt::format("{} ({}) has no effect: {} [{}]", setting.name,
                                    setting.print(config), idle.reason, origins.of(setting.name)));
      }
    }
  }
  return lines;
}

// Modules to recompute that no layer of this model has.
std::vector<std::string> modules_without_effect(const Config& config) {
  const bool has_moe = has_experts(config) && has_layers(config, true);
  const std::array<std::pair<std::string_view, bool>, 4> kinds = {{
      {RecomputeModules::kMlp, has_dense_layers(config)},
      {RecomputeModules::kExperts, has_moe},
      {RecomputeModules::kSharedExpert, has_moe && config.moe.shared_expert_ffn_hidden_size > 0},
      {RecomputeModules::kMoe, has_moe},
  }};
  std::vector<std::string> lines;
  for (const auto& [module, is_there] : kinds) {
    if (recomputes(config.train, module) && !is_there) {
      lines.push_back(fmt::format(
          "train.recompute_modules: {} has no effect: no layer of this model has one", module));
    }
  }
  return lines;
}

std::vector<std::string> broken_lines(std::vector<std::string> lines) {
  lines.erase(std::remove(lines.begin(), lines.end(), ""), lines.end());
  return lines;
}

void throw_lines(const std::vector<std::string>& lines) {
  check<ConfigError>(lines.empty(), "{}", fmt::join(lines, "\n"));
}

void append(std::vector<std::string>& lines, const std::vector<std::string>& more) {
  lines.insert(lines.end(), more.begin(), more.end());
}

// What the section moe must fulfil, also as it is for one layer.
std::vector<std::string> rules_of_experts(const Config& config, ConfigUse use) {
  return broken_lines({
      experts_have_a_width(config),
      enough_experts_to_choose(config),
      expert_bias_goes_without_softmax(config),
      sinkhorn_balances_alone(config),
      groups_are_equal(config),
      enough_groups_to_choose(config),
      enough_experts_in_the_chosen_groups(config),
      groups_can_be_scored(config),
      tensor_ranks_share_the_shared_expert(config),
      tensor_ranks_share_each_expert(config),
      expert_tensor_ranks_share_the_bias(config),
      expert_ranks_share_experts(config),
      use == ConfigUse::kTrain ? router_gets_a_gradient(config) : "",
  });
}

// The same settings with the section moe as it is for one layer.
Config config_of_layer(const Config& config, int64_t layer) {
  Config of_layer = config;
  of_layer.moe = moe_of_layer(config, layer);
  return of_layer;
}

// Layers that a text of moe.overrides names and that have experts.
std::vector<int64_t> layers_with_experts(const Config& config, const LayerOverride& text) {
  std::vector<int64_t> layers;
  const std::vector<bool> is_moe = moe_layers(config);
  for (size_t i = 0; i < is_moe.size(); ++i) {
    if (is_moe[i] && text.layers[i]) {
      layers.push_back(static_cast<int64_t>(i));
    }
  }
  return layers;
}

bool can_read_layers(const Config& config) {
  return has_experts(config) && moe_layers_are_layers(config).empty() &&
         wrong_overrides(config).empty();
}

// Each rule that the settings of some layer break, for the first such layer. What the whole section
// breaks is said already.
std::vector<std::string> rules_of_overrides(const Config& config, ConfigUse use) {
  if (!can_read_layers(config)) {
    return has_experts(config) ? wrong_overrides(config) : std::vector<std::string>{};
  }
  std::vector<std::string> lines;
  std::vector<std::string> seen = rules_of_experts(config, use);
  for (const LayerOverride& text : layer_overrides(config)) {
    for (const int64_t layer : layers_with_experts(config, text)) {
      for (const std::string& line : rules_of_experts(config_of_layer(config, layer), use)) {
        if (std::find(seen.begin(), seen.end(), line) == seen.end()) {
          seen.push_back(line);
          lines.push_back(fmt::format("moe.overrides, layer {}: {}", layer, line));
        }
      }
    }
  }
  return lines;
}

std::vector<std::string> overrides_without_effect(const Config& config) {
  if (!can_read_layers(config)) {
    return {};
  }
  std::vector<std::string> lines;
  for (const LayerOverride& text : layer_overrides(config)) {
    const std::vector<int64_t> layers = layers_with_experts(config, text);
    if (layers.empty()) {
      lines.push_back(fmt::format(
          "moe.overrides: \"{}\" has no effect: none of its layers has experts", text.text));
      continue;
    }
    for (const Idle& idle : idle_settings(config_of_layer(config, layers.front()))) {
      for (const std::string& name : text.names) {
        if (idle.is_idle &&
            std::find(idle.names.begin(), idle.names.end(), name) != idle.names.end()) {
          lines.push_back(fmt::format("moe.overrides: {} in \"{}\" has no effect: {}", name,
                                      text.text, idle.reason));
        }
      }
    }
  }
  return lines;
}

}  // namespace

std::vector<std::string> broken_rules(const Config& config, ConfigUse use) {
  if (config.model.num_attention_heads == 0) {  // what the other rules divide by
    return {"model.num_attention_heads (0) must be 1 or more: every layer has attention"};
  }
  std::vector<std::string> lines = {
      heads_divide_hidden_size(config),
      head_dim_is_even(config),
      query_groups_divide_heads(config),
      window_layers_are_layers(config),
      rotary_dim_is_even(config),
      dynamic_rope_can_stretch(config),
      scaled_rope_has_an_origin(config),
      llama3_frequencies_are_in_order(config),
      yarn_range_is_in_order(config),
      yarn_base_has_a_logarithm(config),
      dense_layers_have_a_width(config),
      moe_layers_are_layers(config),
      dense_layers_fit(config),
      pipeline_stages_hold_the_layers(config),
      zero_bubble_has_one_stage_per_rank(config),
      zero_bubble_excludes_overlap(config),
      slow_link_is_declared(config),
      recompute_names_modules(config),
      offload_names_modules(config),
      divided_gradients_come_at_once(config),
      order_names_every_axis(config),
      tensor_ranks_share_heads(config),
      tensor_ranks_share_query_groups(config),
      tensor_ranks_share_vocabulary(config),
      tensor_ranks_share_dense_layers(config),
      sequence_parallel_divides_tokens(config),
      context_ranks_divide_tokens(config),
      context_ranks_share_heads(config),
      context_ranks_share_query_groups(config),
      learning_rate_falls(config),
      warm_up_rises(config),
      decay_fits_the_run(config),
  };
  append(lines, rules_of_experts(config, use));
  append(lines, rules_of_overrides(config, use));
  append(lines, settings_not_built(config));
  if (use == ConfigUse::kTrain) {
    lines.push_back(micro_batches_fill_the_batch(config));
    lines.push_back(training_ends(config));
  }
  return broken_lines(lines);
}

std::vector<std::string> broken_rules_of_world(const Config& config, int64_t num_ranks) {
  return broken_lines({dense_grid_fits(config, num_ranks), expert_grid_fits(config, num_ranks),
                       grids_have_the_same_stages(config, num_ranks),
                       data_ranks_share_the_batch(config, num_ranks),
                       overlap_has_two_micro_batches(config, num_ranks)});
}

void check_rules(const Config& config, ConfigUse use) {
  throw_lines(broken_rules(config, use));
}

void check_rules_of_world(const Config& config, int64_t num_ranks) {
  throw_lines(broken_rules_of_world(config, num_ranks));
}

std::set<std::string> names_of_idle_settings(const Config& config) {
  std::set<std::string> names;
  for (const Idle& idle : idle_settings(config)) {
    for (const Setting& setting : settings()) {
      const bool is_listed =
          std::any_of(idle.names.begin(), idle.names.end(),
                      [&](std::string_view name) { return is_meant(name, setting); });
      if (idle.is_idle && is_listed) {
        names.insert(setting.name);
      }
    }
  }
  return names;
}

std::vector<std::string> warnings_about(const Config& config, const Origins& origins) {
  std::vector<std::string> lines = settings_without_effect(config, origins);
  append(lines, overrides_without_effect(config));
  append(lines, modules_without_effect(config));
  lines.push_back(warmup_is_cut_off(config));
  lines.push_back(sequences_exceed_the_model(config));
  return broken_lines(lines);
}

}  // namespace switchyard

#include "config/rules/layout_rules.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/pipeline_layout.h"
#include "config/rules/lines.h"
#include "config/rules/questions.h"
#include "config/values.h"

namespace switchyard {
namespace {

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

}  // namespace

std::vector<std::string> layout_rules(const Config& config) {
  return broken_lines({
      pipeline_stages_hold_the_layers(config),
      zero_bubble_has_one_stage_per_rank(config),
      zero_bubble_excludes_overlap(config),
      slow_link_is_declared(config),
      divided_gradients_come_at_once(config),
      order_names_every_axis(config),
      tensor_ranks_share_vocabulary(config),
      tensor_ranks_share_dense_layers(config),
      sequence_parallel_divides_tokens(config),
      context_ranks_divide_tokens(config),
  });
}

}  // namespace switchyard

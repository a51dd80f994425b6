#include "config/rules/world_rules.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/rules/lines.h"
#include "config/rules/questions.h"

namespace switchyard {
namespace {

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

}  // namespace

std::vector<std::string> world_rules(const Config& config, int64_t num_ranks) {
  return broken_lines({
      dense_grid_fits(config, num_ranks),
      expert_grid_fits(config, num_ranks),
      grids_have_the_same_stages(config, num_ranks),
      data_ranks_share_the_batch(config, num_ranks),
      overlap_has_two_micro_batches(config, num_ranks),
  });
}

}  // namespace switchyard

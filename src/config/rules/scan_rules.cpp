#include "config/rules/scan_rules.h"

#include "config/mixer_sizes.h"
#include "config/rules/lines.h"
#include "config/rules/questions.h"

namespace switchyard {
namespace {

std::string mamba2_has_heads(const Config& config) {
  return unless(mamba2_heads(config) > 0,
                "mamba.num_heads must be given: 2 x model.hidden_size / mamba.head_dim ({} / {}) "
                "is 0",
                2 * config.model.hidden_size, config.mamba.head_dim);
}

std::string groups_divide_mamba2_heads(const Config& config) {
  return multiple_of("mamba.num_heads", mamba2_heads(config), "mamba.num_groups",
                     config.mamba.num_groups);
}

// Context ranks take the row of each other's heads.
std::string ranks_share_mamba2_heads(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t ranks = parallel.tensor_size * parallel.context_size;
  return unless(mamba2_heads(config) % ranks == 0,
                "mamba.num_heads ({}) must be a multiple of parallel.tensor_size x "
                "parallel.context_size ({} x {} = {})",
                mamba2_heads(config), parallel.tensor_size, parallel.context_size, ranks);
}

// Where there are fewer groups than ranks, several ranks use one: which none of them can normalise.
std::string tensor_ranks_share_mamba_groups(const Config& config) {
  const int64_t groups = config.mamba.num_groups;
  const int64_t ranks = config.parallel.tensor_size;
  if (groups % ranks == 0) {
    return "";
  }
  if (config.mamba.norm != MambaNorm::kNone) {
    return fmt::format(
        "mamba.num_groups ({}) must be a multiple of parallel.tensor_size ({}): the norm is over "
        "whole groups, each on one rank (or mamba.norm none)",
        groups, ranks);
  }
  return unless(ranks % groups == 0,
                "mamba.num_groups ({}) must be a multiple or a divisor of parallel.tensor_size "
                "({})",
                groups, ranks);
}

std::string context_ranks_share_mamba_groups(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t ranks = parallel.context_size;
  const int64_t groups = std::max<int64_t>(1, config.mamba.num_groups / parallel.tensor_size);
  return unless(groups % ranks == 0 || ranks % groups == 0,
                "the Mamba groups of a tensor rank ({} / {} = {}) must be a multiple of "
                "parallel.context_size ({}), or divide it: mamba.num_groups / "
                "parallel.tensor_size, at least 1",
                config.mamba.num_groups, parallel.tensor_size, groups, ranks);
}

std::string time_steps_have_a_range(const Config& config) {
  const MambaConfig& mamba = config.mamba;
  return unless(mamba.max_dt == 0 || mamba.max_dt >= mamba.min_dt,
                "mamba.max_dt ({}) must not be below mamba.min_dt ({})", mamba.max_dt,
                mamba.min_dt);
}

std::string first_time_steps_are_in_order(const Config& config) {
  const MambaConfig& mamba = config.mamba;
  return unless(mamba.init_max_dt >= mamba.init_min_dt,
                "mamba.init_max_dt ({}) must not be below mamba.init_min_dt ({})",
                mamba.init_max_dt, mamba.init_min_dt);
}

// Context ranks take the row of each other's channels.
std::string ranks_share_mamba1_channels(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t ranks = parallel.tensor_size * parallel.context_size;
  return unless(mamba1_channels(config) % ranks == 0,
                "mamba.inner_size ({}) must be a multiple of parallel.tensor_size x "
                "parallel.context_size ({} x {} = {})",
                mamba1_channels(config), parallel.tensor_size, parallel.context_size, ranks);
}

std::string value_heads_share_key_heads(const Config& config) {
  return multiple_of("delta_net.num_value_heads", config.delta_net.num_value_heads,
                     "delta_net.num_key_heads", config.delta_net.num_key_heads);
}

// With the value heads that read it, a key head is on one tensor rank, and scanned by one context
// rank.
std::string ranks_share_key_heads(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t ranks = parallel.tensor_size * parallel.context_size;
  return unless(config.delta_net.num_key_heads % ranks == 0,
                "delta_net.num_key_heads ({}) must be a multiple of parallel.tensor_size x "
                "parallel.context_size ({} x {} = {})",
                config.delta_net.num_key_heads, parallel.tensor_size, parallel.context_size, ranks);
}

std::vector<std::string> mamba2_rules(const Config& config) {
  if (const std::string line = mamba2_has_heads(config); !line.empty()) {
    return {line};
  }
  return broken_lines({
      groups_divide_mamba2_heads(config),
      ranks_share_mamba2_heads(config),
      tensor_ranks_share_mamba_groups(config),
      context_ranks_share_mamba_groups(config),
      time_steps_have_a_range(config),
  });
}

}  // namespace

std::vector<std::string> scan_rules(const Config& config) {
  std::vector<std::string> lines;
  if (has_mixer(config, MixerKind::kMamba2)) {
    append(lines, mamba2_rules(config));
  }
  if (has_mixer(config, MixerKind::kMamba1)) {
    append(lines, broken_lines({ranks_share_mamba1_channels(config)}));
  }
  if (has_mixer(config, MixerKind::kMamba1) || has_mixer(config, MixerKind::kMamba2)) {
    append(lines, broken_lines({first_time_steps_are_in_order(config)}));
  }
  if (has_mixer(config, MixerKind::kDeltaNet)) {
    append(lines,
           broken_lines({value_heads_share_key_heads(config), ranks_share_key_heads(config)}));
  }
  return lines;
}

}  // namespace switchyard

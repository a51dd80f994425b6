#include "train/run_settings.h"

#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "config/rules.h"
#include "config/values.h"
#include "train/model_assets.h"

namespace switchyard {
namespace {

// "4 4": how many ranks in a row are on one machine, then on the next.
std::string describe_nodes(const std::vector<int64_t>& nodes) {
  std::vector<int64_t> runs;
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    if (rank == 0 || nodes[rank] != nodes[rank - 1]) {
      runs.push_back(0);
    }
    ++runs.back();
  }
  return fmt::format("{}", fmt::join(runs, " "));
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const Config& config) {
  const std::string& name = config.data.tokenizer;
  const auto kept = kept_tokenizer(config.run.dir);
  const bool is_begun =
      find_latest(std::filesystem::path(config.run.dir) / "checkpoints").has_value();
  const bool is_gone = name != "bytes" && !std::filesystem::exists(name);
  return make_tokenizer(is_gone && is_begun && kept ? *kept : name);
}

Config resolve(Config config, const Tokenizer& tokenizer, int64_t world_size) {
  if (config.model.vocab_size == 0) {
    // Rounded up so that any usual tensor size divides it; the extra tokens never occur.
    constexpr int64_t kVocabularyMultiple = 64;
    config.model.vocab_size = (tokenizer.vocab_size() + kVocabularyMultiple - 1) /
                              kVocabularyMultiple * kVocabularyMultiple;
  }
  check<ConfigError>(
      config.model.vocab_size >= tokenizer.vocab_size(),
      "model.vocab_size ({}) is smaller than the {} tokens of data.tokenizer {}: raise "
      "it, or set 0 to take the tokenizer's",
      config.model.vocab_size, tokenizer.vocab_size(), config.data.tokenizer);
  check_rules(config, ConfigUse::kTrain);
  check_rules_of_world(config, world_size);
  return config;
}

std::string describe_layout(const Config& config, const Groups& groups) {
  const ParallelConfig& parallel = config.parallel;
  const std::string context =
      parallel.context_size > 1
          ? fmt::format(" cp {} {}", parallel.context_size,
                        word_of(kContextExchangeWords, parallel.context_exchange))
          : "";
  const bool has_nodes =
      config.moe.num_experts > 0 && config.moe.dispatcher == DispatcherKind::kFlex;
  const std::string nodes =
      has_nodes ? fmt::format(" nodes of {}", describe_nodes(groups.nodes())) : "";
  const bool sums_over_ranks_first = parallel.data_sharding >= DataSharding::kGradients;
  return fmt::format("world {}: tp {}{} pp {} ep {} etp {}{}{}{}", groups.mesh().world_size(),
                     parallel.tensor_size, context, parallel.pipeline_size, parallel.expert_size,
                     parallel.expert_tensor_size, nodes,
                     parallel.sequence_parallel ? " sequence parallel" : "",
                     sums_over_ranks_first ? " gradients sharded" : "");
}

}  // namespace switchyard

#include "train/run_identity.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "base/random.h"
#include "checkpoint/sealed_json.h"
#include "config/load.h"
#include "config/settings.h"
#include "data/weighted_prefix.h"
#include "model/layer_spec.h"

namespace switchyard {
namespace {

// Whole sections, and single settings, that may change.
constexpr std::array<std::string_view, 3> kFreeSections = {"parallel", "checkpoint", "metrics"};
constexpr std::array<std::string_view, 19> kFreeSettings = {"run.dir",
                                                            "data.train",
                                                            "data.tokenizer",
                                                            "data.eval",
                                                            "moe.dispatcher",
                                                            "train.minutes",
                                                            "train.steps",
                                                            "train.micro_batch_size",
                                                            "train.recompute",
                                                            "train.recompute_modules",
                                                            "train.recompute_method",
                                                            "train.recompute_layers",
                                                            "train.offload_modules",
                                                            "optimizer.offload",
                                                            "train.eval_every",
                                                            "train.eval_batches",
                                                            "train.threads",
                                                            "train.log_every",
                                                            "train.max_skipped_steps"};

std::vector<std::optional<double>> weights_of(const std::vector<RunContents::Set>& sets) {
  std::vector<std::string> entries;
  for (const RunContents::Set& set : sets) {
    entries.push_back(set.entry);
  }
  std::vector<std::optional<double>> weights;
  for (const WeightedPrefix& entry : parse_weighted_prefixes("data.train", entries)) {
    weights.push_back(entry.weight);
  }
  return weights;
}

void add_change(const Setting& setting, const Config& saved, const Config& now,
                std::vector<std::string>& lines) {
  if (setting.print(saved) != setting.print(now)) {
    lines.push_back(fmt::format("{}: {} in the checkpoint, {} now", setting.name,
                                setting.print(saved), setting.print(now)));
  }
}

// Balance losses are products of means over an accumulation step. Frequencies of rope.type dynamic
// follow the longest sequence of a micro-batch, which differs where documents are packed.
bool depends_on_accumulation(const Config& config) {
  const std::vector<LayerSpec> layers = describe_layers(config);
  const bool has_step_loss = std::any_of(layers.begin(), layers.end(), [](const LayerSpec& layer) {
    return layer.has_experts() &&
           (layer.moe.step_aux_loss_coeff > 0 || layer.moe.global_aux_loss_coeff > 0);
  });
  return has_step_loss ||
         (config.rope.type == RopeType::kDynamic && config.data.documents == Documents::kPacked &&
          config.data.sequence_length > config.model.max_position);
}

}  // namespace

bool is_part_of_identity(const std::string& setting) {
  for (const std::string_view free : kFreeSettings) {
    if (setting == free) {
      return false;
    }
  }
  for (const std::string_view section : kFreeSections) {
    if (setting.starts_with(section) && setting[section.size()] == '.') {
      return false;
    }
  }
  return true;
}

std::string run_fingerprint(const Config& config) {
  std::string text;
  for (const Setting& setting : settings()) {
    if (is_part_of_identity(setting.name)) {
      text += setting.name + "=" + setting.print(config) + "\n";
    }
  }
  return fmt::format("{:016x}", hash_name(text));
}

std::vector<std::string> setting_changes(const Config& saved, const Config& now) {
  std::vector<std::string> lines;
  for (const Setting& setting : settings()) {
    if (is_part_of_identity(setting.name)) {
      add_change(setting, saved, now, lines);
    }
  }
  return lines;
}

RunContents RunContents::of(const Config& config, const Tokenizer& tokenizer,
                            const TrainingData& data, int64_t num_data_ranks) {
  RunContents contents;
  for (int64_t i = 0; i < data.num_sets(); ++i) {
    contents.sets.push_back({config.data.train[static_cast<size_t>(i)], identity_of(data.set(i))});
  }
  contents.tokenizer = tokenizer.name();
  contents.tokenizer_hash = tokenizer.fingerprint();
  if (depends_on_accumulation(config)) {
    contents.sequences_per_accumulation_step = config.train.micro_batch_size * num_data_ranks;
  }
  return contents;
}

nlohmann::json to_json(const RunContents& contents) {
  nlohmann::json sets = nlohmann::json::array();
  for (const RunContents::Set& set : contents.sets) {
    nlohmann::json json = to_json(set.identity);
    json["entry"] = set.entry;
    sets.push_back(std::move(json));
  }
  return {{"data", std::move(sets)},
          {"tokenizer", contents.tokenizer},
          {"tokenizer_hash", fmt::format("{:016x}", contents.tokenizer_hash)},
          {"sequences_per_accumulation_step", contents.sequences_per_accumulation_step}};
}

RunContents run_contents_from_json(const nlohmann::json& json, const std::string& source) {
  RunContents contents;
  for (const nlohmann::json& set : json_field<nlohmann::json>(json, "data", source)) {
    contents.sets.push_back(
        {json_field<std::string>(set, "entry", source), dataset_identity_from_json(set, source)});
  }
  contents.tokenizer = json_field<std::string>(json, "tokenizer", source);
  contents.tokenizer_hash =
      std::stoull(json_field<std::string>(json, "tokenizer_hash", source), nullptr, 16);
  contents.sequences_per_accumulation_step =
      json_field<int64_t>(json, "sequences_per_accumulation_step", source);
  return contents;
}

std::vector<std::string> content_changes(const RunContents& saved, const RunContents& now) {
  std::vector<std::string> lines;
  const auto compare = [&](std::string_view what, const auto& before, const auto& after) {
    if (before != after) {
      lines.push_back(fmt::format("{}: {} in the checkpoint, {} now", what, before, after));
    }
  };
  compare("data sets in data.train", saved.sets.size(), now.sets.size());
  const auto weights_before = weights_of(saved.sets);
  const auto weights_after = weights_of(now.sets);
  const auto in_words = [](const std::optional<double>& weight) {
    return weight ? fmt::format("{}", *weight) : std::string("by size");
  };
  for (size_t i = 0; i < std::min(saved.sets.size(), now.sets.size()); ++i) {
    compare(fmt::format("data.train {}", now.sets[i].entry), describe(saved.sets[i].identity),
            describe(now.sets[i].identity));
    compare(fmt::format("weight of data.train {}", now.sets[i].entry), in_words(weights_before[i]),
            in_words(weights_after[i]));
  }
  const auto named = [](const RunContents& contents) {
    return fmt::format("{} ({:016x})", contents.tokenizer, contents.tokenizer_hash);
  };
  if (saved.tokenizer_hash != now.tokenizer_hash) {
    compare("data.tokenizer", named(saved), named(now));
  }
  compare(
      "sequences of an accumulation step (train.micro_batch_size x data-parallel ranks), which "
      "balance losses over a step depend on",
      saved.sequences_per_accumulation_step, now.sequences_per_accumulation_step);
  return lines;
}

std::vector<std::string> changes_since(const CheckpointRecord& saved, const std::string& source,
                                       const Config& now, const RunContents& contents) {
  const Config before = load_config_text(saved.configuration, source, ConfigUse::kDescribe).config;
  std::vector<std::string> lines = setting_changes(before, now);
  std::vector<std::string> more;
  if (saved.extra.contains(kRunContents)) {
    more = content_changes(run_contents_from_json(saved.extra[kRunContents], source), contents);
  } else {
    for (const char* name : {"data.train", "data.tokenizer"}) {
      add_change(*find_setting(name), before, now, more);
    }
  }
  lines.insert(lines.end(), more.begin(), more.end());
  return lines;
}

std::optional<uint64_t> tokenizer_hash_of(const CheckpointRecord& saved,
                                          const std::string& source) {
  return saved.extra.contains(kRunContents)
             ? std::optional(
                   run_contents_from_json(saved.extra[kRunContents], source).tokenizer_hash)
             : std::nullopt;
}

}  // namespace switchyard

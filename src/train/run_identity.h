#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "checkpoint/record.h"
#include "config/config.h"
#include "data/dataset_identity.h"
#include "data/tokenizer.h"
#include "data/training_data.h"

namespace switchyard {

// The settings that make a run this one and no other. Where it lies, how it is laid out over ranks
// and threads, how often it saves, evaluates and reports may change between a stop and a resume.
// Data and tokenizer are compared by what they are, wherever they lie: see RunContents.
bool is_part_of_identity(const std::string& setting);

// A short fingerprint of these settings.
std::string run_fingerprint(const Config& config);

// One line per setting of the identity that differs: "optimizer.lr: 0.001 in the checkpoint, 0.002
// now".
std::vector<std::string> setting_changes(const Config& saved, const Config& now);

// What a run is made of that its settings only point at. Kept in its checkpoints.
struct RunContents {
  // Of the whole run: data sets in the order of data.train, and what is drawn from each.
  struct Set {
    std::string entry;  // of data.train
    DatasetIdentity identity;
    bool operator==(const Set&) const = default;
  };
  std::vector<Set> sets;
  std::string tokenizer;  // its name
  uint64_t tokenizer_hash = 0;
  // Sequences that one accumulation step computes, over all ranks, where a result depends on it:
  // balance losses over a step or over the steps so far. 0 where it does not.
  int64_t sequences_per_accumulation_step = 0;

  static RunContents of(const Config& config, const Tokenizer& tokenizer, const TrainingData& data,
                        int64_t num_data_ranks);
};

nlohmann::json to_json(const RunContents& contents);
// Throws CheckpointError, naming `source` and the field.
RunContents run_contents_from_json(const nlohmann::json& json, const std::string& source);

// One line per difference, as of setting_changes(). A data set elsewhere with the same tokens is no
// difference, nor is the same tokenizer.
std::vector<std::string> content_changes(const RunContents& saved, const RunContents& now);

// Both, against a checkpoint, which `source` names. One that was saved before contents were kept is
// compared by what its settings say.
std::vector<std::string> changes_since(const CheckpointRecord& saved, const std::string& source,
                                       const Config& now, const RunContents& contents);

// The fingerprint of the tokenizer that it was trained with; nothing before contents were kept.
std::optional<uint64_t> tokenizer_hash_of(const CheckpointRecord& saved, const std::string& source);

constexpr char kRunContents[] = "contents";  // where CheckpointRecord::extra keeps them

}  // namespace switchyard

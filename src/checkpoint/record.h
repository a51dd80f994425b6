#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace switchyard {

// Everything about a run that a checkpoint keeps besides its tensors.
struct CheckpointRecord {
  int64_t step = 0;              // optimizer steps done
  int64_t samples_consumed = 0;  // the data cursor
  int64_t tokens_seen = 0;
  int64_t total_steps = 0;    // where the schedule ends, as resolved for this run
  std::string configuration;  // the resolved settings, YAML
  std::string fingerprint;    // of the settings that make it this run and no other
  uint64_t seed = 0;
  std::string layout;           // in words: "world 4: tp 2 ep 2"
  int64_t num_threads = 0;      // per rank
  std::string instruction_set;  // libtorch's name for it, as in "AVX2"
  std::string torch_version;
  nlohmann::json extra = nlohmann::json::object();  // what the trainer adds, an object
  // Where the model came from, so that it can be handed back there: family, configuration, names
  // and dtypes of its tensors (hub/origin.h). An empty object for a model made from scratch.
  nlohmann::json origin = nlohmann::json::object();
  // Files that go with the model, such as its tokenizer. They are copied into the checkpoint, where
  // a record that is read finds them.
  std::vector<std::filesystem::path> assets;

  // Fills num_threads, instruction_set and torch_version from this process.
  void describe_machine();
};

// JSON with a version. Reading throws CheckpointError, naming `source` and the field, when a field
// is missing or of another type, or the version is newer than this program knows.
nlohmann::json to_json(const CheckpointRecord& record);
CheckpointRecord record_from_json(const nlohmann::json& json, const std::string& source);

// Why a run resumed from `saved` will not be bit-identical to one that never stopped, in one line:
// another number of threads, instruction set, libtorch version or layout. Empty when it will be.
std::string why_not_bit_identical(const CheckpointRecord& saved, const CheckpointRecord& now);

}  // namespace switchyard

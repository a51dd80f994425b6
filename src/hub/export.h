#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "hub/import.h"
#include "hub/origin.h"

namespace switchyard {

struct ExportOptions {
  std::string model_type;                   // for a model made from scratch: its family; empty: any
  std::optional<at::ScalarType> dtype;      // of all tensors; by default as they came, or as stored
  int64_t max_shard_bytes = 5'000'000'000;  // for a model made from scratch
  std::map<std::string, std::string> more_files = {};  // to write beside: name, content
};

struct ExportReport {
  std::string model_type;
  std::string architecture;
  int64_t num_tensors = 0;
  int64_t num_bytes = 0;
  int64_t num_files = 0;
  int64_t num_carried = 0;  // other files beside config.json, such as the tokenizer's
  bool is_rounded = false;  // some tensors were stored with more bits than they were written with
};

// The checkpoint that a run directory or a folder of checkpoints would be exported from: the
// latest. A checkpoint is itself. Throws CheckpointError when there is none.
std::filesystem::path checkpoint_in(const std::filesystem::path& path);

// Turns a checkpoint into a Hugging Face directory that transformers loads: the names, dtypes and
// files that its model came with or, for one made from scratch, those of its family; the ids of
// special tokens are those of its tokenizer, or none. Of an imported
// checkpoint every tensor is byte-equal to its source. Works tensor by tensor, and opens what it
// wrote as an import would before it takes its place. `folder` must not exist, or be empty. Throws
// ConfigError and FileError, and then leaves nothing behind.
ExportReport export_model(const std::filesystem::path& checkpoint,
                          const std::filesystem::path& folder, const ExportOptions& options,
                          const ReportProgress& report);

}  // namespace switchyard

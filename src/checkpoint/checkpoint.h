#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/error.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rank_file.h"
#include "checkpoint/record.h"
#include "checkpoint/tensor_part.h"
#include "parallel/group.h"

namespace switchyard {

// A checkpoint is a folder of logical tensors: safetensors files and an index per writer that says
// which box of which tensor each entry is, and record.json. docs/checkpoints.md describes the
// format. A folder of checkpoints holds step_N for each, and `latest`, which names the one to
// resume from.

// Writes the checkpoint `path`: beside it first, synced, then renamed, so that `path` is always
// whole. One that is there is replaced. Each logical element is written by one rank; that the
// written boxes tile every tensor exactly once is checked before the rename. Collective over
// `world`. Throws CheckpointError on all ranks when any fails (full or read-only disk, gap or
// overlap); then nothing new is left behind and what was there is untouched.
void write_checkpoint(const std::filesystem::path& path, const CheckpointRecord& record,
                      const std::vector<TensorPart>& parts, const Group& world);

// The same from one process, which writes all parts one after the other. Not collective.
void write_checkpoint(const std::filesystem::path& path, const CheckpointRecord& record,
                      const std::vector<StreamedPart>& parts);

// Writes `directory`/step_N for record.step, moves `latest` to it, then deletes the oldest ones so
// that `keep` remain (0: all). Returns the path. Collective over `world`; throws as
// write_checkpoint.
std::filesystem::path save_checkpoint(const std::filesystem::path& directory,
                                      const CheckpointRecord& record,
                                      const std::vector<TensorPart>& parts, const Group& world,
                                      int64_t keep);

struct LoadOptions {
  // Tensors of the checkpoint that may be left unread, by the start of their name: {"optimizer."}
  // to read a model only.
  std::vector<std::string> ignored_prefixes = {};
  // Called with the record before any tensor is read; throws to refuse it, on all ranks alike.
  std::function<void(const CheckpointRecord&)> check_record = {};
};

// Fills the values of `parts`, which may lie in any layout, from the checkpoint `path`. Reads only
// the blocks that hold them and verifies the checksum of each. Values are converted only where no
// bit is lost, as from bf16 to fp32.
// Collective over `world`. Throws on all ranks when any fails, and then the values of `parts` are
// undefined: DamagedCheckpoint when a file is torn, altered or missing; CheckpointError when a
// tensor is missing, left over, or of another shape or dtype than in `parts`.
CheckpointRecord load_checkpoint(const std::filesystem::path& path,
                                 const std::vector<TensorPart>& parts, const Group& world,
                                 const LoadOptions& options = {});

// The same from files that are no checkpoint of ours: `folder` holds the files of `index`, and
// `source` names them in messages.
void load_parts(const std::filesystem::path& folder, const CheckpointIndex& index,
                const std::vector<TensorPart>& parts, const Group& world,
                const LoadOptions& options, const std::string& source);

struct LoadedCheckpoint {
  std::filesystem::path path;
  CheckpointRecord record;
};

// Loads the checkpoint that `latest` names or, while that one is damaged, the one before, with a
// warning from rank 0 for each that is passed over. None at all: nullopt. None good:
// CheckpointError that lists what is wrong with each. Otherwise as load_checkpoint. Collective over
// `world`.
std::optional<LoadedCheckpoint> load_latest_checkpoint(const std::filesystem::path& directory,
                                                       const std::vector<TensorPart>& parts,
                                                       const Group& world,
                                                       const LoadOptions& options = {});

// The checkpoints of a folder in the order in which to try them: the one that `latest` names, then
// those of fewer steps, newest first. Unfinished ones are not among them. Not collective.
std::vector<std::filesystem::path> checkpoints_to_try(const std::filesystem::path& directory);
std::optional<std::filesystem::path> find_latest(const std::filesystem::path& directory);

}  // namespace switchyard

#pragma once

#include <cstdint>
#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/partial_checkpoint.h"
#include "checkpoint/record.h"
#include "checkpoint/tensor_part.h"
#include "parallel/group.h"

namespace switchyard {

// Saves the checkpoints of a run into `directory`: step_N, then `latest`, then the deletion of the
// oldest so that `keep` remain (0: all).
//
// In the background, save() copies what this rank writes into memory of its own, at most one such
// copy at a time, and returns; files are written while the caller changes the parts. No collective
// runs beside the caller's: the ranks agree, and the checkpoint gets its name, in poll() or
// finish(). The bytes are those of a save in the foreground.
//
// All methods are collective over `world` and throw CheckpointError on all ranks when any fails, as
// write_checkpoint() does.
class CheckpointSaver {
 public:
  CheckpointSaver(std::filesystem::path directory, const Group& world, int64_t keep,
                  bool in_background);
  // Not collective: gives up a save that is under way.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Ends an earlier save first.
  void save(const CheckpointRecord& record, const std::vector<TensorPart>& parts);
  // Ends the save under way if every rank has written its files. Without one it does nothing.
  void poll();
  // Waits for it.
  void finish();

  // Steps of the newest checkpoint that has its name, of those that this object saved.
  std::optional<int64_t> saved_step() const { return saved_step_; }

 private:
  std::filesystem::path directory_;
  const Group& world_;
  int64_t keep_;
  bool in_background_;
  CheckpointRecord record_;            // of the save under way
  PartialCheckpoint partial_;          // on rank 0
  std::future<std::string> checksum_;  // of this rank's index; valid while a save is under way
  std::optional<int64_t> saved_step_;
};

}  // namespace switchyard

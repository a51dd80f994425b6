#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/index.h"
#include "checkpoint/record.h"

namespace switchyard {

// The record.json of a checkpoint: the run's record, and every index file with its checksum. It is
// written last, and with it the folder is complete.

// Reads back the index files in `folder`, one per writer, whose checksums are given in order of
// rank, and writes the record once the boxes tile every tensor exactly once. Throws FileError when
// the disk does, CheckpointError naming the tensor when they do not.
void seal_checkpoint(const std::filesystem::path& folder, const CheckpointRecord& record,
                     const std::vector<std::string>& index_checksums);

// Whether the folder has a record, good or not.
bool is_checkpoint_folder(const std::filesystem::path& path);

struct OpenedCheckpoint {
  CheckpointRecord record;
  CheckpointIndex index;
};

// Reads record and indexes and checks that every data file is there in its full length and that the
// boxes tile every tensor. Reads no tensor. Throws DamagedCheckpoint, and CheckpointError when it
// is of a version that this program does not know.
OpenedCheckpoint open_checkpoint(const std::filesystem::path& folder);

// The record alone. Throws as open_checkpoint.
CheckpointRecord read_record(const std::filesystem::path& folder);

}  // namespace switchyard

#pragma once

#include "base/error.h"

namespace switchyard {

// A file of a checkpoint is torn, altered or missing. An older checkpoint may still be good.
struct DamagedCheckpoint : CheckpointError {
  using CheckpointError::CheckpointError;
};

// Runs `work`, which reads files of a checkpoint: there, a file that is missing or unreadable is
// damage.
template <class Work>
auto read_as_checkpoint(const Work& work) {
  try {
    return work();
  } catch (const CheckpointError&) {
    throw;
  } catch (const FileError& error) {
    throw DamagedCheckpoint(error.what());
  }
}

}  // namespace switchyard

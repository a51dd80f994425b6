#pragma once

#include "base/error.h"

namespace switchyard {

// A file of a checkpoint is torn, altered or missing. An older checkpoint may still be good.
struct DamagedCheckpoint : CheckpointError {
  using CheckpointError::CheckpointError;
};

}  // namespace switchyard

#pragma once

#include "base/exit_code.h"
#include "config/load.h"

namespace switchyard {

// Trains a small copy of the model for two steps, by one rank, on drawn tokens, with an evaluation
// and a checkpoint, in a temporary folder of which nothing is left.
ExitCode train_shrunk(const LoadedConfig& loaded);

}  // namespace switchyard

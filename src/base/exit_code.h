#pragma once

namespace switchyard {

// What `switchyard` returns to the shell. Scripts rely on these numbers: never renumber.
enum class ExitCode : int {
  kFinished = 0,
  kBug = 1,            // an error of ours: please report
  kRefusedConfig = 2,  // a setting or a command line that cannot work
  kBadFile = 3,        // a file is missing, damaged, of another kind, or cannot be written
  kLostPeer = 4,       // another rank died, hung or disagreed
  kDiverged = 5,       // loss or gradients stopped being finite
  kStoppedSaved = 6,   // stopped by a signal, after the step, with a checkpoint saved
  kOutOfMemory = 7,    // the machine has less memory than was asked for
};

}  // namespace switchyard

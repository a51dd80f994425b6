#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/exit_code.h"

namespace switchyard {

// An error with advice: one line that names the key, file or tensor at fault, says what was
// expected and what to do. `main` prints the line and returns `exit_code`.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode exit_code() const { return code_; }

 private:
  ExitCode code_;
};

// The user's settings cannot work. The message names the key, its value and what is allowed.
struct ConfigError : Error {
  explicit ConfigError(const std::string& message) : Error(ExitCode::kRefusedConfig, message) {}
};

// A tensor has the wrong shape, dtype or device. The message names the tensor.
struct ShapeError : Error {
  explicit ShapeError(const std::string& message) : Error(ExitCode::kBug, message) {}
};

// A file is missing, damaged, of another kind, or cannot be written. The message names the file.
struct FileError : Error {
  explicit FileError(const std::string& message) : Error(ExitCode::kBadFile, message) {}
};

// A checkpoint is torn, altered, incomplete, or belongs to another model.
struct CheckpointError : FileError {
  using FileError::FileError;
};

// Another rank died, hung or disagreed. The message carries this rank's coordinates.
struct CommError : Error {
  explicit CommError(const std::string& message) : Error(ExitCode::kLostPeer, message) {}
};

// The loss or a gradient is not finite.
struct DivergedError : Error {
  explicit DivergedError(const std::string& message) : Error(ExitCode::kDiverged, message) {}
};

// Memory ran out. The message says what for, how much was asked for where that is known, and what
// to lower.
struct OutOfMemoryError : Error {
  explicit OutOfMemoryError(const std::string& message) : Error(ExitCode::kOutOfMemory, message) {}
};

// Throws `E` with the formatted message unless `ok`. The pattern is one string, so that a user's
// message can be found by searching the source.
template <class E, class... Args>
void check(bool ok, fmt::format_string<Args...> pattern, Args&&... args) {
  if (!ok) [[unlikely]] {
    throw E(fmt::format(pattern, std::forward<Args>(args)...));
  }
}

}  // namespace switchyard

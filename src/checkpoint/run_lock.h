#pragma once

#include <filesystem>

namespace switchyard {

// Keeps a run directory to one program at a time: an flock on DIRECTORY/lock, which the system
// drops when the process ends, however it ends. The file names the holder. Taken by rank 0 alone.
class RunLock {
 public:
  // Makes the directory if needed. Throws FileError naming the holding process when it is in use.
  explicit RunLock(const std::filesystem::path& directory);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace switchyard

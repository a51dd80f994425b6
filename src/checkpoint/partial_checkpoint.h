#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/partial_folder.h"
#include "checkpoint/record.h"

namespace switchyard {

// A checkpoint that is being written: a folder beside `path`, which becomes `path` when all of it
// is there, and is removed with this object when it never does. Not collective.
class PartialCheckpoint {
 public:
  PartialCheckpoint() = default;
  explicit PartialCheckpoint(std::filesystem::path path) : folder_(std::move(path)) {}

  // Where the ranks write their files.
  static std::filesystem::path folder_of(const std::filesystem::path& path) {
    return PartialFolder::folder_of(path);
  }

  // Makes the folder anew. Throws FileError, also when something that is no checkpoint has the
  // name, as a mistyped path may have.
  void create();
  // Adds the record, checks that the written boxes tile every tensor, and takes the name. Throws
  // FileError and CheckpointError; then what had the name is untouched.
  void finish(const CheckpointRecord& record, const std::vector<std::string>& index_checksums);

 private:
  PartialFolder folder_;
};

}  // namespace switchyard

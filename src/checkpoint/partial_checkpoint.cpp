#include "checkpoint/partial_checkpoint.h"

#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/assets.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/manifest.h"

namespace switchyard {
namespace {

void check_may_be_replaced(const std::filesystem::path& path) {
  const bool is_folder = std::filesystem::is_directory(path);
  const bool may_be = !std::filesystem::exists(path) ||
                      (is_folder && (is_checkpoint_folder(path) || step_of(path) ||
                                     std::filesystem::is_empty(path)));
  check<FileError>(may_be, "{} exists and is no checkpoint: move it away or choose another path",
                   path.string());
}

}  // namespace

PartialCheckpoint::PartialCheckpoint(PartialCheckpoint&& other) noexcept
    : path_(std::move(other.path_)), is_there_(std::exchange(other.is_there_, false)) {}

PartialCheckpoint& PartialCheckpoint::operator=(PartialCheckpoint&& other) noexcept {
  remove();
  path_ = std::move(other.path_);
  is_there_ = std::exchange(other.is_there_, false);
  return *this;
}

PartialCheckpoint::~PartialCheckpoint() {
  remove();
}

std::filesystem::path PartialCheckpoint::folder_of(const std::filesystem::path& path) {
  return path.string() + ".partial";
}

void PartialCheckpoint::create() {
  check_may_be_replaced(path_);
  is_there_ = true;
  std::error_code ignored;  // if it cannot be removed, the next line says why
  std::filesystem::remove_all(folder_of(path_), ignored);
  make_directories(folder_of(path_));
}

void PartialCheckpoint::finish(const CheckpointRecord& record,
                               const std::vector<std::string>& index_checksums) {
  copy_assets(record.assets, folder_of(path_));
  seal_checkpoint(folder_of(path_), record, index_checksums);
  replace_directory(folder_of(path_), path_);
  is_there_ = false;
}

void PartialCheckpoint::remove() noexcept {
  if (std::exchange(is_there_, false)) {
    std::error_code ignored;  // already failing for a better reason
    std::filesystem::remove_all(folder_of(path_), ignored);
  }
}

}  // namespace switchyard

#include "checkpoint/partial_checkpoint.h"

#include "base/error.h"
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

void PartialCheckpoint::create() {
  check_may_be_replaced(folder_.path());
  folder_.create();
}

void PartialCheckpoint::finish(const CheckpointRecord& record,
                               const std::vector<std::string>& index_checksums) {
  copy_assets(record.assets, folder_.folder());
  seal_checkpoint(folder_.folder(), record, index_checksums);
  folder_.publish();
}

}  // namespace switchyard

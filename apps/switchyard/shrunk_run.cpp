#include "shrunk_run.h"

#include <filesystem>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "base/random.h"
#include "data/byte_tokenizer.h"
#include "data/indexed_dataset_writer.h"
#include "parallel/groups.h"
#include "selfcheck/shrink.h"
#include "shrink_plan.h"
#include "train/training_run.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;

// Removed at the end, with what is in it.
class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(fs::temp_directory_path() / fmt::format("switchyard_shrunk_{}", getpid())) {}
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

// Documents of bytes without meaning, enough for a few batches.
void write_drawn_text(const std::string& prefix, uint64_t seed, int64_t num_documents,
                      int64_t length) {
  const ByteTokenizer tokenizer;
  const RandomStream random(seed, "shrunk text");
  IndexedDatasetWriter writer(prefix, tokenizer);
  for (int64_t document = 0; document < num_documents; ++document) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < length; ++i) {
      constexpr uint64_t kBytes = 256;
      ids.push_back(
          static_cast<int32_t>(random.below(static_cast<uint64_t>(document * length + i), kBytes)));
    }
    ids.push_back(tokenizer.end_of_document());
    writer.add_document(ids);
  }
  writer.finish();
}

}  // namespace

ExitCode train_shrunk(const LoadedConfig& loaded) {
  const ShrunkConfig shrunk = shrink_training(loaded.config);
  print_changes(shrunk);
  const TemporaryFolder folder;
  LoadedConfig small = loaded;
  small.config = shrunk.config;
  small.warnings.clear();
  small.config.run.dir = folder / "run";
  small.config.data.train = {folder / "text"};
  small.config.data.eval = {folder / "text"};
  const int64_t tokens = small.config.data.sequence_length;
  write_drawn_text(folder / "text", static_cast<uint64_t>(small.config.run.seed),
                   4 * small.config.train.global_batch_size, tokens);
  check_rules(small.config, ConfigUse::kTrain);
  const std::unique_ptr<Groups> groups = Groups::single();
  return TrainingRun(small, {}, *groups).run();
}

}  // namespace switchyard

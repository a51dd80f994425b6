#include "hub/import.h"

#include <map>
#include <memory>

#include <ATen/ATen.h>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/convert.h"
#include "checkpoint/safetensors.h"
#include "config/manual.h"
#include "hub/origin.h"

namespace switchyard {
namespace {

// Opens the files one after the other: tensors come in the order of the files.
class OneFileAtATime {
 public:
  explicit OneFileAtATime(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // Mapped from the file. [shape]
  at::Tensor tensor(const std::string& file, const std::string& name) {
    if (open_ == nullptr || open_->path().filename() != file) {
      open_ = std::make_unique<SafetensorsFile>(folder_ / file);
    }
    return open_->tensor(name);
  }

 private:
  std::filesystem::path folder_;
  std::unique_ptr<SafetensorsFile> open_;
};

CheckpointRecord record_of(const HfModel& model) {
  CheckpointRecord record;
  Origins origins;
  for (const auto& [name, value] : model.settings) {
    origins.set(name, "config.json");
  }
  record.configuration = resolved_yaml(model.config, origins);
  record.layout = "imported";
  record.describe_machine();
  record.origin = to_json(origin_of(model));
  record.assets = carried_files(model.path);
  return record;
}

}  // namespace

void import_model(const HfModel& model, const std::filesystem::path& checkpoint,
                  const ReportProgress& report) {
  check_folder_is_free(checkpoint);
  std::map<std::string, std::vector<IndexEntry>> entries;
  for (const FileIndex& file : model.index.files) {
    for (const IndexEntry& entry : file.entries) {
      entries[entry.key].push_back(entry);
    }
  }
  const auto files = std::make_shared<OneFileAtATime>(model.path);
  const auto progress = std::make_shared<ConversionProgress>();
  std::vector<StreamedPart> parts;
  for (const HfTensor& tensor : model.tensors) {
    if (tensor.dropped && is_copy(*tensor.dropped)) {
      continue;
    }
    std::vector<IndexEntry>& own = entries[tensor.name];
    if (own.empty()) {
      own.push_back({kOriginPrefix + tensor.name,
                     tensor.name,
                     tensor.dtype,
                     tensor.shape,
                     Box{std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape},
                     {}});
    }
    ++progress->num_tensors;
    for (const IndexEntry& entry : own) {
      const bool is_last = &entry == &own.back();
      const auto values = [files, progress, report, file = tensor.file, name = tensor.name,
                           first = entry.first_in_file, box = entry.box, is_last] {
        const at::Tensor part =
            files->tensor(file, name).view({-1}).narrow(0, first, box.numel()).view(box.shape);
        if (!is_finite(part)) {
          log_warn("{}: tensor \"{}\" holds NaN or infinity: a model with it cannot be used", file,
                   name);
        }
        report(*progress);
        progress->tensors_done += is_last ? 1 : 0;
        progress->bytes_done += static_cast<int64_t>(part.nbytes());
        return part;
      };
      parts.push_back(
          {entry.tensor, entry.global_shape, entry.box, entry.dtype, values, entry.scales});
      if (entry.scales) {
        parts.back().scales->key = kOriginPrefix + entry.scales->key;  // of another part
      }
      progress->num_bytes +=
          entry.box.numel() * static_cast<int64_t>(c10::elementSize(entry.dtype));
    }
  }
  write_checkpoint(checkpoint, record_of(model), parts);
  report(*progress);
}

}  // namespace switchyard

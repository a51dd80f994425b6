#include "hub/import.h"

#include <map>
#include <memory>

#include <ATen/ATen.h>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/convert.h"
#include "checkpoint/part_reader.h"
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

// An entry whose values the file holds in another order: in slices, so that memory does not grow
// with it.
std::vector<StreamedPart> ordered_parts(const IndexEntry& entry,
                                        const std::shared_ptr<PartReader>& reader) {
  constexpr int64_t kElementsAtOnce = int64_t{1} << 26;
  std::vector<StreamedPart> parts;
  for (const Box& slice : slices_of(entry.box, kElementsAtOnce)) {
    parts.push_back({entry.tensor, entry.global_shape, slice, entry.dtype, {}, {}});
    parts.back().values = [reader, name = entry.tensor, shape = entry.global_shape, slice,
                           dtype = entry.dtype] {
      at::Tensor values = at::empty(slice.shape, dtype);
      reader->read({name, shape, slice.start, values});
      return values;
    };
  }
  return parts;
}

StreamedPart plain_part(const HfTensor& tensor, const IndexEntry& entry,
                        const std::shared_ptr<OneFileAtATime>& files) {
  StreamedPart part{entry.tensor, entry.global_shape, entry.box, entry.dtype, {}, entry.scales};
  if (part.scales) {
    part.scales->key = kOriginPrefix + part.scales->key;  // of another part
  }
  part.values = [files, file = tensor.file, name = tensor.name, first = entry.first_in_file,
                 box = entry.box] {
    return files->tensor(file, name).view({-1}).narrow(0, first, box.numel()).view(box.shape);
  };
  return part;
}

// What the checkpoint holds of one tensor of the directory, of which `entries` are parts; none: it
// is part of no logical tensor.
std::vector<StreamedPart> parts_of(const HfTensor& tensor, const std::vector<IndexEntry>& entries,
                                   const std::shared_ptr<OneFileAtATime>& files,
                                   const std::shared_ptr<PartReader>& reader) {
  if (entries.empty()) {
    const Box whole{std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape};
    return {plain_part(
        tensor, {kOriginPrefix + tensor.name, tensor.name, tensor.dtype, tensor.shape, whole, {}},
        files)};
  }
  std::vector<StreamedPart> parts;
  for (const IndexEntry& entry : entries) {
    if (entry.is_row_major()) {
      parts.push_back(plain_part(tensor, entry, files));
    } else {
      for (StreamedPart& part : ordered_parts(entry, reader)) {
        parts.push_back(std::move(part));
      }
    }
  }
  return parts;
}

// Tells `report` of the part before it is read, and warns where it is of no use.
void follow(StreamedPart& part, const HfTensor& tensor, bool is_last,
            const std::shared_ptr<ConversionProgress>& progress, const ReportProgress& report) {
  progress->num_bytes += part.box.numel() * static_cast<int64_t>(c10::elementSize(part.dtype));
  part.values = [read = part.values, progress, report, is_last, file = tensor.file,
                 name = tensor.name] {
    const at::Tensor values = read();
    if (!is_finite(values)) {
      log_warn("{}: tensor \"{}\" holds NaN or infinity: a model with it cannot be used", file,
               name);
    }
    report(*progress);
    progress->tensors_done += is_last ? 1 : 0;
    progress->bytes_done += static_cast<int64_t>(values.nbytes());
    return values;
  };
}

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
  const auto reader = std::make_shared<PartReader>(model.path, model.index);
  const auto progress = std::make_shared<ConversionProgress>();
  std::vector<StreamedPart> parts;
  for (const HfTensor& tensor : model.tensors) {
    if (tensor.dropped && is_copy(*tensor.dropped)) {
      continue;
    }
    ++progress->num_tensors;
    std::vector<StreamedPart> own = parts_of(tensor, entries[tensor.name], files, reader);
    for (StreamedPart& part : own) {
      follow(part, tensor, &part == &own.back(), progress, report);
      parts.push_back(std::move(part));
    }
  }
  write_checkpoint(checkpoint, record_of(model), parts);
  report(*progress);
}

}  // namespace switchyard

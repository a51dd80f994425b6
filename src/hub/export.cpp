#include "hub/export.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/ranges.h>

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/files.h"
#include "base/partial_folder.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/convert.h"
#include "checkpoint/part_reader.h"
#include "config/load.h"
#include "config/settings.h"
#include "hub/hf_settings.h"

namespace switchyard {
namespace {

using Json = nlohmann::json;

int64_t bytes_of(const HfTensor& tensor) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(tensor.dtype));
  for (const int64_t size : tensor.shape) {
    bytes *= size;
  }
  return bytes;
}

// One file per max_shard_bytes, in order; a tensor that is larger has a file of its own.
void deal_out(std::vector<HfTensor>& tensors, int64_t max_shard_bytes) {
  std::vector<size_t> shard_of;
  size_t shard = 0;
  int64_t bytes = 0;
  for (const HfTensor& tensor : tensors) {
    if (bytes > 0 && bytes + bytes_of(tensor) > max_shard_bytes) {
      ++shard;
      bytes = 0;
    }
    bytes += bytes_of(tensor);
    shard_of.push_back(shard);
  }
  for (size_t i = 0; shard > 0 && i < tensors.size(); ++i) {
    tensors[i].file = fmt::format("model-{:05}-of-{:05}.safetensors", shard_of[i] + 1, shard + 1);
  }
}

// The settings that decide the model and differ from those of the configuration it came with.
std::vector<std::string> changed_settings(const Origin& origin, const Config& config) {
  HfConfig fields(origin.fields, "config.json");
  const Config before =
      with_settings(Config{}, read_hf_settings(*origin.family, fields), fields.source());
  std::vector<std::string> changed;
  for (const Setting& setting : settings()) {
    // Files may name modules of multi-token prediction and not hold them.
    if (setting.name == "mtp.num_layers" && config.mtp.num_layers == 0) {
      continue;
    }
    if (decides_the_model(setting.name) && setting.print(before) != setting.print(config)) {
      changed.push_back(fmt::format("{} was {}, is {}", setting.name, setting.print(before),
                                    setting.print(config)));
    }
  }
  return changed;
}

// Reads the tensors of a Hugging Face directory out of a checkpoint.
class TensorSource {
 public:
  TensorSource(const std::filesystem::path& path, const OpenedCheckpoint& opened,
               const ModelFamily& family, const Config& config)
      : index_(opened.index), reader_(path, opened.index) {
    for (MappedTensor& tensor : map_tensors(family, logical_shapes(config))) {
      std::string name = tensor.name;
      mapped_.emplace(std::move(name), std::move(tensor));
    }
    for (const TensorRule& rule : family.tensors) {
      if (rule.logical == "embedding.weight") {
        embedding_ = rule.tensor;
      }
      if (rule.logical == "head.weight" && !config.model.tie_embeddings) {
        head_ = rule.tensor;
      }
    }
  }

  // What the checkpoint stores it as; nullopt when it cannot be had from it.
  std::optional<at::ScalarType> stored_dtype(const HfTensor& tensor) const {
    const auto found = index_.tensors.find(parts_of(tensor).front().logical);
    return found == index_.tensors.end() ? std::nullopt : std::optional(found->second.dtype);
  }

  // Whether the checkpoint still has the payload and the scales of a weight in FP8.
  bool has_payload(const HfTensor& tensor) const {
    const std::vector<MappedPart> parts = parts_of(tensor);
    return std::all_of(parts.begin(), parts.end(), [&](const MappedPart& part) {
      const auto found = index_.tensors.find(part.logical);
      return found != index_.tensors.end() &&
             std::all_of(found->second.boxes.begin(), found->second.boxes.end(),
                         [&](const StoredBox& stored) {
                           const IndexEntry& entry = index_.entry(stored);
                           return !intersect(entry.box, part.box) ||
                                  (entry.scales.has_value() && entry.box == part.box);
                         });
    });
  }

  // Throws ConfigError for a finite value that is too large for the dtype.
  at::Tensor read_rounded(const HfTensor& tensor) {
    at::Tensor values = read(tensor);
    if (tensor.dtype == at::kHalf && stored_dtype(tensor) != at::kHalf &&
        at::isinf(values).any().item<bool>()) {
      HfTensor exact = tensor;
      exact.dtype = *stored_dtype(tensor);
      const at::Tensor largest = read(exact).abs().max().to(at::kDouble);
      check<ConfigError>(std::isinf(largest.item<double>()),
                         "{}: its largest value, {:.6g}, does not fit into fp16, which ends at "
                         "65504: export as bf16 or fp32 (--dtype)",
                         tensor.name, largest.item<double>());
    }
    return values;
  }

 private:
  at::Tensor read(const HfTensor& tensor) {
    const at::Tensor values = at::empty(tensor.shape, tensor.dtype);
    for (const MappedPart& part : parts_of(tensor)) {
      reader_.read({part.logical, part.logical_shape, part.box.start, part.in(values)});
    }
    return values;
  }

  std::vector<MappedPart> parts_of(const HfTensor& tensor) const {
    if (tensor.dropped && !is_copy(*tensor.dropped)) {
      return {{kOriginPrefix + tensor.name, tensor.shape,
               Box{std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape}}};
    }
    const bool is_of_head = tensor.dropped == DroppedTensor::Reason::kHeadCopy && !head_.empty();
    return mapped_.at(tensor.dropped ? (is_of_head ? head_ : embedding_) : tensor.name).parts;
  }

  const CheckpointIndex& index_;
  PartReader reader_;
  std::map<std::string, MappedTensor> mapped_;
  std::string embedding_;
  std::string head_;  // empty where the embedding is the head
};

bool is_payload(const HfTensor& tensor) {
  return tensor.dtype == at::kFloat8_e4m3fn && !tensor.dropped;
}

// FP8 weights leave as they came, or all of them as bf16 once training has written others.
void decode_what_was_trained(Origin& origin, const TensorSource& source) {
  const bool is_kept = std::all_of(
      origin.tensors.begin(), origin.tensors.end(),
      [&](const HfTensor& tensor) { return !is_payload(tensor) || source.has_payload(tensor); });
  for (HfTensor& tensor : origin.tensors) {
    if (!is_kept && is_payload(tensor)) {
      tensor.dtype = at::kBFloat16;
    }
  }
}

// Scales without payloads would be no part of the model.
void leave_scales_out(Origin& origin) {
  if (std::none_of(origin.tensors.begin(), origin.tensors.end(), is_payload)) {
    std::erase_if(origin.tensors, [](const HfTensor& tensor) {
      return tensor.dropped == DroppedTensor::Reason::kScales;
    });
  }
}

// Tensors of one file end to end, files in the order of their first tensor.
std::vector<std::pair<std::string, std::vector<HfTensor>>> by_file(
    const std::vector<HfTensor>& tensors) {
  std::vector<std::pair<std::string, std::vector<HfTensor>>> files;
  for (const HfTensor& tensor : tensors) {
    auto file = std::find_if(files.begin(), files.end(),
                             [&](const auto& one) { return one.first == tensor.file; });
    if (file == files.end()) {
      files.push_back({tensor.file, {}});
      file = files.end() - 1;
    }
    file->second.push_back(tensor);
  }
  return files;
}

void write_index(const std::filesystem::path& folder, const std::vector<HfTensor>& tensors) {
  Json weight_map = Json::object();
  int64_t total_bytes = 0;
  int64_t total_elements = 0;
  for (const HfTensor& tensor : tensors) {
    weight_map[tensor.name] = tensor.file;
    total_bytes += bytes_of(tensor);
    total_elements += bytes_of(tensor) / static_cast<int64_t>(c10::elementSize(tensor.dtype));
  }
  const Json index = {
      {"metadata", {{"total_parameters", total_elements}, {"total_size", total_bytes}}},
      {"weight_map", std::move(weight_map)}};
  write_text(folder / "model.safetensors.index.json", index.dump(2) + "\n");
}

std::string torch_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return "float64";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    default:
      return "float32";
  }
}

constexpr std::string_view kConfigFile = "config.json";

// Where nothing says what they are they are null: left out, transformers would take those of the
// family's first model.
void put_special_ids(Json& fields, const CheckpointRecord& record) {
  Json said = record.origin.value("config", Json::object());
  for (const std::filesystem::path& file : record.assets) {
    if (file.filename() == "generation_config.json") {
      said.update(Json::parse(read_text(file), nullptr, /*allow_exceptions=*/false));
    }
  }
  for (const char* name : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    fields[name] = said.value(name, Json());
  }
}

// config.json: as it came where nothing changed, so that it is carried over to the byte's meaning.
Json config_fields(const Origin& origin, const CheckpointRecord& record, const Config& config,
                   bool is_from_scratch, const ExportOptions& options) {
  Json fields = origin.fields;
  if (is_from_scratch) {
    put_special_ids(fields, record);
    fields["dtype"] = torch_name(origin.tensors.front().dtype);
    return fields;
  }
  const std::vector<std::string> changed = changed_settings(origin, config);
  check<ConfigError>(changed.empty(),
                     "the model is no longer the one that was imported: {}; give --family to write "
                     "a new config.json",
                     fmt::join(changed, ", "));
  if (std::none_of(origin.tensors.begin(), origin.tensors.end(), is_payload)) {
    fields.erase("quantization_config");
  }
  if (options.dtype) {
    fields.erase("torch_dtype");
    fields["dtype"] = torch_name(*options.dtype);
  }
  return fields;
}

// Returns how many.
int64_t write_other_files(const std::filesystem::path& folder, const CheckpointRecord& record,
                          const ExportOptions& options) {
  std::map<std::string, std::string> files = options.more_files;
  for (const std::filesystem::path& file : record.assets) {
    if (file.filename() != kConfigFile) {
      files[file.filename()] = read_text(file);
    }
  }
  for (const auto& [name, content] : files) {
    write_text(folder / name, content);
  }
  return std::ssize(files);
}

}  // namespace

std::filesystem::path checkpoint_in(const std::filesystem::path& path) {
  if (is_checkpoint_folder(path)) {
    return path;
  }
  const std::filesystem::path folder =
      std::filesystem::is_directory(path / "checkpoints") ? path / "checkpoints" : path;
  const auto latest = find_latest(folder);
  check<CheckpointError>(latest.has_value(),
                         "{} holds no checkpoint: give a run directory, its checkpoints folder or "
                         "one step_N of it",
                         path.string());
  return *latest;
}

ExportReport export_model(const std::filesystem::path& checkpoint,
                          const std::filesystem::path& folder, const ExportOptions& options,
                          const ReportProgress& report) {
  check_folder_is_free(folder);
  const std::filesystem::path path = checkpoint_in(checkpoint);
  const OpenedCheckpoint opened = open_checkpoint(path);
  const Config config =
      load_config_text(opened.record.configuration, path.string(), ConfigUse::kDescribe).config;
  const bool is_from_scratch = opened.record.origin.empty() || !options.model_type.empty();
  const at::ScalarType stored = opened.index.tensors.at("embedding.weight").dtype;
  Origin origin = is_from_scratch ? origin_from_scratch(config, options.model_type, stored)
                                  : origin_from_json(opened.record.origin, path.string());
  if (options.dtype) {
    for (HfTensor& tensor : origin.tensors) {
      tensor.dtype = *options.dtype;
    }
  }
  if (is_from_scratch) {
    deal_out(origin.tensors, options.max_shard_bytes);
  }

  TensorSource source(path, opened, *origin.family, config);
  decode_what_was_trained(origin, source);
  leave_scales_out(origin);
  // What was dropped on the way here, and that training did not carry along.
  std::erase_if(origin.tensors,
                [&](const HfTensor& tensor) { return !source.stored_dtype(tensor).has_value(); });

  PartialFolder partial(folder);
  partial.create();
  ExportReport result{.model_type = origin.family->model_type,
                      .architecture = origin.family->architecture};
  ConversionProgress progress;
  for (const HfTensor& tensor : origin.tensors) {
    progress.num_bytes += bytes_of(tensor);
    ++progress.num_tensors;
  }
  const auto files = by_file(origin.tensors);
  for (const auto& [name, tensors] : files) {
    std::vector<SafetensorsDeclaration> declarations;
    for (const HfTensor& tensor : tensors) {
      declarations.push_back({tensor.name, tensor.dtype, tensor.shape});
    }
    SafetensorsWriter writer(partial.folder() / name, declarations, {{"format", "pt"}});
    for (const HfTensor& tensor : tensors) {
      report(progress);
      result.is_rounded =
          result.is_rounded || (!is_payload(tensor) &&
                                !holds_every_value_of(tensor.dtype, *source.stored_dtype(tensor)));
      writer.write(source.read_rounded(tensor));
      ++progress.tensors_done;
      progress.bytes_done += bytes_of(tensor);
    }
    writer.finish();
  }
  report(progress);
  if (files.size() > 1 || files.front().first != "model.safetensors") {
    write_index(partial.folder(), origin.tensors);
  }
  write_text(partial.folder() / kConfigFile,
             config_fields(origin, opened.record, config, is_from_scratch, options).dump(2) + "\n");
  result.num_carried = write_other_files(partial.folder(), opened.record, options);
  open_hf_model(partial.folder());  // throws unless it is whole
  partial.publish();

  result.num_tensors = progress.num_tensors;
  result.num_bytes = progress.num_bytes;
  result.num_files = static_cast<int64_t>(files.size());
  return result;
}

}  // namespace switchyard

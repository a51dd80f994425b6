#include "hub/hf_model.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/log.h"
#include "config/rules.h"
#include "hub/hf_settings.h"
#include "hub/weight_files.h"
#include "model/rotary.h"

namespace switchyard {
namespace {

constexpr std::string_view kConfigFile = "config.json";

std::string and_others(size_t num_names) {
  return num_names > 1 ? fmt::format(" (and {} more)", num_names - 1) : "";
}

// The blocks of a weight in FP8, which must have scales.
std::optional<BlockScales> scales_of(const HfModel& model, const HfTensor& tensor,
                                     const WeightFiles& weights) {
  if (tensor.dtype != at::kFloat8_e4m3fn || !model.quantization) {
    return std::nullopt;
  }
  const std::string name = scales_name(tensor.name);
  const std::string where =
      fmt::format("{}: tensor \"{}\"", (model.path / tensor.file).string(), tensor.name);
  const auto found = weights.tensors.find(name);
  check<FileError>(found != weights.tensors.end(), "{} is F8_E4M3, and there is no \"{}\"", where,
                   name);
  const SafetensorsEntry& entry = *found->second.entry;
  check<FileError>(entry.dtype == at::kFloat || entry.dtype == at::kBFloat16,
                   "{}: its scales are {}: only F32 and BF16 are supported", where,
                   safetensors_dtype(entry.dtype));
  BlockScales blocks = blocks_of(*model.quantization, tensor.shape, entry.shape, where);
  blocks.file = weights.files[found->second.file]->path().filename().string();
  blocks.key = name;
  return blocks;
}

// Whether these are the scales of a weight in FP8 of the model.
bool are_scales(const HfModel& model, const std::string& name, const WeightFiles& weights,
                const std::map<std::string, MappedTensor>& mapped) {
  const std::string weight = weight_of_scales(name);
  const auto found = weights.tensors.find(weight);
  return model.quantization && mapped.contains(weight) && found != weights.tensors.end() &&
         found->second.entry->dtype == at::kFloat8_e4m3fn;
}

void check_dtype(const HfTensor& tensor, const std::filesystem::path& folder) {
  const std::string where =
      fmt::format("{}: tensor \"{}\"", (folder / tensor.file).string(), tensor.name);
  check<FileError>(tensor.dtype != at::kFloat8_e4m3fn,
                   "{} is F8_E4M3, and {} has no quantization_config that says how to decode it",
                   where, kConfigFile);
  const bool is_known = tensor.dtype == at::kDouble || tensor.dtype == at::kFloat ||
                        tensor.dtype == at::kHalf || tensor.dtype == at::kBFloat16;
  check<FileError>(is_known, "{} is {}: only F64, F32, F16 and BF16 are supported", where,
                   safetensors_dtype(tensor.dtype));
}

std::string logical_names(const MappedTensor& mapped) {
  std::vector<std::string> names;
  for (const MappedPart& part : mapped.parts) {
    if (std::find(names.begin(), names.end(), part.logical) == names.end()) {
      names.push_back(part.logical);
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void check_shape_of(const HfTensor& tensor, const MappedTensor& mapped,
                    const std::filesystem::path& folder) {
  check<FileError>(tensor.shape == mapped.shape, "{}: tensor \"{}\" is [{}], {} makes it [{}] ({})",
                   (folder / tensor.file).string(), tensor.name, fmt::join(tensor.shape, ", "),
                   kConfigFile, fmt::join(mapped.shape, ", "), logical_names(mapped));
}

// Whether the model can have a dropped tensor of that kind; `numbers`: in its name.
bool applies(DroppedTensor::Reason reason, const Config& config,
             const std::vector<int64_t>& numbers) {
  if (reason == DroppedTensor::Reason::kTiedHead) {
    return config.model.tie_embeddings;
  }
  if (!is_copy(reason)) {
    return true;
  }
  const int64_t module = numbers.empty() ? -1 : numbers.front() - config.model.num_layers;
  return module >= 0 && module < config.mtp.num_layers;
}

std::optional<DroppedTensor::Reason> reason_to_drop(const ModelFamily& family, const Config& config,
                                                    const std::string& name) {
  std::vector<int64_t> numbers;
  const std::string pattern = name_pattern(name, numbers);
  for (const DroppedTensor& dropped : family.dropped) {
    if (dropped.tensor == pattern && applies(dropped.reason, config, numbers)) {
      return dropped.reason;
    }
  }
  return std::nullopt;
}

// The logical tensor that a dropped one is a copy of.
std::string copied_by(const HfModel& model, DroppedTensor::Reason reason) {
  const bool is_head =
      reason == DroppedTensor::Reason::kHeadCopy && !model.config.model.tie_embeddings;
  return is_head ? "head.weight" : "embedding.weight";
}

// What is dropped has to be what it copies.
void check_dropped(const HfModel& model, const HfTensor& tensor, const WeightFiles& weights) {
  const auto values_of = [&](const std::string& name) {
    return weights.files[weights.tensors.at(name).file]->tensor(name);
  };
  const std::string where = (model.path / tensor.file).string();
  const at::Tensor values = values_of(tensor.name);
  if (*tensor.dropped == DroppedTensor::Reason::kScales) {
    return;  // they were compared with their weight
  }
  if (*tensor.dropped != DroppedTensor::Reason::kRotaryFrequencies) {
    for (const TensorRule& rule : model.family->tensors) {
      if (rule.logical == copied_by(model, *tensor.dropped)) {
        const auto original = weights.tensors.find(rule.tensor);
        check<FileError>(
            original != weights.tensors.end() && at::equal(values, values_of(rule.tensor)),
            "{}: tensor \"{}\" differs from \"{}\", but {}", where, tensor.name, rule.tensor,
            *tensor.dropped == DroppedTensor::Reason::kTiedHead
                ? fmt::format("{} ties them (tie_word_embeddings)", kConfigFile)
                : "a module of multi-token prediction shares it with the model");
      }
    }
    return;
  }
  const at::Tensor expected =
      rotary_frequencies(model.config, model.config.model.max_position, at::kDouble).inverse;
  const bool is_same = values.numel() == expected.numel() &&
                       at::allclose(values.to(at::kDouble).view({-1}), expected.to(at::kDouble),
                                    /*rtol=*/1e-2, /*atol=*/1e-6);
  check<FileError>(is_same,
                   "{}: tensor \"{}\" holds other rotary frequencies than {} describes: this "
                   "program computes them from the configuration",
                   where, tensor.name, kConfigFile);
}

// The tensors of the files in their order, each with its logical tensor or its reason to be
// dropped.
void take_tensors(HfModel& model, const WeightFiles& weights,
                  const std::map<std::string, MappedTensor>& mapped) {
  std::vector<std::string> left_over;
  std::vector<FileIndex> indexes;
  for (const auto& file : weights.files) {
    FileIndex index;
    index.file = file->path().filename().string();
    index.header_checksum = file->header_checksum();
    for (const SafetensorsEntry& entry : file->entries()) {
      HfTensor tensor{entry.name, entry.dtype, entry.shape, index.file, std::nullopt};
      const auto found = mapped.find(entry.name);
      if (found != mapped.end()) {
        const auto scales = scales_of(model, tensor, weights);
        if (!scales) {
          check_dtype(tensor, model.path);
        }
        check_shape_of(tensor, found->second, model.path);
        for (const MappedPart& part : found->second.parts) {
          index.entries.push_back({part.logical,
                                   entry.name,
                                   entry.dtype,
                                   part.logical_shape,
                                   part.box,
                                   {},
                                   entry.shape,
                                   part.first,
                                   scales,
                                   part.view});
          if (scales) {
            index.entries.back().scales->first = part.first;
          }
        }
      } else if (are_scales(model, entry.name, weights, mapped)) {
        tensor.dropped = DroppedTensor::Reason::kScales;
      } else if ((tensor.dropped = reason_to_drop(*model.family, model.config, entry.name))) {
        check_dropped(model, tensor, weights);
      } else {
        left_over.push_back(entry.name);
      }
      model.tensors.push_back(std::move(tensor));
    }
    indexes.push_back(std::move(index));
  }
  check<FileError>(left_over.empty(),
                   "{}: holds tensor \"{}\"{}, which a model of type {} with this {} does not have",
                   model.path.string(), left_over.empty() ? "" : left_over.front(),
                   and_others(left_over.size()), model.family->model_type, kConfigFile);
  model.index.files = std::move(indexes);
}

// Names every tensor that would have to be there.
void check_nothing_is_missing(const HfModel& model,
                              const std::map<std::string, MappedTensor>& mapped) {
  std::map<std::string, int64_t> found;  // elements by logical tensor
  std::set<std::string> names;
  for (const HfTensor& tensor : model.tensors) {
    names.insert(tensor.name);
  }
  for (const FileIndex& file : model.index.files) {
    for (const IndexEntry& entry : file.entries) {
      found[entry.tensor] += entry.box.numel();
    }
  }
  std::vector<std::string> missing;
  for (const auto& [name, tensor] : mapped) {
    const MappedPart& part = tensor.parts.front();
    const int64_t expected =
        Box{std::vector<int64_t>(part.logical_shape.size(), 0), part.logical_shape}.numel();
    if (!tensor.is_other_spelling && !names.contains(name) && found[part.logical] < expected) {
      missing.push_back(name);
    }
  }
  check<FileError>(missing.empty(), "{}: has no tensor \"{}\"{}, which {} asks for",
                   model.path.string(), missing.empty() ? "" : missing.front(),
                   and_others(missing.size()), kConfigFile);
}

std::map<std::string, MappedTensor> map_by_name(const HfModel& model) {
  std::map<std::string, MappedTensor> mapped;
  for (MappedTensor& tensor : map_tensors(*model.family, logical_shapes(model.config))) {
    std::string name = tensor.name;
    mapped.emplace(std::move(name), std::move(tensor));
  }
  return mapped;
}

// transformers writes a configuration that names modules of multi-token prediction, and not them.
bool has_predictions(const std::map<std::string, MappedTensor>& mapped,
                     const WeightFiles& weights) {
  return std::any_of(mapped.begin(), mapped.end(), [&](const auto& one) {
    return one.second.parts.front().logical.starts_with("mtp.") &&
           weights.tensors.contains(one.first);
  });
}

}  // namespace

bool is_hf_directory(const std::filesystem::path& path) {
  return std::filesystem::is_regular_file(path / kConfigFile);
}

HfModel open_hf_model(const std::filesystem::path& path) {
  check<FileError>(is_hf_directory(path), "{} is no Hugging Face directory: it has no {}",
                   path.string(), kConfigFile);
  HfModel model;
  model.path = path;
  HfConfig fields = HfConfig::from_file(path / kConfigFile);
  model.family = &find_family(fields);
  model.settings = read_hf_settings(*model.family, fields);
  model.quantization = read_quantization(fields);
  model.fields = fields.fields();
  model.config = with_settings(Config{}, model.settings, fields.source());
  try {
    check_rules(model.config, ConfigUse::kDescribe);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", fields.source(), error.what()));
  }
  const WeightFiles weights = open_weight_files(path);
  std::map<std::string, MappedTensor> mapped = map_by_name(model);
  if (model.config.mtp.num_layers > 0 && !has_predictions(mapped, weights)) {
    log_info(
        "{}: holds no modules of multi-token prediction, of which {} names {}: it is read "
        "without them",
        path.string(), kConfigFile, model.config.mtp.num_layers);
    model.settings["mtp.num_layers"] = {{"0"}, false};
    model.config.mtp.num_layers = 0;
    mapped = map_by_name(model);
  }
  take_tensors(model, weights, mapped);
  check_nothing_is_missing(model, mapped);
  model.index = merge_indexes(std::move(model.index.files));
  return model;
}

}  // namespace switchyard

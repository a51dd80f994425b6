#include "hub/weight_files.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"

namespace switchyard {
namespace {

using Json = nlohmann::json;
using nlohmann::literals::operator""_json_pointer;

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";
constexpr std::array<std::string_view, 7> kWeightEndings = {
    ".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf"};
constexpr std::array<std::string_view, 3> kPickledEndings = {".bin", ".pt", ".pth"};

template <size_t kCount>
bool ends_with_one_of(const std::array<std::string_view, kCount>& endings,
                      const std::string& name) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

[[noreturn]] void refuse_without_weights(const std::filesystem::path& folder) {
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const std::string name = file.path().filename().string();
    check<FileError>(!ends_with_one_of(kPickledEndings, name),
                     "{}: pickled weights can run any code and are not read: save the model as "
                     "safetensors (save_pretrained does)",
                     file.path().string());
  }
  throw FileError(fmt::format("{} holds no weights: expected {} or {}", folder.string(),
                              kSingleFile, kIndexFile));
}

// The file of each tensor, as the index says.
std::map<std::string, std::string> read_weight_map(const std::filesystem::path& path) {
  const Json index = Json::parse(read_text(path), nullptr, /*allow_exceptions=*/false);
  const bool has_map = index.is_object() && index.contains("weight_map") &&
                       index["weight_map"].is_object() && !index["weight_map"].empty();
  check<FileError>(has_map, "{}: has no weight_map from tensors to files; is it cut short?",
                   path.string());
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    const bool is_name = file.is_string() && !file.get<std::string>().empty() &&
                         file.get<std::string>().find('/') == std::string::npos;
    check<FileError>(is_name, "{}: the file of tensor \"{}\" is {}: expected the name of a file",
                     path.string(), tensor, file.dump());
    files[tensor] = file.get<std::string>();
  }
  return files;
}

void add_file(WeightFiles& weights, const std::filesystem::path& path) {
  weights.files.push_back(std::make_unique<SafetensorsFile>(path));
  const size_t index = weights.files.size() - 1;
  for (const SafetensorsEntry& entry : weights.files.back()->entries()) {
    const auto [other, is_new] =
        weights.tensors.emplace(entry.name, WeightFiles::Place{index, &entry});
    check<FileError>(is_new, "{}: tensor \"{}\" is in {} as well", path.string(), entry.name,
                     weights.files[other->second.file]->path().filename().string());
  }
}

void check_index(const std::map<std::string, std::string>& files, const WeightFiles& weights,
                 const std::filesystem::path& index_path) {
  for (const auto& [tensor, file] : files) {
    const auto found = weights.tensors.find(tensor);
    check<FileError>(found != weights.tensors.end() &&
                         weights.files[found->second.file]->path().filename() == file,
                     "{}: lists tensor \"{}\" in {}, which does not hold it", index_path.string(),
                     tensor, file);
  }
  for (const auto& [tensor, place] : weights.tensors) {
    check<FileError>(files.contains(tensor), "{}: does not list tensor \"{}\", which {} holds",
                     index_path.string(), tensor,
                     weights.files[place.file]->path().filename().string());
  }
}

// "-of-00004.safetensors" of "model-00002-of-00004.safetensors"; empty for another name.
std::string shard_count(const std::string& file) {
  const size_t of = file.find("-of-");
  return of == std::string::npos || !file.ends_with(".safetensors")
             ? ""
             : file.substr(of, file.size() - of);
}

// A shard beside the listed ones would silently be no part of the model.
void check_no_shard_is_left(const std::filesystem::path& folder,
                            const std::set<std::string>& listed) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const std::string count = shard_count(name);
    const bool is_of_same_model =
        !count.empty() && std::any_of(listed.begin(), listed.end(), [&](const std::string& one) {
          return shard_count(one) == count;
        });
    check<FileError>(!is_of_same_model || listed.contains(name),
                     "{} is a shard that {} does not list: list its tensors, or remove it",
                     entry.path().string(), kIndexFile);
  }
}

// transformers does not look at it, and old files are wrong without harm: a warning.
void warn_of_wrong_size(const std::filesystem::path& path, const WeightFiles& weights) {
  const Json index = Json::parse(read_text(path), nullptr, /*allow_exceptions=*/false);
  const Json stated = index.value("/metadata/total_size"_json_pointer, Json());
  int64_t total = 0;
  for (const auto& [name, place] : weights.tensors) {
    total += place.entry->num_bytes();
  }
  if (!stated.is_null() && stated != total) {
    log_warn("{}: total_size is {}, the tensors have {} bytes", path.string(), stated.dump(),
             total);
  }
}

}  // namespace

WeightFiles open_weight_files(const std::filesystem::path& folder) {
  WeightFiles weights;
  const std::filesystem::path index_path = folder / kIndexFile;
  if (std::filesystem::exists(folder / kSingleFile)) {
    check<FileError>(!std::filesystem::exists(index_path),
                     "{} holds both {} and {}: keep the one that is meant", folder.string(),
                     kSingleFile, kIndexFile);
    add_file(weights, folder / kSingleFile);
    return weights;
  }
  if (!std::filesystem::exists(index_path)) {
    refuse_without_weights(folder);
  }
  const auto files = read_weight_map(index_path);
  std::set<std::string> names;
  for (const auto& [tensor, file] : files) {
    names.insert(file);
  }
  for (const std::string& name : names) {
    check<FileError>(std::filesystem::exists(folder / name), "{} is missing: {} lists it",
                     (folder / name).string(), kIndexFile);
    add_file(weights, folder / name);
  }
  check_index(files, weights, index_path);
  check_no_shard_is_left(folder, names);
  warn_of_wrong_size(index_path, weights);
  return weights;
}

bool is_weight_file(const std::string& name) {
  return ends_with_one_of(kWeightEndings, name);
}

}  // namespace switchyard

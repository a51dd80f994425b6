#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_tests.h"
#include "checkpoint/safetensors.h"

// What the tests of Hugging Face directories share.
namespace switchyard {

inline std::filesystem::path golden_directory(const std::string& family) {
  return std::filesystem::path(SWITCHYARD_SOURCE_DIR) / "tests/golden/hf" / family;
}

inline bool is_encoded(const std::string& name) {
  return name.ends_with("_fp8") || name.ends_with("_mxfp4");
}

// All there are, made by tools/oracle/hf_directories.py, but for those with encoded weights.
inline const std::vector<std::string> kGoldenFamilies = [] {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_directory(""))) {
    if (entry.is_directory() && !is_encoded(entry.path().filename().string())) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}();

inline nlohmann::json read_json(const std::filesystem::path& path) {
  return nlohmann::json::parse(file_bytes(path));
}

// With modules of multi-token prediction, whose layers are copies of the last.
inline void add_predictions(std::map<std::string, at::Tensor>& tensors, int64_t num_layers) {
  const std::string last = "model.layers." + std::to_string(num_layers - 1) + ".";
  const std::string module = "model.layers." + std::to_string(num_layers) + ".";
  std::map<std::string, at::Tensor> added;
  for (const auto& [name, tensor] : tensors) {
    if (name.starts_with(last)) {
      added[module + name.substr(last.size())] = tensor.clone();
    }
  }
  const int64_t hidden = tensors.at("model.norm.weight").size(0);
  at::manual_seed(4);
  added[module + "enorm.weight"] = at::rand({hidden});
  added[module + "hnorm.weight"] = at::rand({hidden});
  added[module + "shared_head.norm.weight"] = at::rand({hidden});
  added[module + "eh_proj.weight"] = at::randn({hidden, 2 * hidden});
  added[module + "embed_tokens.weight"] = tensors.at("model.embed_tokens.weight").clone();
  added[module + "shared_head.head.weight"] = tensors.at("lm_head.weight").clone();
  tensors.merge(added);
}

// A copy of a golden directory that a test may damage.
class DirectoryCopy {
 public:
  explicit DirectoryCopy(const std::string& family) : path_(folder_ / family) {
    std::filesystem::copy(golden_directory(family), path_);
    std::filesystem::remove(path_ / "expected.safetensors");
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

  void change_config(const std::function<void(nlohmann::json&)>& change) const {
    nlohmann::json fields = read_json(path_ / "config.json");
    change(fields);
    write_bytes(path_ / "config.json", fields.dump());
  }

  // Rewrites model.safetensors with other tensors.
  void change_tensors(const std::function<void(std::map<std::string, at::Tensor>&)>& change) const {
    std::map<std::string, at::Tensor> tensors;
    {
      const SafetensorsFile file(path_ / "model.safetensors");
      for (const SafetensorsEntry& entry : file.entries()) {
        tensors[entry.name] = file.tensor(entry.name).clone();
      }
    }
    change(tensors);
    std::vector<SafetensorsDeclaration> declarations;
    for (const auto& [name, tensor] : tensors) {
      declarations.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
    }
    SafetensorsWriter writer(path_ / "model.safetensors", declarations);
    for (const auto& [name, tensor] : tensors) {
      writer.write(tensor);
    }
    writer.finish();
  }

 private:
  TemporaryFolder folder_;
  std::filesystem::path path_;
};

}  // namespace switchyard

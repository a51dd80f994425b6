#include "hub/describe_hf.h"

#include <algorithm>
#include <map>

#include <fmt/ranges.h>

#include "checkpoint/safetensors.h"
#include "config/settings.h"
#include "hub/hf_settings.h"
#include "hub/origin.h"

namespace switchyard {
namespace {

std::string describe_settings(const HfModel& model) {
  std::string text = "  settings\n";
  for (const Setting& setting : settings()) {
    if (model.settings.contains(setting.name) && !setting.has_default_value(model.config)) {
      text += fmt::format("    {:<36} {}\n", setting.name, setting.print(model.config));
    }
  }
  return text;
}

// Experts of a layer are one line: tensors that differ only in a number behind the layer's.
std::string describe_tensors(const HfModel& model) {
  struct Line {
    std::string shape;
    std::string dtype;
    int64_t count = 0;
    std::string logical;
  };
  std::map<std::string, std::vector<std::string>> logical;
  for (const FileIndex& file : model.index.files) {
    for (const IndexEntry& entry : file.entries) {
      std::vector<int64_t> ignored;
      const std::string pattern = name_pattern(entry.tensor, ignored);
      std::vector<std::string>& own = logical[entry.key];
      if (std::find(own.begin(), own.end(), pattern) == own.end()) {
        own.push_back(pattern);
      }
    }
  }
  std::map<std::string, Line> lines;
  size_t width = 0;
  for (const HfTensor& tensor : model.tensors) {
    std::vector<int64_t> numbers;
    const std::string pattern = name_pattern(tensor.name, numbers);
    Line& line = lines[pattern];
    line.shape = fmt::format("[{}]", fmt::join(tensor.shape, ", "));
    line.dtype = safetensors_dtype(tensor.dtype);
    ++line.count;
    line.logical = tensor.dropped ? "dropped: follows from the rest"
                                  : fmt::format("{}", fmt::join(logical.at(tensor.name), ", "));
    width = std::max(width, pattern.size());
  }
  std::string text = fmt::format("\n  {:<{}}  {:<5} {:<16} {:>7}  {}\n", "tensor", width, "dtype",
                                 "shape", "number", "here");
  for (const auto& [pattern, line] : lines) {
    text += fmt::format("  {:<{}}  {:<5} {:<16} {:>7}  {}\n", pattern, width, line.dtype,
                        line.shape, line.count, line.logical);
  }
  return text;
}

}  // namespace

std::string describe_hf_model(const std::filesystem::path& path) {
  const HfModel model = open_hf_model(path);
  int64_t elements = 0;
  for (const auto& [name, tensor] : model.index.tensors) {
    elements += Box{{}, tensor.global_shape}.numel();
  }
  std::vector<std::string> carried;
  for (const std::filesystem::path& file : carried_files(path)) {
    if (file.filename() != "config.json") {
      carried.push_back(file.filename().string());
    }
  }
  std::string text =
      fmt::format("Hugging Face directory {}\n  {}, {:.3f} M parameters\n", path.string(),
                  model.family->architecture, static_cast<double>(elements) / 1e6);
  text += fmt::format("  {} tensors in {} {}, each used once\n", model.tensors.size(),
                      model.index.files.size(), model.index.files.size() == 1 ? "file" : "files");
  text += fmt::format("  carried over unchanged: {}\n",
                      carried.empty() ? "nothing" : fmt::format("{}", fmt::join(carried, ", ")));
  return text + describe_settings(model) + describe_tensors(model);
}

}  // namespace switchyard

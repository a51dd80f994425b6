#include "checkpoint/describe.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/part_reader.h"
#include "checkpoint/safetensors.h"

namespace switchyard {
namespace {

// A step without a record is one too: a damaged one.
bool is_one_checkpoint(const std::filesystem::path& path) {
  return is_checkpoint_folder(path) || (step_of(path) && std::filesystem::is_directory(path));
}

// The folder that holds step_N: `path` itself, or its `checkpoints`.
std::filesystem::path folder_of_checkpoints(const std::filesystem::path& path) {
  return list_checkpoints(path).empty() ? path / "checkpoints" : path;
}

std::string describe_bytes(int64_t bytes) {
  constexpr std::string_view kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  auto size = static_cast<double>(bytes);
  size_t unit = 0;
  while (size >= 1000 && unit + 1 < std::size(kUnits)) {
    size /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", size, kUnits[unit]);
}

int64_t bytes_of(const CheckpointIndex& index, const StoredTensor& tensor) {
  int64_t bytes = 0;
  for (const StoredBox& box : tensor.boxes) {
    bytes += index.entry(box).num_bytes();
  }
  return bytes;
}

std::string describe_record(const CheckpointRecord& record) {
  std::string text;
  const auto line = [&](std::string_view what, const std::string& value) {
    if (!value.empty()) {
      text += fmt::format("  {:<18}{}\n", what, value);
    }
  };
  line("step", fmt::format("{} of {}", record.step, record.total_steps));
  line("samples consumed", fmt::format("{}", record.samples_consumed));
  line("tokens seen", fmt::format("{}", record.tokens_seen));
  line("seed", fmt::format("{}", record.seed));
  line("settings", record.fingerprint);
  line("layout", record.layout);
  line("threads per rank", fmt::format("{}", record.num_threads));
  line("instruction set", record.instruction_set);
  line("libtorch", record.torch_version);
  return text;
}

std::string describe_tensors(const CheckpointIndex& index) {
  size_t width = std::string_view("tensor").size();
  int64_t total = 0;
  for (const auto& [name, tensor] : index.tensors) {
    width = std::max(width, name.size());
    total += bytes_of(index, tensor);
  }
  std::string text = fmt::format("  {} tensors, {}, in {} files\n\n", index.tensors.size(),
                                 describe_bytes(total), index.files.size());
  text += fmt::format("  {:<{}}  {:<5} {:<20} {:>10} {:>6}\n", "tensor", width, "dtype", "shape",
                      "size", "boxes");
  for (const auto& [name, tensor] : index.tensors) {
    text += fmt::format("  {:<{}}  {:<5} {:<20} {:>10} {:>6}\n", name, width,
                        safetensors_dtype(tensor.dtype),
                        fmt::format("[{}]", fmt::join(tensor.global_shape, ", ")),
                        describe_bytes(bytes_of(index, tensor)), tensor.boxes.size());
  }
  return text;
}

std::string describe_one(const std::filesystem::path& path, bool verify) {
  const OpenedCheckpoint opened = open_checkpoint(path);
  if (verify) {
    verify_blocks(path, opened.index);
  }
  return fmt::format("checkpoint {}\n{}{}{}", path.string(), describe_record(opened.record),
                     describe_tensors(opened.index),
                     verify ? "\n  every byte matches its checksum\n" : "");
}

}  // namespace

bool is_checkpoint(const std::filesystem::path& path) {
  return is_one_checkpoint(path) || !list_checkpoints(folder_of_checkpoints(path)).empty();
}

std::string describe_checkpoint(const std::filesystem::path& path, bool verify) {
  if (is_one_checkpoint(path)) {
    return describe_one(path, verify);
  }
  const std::filesystem::path folder = folder_of_checkpoints(path);
  const auto latest = find_latest(folder);
  check<CheckpointError>(latest.has_value(),
                         "{} holds no checkpoint: give a run directory, its checkpoints folder or "
                         "one step_N of it",
                         path.string());
  std::vector<std::string> names;
  for (const auto& found : list_checkpoints(folder)) {
    names.push_back(found.filename().string());
  }
  return fmt::format("{} holds {}; the latest:\n\n{}", folder.string(), fmt::join(names, ", "),
                     describe_one(*latest, verify));
}

}  // namespace switchyard

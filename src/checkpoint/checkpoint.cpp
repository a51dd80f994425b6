#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>

#include <ATen/ATen.h>

#include "base/log.h"
#include "checkpoint/agree.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_saver.h"
#include "checkpoint/convert.h"
#include "checkpoint/manifest.h"
#include "checkpoint/part_reader.h"
#include "checkpoint/partial_checkpoint.h"
#include "checkpoint/safetensors.h"

namespace switchyard {
namespace {

constexpr Site kTensorsRead{"checkpoint.tensors_read", Purpose::kCheckpoint};
constexpr Site kCandidates{"checkpoint.candidates", Purpose::kCheckpoint};

std::string and_others(size_t num_names) {
  return num_names > 1 ? fmt::format(" (and {} more)", num_names - 1) : "";
}

std::string describe(at::ScalarType dtype, at::IntArrayRef shape) {
  return fmt::format("{} [{}]", safetensors_dtype(dtype), fmt::join(shape, ", "));
}

void check_part(const TensorPart& part, const StoredTensor& stored, const std::string& source) {
  box_of(part);
  const at::ScalarType dtype = part.values.scalar_type();
  check<CheckpointError>(stored.global_shape == part.global_shape,
                         "{}: tensor \"{}\" is {}, this model's is {}: it belongs to a model of "
                         "another shape",
                         source, part.name, describe(stored.dtype, stored.global_shape),
                         describe(dtype, part.global_shape));
  check<CheckpointError>(holds_every_value_of(dtype, stored.dtype),
                         "{}: tensor \"{}\" is {}, this run keeps it as {}: set train.precision to "
                         "what the checkpoint was made with",
                         source, part.name, describe(stored.dtype, stored.global_shape),
                         describe(dtype, part.global_shape));
}

void check_parts(const CheckpointIndex& index, const std::vector<TensorPart>& parts,
                 const std::string& source) {
  std::vector<std::string> missing;
  for (const TensorPart& part : parts) {
    const auto stored = index.tensors.find(part.name);
    if (stored == index.tensors.end()) {
      missing.push_back(part.name);
    } else {
      check_part(part, stored->second, source);
    }
  }
  check<CheckpointError>(
      missing.empty(), "{}: has no tensor \"{}\"{}: it belongs to a model of another shape", source,
      missing.empty() ? "" : missing.front(), and_others(missing.size()));
}

// Every tensor must be read by some rank: what is left over belonged to something that this run
// lacks.
void check_nothing_is_left(const CheckpointIndex& index, const std::vector<TensorPart>& parts,
                           const LoadOptions& options, const std::string& source,
                           const Group& world) {
  std::set<std::string> read;
  for (const TensorPart& part : parts) {
    read.insert(part.name);
  }
  at::Tensor flags = at::zeros({static_cast<int64_t>(index.tensors.size())}, at::kInt);
  auto* is_read = flags.mutable_data_ptr<int32_t>();
  size_t next = 0;
  for (const auto& [name, tensor] : index.tensors) {
    is_read[next++] = read.contains(name) ? 1 : 0;
  }
  world.all_reduce(flags, kTensorsRead, ReduceOp::kMax);
  std::vector<std::string> left;
  next = 0;
  for (const auto& [name, tensor] : index.tensors) {
    const bool is_ignored =
        std::any_of(options.ignored_prefixes.begin(), options.ignored_prefixes.end(),
                    [&name = name](const std::string& prefix) { return name.starts_with(prefix); });
    if (is_read[next++] == 0 && !is_ignored) {
      left.push_back(name);
    }
  }
  check<CheckpointError>(left.empty(),
                         "{}: holds tensor \"{}\"{}, which this model does not have: it belongs to "
                         "a model of another shape",
                         source, left.empty() ? "" : left.front(), and_others(left.size()));
}

// As rank 0 sees the folder, so that all ranks try the same ones.
std::vector<std::filesystem::path> agreed_checkpoints_to_try(const std::filesystem::path& directory,
                                                             const Group& world) {
  std::vector<std::string> names;
  if (world.rank() == 0) {
    for (const auto& path : checkpoints_to_try(directory)) {
      names.push_back(path.filename().string());
    }
  }
  const std::string text =
      world.all_gather_text(fmt::format("{}\n", fmt::join(names, "\n")), kCandidates).front();
  std::vector<std::filesystem::path> paths;
  for (size_t begin = 0, end = 0; begin + 1 < text.size(); begin = end + 1) {
    end = text.find('\n', begin);
    paths.push_back(directory / text.substr(begin, end - begin));
  }
  return paths;
}

}  // namespace

void write_checkpoint(const std::filesystem::path& path, const CheckpointRecord& record,
                      const std::vector<TensorPart>& parts, const Group& world) {
  PartialCheckpoint partial(path);
  run_on_first_rank(world, [&] { partial.create(); });
  const std::vector<std::string> index_checksums = run_and_agree(world, [&] {
    return write_rank_file(PartialCheckpoint::folder_of(path), world.rank(), shares_to_save(parts));
  });
  run_on_first_rank(world, [&] { partial.finish(record, index_checksums); });
}

void write_checkpoint(const std::filesystem::path& path, const CheckpointRecord& record,
                      const std::vector<StreamedPart>& parts) {
  PartialCheckpoint partial(path);
  partial.create();
  partial.finish(record, {write_rank_file(PartialCheckpoint::folder_of(path), 0, parts)});
}

std::filesystem::path save_checkpoint(const std::filesystem::path& directory,
                                      const CheckpointRecord& record,
                                      const std::vector<TensorPart>& parts, const Group& world,
                                      int64_t keep) {
  CheckpointSaver(directory, world, keep, /*in_background=*/false).save(record, parts);
  return directory / step_name(record.step);
}

CheckpointRecord load_checkpoint(const std::filesystem::path& path,
                                 const std::vector<TensorPart>& parts, const Group& world,
                                 const LoadOptions& options) {
  OpenedCheckpoint opened;
  run_and_agree(world, [&] {
    opened = open_checkpoint(path);
    return std::string();
  });
  if (options.check_record) {
    options.check_record(opened.record);
  }
  load_parts(path, opened.index, parts, world, options, path.string());
  return opened.record;
}

void load_parts(const std::filesystem::path& folder, const CheckpointIndex& index,
                const std::vector<TensorPart>& parts, const Group& world,
                const LoadOptions& options, const std::string& source) {
  run_and_agree(world, [&] {
    check_parts(index, parts, source);
    return std::string();
  });
  check_nothing_is_left(index, parts, options, source, world);
  run_and_agree(world, [&] {
    PartReader reader(folder, index);
    for (const TensorPart& part : parts) {
      reader.read(part);
    }
    return std::string();
  });
}

std::optional<LoadedCheckpoint> load_latest_checkpoint(const std::filesystem::path& directory,
                                                       const std::vector<TensorPart>& parts,
                                                       const Group& world,
                                                       const LoadOptions& options) {
  std::vector<std::string> faults;
  for (const auto& path : agreed_checkpoints_to_try(directory, world)) {
    try {
      return LoadedCheckpoint{path, load_checkpoint(path, parts, world, options)};
    } catch (const DamagedCheckpoint& error) {
      faults.push_back(error.what());
      if (world.rank() == 0) {
        log_warn("checkpoint {} is passed over: {}", path.string(), error.what());
      }
    }
  }
  check<CheckpointError>(
      faults.empty(),
      "{}: no checkpoint in it is good: {}. Restore one, or move the folder away "
      "to start from step 0",
      directory.string(), fmt::join(faults, "; "));
  return std::nullopt;
}

std::vector<std::filesystem::path> checkpoints_to_try(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> all = list_checkpoints(directory);
  std::reverse(all.begin(), all.end());
  std::optional<int64_t> latest;
  try {
    latest = read_latest(directory);
  } catch (const DamagedCheckpoint& error) {
    log_warn("{}; the checkpoint of the most steps is taken", error.what());
  }
  std::vector<std::filesystem::path> up_to_latest = all;
  std::erase_if(up_to_latest, [&](const auto& path) { return latest && *step_of(path) > *latest; });
  return up_to_latest.empty() ? all : up_to_latest;
}

std::optional<std::filesystem::path> find_latest(const std::filesystem::path& directory) {
  const auto paths = checkpoints_to_try(directory);
  return paths.empty() ? std::nullopt : std::optional(paths.front());
}

}  // namespace switchyard

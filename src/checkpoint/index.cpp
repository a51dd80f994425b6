#include "checkpoint/index.h"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include "checkpoint/error.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/sealed_json.h"

namespace switchyard {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormat = "switchyard index";
constexpr int64_t kVersion = 1;
// The kind of range an entry holds. Later kinds, such as a flat interval inside a box, get other
// names.
constexpr std::string_view kBoxRange = "box";

Json to_json(const BlockScales& scales) {
  return {{"file", scales.file},
          {"key", scales.key},
          {"matrix", {scales.rows, scales.columns}},
          {"block", {scales.block_rows, scales.block_columns}},
          {"first", scales.first}};
}

BlockScales scales_from(const Json& json, const std::string& where) {
  BlockScales scales{.file = json_field<std::string>(json, "file", where),
                     .key = json_field<std::string>(json, "key", where)};
  const auto matrix = json_field<std::vector<int64_t>>(json, "matrix", where);
  const auto block = json_field<std::vector<int64_t>>(json, "block", where);
  const bool are_pairs = matrix.size() == 2 && block.size() == 2;
  check<DamagedCheckpoint>(
      are_pairs && std::min(block[0], block[1]) > 0 && std::min(matrix[0], matrix[1]) > 0,
      "{}: blocks [{}] of matrices [{}] cannot be", where, fmt::join(block, ", "),
      fmt::join(matrix, ", "));
  scales.rows = matrix[0];
  scales.columns = matrix[1];
  scales.block_rows = block[0];
  scales.block_columns = block[1];
  scales.first = json_field<int64_t>(json, "first", where);
  return scales;
}

Json to_json(const IndexEntry& entry) {
  Json json = {
      {"tensor", entry.tensor},
      {"key", entry.key},
      {"dtype", safetensors_dtype(entry.dtype)},
      {"global_shape", entry.global_shape},
      {"range", {{"kind", kBoxRange}, {"start", entry.box.start}, {"shape", entry.box.shape}}},
      {"crc32c", entry.checksums}};
  if (entry.scales) {
    json["scales"] = to_json(*entry.scales);
  }
  return json;
}

// The bytes of a tensor, or an error where that is no number of bytes.
int64_t checked_bytes(at::ScalarType dtype, const std::vector<int64_t>& shape,
                      const std::string& where) {
  auto bytes = static_cast<int64_t>(c10::elementSize(dtype));
  for (const int64_t size : shape) {
    check<DamagedCheckpoint>(size >= 0 && !__builtin_mul_overflow(bytes, size, &bytes),
                             "{}: shape [{}] cannot be", where, fmt::join(shape, ", "));
  }
  return bytes;
}

std::vector<uint32_t> checksums_from(const std::vector<int64_t>& numbers, int64_t num_blocks,
                                     const std::string& where) {
  check<DamagedCheckpoint>(static_cast<int64_t>(numbers.size()) == num_blocks,
                           "{}: {} checksums, {} blocks", where, numbers.size(), num_blocks);
  std::vector<uint32_t> checksums;
  for (const int64_t number : numbers) {
    check<DamagedCheckpoint>(number >= 0 && number <= UINT32_MAX, "{}: a checksum is {}", where,
                             number);
    checksums.push_back(static_cast<uint32_t>(number));
  }
  return checksums;
}

IndexEntry entry_from(const Json& json, int64_t block_bytes, const std::string& source) {
  IndexEntry entry;
  entry.tensor = json_field<std::string>(json, "tensor", source);
  const std::string where = fmt::format("{}: tensor \"{}\"", source, entry.tensor);
  entry.key = json_field<std::string>(json, "key", where);
  entry.dtype = dtype_from_safetensors(json_field<std::string>(json, "dtype", where), where);
  entry.global_shape = json_field<std::vector<int64_t>>(json, "global_shape", where);
  checked_bytes(entry.dtype, entry.global_shape, where);
  const Json range = json_field<Json>(json, "range", where);
  const auto kind = json_field<std::string>(range, "kind", where);
  check<CheckpointError>(
      kind == kBoxRange,
      "{} is stored as \"{}\", which this version does not know: use the version "
      "that wrote it or a newer one",
      where, kind);
  entry.box.start = json_field<std::vector<int64_t>>(range, "start", where);
  entry.box.shape = json_field<std::vector<int64_t>>(range, "shape", where);
  check<DamagedCheckpoint>(entry.box.start.size() == entry.global_shape.size() &&
                               entry.box.shape.size() == entry.global_shape.size(),
                           "{}: its range has another number of dims than its shape", where);
  const int64_t bytes = checked_bytes(entry.dtype, entry.box.shape, where);
  const int64_t num_blocks = bytes / block_bytes + (bytes % block_bytes == 0 ? 0 : 1);
  if (json.contains("scales")) {
    check<DamagedCheckpoint>(can_have_scales(entry.dtype), "{} is {} and cannot have scales", where,
                             safetensors_dtype(entry.dtype));
    entry.scales = scales_from(json["scales"], where);
  }
  entry.checksums =
      checksums_from(json_field<std::vector<int64_t>>(json, "crc32c", where), num_blocks, where);
  return entry;
}

StoredTensor& add_tensor(CheckpointIndex& index, const IndexEntry& entry, const std::string& file) {
  const auto [found, is_new] = index.tensors.try_emplace(
      entry.tensor, StoredTensor{entry.value_dtype(), entry.global_shape, {}});
  StoredTensor& tensor = found->second;
  check<DamagedCheckpoint>(
      tensor.dtype == entry.value_dtype() && tensor.global_shape == entry.global_shape,
      "{}: tensor \"{}\" is {} [{}], in other files {} [{}]", file, entry.tensor,
      safetensors_dtype(entry.value_dtype()), fmt::join(entry.global_shape, ", "),
      safetensors_dtype(tensor.dtype), fmt::join(tensor.global_shape, ", "));
  return tensor;
}

void check_tiling(const CheckpointIndex& index, const std::string& name,
                  const StoredTensor& tensor) {
  std::vector<Box> boxes;
  for (const StoredBox& at : tensor.boxes) {
    boxes.push_back(index.entry(at).box);
  }
  const auto fault = find_tiling_fault(tensor.global_shape, boxes);
  if (!fault) {
    return;
  }
  const auto describe = [&](size_t i) {
    return fmt::format("{} of {}", boxes[i].describe(), index.files[tensor.boxes[i].file].file);
  };
  const std::string shape = fmt::format("{}", fmt::join(tensor.global_shape, ", "));
  if (fault->num_missing > 0) {
    throw DamagedCheckpoint(
        fmt::format("tensor \"{}\" [{}] is incomplete: {} of its elements are in no file", name,
                    shape, fault->num_missing));
  }
  if (fault->first == fault->second) {
    throw DamagedCheckpoint(fmt::format("tensor \"{}\" [{}]: {} reaches outside it", name, shape,
                                        describe(fault->first)));
  }
  throw DamagedCheckpoint(fmt::format("tensor \"{}\" [{}] is there twice: {} and {} overlap", name,
                                      shape, describe(fault->first), describe(fault->second)));
}

}  // namespace

int64_t IndexEntry::num_bytes() const {
  return box.numel() * static_cast<int64_t>(c10::elementSize(dtype));
}

std::string write_index(const std::filesystem::path& path, const FileIndex& index) {
  Json entries = Json::array();
  for (const IndexEntry& entry : index.entries) {
    entries.push_back(to_json(entry));
  }
  return write_sealed_json(path,
                           {{"format", kFormat},
                            {"version", kVersion},
                            {"file", index.file},
                            {"bytes", index.num_bytes},
                            {"header_crc32c", index.header_checksum},
                            {"block_bytes", index.block_bytes},
                            {"entries", std::move(entries)}},
                           /*is_indented=*/false);
}

FileIndex read_index(const std::filesystem::path& path, const std::string& checksum) {
  const auto [found_checksum, json] = read_sealed_json(path);
  const std::string source = path.string();
  check<DamagedCheckpoint>(found_checksum == checksum,
                           "{}: its checksum is {}, the record says {}: it belongs to another save",
                           source, found_checksum, checksum);
  check_format(json, kFormat, kVersion, source);
  FileIndex index;
  index.file = json_field<std::string>(json, "file", source);
  index.num_bytes = json_field<int64_t>(json, "bytes", source);
  index.header_checksum = static_cast<uint32_t>(json_field<int64_t>(json, "header_crc32c", source));
  index.block_bytes = json_field<int64_t>(json, "block_bytes", source);
  constexpr int64_t kMaxBlockBytes = int64_t{1} << 30;
  constexpr int64_t kBlockMultiple = 16;  // an element never lies in two blocks
  check<DamagedCheckpoint>(index.block_bytes > 0 && index.block_bytes <= kMaxBlockBytes &&
                               index.block_bytes % kBlockMultiple == 0,
                           "{}: blocks of {} bytes cannot be", source, index.block_bytes);
  const Json entries = json_field<Json>(json, "entries", source);
  check<DamagedCheckpoint>(entries.is_array(), "{}: the field \"entries\" is not a list", source);
  for (const Json& entry : entries) {
    index.entries.push_back(
        read_as_checkpoint([&] { return entry_from(entry, index.block_bytes, source); }));
  }
  return index;
}

CheckpointIndex merge_indexes(std::vector<FileIndex> files) {
  CheckpointIndex index;
  index.files = std::move(files);
  for (size_t file = 0; file < index.files.size(); ++file) {
    for (size_t entry = 0; entry < index.files[file].entries.size(); ++entry) {
      const IndexEntry& added = index.files[file].entries[entry];
      add_tensor(index, added, index.files[file].file).boxes.push_back({file, entry});
    }
  }
  for (const auto& [name, tensor] : index.tensors) {
    check_tiling(index, name, tensor);
  }
  return index;
}

}  // namespace switchyard

#include "checkpoint/rank_file.h"

#include <algorithm>

#include <fmt/ranges.h>

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/random.h"
#include "checkpoint/safetensors.h"
#include "parallel/placement.h"

namespace switchyard {
namespace {

// Below this, a part is not worth an entry in several files.
constexpr size_t kMinBytesToSplit = size_t{1} << 20;

// An entry is called like its tensor when it is all of it, so that a checkpoint of one rank reads
// as a plain safetensors file; a slice has its place in the name.
std::string key_of(const StreamedPart& part) {
  const bool is_whole = part.box.shape == part.global_shape;
  return is_whole ? part.name : fmt::format("{}@{}", part.name, fmt::join(part.box.start, ","));
}

bool is_empty_share_of_more(const TensorPart& part) {
  const bool tensor_is_empty =
      std::find(part.global_shape.begin(), part.global_shape.end(), 0) != part.global_shape.end();
  return part.values.numel() == 0 && !tensor_is_empty;
}

}  // namespace

Box box_of(const TensorPart& part) {
  check<ShapeError>(part.values.defined(), "\"{}\" has no values", part.name);
  Box box{part.start, part.values.sizes().vec()};
  const size_t dims = part.global_shape.size();
  bool is_inside = box.start.size() == dims && box.shape.size() == dims;
  for (size_t dim = 0; is_inside && dim < dims; ++dim) {
    is_inside = box.start[dim] >= 0 && box.shape[dim] <= part.global_shape[dim] - box.start[dim];
  }
  check<ShapeError>(is_inside, "\"{}\" [{}]: values [{}] from [{}] reach outside it", part.name,
                    fmt::join(part.global_shape, ", "), fmt::join(box.shape, ", "),
                    fmt::join(box.start, ", "));
  return box;
}

std::optional<TensorPart> share_to_save(const TensorPart& part) {
  if (is_empty_share_of_more(part)) {
    return std::nullopt;
  }
  const bool is_split = part.num_replicas > 1 && part.values.nbytes() >= kMinBytesToSplit &&
                        part.values.dim() > 0 && part.values.size(0) >= part.num_replicas;
  if (!is_split) {
    const auto writer = hash_name(part.name) % static_cast<uint64_t>(part.num_replicas);
    return static_cast<int64_t>(writer) == part.replica_index ? std::optional(part) : std::nullopt;
  }
  const ShardRange rows = shard_range(part.values.size(0), part.num_replicas, part.replica_index);
  TensorPart share = part;
  share.start[0] += rows.begin;
  share.values = part.values.narrow(0, rows.begin, rows.size());
  return share;
}

std::string rank_index_name(int64_t rank) {
  return fmt::format("rank_{:05}.index.json", rank);
}

std::vector<StreamedPart> shares_to_save(const std::vector<TensorPart>& parts) {
  std::vector<StreamedPart> shares;
  for (const TensorPart& part : parts) {
    box_of(part);  // also of those that others save
    if (const auto share = share_to_save(part)) {
      shares.push_back({share->name,
                        share->global_shape,
                        box_of(*share),
                        share->values.scalar_type(),
                        [values = share->values] { return values; },
                        {}});
    }
  }
  return shares;
}

std::string write_rank_file(const std::filesystem::path& folder, int64_t rank,
                            const std::vector<StreamedPart>& parts) {
  FileIndex index;
  index.file = fmt::format("rank_{:05}.safetensors", rank);
  index.block_bytes = kChecksumBlockBytes;
  std::vector<SafetensorsDeclaration> declarations;
  for (const StreamedPart& part : parts) {
    const std::string key = key_of(part);
    declarations.push_back({key, part.dtype, part.box.shape});
    index.entries.push_back(
        {part.name, key, part.dtype, part.global_shape, part.box, {}, {}, 0, part.scales});
    if (part.scales) {
      index.entries.back().scales->file = index.file;
    }
  }
  SafetensorsWriter writer(folder / index.file, std::move(declarations), {{"format", "pt"}});
  for (size_t i = 0; i < parts.size(); ++i) {
    index.entries[i].checksums = writer.write(parts[i].values());
  }
  writer.finish();
  index.num_bytes = writer.num_bytes();
  index.header_checksum = writer.header_checksum();
  return write_index(folder / rank_index_name(rank), index);
}

}  // namespace switchyard

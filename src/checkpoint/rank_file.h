#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/box.h"
#include "checkpoint/index.h"
#include "checkpoint/tensor_part.h"

namespace switchyard {

// The box that a part fills. Throws ShapeError when it reaches outside its tensor.
Box box_of(const TensorPart& part);

// What of a part this rank saves: its replicas share a large one by rows of its first dim, and a
// small one belongs to one of them, drawn by its name. nullopt when others save all of it.
std::optional<TensorPart> share_to_save(const TensorPart& part);

// A box of a logical tensor whose values are made when they are written, so that one tensor at a
// time is in memory.
struct StreamedPart {
  std::string name;
  std::vector<int64_t> global_shape;
  Box box;
  at::ScalarType dtype;
  std::function<at::Tensor()> values;      // of the box's shape
  std::optional<BlockScales> scales = {};  // of a payload; `key` is the name of another part
};
// This rank's shares of `parts`, in memory that they share. Throws ShapeError for a part that
// cannot be.
std::vector<StreamedPart> shares_to_save(const std::vector<TensorPart>& parts);

// Writes `parts` into `folder`: rank_N.safetensors and rank_N.index.json, synced. Returns the
// checksum of the index. Not collective. Throws FileError.
std::string write_rank_file(const std::filesystem::path& folder, int64_t rank,
                            const std::vector<StreamedPart>& parts);

std::string rank_index_name(int64_t rank);  // "rank_00003.index.json"

}  // namespace switchyard

#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "checkpoint/block_scales.h"
#include "checkpoint/box.h"
#include "checkpoint/file_view.h"

namespace switchyard {

// One entry of a safetensors file: a box of a logical tensor, its elements in row-major order, but
// for what files of others do.
struct IndexEntry {
  std::string tensor;  // logical name
  std::string key;     // name within the file
  at::ScalarType dtype;
  std::vector<int64_t> global_shape;
  Box box;
  std::vector<uint32_t> checksums;  // CRC-32C of each block of its bytes; none in files of others
  // As the file declares it, where that is not the box's: others write [heads x head_dim, hidden]
  // for what is [heads, head_dim, hidden] here.
  std::vector<int64_t> file_shape = {};
  // Which element of the file's tensor is its first: others write several boxes as one tensor.
  int64_t first_in_file = 0;
  // Where the values are the file's elements times scales; `dtype` is of the elements.
  std::optional<BlockScales> scales = {};
  // Where its elements lie in the file's tensor, when that has them in another order. Without
  // strides: in row-major order. Values with scales are in row-major order.
  FileView view = {};

  int64_t num_bytes() const;
  bool is_row_major() const { return view.strides.empty(); }
  at::ScalarType value_dtype() const { return scales ? at::kFloat : dtype; }
  const std::vector<int64_t>& shape_in_file() const {
    return file_shape.empty() ? box.shape : file_shape;
  }
};

// What one writer wrote: a safetensors file, and beside it this, as rank_00000.index.json. For a
// file of others it is made when the file is opened.
struct FileIndex {
  std::string file;  // name within the folder
  int64_t num_bytes = 0;
  uint32_t header_checksum = 0;
  int64_t block_bytes = 0;
  std::vector<IndexEntry> entries;
};

// Returns the checksum of the index file, which the record keeps. Throws FileError.
std::string write_index(const std::filesystem::path& path, const FileIndex& index);
// Throws DamagedCheckpoint unless the file is whole and has that checksum, CheckpointError when it
// is of a version that this program does not know.
FileIndex read_index(const std::filesystem::path& path, const std::string& checksum);

// Where a box of a logical tensor is.
struct StoredBox {
  size_t file;   // in CheckpointIndex::files
  size_t entry;  // in FileIndex::entries
};

struct StoredTensor {
  at::ScalarType dtype;  // of the values
  std::vector<int64_t> global_shape;
  std::vector<StoredBox> boxes;
};

// All files of a checkpoint together.
struct CheckpointIndex {
  std::vector<FileIndex> files;
  std::map<std::string, StoredTensor> tensors;  // by logical name

  const IndexEntry& entry(const StoredBox& at) const { return files[at.file].entries[at.entry]; }
};

// Throws DamagedCheckpoint, naming the tensor and the files, unless the boxes of every tensor agree
// on shape and dtype and hold each of its elements exactly once.
CheckpointIndex merge_indexes(std::vector<FileIndex> files);

}  // namespace switchyard

#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "checkpoint/index.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_part.h"

namespace switchyard {

// Reads parts of logical tensors out of the files in a folder, which it keeps open. Of each file it
// reads the blocks that hold an element of a part, one at a time, and verifies their checksums,
// where there are some. Not collective.
class PartReader {
 public:
  // `index` must outlive the reader.
  PartReader(std::filesystem::path folder, const CheckpointIndex& index);
  ~PartReader();

  // Fills the values of `part`, which the index must have in the same shape. Bytes are copied;
  // where dtypes differ, values are converted as convert_values() does, and a payload that has
  // scales is decoded; asked for in the payload's own dtype it comes as it is. Throws
  // DamagedCheckpoint.
  void read(const TensorPart& part);

 private:
  const SafetensorsFile& file(size_t i);
  std::vector<float> scales_of(const IndexEntry& entry);

  std::filesystem::path folder_;
  const CheckpointIndex& index_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;  // opened when needed: most are not
};

// Reads everything there is and verifies it. Throws DamagedCheckpoint.
void verify_blocks(const std::filesystem::path& folder, const CheckpointIndex& index);

}  // namespace switchyard

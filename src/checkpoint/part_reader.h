#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/index.h"
#include "checkpoint/tensor_part.h"

namespace switchyard {

// Fills the values of `parts`, which `index` must have in the same shapes and dtypes, from the
// files in `folder`. Of each file it reads the blocks that hold an element of a part, one at a
// time, and verifies their checksums. Not collective. Throws DamagedCheckpoint.
void read_parts(const std::filesystem::path& folder, const CheckpointIndex& index,
                const std::vector<TensorPart>& parts);

// Reads everything there is and verifies it. Throws DamagedCheckpoint.
void verify_blocks(const std::filesystem::path& folder, const CheckpointIndex& index);

}  // namespace switchyard

#pragma once

#include <filesystem>
#include <string>

namespace switchyard {

// Whether `path` is a checkpoint, or a folder of them, or a run directory that has some.
bool is_checkpoint(const std::filesystem::path& path);

// A checkpoint in words and a table, for `switchyard inspect`: its record, then every tensor with
// shape, dtype, bytes and the number of boxes it is stored in. With `verify`, every byte is checked
// too. Of a folder of checkpoints: the latest one, after a list of all. Throws CheckpointError.
std::string describe_checkpoint(const std::filesystem::path& path, bool verify = false);

}  // namespace switchyard

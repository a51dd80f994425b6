#pragma once

#include <filesystem>
#include <vector>

#include <nlohmann/json.hpp>

namespace switchyard {

// Files that go with a model and are no tensors: its tokenizer, its generation settings. They lie
// in the folder `assets` of a checkpoint, and its record lists them with their checksums.

// Copies files to `checkpoint`/assets, synced. Throws FileError.
void copy_assets(const std::vector<std::filesystem::path>& files,
                 const std::filesystem::path& checkpoint);

// [{"name": .., "bytes": .., "crc32c": ..}], by name; empty when the checkpoint has none.
nlohmann::json list_assets(const std::filesystem::path& checkpoint);

// Throws DamagedCheckpoint when they are not as `listed`.
void check_assets(const std::filesystem::path& checkpoint, const nlohmann::json& listed);

// The assets of a checkpoint, by name.
std::vector<std::filesystem::path> assets_of(const std::filesystem::path& checkpoint);

}  // namespace switchyard

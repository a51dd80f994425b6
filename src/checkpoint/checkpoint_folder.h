#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace switchyard {

// The folder that holds the checkpoints of a run: step_N for each, and `latest`.

std::string step_name(int64_t step);                           // "step_20"
std::optional<int64_t> step_of(const std::filesystem::path&);  // of ".../step_20"; else nullopt

// Every whole checkpoint, fewest steps first. Unfinished ones have other names.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& directory);

// Makes `latest` name step_N. The file carries a checksum of its own in its second line.
void write_latest(const std::filesystem::path& directory, int64_t step);

// The step that `latest` names. nullopt when there is no such file; throws DamagedCheckpoint when
// it is not as it was written.
std::optional<int64_t> read_latest(const std::filesystem::path& directory);

// Deletes what interrupted saves and deletions have left.
void delete_leftovers(const std::filesystem::path& directory);

// Of the checkpoints up to `step`, deletes the oldest so that `keep` remain (0: all). Those beyond
// `step` belong to a run that was rolled back and are left alone.
void delete_old_checkpoints(const std::filesystem::path& directory, int64_t step, int64_t keep);

}  // namespace switchyard

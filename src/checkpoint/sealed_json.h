#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace switchyard {

// A JSON file that notices when it is altered: its first line is {"crc32c":"1a2b3c4d", and the
// checksum is that of all that follows. Still JSON for any other program.

// Writes the object `content`, synced, whole or not at all. Returns the checksum. Bytes of a text
// that are not UTF-8 are replaced. Throws FileError.
std::string write_sealed_json(const std::filesystem::path& path, const nlohmann::json& content,
                              bool is_indented);

struct SealedJson {
  std::string checksum;
  nlohmann::json content;
};
// Throws DamagedCheckpoint when the file is missing, torn or altered.
SealedJson read_sealed_json(const std::filesystem::path& path);

// Throws DamagedCheckpoint unless the field "format" is `format`, CheckpointError when "version" is
// above `newest`, the last one that this program knows.
void check_format(const nlohmann::json& content, std::string_view format, int64_t newest,
                  const std::string& source);

// A field of an object read from a file, of exactly the type asked for (whole numbers for
// integers). Throws CheckpointError that names `source` and the field.
template <class T>
T json_field(const nlohmann::json& object, const std::string& name, const std::string& source);

}  // namespace switchyard

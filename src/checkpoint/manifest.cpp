#include "checkpoint/manifest.h"

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "checkpoint/assets.h"
#include "checkpoint/error.h"
#include "checkpoint/rank_file.h"
#include "checkpoint/sealed_json.h"

namespace switchyard {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormat = "switchyard checkpoint";
constexpr int64_t kVersion = 1;
constexpr std::string_view kRecordName = "record.json";

// What rank files there are: name and checksum of each index.
struct IndexFile {
  std::string name;
  std::string checksum;
};

CheckpointIndex read_indexes(const std::filesystem::path& folder,
                             const std::vector<IndexFile>& index_files) {
  std::vector<FileIndex> files;
  for (const auto& [name, checksum] : index_files) {
    FileIndex index = read_index(folder / name, checksum);
    const InputFile data(folder / index.file);
    check<DamagedCheckpoint>(data.size() == index.num_bytes, "{}: has {} bytes, {} were written",
                             data.path().string(), data.size(), index.num_bytes);
    files.push_back(std::move(index));
  }
  return merge_indexes(std::move(files));
}

Json read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kRecordName;
  Json content = read_sealed_json(path).content;
  check_format(content, kFormat, kVersion, path.string());
  return content;
}

CheckpointRecord record_of(const Json& manifest, const std::filesystem::path& folder) {
  const std::string source = (folder / kRecordName).string();
  CheckpointRecord record = record_from_json(json_field<Json>(manifest, "record", source), source);
  record.assets = assets_of(folder);
  return record;
}

}  // namespace

void seal_checkpoint(const std::filesystem::path& folder, const CheckpointRecord& record,
                     const std::vector<std::string>& index_checksums) {
  std::vector<IndexFile> index_files;
  Json listed = Json::array();
  for (size_t rank = 0; rank < index_checksums.size(); ++rank) {
    index_files.push_back({rank_index_name(static_cast<int64_t>(rank)), index_checksums[rank]});
    listed.push_back({{"index", index_files.back().name}, {"crc32c", index_checksums[rank]}});
  }
  try {
    read_indexes(folder, index_files);
  } catch (const FileError& error) {
    throw CheckpointError(fmt::format("what was written is not a checkpoint: {}", error.what()));
  }
  write_sealed_json(folder / kRecordName,
                    {{"format", kFormat},
                     {"version", kVersion},
                     {"record", to_json(record)},
                     {"assets", list_assets(folder)},
                     {"files", std::move(listed)}},
                    /*is_indented=*/true);
}

bool is_checkpoint_folder(const std::filesystem::path& path) {
  return std::filesystem::is_regular_file(path / kRecordName);
}

OpenedCheckpoint open_checkpoint(const std::filesystem::path& folder) {
  const Json manifest = read_manifest(folder);
  const std::string source = (folder / kRecordName).string();
  std::vector<IndexFile> index_files;
  for (const Json& file : json_field<Json>(manifest, "files", source)) {
    index_files.push_back({json_field<std::string>(file, "index", source),
                           json_field<std::string>(file, "crc32c", source)});
  }
  check_assets(folder, manifest.value("assets", Json::array()));
  return read_as_checkpoint([&] {
    return OpenedCheckpoint{record_of(manifest, folder), read_indexes(folder, index_files)};
  });
}

CheckpointRecord read_record(const std::filesystem::path& folder) {
  return record_of(read_manifest(folder), folder);
}

}  // namespace switchyard

#include "checkpoint/assets.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/crc32c.h"
#include "base/files.h"
#include "checkpoint/error.h"

namespace switchyard {
namespace {

constexpr const char* kFolder = "assets";

}  // namespace

void copy_assets(const std::vector<std::filesystem::path>& files,
                 const std::filesystem::path& checkpoint) {
  if (files.empty()) {
    return;
  }
  make_directories(checkpoint / kFolder);
  for (const std::filesystem::path& file : files) {
    write_text(checkpoint / kFolder / file.filename(), read_text(file));
  }
}

nlohmann::json list_assets(const std::filesystem::path& checkpoint) {
  nlohmann::json listed = nlohmann::json::array();
  for (const std::filesystem::path& file : assets_of(checkpoint)) {
    const std::string text = read_text(file);
    listed.push_back({{"name", file.filename().string()},
                      {"bytes", text.size()},
                      {"crc32c", fmt::format("{:08x}", crc32c(text.data(), text.size()))}});
  }
  return listed;
}

void check_assets(const std::filesystem::path& checkpoint, const nlohmann::json& listed) {
  check<DamagedCheckpoint>(list_assets(checkpoint) == listed,
                           "{}: the files are not those that were saved: one was altered, added or "
                           "removed",
                           (checkpoint / kFolder).string());
}

std::vector<std::filesystem::path> assets_of(const std::filesystem::path& checkpoint) {
  std::vector<std::filesystem::path> files;
  const std::filesystem::path folder = checkpoint / kFolder;
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
  }
  return files;
}

}  // namespace switchyard

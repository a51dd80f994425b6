#include "checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/crc32c.h"
#include "base/files.h"
#include "checkpoint/error.h"

namespace switchyard {
namespace {

constexpr std::string_view kPrefix = "step_";

std::string latest_text(const std::string& name) {
  return fmt::format("{}\ncrc32c {:08x}\n", name, crc32c(name.data(), name.size()));
}

}  // namespace

std::string step_name(int64_t step) {
  return fmt::format("{}{}", kPrefix, step);
}

std::optional<int64_t> step_of(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kPrefix)) {
    return std::nullopt;
  }
  int64_t step = 0;
  const auto [end, error] =
      std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  // Written back it must be the same: not "step_020", not "step_20.partial".
  const bool is_step = error == std::errc() && step >= 0 && name == step_name(step);
  return is_step ? std::optional(step) : std::nullopt;
}

std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> found;
  std::error_code error;  // no such folder: no checkpoints
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.is_directory() && step_of(entry.path())) {
      found.push_back(entry.path());
    }
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return *step_of(a) < *step_of(b); });
  return found;
}

void write_latest(const std::filesystem::path& directory, int64_t step) {
  write_text(directory / "latest", latest_text(step_name(step)));
}

std::optional<int64_t> read_latest(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "latest";
  if (!std::filesystem::exists(path)) {
    return std::nullopt;
  }
  return read_as_checkpoint([&] {
    const std::string text = read_text(path);
    const auto step = step_of(text.substr(0, text.find('\n')));
    check<DamagedCheckpoint>(step.has_value() && text == latest_text(step_name(*step)),
                             "{}: does not match its checksum: it was altered or cut short",
                             path.string());
    return step;
  });
}

void delete_leftovers(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> doomed;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::filesystem::path extension = entry.path().extension();
    const bool is_leftover = extension == ".partial" || extension == ".deleted";
    if (is_leftover && step_of(entry.path().stem())) {
      doomed.push_back(entry.path());
    }
  }
  for (const auto& path : doomed) {
    std::filesystem::remove_all(path);
  }
}

void delete_old_checkpoints(const std::filesystem::path& directory, int64_t step, int64_t keep) {
  if (keep == 0) {
    return;
  }
  std::vector<std::filesystem::path> past = list_checkpoints(directory);
  std::erase_if(past, [&](const auto& path) { return *step_of(path) > step; });
  const auto num_kept = static_cast<size_t>(keep);
  for (size_t i = 0; i + num_kept < past.size(); ++i) {
    remove_directory(past[i]);
  }
}

}  // namespace switchyard

#pragma once

#include <filesystem>
#include <string>
#include <utility>

namespace switchyard {

// A folder that appears whole or not at all: it is filled beside its place as PATH.partial, and
// renamed. Destroyed before publish(), it takes the partial folder with it.
class PartialFolder {
 public:
  PartialFolder() = default;
  explicit PartialFolder(std::filesystem::path path) : path_(std::move(path)) {}
  PartialFolder(PartialFolder&& other) noexcept;
  PartialFolder& operator=(PartialFolder&& other) noexcept;
  ~PartialFolder();

  const std::filesystem::path& path() const { return path_; }
  // Where it is filled, until publish().
  static std::filesystem::path folder_of(const std::filesystem::path& path) {
    return path.string() + ".partial";
  }
  std::filesystem::path folder() const { return folder_of(path_); }

  // Makes it anew, empty. Throws FileError.
  void create();
  // Takes its place, in one step, also that of an older folder. Throws FileError.
  void publish();

 private:
  void remove() noexcept;

  std::filesystem::path path_;
  bool is_there_ = false;
};

}  // namespace switchyard

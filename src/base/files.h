#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace switchyard {

// Files and folders whose errors are one line each: what failed, the path and what to do about it.
// Everything here throws FileError.

// A file to read at any offset, where a failing disk must be an error and not the end of the
// process. Its size is asked once, when it is opened.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  int64_t size() const { return size_; }

  // Exactly `size` bytes from `offset`; it is an error when the file has fewer.
  void read(int64_t offset, void* into, int64_t size) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

std::string read_text(const std::filesystem::path& path);
// Synced, whole or not at all.
void write_text(const std::filesystem::path& path, const std::string& text);

void make_directories(const std::filesystem::path& path);

// A new or renamed file is on disk once its folder is.
void sync_folder_of(const std::filesystem::path& path);

// Renames the folder `from` to `to`, on the same file system. A folder that is there is replaced in
// one step, so that `to` is always one or the other, whole.
void replace_directory(const std::filesystem::path& from, const std::filesystem::path& to);

// Deletes a folder under another name, "<path>.deleted", so that `path` is never half there.
void remove_directory(const std::filesystem::path& path);

// "cannot <action> <path>: <what the system says>; <what to do>"
std::string describe_file_error(const std::filesystem::path& path, std::string_view action,
                                int error);

}  // namespace switchyard

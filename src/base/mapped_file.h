#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace switchyard {

// A whole file seen as read-only memory; a page is read from disk when it is first touched.
// Shortening the file while it is mapped ends the process at the next touch of a missing page.
class MappedFile {
 public:
  // Throws FileError, which names the file, when it cannot be opened or is not a regular file.
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {begin_, size_}; }

  // Gives back the memory of the pages read so far; they are read again when touched.
  void release_pages() const;

 private:
  std::string path_;
  const std::byte* begin_ = nullptr;
  size_t size_ = 0;
};

}  // namespace switchyard

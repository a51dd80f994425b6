#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace switchyard {

// A whole file seen as read-only memory; a page is read from disk when it is first touched. When
// the file was shortened meanwhile, or its disk fails, the process cannot go on from there: see
// explain_lost_pages.
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

// From here on, touching a page of a mapped file that is gone ends the process with the exit code
// of a bad file and a line that names the file, instead of a bare bus error. For main, once.
void explain_lost_pages();

}  // namespace switchyard

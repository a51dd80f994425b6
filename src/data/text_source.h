#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace switchyard {

// The bytes of a text file, decompressed on the way where its name ends in .gz or .zst; read once,
// from the front, in constant memory.
class TextSource {
 public:
  virtual ~TextSource() = default;

  // Up to `size` bytes; fewer, down to none, only at the end. Throws FileError, naming the file,
  // when it cannot be read, is damaged or ends too early.
  virtual size_t read(char* into, size_t size) = 0;

  // Bytes of the file itself, as it lies on disk, that were read so far.
  virtual int64_t consumed() const = 0;
};

std::unique_ptr<TextSource> open_text(const std::string& path);

// The name without .gz or .zst.
std::string uncompressed_name(const std::string& path);

}  // namespace switchyard

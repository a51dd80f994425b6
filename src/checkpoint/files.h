#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace switchyard {

// Files whose errors are one line each: the path, what failed and what to do about it. All
// functions throw FileError.

// A file to read at any offset. Its size is asked once, when it is opened.
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

  // The whole file in memory, mapped privately; unmapped with the last copy of the pointer.
  std::shared_ptr<std::byte> map() const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

// A new file that appears whole or not at all: bytes go to "<path>.partial" until commit() has
// synced them and renamed it. Destroyed before, it leaves nothing behind and what was at `path`
// untouched.
class OutputFile {
 public:
  // Room for `size` bytes is claimed at once where the file system can, so that a full disk shows
  // early.
  OutputFile(std::filesystem::path path, int64_t size);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* bytes, int64_t size);
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_path_;
  int descriptor_ = -1;
  int64_t written_ = 0;
  int64_t writeback_started_ = 0;
};

std::string read_text(const std::filesystem::path& path);
void write_text(const std::filesystem::path& path, const std::string& text);

// Makes the entries of a folder durable: a file's own sync does not cover its name.
void sync_directory(const std::filesystem::path& path);

// Renames the folder `from` to `to`, replacing a folder that is there in one step.
void replace_directory(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace switchyard

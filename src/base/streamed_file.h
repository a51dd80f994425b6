#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace switchyard {

// A file that appears whole or not at all: it is written beside its place as PATH.partial, synced,
// and renamed. Destroyed before publish(), it removes the partial file.
//
// Every member throws FileError, naming PATH and what to do, when the disk is full, the folder
// missing or read-only, and the like.
class StreamedFile {
 public:
  explicit StreamedFile(std::string path);
  ~StreamedFile();
  StreamedFile(const StreamedFile&) = delete;
  StreamedFile& operator=(const StreamedFile&) = delete;

  void write(const void* bytes, size_t size);  // through a buffer of 1 MB
  void write(std::string_view text) { write(text.data(), text.size()); }

  // Everything is on disk, still as PATH.partial. Files that belong together all finish before the
  // first is published.
  void finish();
  // Takes its place, over any older file. finish() comes first.
  void publish();

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // bytes written so far

 private:
  void flush();

  std::string path_;
  std::string partial_path_;
  std::vector<char> buffer_;
  int64_t size_ = 0;
  int descriptor_ = -1;
  bool is_published_ = false;
};

}  // namespace switchyard

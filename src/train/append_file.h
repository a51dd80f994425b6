#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace switchyard {

// A file that grows by whole records. Written through at once, so that a killed process loses
// nothing. Every member throws FileError, naming the file and what to do.
class AppendFile {
 public:
  enum class Mode { kOpenOrCreate, kCreateNew };

  AppendFile(std::string path, Mode mode);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // All of `record` or none of it: what a full disk left behind is cut off again.
  void append(std::string_view record);

  std::string read(int64_t begin, int64_t end) const;  // bytes [begin, end)
  void truncate(int64_t size);
  void sync();  // returns when everything is on disk

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

}  // namespace switchyard

#include "base/streamed_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files.h"

namespace switchyard {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

const char* advice(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "free space there or write elsewhere";
    case EACCES:
    case EPERM:
    case EROFS:
      return "make the folder writable or write elsewhere";
    case ENOENT:
    case ENOTDIR:
      return "create the folder first";
    default:
      return "check the disk or write elsewhere";
  }
}

[[noreturn]] void fail(const std::string& path, int error) {
  throw FileError(
      fmt::format("cannot write {}: {}; {}", path, std::strerror(error), advice(error)));
}

}  // namespace

StreamedFile::StreamedFile(std::string path)
    : path_(std::move(path)), partial_path_(path_ + ".partial") {
  buffer_.reserve(kBufferBytes);
  descriptor_ = open(partial_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    fail(path_, errno);
  }
}

StreamedFile::~StreamedFile() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
  if (!is_published_) {
    unlink(partial_path_.c_str());
  }
}

void StreamedFile::write(const void* bytes, size_t size) {
  const auto* next = static_cast<const char*>(bytes);
  size_ += static_cast<int64_t>(size);
  while (size > 0) {
    const size_t part = std::min(size, kBufferBytes - buffer_.size());
    buffer_.insert(buffer_.end(), next, next + part);
    next += part;
    size -= part;
    if (buffer_.size() == kBufferBytes) {
      flush();
    }
  }
}

void StreamedFile::flush() {
  size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t written = ::write(descriptor_, buffer_.data() + done, buffer_.size() - done);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      fail(path_, errno);
    }
    done += static_cast<size_t>(written);
  }
  buffer_.clear();
}

void StreamedFile::finish() {
  flush();
  // A character device has nothing to sync (EINVAL).
  if (fsync(descriptor_) != 0 && errno != EINVAL) {
    fail(path_, errno);
  }
  // Some file systems report a full disk only here.
  if (close(std::exchange(descriptor_, -1)) != 0) {
    fail(path_, errno);
  }
}

void StreamedFile::publish() {
  if (std::rename(partial_path_.c_str(), path_.c_str()) != 0) {
    fail(path_, errno);
  }
  is_published_ = true;
  sync_folder_of(path_);
}

}  // namespace switchyard

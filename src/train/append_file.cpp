#include "train/append_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"

namespace switchyard {
namespace {

[[noreturn]] void fail(std::string_view action, const std::string& path, int error) {
  throw FileError(
      fmt::format("cannot {} {}: {}; check that its folder exists, is writable and has free space",
                  action, path, std::strerror(error)));
}

}  // namespace

AppendFile::AppendFile(std::string path, Mode mode) : path_(std::move(path)) {
  const int exclusive = mode == Mode::kCreateNew ? O_EXCL : 0;
  descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | exclusive, 0666);
  if (descriptor_ < 0) {
    fail("open", path_, errno);
  }
  size_ = lseek(descriptor_, 0, SEEK_END);
}

AppendFile::~AppendFile() {
  close(descriptor_);
}

void AppendFile::append(std::string_view record) {
  size_t done = 0;
  while (done < record.size()) {
    const ssize_t written = write(descriptor_, record.data() + done, record.size() - done);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      const int error = errno;
      if (ftruncate(descriptor_, size_) != 0) {
        // The torn record stays; opening the file again repairs it.
      }
      fail("write to", path_, error);
    }
    done += static_cast<size_t>(written);
  }
  size_ += static_cast<int64_t>(record.size());
}

std::string AppendFile::read(int64_t begin, int64_t end) const {
  std::string bytes(static_cast<size_t>(end - begin), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = pread(descriptor_, bytes.data() + done, bytes.size() - done,
                              begin + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      fail("read", path_, got < 0 ? errno : EIO);
    }
    done += static_cast<size_t>(got);
  }
  return bytes;
}

void AppendFile::truncate(int64_t size) {
  if (ftruncate(descriptor_, size) != 0) {
    fail("shorten", path_, errno);
  }
  size_ = size;
}

void AppendFile::sync() {
  // A device has nothing to sync (EINVAL).
  if (fsync(descriptor_) != 0 && errno != EINVAL) {
    fail("write to", path_, errno);
  }
}

}  // namespace switchyard

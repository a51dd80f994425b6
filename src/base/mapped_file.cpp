#include "base/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

namespace switchyard {
namespace {

// Closes on every way out; the mapping outlives the descriptor.
struct Descriptor {
  int number;
  ~Descriptor() { close(number); }
};

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const int opened = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  check<FileError>(opened >= 0, "cannot read {}: {}", path_, std::strerror(errno));
  const Descriptor file{opened};
  struct stat status {};
  check<FileError>(fstat(file.number, &status) == 0, "cannot read {}: {}", path_,
                   std::strerror(errno));
  check<FileError>(S_ISREG(status.st_mode), "{} is not a regular file", path_);
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) {
    return;  // an empty file cannot be mapped
  }
  void* mapped = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.number, 0);
  check<FileError>(mapped != MAP_FAILED, "cannot map {} ({} bytes) into memory: {}", path_, size_,
                   std::strerror(errno));
  begin_ = static_cast<const std::byte*>(mapped);
}

MappedFile::~MappedFile() {
  if (begin_ != nullptr) {
    munmap(const_cast<std::byte*>(begin_), size_);
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      begin_(std::exchange(other.begin_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(begin_, other.begin_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::release_pages() const {
  if (begin_ != nullptr) {
    madvise(const_cast<std::byte*>(begin_), size_, MADV_DONTNEED);
  }
}

}  // namespace switchyard

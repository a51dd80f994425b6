#include "base/mapped_file.h"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
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

// The file that is mapped at an address, by the kernel's own list; "" for none.
std::string file_mapped_at(const void* address) {
  std::ifstream maps("/proc/self/maps");
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    const size_t path = line.find('/');
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2 && wanted >= begin &&
        wanted < end && path != std::string::npos) {
      return line.substr(path);
    }
  }
  return "";
}

// A bus error comes from the very instruction that touches the page, a plain copy, so that what is
// not allowed in a handler in general (memory, streams) works here.
void end_for_lost_page(int signal, siginfo_t* info, void* /*context*/) {
  const std::string path = file_mapped_at(info->si_addr);
  if (path.empty()) {
    std::signal(signal, SIG_DFL);  // not ours: the instruction runs again and ends the process
    return;
  }
  const std::string line = fmt::format(
      "error: {} was shortened while it was read, or its disk fails; put it back and run the same "
      "command again\n",
      path);
  std::fputs(line.c_str(), stderr);
  _exit(static_cast<int>(ExitCode::kBadFile));
}

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

void explain_lost_pages() {
  struct sigaction action {};
  action.sa_sigaction = end_for_lost_page;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace switchyard

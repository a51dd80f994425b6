#include "checkpoint/run_lock.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files.h"

namespace switchyard {
namespace {

std::string read_holder(int descriptor) {
  std::array<char, 256> text{};
  const ssize_t size = pread(descriptor, text.data(), text.size(), 0);
  const std::string holder(text.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
  return holder.empty() ? "another process" : holder.substr(0, holder.find('\n'));
}

std::string describe_this_process() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return fmt::format("process {} on {}\n", getpid(), host.data());
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& directory) {
  make_directories(directory);
  const std::filesystem::path path = directory / "lock";
  descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  check<FileError>(descriptor_ >= 0, "{}", describe_file_error(path, "write", errno));
  if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    const std::string holder = read_holder(descriptor_);
    close(descriptor_);
    check<FileError>(error == EWOULDBLOCK, "{}", describe_file_error(path, "lock", error));
    throw FileError(
        fmt::format("{} is in use by {}: wait for it to end, stop it, or choose another run.dir",
                    directory.string(), holder));
  }
  const std::string text = describe_this_process();
  const bool is_written =
      ftruncate(descriptor_, 0) == 0 &&
      pwrite(descriptor_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  if (!is_written) {
    const int error = errno;
    close(descriptor_);
    throw FileError(describe_file_error(path, "write", error));
  }
}

// The file stays: removing it would let a third process lock a file that a second one waits for.
RunLock::~RunLock() {
  close(descriptor_);
}

}  // namespace switchyard

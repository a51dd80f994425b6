#include "base/files.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/streamed_file.h"

namespace switchyard {
namespace {

std::string_view advice(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "free space there or write elsewhere";
    case EROFS:
    case EACCES:
    case EPERM:
      return "make it readable and writable or use another folder";
    case ENOENT:
    case ENOTDIR:
      return "check the path";
    default:
      return "check the disk";
  }
}

void check_call(bool ok, const std::filesystem::path& path, std::string_view action) {
  if (!ok) {
    throw FileError(describe_file_error(path, action, errno));
  }
}

void rename_directory(const std::filesystem::path& from, const std::filesystem::path& to) {
  check_call(rename(from.c_str(), to.c_str()) == 0, to, "write");
}

}  // namespace

void sync_folder_of(const std::filesystem::path& path) {
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  check_call(descriptor >= 0, folder, "open");
  const int error = fsync(descriptor) == 0 ? 0 : errno;
  close(descriptor);
  errno = error;
  // Some network file systems cannot sync a folder, and say so with EINVAL.
  check_call(error == 0 || error == EINVAL, folder, "write");
}

std::string describe_file_error(const std::filesystem::path& path, std::string_view action,
                                int error) {
  return fmt::format("cannot {} {}: {}; {}", action, path.string(), std::strerror(error),
                     advice(error));
}

InputFile::InputFile(const std::filesystem::path& path) : path_(path) {
  // Not blocking: a named pipe would otherwise wait for a writer for ever.
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  check_call(descriptor_ >= 0, path, "read");
  struct stat status {};
  const bool is_file = fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
  if (!is_file) {
    close(descriptor_);
    throw FileError(fmt::format("{} is not a regular file", path.string()));
  }
  size_ = status.st_size;
  // Reads mostly go forward in large steps: let the kernel read further ahead. Only a hint.
  posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

void InputFile::read(int64_t offset, void* into, int64_t size) const {
  auto* next = static_cast<std::byte*>(into);
  while (size > 0) {
    const ssize_t got = pread(descriptor_, next, static_cast<size_t>(size), offset);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    check_call(got >= 0, path_, "read");
    check<FileError>(got > 0, "{} ends at byte {}, {} more were expected: the file is cut short",
                     path_.string(), offset, size);
    next += got;
    offset += got;
    size -= got;
  }
}

std::string read_text(const std::filesystem::path& path) {
  const InputFile file(path);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, text.data(), file.size());
  return text;
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  StreamedFile file(path.string());
  file.write(text);
  file.finish();
  file.publish();
}

void make_directories(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  check<FileError>(!error, "{}", describe_file_error(path, "make the folder", error.value()));
}

void replace_directory(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (!std::filesystem::exists(to)) {
    rename_directory(from, to);
    sync_folder_of(to);
    return;
  }
  const std::filesystem::path old = to.string() + ".deleted";
  std::error_code ignored;  // of what is deleted: the next save tries again
  std::filesystem::remove_all(old, ignored);
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    rename_directory(from, old);
  } else {
    // A file system that cannot exchange names, such as NFS: there is a moment without `to`.
    rename_directory(to, old);
    rename_directory(from, to);
  }
  sync_folder_of(to);
  std::filesystem::remove_all(old, ignored);
}

void remove_directory(const std::filesystem::path& path) {
  const std::filesystem::path doomed = path.string() + ".deleted";
  std::error_code error;
  std::filesystem::remove_all(doomed, error);
  check_call(rename(path.c_str(), doomed.c_str()) == 0, path, "delete");
  std::filesystem::remove_all(doomed, error);
  check<FileError>(!error, "{}", describe_file_error(doomed, "delete", error.value()));
}

}  // namespace switchyard

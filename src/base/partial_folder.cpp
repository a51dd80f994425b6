#include "base/partial_folder.h"

#include <system_error>

#include "base/files.h"

namespace switchyard {

PartialFolder::PartialFolder(PartialFolder&& other) noexcept
    : path_(std::move(other.path_)), is_there_(std::exchange(other.is_there_, false)) {}

PartialFolder& PartialFolder::operator=(PartialFolder&& other) noexcept {
  remove();
  path_ = std::move(other.path_);
  is_there_ = std::exchange(other.is_there_, false);
  return *this;
}

PartialFolder::~PartialFolder() {
  remove();
}

void PartialFolder::create() {
  is_there_ = true;
  std::error_code ignored;  // if it cannot be removed, the next line says why
  std::filesystem::remove_all(folder(), ignored);
  make_directories(folder());
}

void PartialFolder::publish() {
  replace_directory(folder(), path_);
  is_there_ = false;
}

void PartialFolder::remove() noexcept {
  if (std::exchange(is_there_, false)) {
    std::error_code ignored;  // already failing for a better reason
    std::filesystem::remove_all(folder(), ignored);
  }
}

}  // namespace switchyard

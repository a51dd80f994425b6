#include "base/shape.h"

#include <string>

#include "base/error.h"

namespace switchyard {

void check_shape(std::string_view name, const at::Tensor& tensor,
                 std::initializer_list<int64_t> expected) {
  bool matches = tensor.dim() == static_cast<int64_t>(expected.size());
  int64_t dim = 0;
  for (const int64_t size : expected) {
    matches = matches && (size == kAnySize || tensor.size(dim) == size);
    ++dim;
  }
  if (matches) [[likely]] {
    return;
  }
  std::string wanted;
  for (const int64_t size : expected) {
    wanted += (wanted.empty() ? "" : ", ") + (size == kAnySize ? "*" : std::to_string(size));
  }
  throw ShapeError(fmt::format("{} must have shape [{}], got [{}]", name, wanted,
                               fmt::join(tensor.sizes().begin(), tensor.sizes().end(), ", ")));
}

}  // namespace switchyard

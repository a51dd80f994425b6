#pragma once

#include <initializer_list>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace switchyard {

constexpr int64_t kAnySize = -1;

// Throws ShapeError unless `tensor` has exactly the given sizes; kAnySize matches every size.
void check_shape(std::string_view name, const at::Tensor& tensor,
                 std::initializer_list<int64_t> expected);

}  // namespace switchyard

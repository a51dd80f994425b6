#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "checkpoint/box.h"

namespace switchyard {

// Where the elements of a box lie in a tensor of a file of others, when it holds them in another
// order.
struct FileView {
  std::vector<int64_t> strides;  // from one index of a dim to the next, in elements of the tensor
  int64_t offset = 0;            // of the box's first element

  // Row-major order, from the tensor's first element on.
  static FileView plain(const std::vector<int64_t>& shape);
  bool is_plain(const std::vector<int64_t>& shape) const;

  // Flat indices in the tensor of the first and the last element of `part`, a box within a box that
  // starts at `start`.
  int64_t first_of(const Box& part, const std::vector<int64_t>& start) const;
  int64_t last_of(const Box& part, const std::vector<int64_t>& start) const;

  // The elements of a box of that shape in `tensor`, contiguous and of any shape, which holds the
  // file's elements from flat index `from` on; the first of them is at `first`. A view. [shape]
  at::Tensor in(const at::Tensor& tensor, const std::vector<int64_t>& shape, int64_t first,
                int64_t from = 0) const;
};

// `box` in slices along the first of its dims that has several indices, of about `most_elements` at
// most, in rising order.
std::vector<Box> slices_of(const Box& box, int64_t most_elements);

}  // namespace switchyard

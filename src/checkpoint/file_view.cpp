#include "checkpoint/file_view.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace switchyard {

FileView FileView::plain(const std::vector<int64_t>& shape) {
  FileView view{std::vector<int64_t>(shape.size(), 1), 0};
  for (size_t dim = shape.size(); dim-- > 1;) {
    view.strides[dim - 1] = view.strides[dim] * shape[dim];
  }
  return view;
}

bool FileView::is_plain(const std::vector<int64_t>& shape) const {
  const FileView rows = plain(shape);
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    if (shape[dim] > 1 && strides[dim] != rows.strides[dim]) {
      return false;
    }
  }
  return offset == 0;
}

int64_t FileView::first_of(const Box& part, const std::vector<int64_t>& start) const {
  int64_t index = offset;
  for (size_t dim = 0; dim < strides.size(); ++dim) {
    index += (part.start[dim] - start[dim]) * strides[dim];
  }
  return index;
}

int64_t FileView::last_of(const Box& part, const std::vector<int64_t>& start) const {
  int64_t index = first_of(part, start);
  for (size_t dim = 0; dim < strides.size(); ++dim) {
    index += (part.shape[dim] - 1) * strides[dim];
  }
  return index;
}

at::Tensor FileView::in(const at::Tensor& tensor, const std::vector<int64_t>& shape, int64_t first,
                        int64_t from) const {
  return tensor.as_strided(shape, strides, tensor.storage_offset() + first - from);
}

std::vector<Box> slices_of(const Box& box, int64_t most_elements) {
  size_t cut = 0;
  while (cut < box.shape.size() && box.shape[cut] == 1) {
    ++cut;
  }
  if (cut == box.shape.size() || box.numel() <= most_elements) {
    return {box};
  }
  const int64_t per_index = box.numel() / box.shape[cut];
  const int64_t at_once = std::max<int64_t>(1, most_elements / std::max<int64_t>(1, per_index));
  std::vector<Box> slices;
  for (int64_t begin = 0; begin < box.shape[cut]; begin += at_once) {
    Box slice = box;
    slice.start[cut] += begin;
    slice.shape[cut] = std::min(at_once, box.shape[cut] - begin);
    slices.push_back(std::move(slice));
  }
  return slices;
}

}  // namespace switchyard

#include "checkpoint/box.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace switchyard {
namespace {

int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

bool is_inside(const Box& box, const std::vector<int64_t>& global_shape) {
  for (size_t dim = 0; dim < global_shape.size(); ++dim) {
    if (box.start[dim] < 0 || box.shape[dim] < 0 ||
        box.shape[dim] > global_shape[dim] - box.start[dim]) {
      return false;
    }
  }
  return true;
}

// Of two boxes that hold a common element, their places in `boxes`. Goes along dim 0 and compares
// only boxes that reach the same index there.
std::optional<TilingFault> find_overlap(const std::vector<Box>& boxes) {
  std::vector<size_t> order;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (boxes[i].numel() > 0) {
      order.push_back(i);
    }
  }
  if (!boxes.empty() && boxes[0].start.empty()) {  // scalars: any two are the same element
    return order.size() < 2 ? std::nullopt : std::optional<TilingFault>({order[0], order[1]});
  }
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return boxes[a].start < boxes[b].start; });
  std::vector<size_t> open;
  for (const size_t i : order) {
    const int64_t begin = boxes[i].start[0];
    std::erase_if(
        open, [&](size_t other) { return boxes[other].start[0] + boxes[other].shape[0] <= begin; });
    for (const size_t other : open) {
      if (intersect(boxes[other], boxes[i])) {
        return TilingFault{other, i};
      }
    }
    open.push_back(i);
  }
  return std::nullopt;
}

// Adds the boxes of [begin, end) of the tensor that `outer` (indices of the dims before) leaves of
// `shape`.
void add_boxes_of_range(const std::vector<int64_t>& shape, const std::vector<int64_t>& outer,
                        int64_t begin, int64_t end, std::vector<Box>& boxes) {
  if (begin >= end) {
    return;
  }
  const size_t dim = outer.size();
  int64_t row = 1;
  for (size_t inner = dim + 1; inner < shape.size(); ++inner) {
    row *= shape[inner];
  }
  const int64_t first_whole = (begin + row - 1) / row;
  const int64_t end_whole = end / row;
  const auto add_within = [&](int64_t index, int64_t from, int64_t to) {
    std::vector<int64_t> fixed = outer;
    fixed.push_back(index);
    add_boxes_of_range(shape, fixed, from - index * row, to - index * row, boxes);
  };
  if (first_whole > end_whole) {  // within one row
    add_within(end_whole, begin, end);
    return;
  }
  add_within(first_whole - 1, begin, first_whole * row);
  if (first_whole < end_whole) {
    Box whole = {outer, std::vector<int64_t>(dim, 1)};
    whole.start.push_back(first_whole);
    whole.shape.push_back(end_whole - first_whole);
    for (size_t inner = dim + 1; inner < shape.size(); ++inner) {
      whole.start.push_back(0);
      whole.shape.push_back(shape[inner]);
    }
    boxes.push_back(std::move(whole));
  }
  add_within(end_whole, end_whole * row, end);
}

}  // namespace

int64_t Box::numel() const {
  return product(shape);
}

std::string Box::describe() const {
  std::vector<std::string> ranges;
  for (size_t dim = 0; dim < start.size(); ++dim) {
    ranges.push_back(fmt::format("{}:{}", start[dim], start[dim] + shape[dim]));
  }
  return fmt::format("[{}]", fmt::join(ranges, ", "));
}

std::optional<Box> intersect(const Box& a, const Box& b) {
  Box both;
  for (size_t dim = 0; dim < a.start.size(); ++dim) {
    const int64_t begin = std::max(a.start[dim], b.start[dim]);
    const int64_t end = std::min(a.start[dim] + a.shape[dim], b.start[dim] + b.shape[dim]);
    if (begin >= end) {
      return std::nullopt;
    }
    both.start.push_back(begin);
    both.shape.push_back(end - begin);
  }
  return both;
}

void for_each_run(const Box& overlap, const Box& a, const Box& b,
                  const std::function<void(int64_t in_a, int64_t in_b, int64_t count)>& visit) {
  // Dims from `outer` on make one run: all but the first of them are whole in both boxes.
  size_t outer = overlap.shape.size();
  int64_t count = 1;
  for (bool is_whole = true; outer > 0 && is_whole;) {
    --outer;
    count *= overlap.shape[outer];
    is_whole = overlap.shape[outer] == a.shape[outer] && overlap.shape[outer] == b.shape[outer];
  }
  const auto index_in = [&](const Box& box, const std::vector<int64_t>& at) {
    int64_t index = 0;
    for (size_t dim = 0; dim < at.size(); ++dim) {
      index = index * box.shape[dim] + at[dim] - box.start[dim];
    }
    return index;
  };
  std::vector<int64_t> at = overlap.start;
  while (true) {
    visit(index_in(a, at), index_in(b, at), count);
    size_t dim = outer;
    while (dim > 0 && ++at[dim - 1] == overlap.start[dim - 1] + overlap.shape[dim - 1]) {
      at[dim - 1] = overlap.start[dim - 1];
      --dim;
    }
    if (dim == 0) {
      return;
    }
  }
}

std::vector<Box> boxes_of_range(const std::vector<int64_t>& shape, int64_t begin, int64_t end) {
  std::vector<Box> boxes;
  add_boxes_of_range(shape, {}, begin, end, boxes);
  return boxes;
}

std::optional<TilingFault> find_tiling_fault(const std::vector<int64_t>& global_shape,
                                             const std::vector<Box>& boxes) {
  int64_t num_missing = product(global_shape);
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (!is_inside(boxes[i], global_shape)) {
      return TilingFault{i, i};
    }
    num_missing -= boxes[i].numel();
  }
  if (const auto overlap = find_overlap(boxes)) {
    return overlap;
  }
  if (num_missing > 0) {
    return TilingFault{.num_missing = num_missing};
  }
  return std::nullopt;
}

}  // namespace switchyard

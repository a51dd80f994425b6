#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace switchyard {

// A range of indices per dim of a tensor. With no dims it is the one element of a scalar.
struct Box {
  std::vector<int64_t> start;
  std::vector<int64_t> shape;

  int64_t numel() const;
  std::string describe() const;  // "[0:2, 8:16]"
  bool operator==(const Box&) const = default;
};

// The elements in both boxes, which have the same number of dims; nullopt when there are none.
std::optional<Box> intersect(const Box& a, const Box& b);

// Calls visit(index in a, index in b, count) for runs of elements of `overlap` that lie end to end
// in both boxes, whose elements are stored in row-major order. The indices rise.
void for_each_run(const Box& overlap, const Box& a, const Box& b,
                  const std::function<void(int64_t in_a, int64_t in_b, int64_t count)>& visit);

// The elements [begin, end) of a tensor in row-major order as boxes, in that order, each of whose
// elements follow one another: at most 2 x dims - 1 of them.
std::vector<Box> boxes_of_range(const std::vector<int64_t>& shape, int64_t begin, int64_t end);

// What keeps the boxes from holding each element of a tensor exactly once: `first` and `second`
// overlap, or `first` reaches outside (then second == first), or the total falls short (both
// kNone).
struct TilingFault {
  static constexpr size_t kNone = SIZE_MAX;
  size_t first = kNone;
  size_t second = kNone;
  int64_t num_missing = 0;  // elements in no box
};
std::optional<TilingFault> find_tiling_fault(const std::vector<int64_t>& global_shape,
                                             const std::vector<Box>& boxes);

}  // namespace switchyard

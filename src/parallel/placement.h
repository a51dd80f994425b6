#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

namespace switchyard {

// How a value lies over the ranks of one axis, and with it how its gradient lies: the backward
// reduction follows from the kind and is never remembered by hand.
//
//   kind         value                              gradient
//   kInvariant   equal on all ranks                 equal on all ranks
//   kReplicated  equal on all ranks                 the sum over ranks
//   kSharded     cut along `dim`, shard_range()     cut the same way
//   kPartial     the sum over ranks                 equal on all ranks
enum class PlacementKind { kInvariant, kReplicated, kSharded, kPartial };

struct Placement {
  PlacementKind kind = PlacementKind::kInvariant;
  int64_t dim = 0;   // sharded: the dim that is cut
  int64_t full = 0;  // sharded: its size over all ranks

  static Placement invariant() { return {PlacementKind::kInvariant}; }
  static Placement replicated() { return {PlacementKind::kReplicated}; }
  static Placement sharded(int64_t dim, int64_t full) {
    return {PlacementKind::kSharded, dim, full};
  }
  static Placement partial() { return {PlacementKind::kPartial}; }

  bool operator==(const Placement&) const = default;
};

std::string to_string(const Placement& placement);

// A value at the boundary of a module, with its placement over the tensor-parallel axis (over the
// other axes an activation is always cut by tokens).
struct Placed {
  at::Tensor tensor;
  Placement placement;
};

// The half-open range that part `index` of `parts` holds of `full` elements. Sizes differ by one at
// most; parts may be empty when there are fewer elements than parts.
struct ShardRange {
  int64_t begin;
  int64_t end;
  int64_t size() const { return end - begin; }
};
inline ShardRange shard_range(int64_t full, int64_t parts, int64_t index) {
  return {full * index / parts, full * (index + 1) / parts};
}

}  // namespace switchyard

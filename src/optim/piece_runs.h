#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "nn/parameters.h"

namespace switchyard {

// Neighbouring pieces of a storage that share a property, as one range of its flat elements.
template <class Property>
struct PieceRun {
  Property property;
  int64_t begin;
  int64_t end;

  // The run's part of a tensor that is shaped like the storage: [elements], a view.
  at::Tensor of(const at::Tensor& whole) const { return whole.view({-1}).slice(0, begin, end); }
};

// The storage as runs, in order; `property_of` maps a Parameter to what neighbours must share.
template <class PropertyOf>
auto piece_runs(const ParameterStorage& storage, PropertyOf property_of) {
  using Property = decltype(property_of(storage.pieces.front()));
  std::vector<PieceRun<Property>> runs;
  int64_t end = 0;
  for (const Parameter& piece : storage.pieces) {
    const int64_t begin = end;
    end += piece.local_numel();
    const Property property = property_of(piece);
    if (!runs.empty() && runs.back().property == property) {
      runs.back().end = end;
    } else {
      runs.push_back({property, begin, end});
    }
  }
  return runs;
}

}  // namespace switchyard

#pragma once

#include <memory>
#include <vector>

#include <ATen/ATen.h>

#include "nn/parameters.h"

namespace switchyard {

// One parameter of every kind, all normal, over any layout with tp <= 4, ep <= 4 and etp <= 2:
//   q [4, 2, 3] cut over tp by heads, and k [2, 3], replicated, in one storage
//   norm [5]    replicated: its gradient is a sum over tp
//   router [4, 3] invariant: its gradient is equal over tp
//   experts [4, 2, 3] cut over ep, and over etp along dim 1
inline void declare_test_parameters(Parameters& parameters) {
  const Mesh& mesh = parameters.groups().mesh();
  const int64_t tp = mesh.size(Axis::kTensor);
  const int64_t ep = mesh.size(Axis::kExpert);
  const int64_t etp = mesh.size(Axis::kExpertTensor);
  const Init init = Init::normal(1);
  const auto spec = [&](const char* name, std::vector<int64_t> shape, Placement tensor,
                        bool has_weight_decay = true, Family family = Family::kDense) {
    ParameterSpec made;
    made.name = name;
    made.shape = std::move(shape);
    made.init = init;
    made.has_weight_decay = has_weight_decay;
    made.family = family;
    made.tensor = tensor;
    return made;
  };
  parameters.declare({spec("q", {4, 2, 3}, Placement::sharded(0, 4)),
                      spec("k", {2, 3}, Placement::replicated(), /*has_weight_decay=*/false)},
                     {24 / tp + 6});
  parameters.declare({spec("norm", {5}, Placement::replicated(), false)}, {5});
  parameters.declare({spec("router", {4, 3}, Placement::invariant())}, {4, 3});
  parameters.declare({spec("experts", {4, 2, 3}, Placement::sharded(1, 2), true, Family::kExpert)},
                     {4 / ep, 2 / etp, 3});
}

// The layouts that the tests try: every axis alone and together, with both foldings.
inline std::vector<MeshShape> test_layouts() {
  const auto layout = [](int64_t world, int64_t tp, int64_t cp, int64_t pp, int64_t ep,
                         int64_t etp) {
    MeshShape shape;
    shape.world_size = world;
    shape.tensor = tp;
    shape.context = cp;
    shape.pipeline = pp;
    shape.expert = ep;
    shape.expert_tensor = etp;
    return shape;
  };
  return {layout(2, 1, 1, 1, 1, 1), layout(2, 2, 1, 1, 1, 1), layout(2, 2, 1, 1, 2, 1),
          layout(2, 1, 2, 1, 1, 2), layout(4, 2, 1, 1, 1, 2), layout(8, 2, 2, 1, 2, 2),
          layout(8, 2, 1, 1, 4, 1)};
}

// This rank's part of a tensor that is given for one rank.
inline at::Tensor local_part(const at::Tensor& logical, const Parameter& piece) {
  at::Tensor part = logical;
  for (size_t dim = 0; dim < piece.local_shape().size(); ++dim) {
    part =
        part.narrow(static_cast<int64_t>(dim), piece.local_start()[dim], piece.local_shape()[dim]);
  }
  return part;
}

}  // namespace switchyard

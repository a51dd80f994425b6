#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "nn/parameters.h"

namespace switchyard {

// What this rank holds of one logical tensor: the box of `values`' shape whose first element is
// `start`. A checkpoint is made of such parts, and read back into them in any layout.
struct TensorPart {
  std::string name;                   // logical: "layers.0.attention.q", or with a prefix
  std::vector<int64_t> global_shape;  // over all ranks
  std::vector<int64_t> start;         // first logical index, per dim
  at::Tensor values;                  // [the box], any device
  // Ranks that hold this very box with equal values, and which of them this is. They share the work
  // of saving it; each of them reads it.
  int64_t num_replicas = 1;
  int64_t replica_index = 0;
};

// The master values of every logical parameter and the buffers, by their own names; of parameters
// whose masters are sharded, what this rank owns. After loading into them, call
// publish_parameters(). The parts share memory with `parameters` and must not outlive it.
std::vector<TensorPart> model_parts(const Parameters& parameters);

// What this rank owns of every logical parameter, out of tensors that lie like the storages, such
// as an optimizer's moments: `tensors[i]` has all elements of storages()[i] or the owned ones, and
// the parts are called "<prefix><parameter>", as in "optimizer.first_moment.layers.0.attention.q".
// Owned elements that are no box of their parameter make several parts.
// Throws ShapeError, naming the first parameter of the storage, when a tensor is missing or of
// another size.
std::vector<TensorPart> storage_parts(const Parameters& parameters, const std::string& prefix,
                                      const std::vector<at::Tensor>& tensors);

}  // namespace switchyard

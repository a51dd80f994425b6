#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/box.h"
#include "checkpoint/file_view.h"
#include "hub/family.h"
#include "nn/parameters.h"

namespace switchyard {

// Consecutive elements of a tensor of a file, and the box of a logical tensor that they are, in the
// same row-major order, or as `view` says.
struct MappedPart {
  std::string logical;
  std::vector<int64_t> logical_shape;
  Box box;
  int64_t first = 0;   // which element of the file's tensor is the first
  FileView view = {};  // of a part that is the whole tensor in another order; else without strides

  // Where the box lies in a tensor that holds the file's elements, contiguous. A view. [box.shape]
  at::Tensor in(const at::Tensor& tensor) const;
};

// One tensor as a Hugging Face file holds it.
struct MappedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<MappedPart> parts;  // which follow each other and are all of it
  bool is_other_spelling = false;
};

// Logical tensors by name with their logical shapes.
using LogicalShapes = std::map<std::string, std::vector<int64_t>>;
LogicalShapes logical_shapes(const Parameters& parameters);

// A model's logical shapes by its settings, without memory for its values.
LogicalShapes logical_shapes(const Config& config);

// Every tensor that files of the family may hold for these logical tensors. Throws ConfigError for
// a logical tensor that no rule of the family makes.
std::vector<MappedTensor> map_tensors(const ModelFamily& family, const LogicalShapes& shapes);

// A name with {layer} and {expert} in place of its numbers is how rules speak of many tensors:
// "layers.{layer}.attention.q" for "layers.7.attention.q" (7). Numbers come back in order.
std::string name_pattern(const std::string& name, std::vector<int64_t>& numbers);

}  // namespace switchyard

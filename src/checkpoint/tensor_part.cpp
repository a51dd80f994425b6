#include "checkpoint/tensor_part.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include <fmt/ranges.h>

#include <ATen/ATen.h>

#include "base/error.h"
#include "checkpoint/box.h"

namespace switchyard {
namespace {

std::vector<TensorPart> whole_parts(const ParameterStorage& storage, const std::string& prefix,
                                    const at::Tensor& values) {
  std::vector<TensorPart> parts;
  for (size_t i = 0; i < storage.pieces.size(); ++i) {
    const Parameter& piece = storage.pieces[i];
    parts.push_back({prefix + piece.name(), piece.spec().shape, piece.local_start(),
                     storage.piece(values, i), piece.num_replicas(), piece.replica_index()});
  }
  return parts;
}

// Of sharded elements the other ranks of the gradient group hold others.
std::vector<TensorPart> owned_parts(const ParameterStorage& storage, const std::string& prefix,
                                    const at::Tensor& values) {
  std::vector<TensorPart> parts;
  for (const PieceRange& range : storage.owned) {
    const Parameter& piece = storage.pieces[range.piece];
    const at::Tensor flat = storage.owned_of(values, range);
    int64_t offset = 0;
    for (const Box& box :
         boxes_of_range(piece.local_shape(), range.elements.begin, range.elements.end)) {
      std::vector<int64_t> start = piece.local_start();
      std::transform(start.begin(), start.end(), box.start.begin(), start.begin(), std::plus<>());
      parts.push_back({prefix + piece.name(), piece.spec().shape, std::move(start),
                       flat.narrow(0, offset, box.numel()).view(box.shape),
                       piece.num_gradient_groups(), piece.gradient_group_index()});
      offset += box.numel();
    }
  }
  return parts;
}

void append(std::vector<TensorPart>& all, std::vector<TensorPart> more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

std::vector<TensorPart> model_parts(const Parameters& parameters) {
  std::vector<TensorPart> parts;
  for (const auto& storage : parameters.storages()) {
    append(parts, parameters.has_whole_masters() ? whole_parts(*storage, "", storage->master)
                                                 : owned_parts(*storage, "", storage->master));
  }
  // A buffer is the same on all ranks of a pipeline stage.
  const Group& stage = parameters.groups()[GroupName::kDataContextTensor];
  for (const Buffer& buffer : parameters.buffers()) {
    const std::vector<int64_t> shape = buffer.tensor.sizes().vec();
    parts.push_back({buffer.name, shape, std::vector<int64_t>(shape.size(), 0), buffer.tensor,
                     stage.size(), stage.rank()});
  }
  return parts;
}

std::vector<TensorPart> storage_parts(const Parameters& parameters, const std::string& prefix,
                                      const std::vector<at::Tensor>& tensors) {
  const auto& storages = parameters.storages();
  check<ShapeError>(tensors.size() == storages.size(), "{}*: {} tensors for {} parameter storages",
                    prefix, tensors.size(), storages.size());
  std::vector<TensorPart> parts;
  for (size_t s = 0; s < storages.size(); ++s) {
    const ParameterStorage& storage = *storages[s];
    const std::string& name = storage.pieces.front().name();
    check<ShapeError>(tensors[s].defined(), "{}{}: there is no such tensor", prefix, name);
    const int64_t numel = tensors[s].numel();
    check<ShapeError>(numel == storage.leaf.numel() || numel == storage.num_owned(),
                      "{}{} has {} elements, its parameter storage {}, of which this rank owns {}",
                      prefix, name, numel, storage.leaf.numel(), storage.num_owned());
    append(parts, parameters.is_sharded() ? owned_parts(storage, prefix, tensors[s])
                                          : whole_parts(storage, prefix, tensors[s]));
  }
  return parts;
}

}  // namespace switchyard

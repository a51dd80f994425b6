#include "checkpoint/tensor_part.h"

#include <fmt/ranges.h>

#include <ATen/ATen.h>

#include "base/error.h"

namespace switchyard {
namespace {

TensorPart part_of(const ParameterStorage& storage, size_t i, const std::string& prefix,
                   const at::Tensor& whole) {
  const Parameter& piece = storage.pieces[i];
  return {prefix + piece.name(),   piece.spec().shape,   piece.local_start(),
          storage.piece(whole, i), piece.num_replicas(), piece.replica_index()};
}

}  // namespace

std::vector<TensorPart> model_parts(const Parameters& parameters) {
  std::vector<TensorPart> parts;
  for (const auto& storage : parameters.storages()) {
    for (size_t i = 0; i < storage->pieces.size(); ++i) {
      parts.push_back(part_of(*storage, i, "", storage->master));
    }
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
    check<ShapeError>(tensors[s].numel() == storage.master.numel(),
                      "{}{} has {} elements, its parameter storage {}", prefix, name,
                      tensors[s].numel(), storage.master.numel());
    for (size_t i = 0; i < storage.pieces.size(); ++i) {
      parts.push_back(part_of(storage, i, prefix, tensors[s]));
    }
  }
  return parts;
}

}  // namespace switchyard

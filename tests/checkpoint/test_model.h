#pragma once

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/random.h"
#include "checkpoint/checkpoint.h"
#include "nn/parameters.h"

// A model's parameters without the model: both families, every kind of placement, pieces fused into
// one storage, a buffer, several layers that pipeline stages share out, and Adam's two moments.
namespace switchyard {

constexpr int64_t kTestLayers = 4;

// Values are functions of the seed, the logical name and the logical index, never of the layout.
struct TestModel {
  TestModel(const Groups& groups, Dtypes dtypes, uint64_t seed,
            DataSharding sharding = DataSharding::kNone)
      : parameters(groups, dtypes, seed, FirstValues::kInitial, sharding) {
    const Mesh& mesh = groups.mesh();
    const int64_t num_stages = mesh.size(Axis::kPipeline);
    const int64_t stage = mesh.coordinate(groups.rank(), Axis::kPipeline);
    if (stage == 0) {
      declare({dense("embedding", {16, 8}, Placement::sharded(0, 16))});
      // Large enough that its replicas share the work of saving it.
      declare({dense("large", {280, 1024}, Placement::invariant())});
    }
    for (int64_t layer = stage * kTestLayers / num_stages;
         layer < (stage + 1) * kTestLayers / num_stages; ++layer) {
      declare_layer(fmt::format("layers.{}.", layer));
    }
    if (stage == num_stages - 1) {
      declare({dense("head", {16, 8}, Placement::sharded(0, 16))});
    }
    for (const Buffer& buffer : parameters.buffers()) {
      fill(buffer.tensor, seed, buffer.name);
    }
    for (const auto& storage : parameters.storages()) {
      first_moments.push_back(owned_values(*storage, seed + 1000));
      second_moments.push_back(owned_values(*storage, seed + 2000));
    }
  }

  std::vector<TensorPart> parts() const {
    std::vector<TensorPart> all = model_parts(parameters);
    for (const auto& [prefix, moments] : {std::pair{"optimizer.first_moment.", first_moments},
                                          {"optimizer.second_moment.", second_moments}}) {
      const auto more = storage_parts(parameters, prefix, moments);
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }

  Parameters parameters;
  std::vector<at::Tensor> first_moments;
  std::vector<at::Tensor> second_moments;

 private:
  static ParameterSpec dense(const std::string& name, const std::vector<int64_t>& shape,
                             Placement placement) {
    return {name, shape, Init::normal(1), true, Family::kDense, placement};
  }
  static ParameterSpec expert(const std::string& name, const std::vector<int64_t>& shape,
                              Placement placement) {
    return {name, shape, Init::normal(1), true, Family::kExpert, placement};
  }

  static at::Tensor owned_values(const ParameterStorage& storage, uint64_t seed) {
    at::Tensor values = at::empty({storage.num_owned()}, storage.master.options());
    for (const PieceRange& range : storage.owned) {
      storage.owned_of(values, range)
          .copy_(storage.pieces[range.piece]
                     .initial_values(seed, values.scalar_type())
                     .view({-1})
                     .slice(0, range.elements.begin, range.elements.end));
    }
    return values;
  }

  static void fill(const at::Tensor& values, uint64_t seed, const std::string& name) {
    const RandomStream stream(seed, name);
    for (int64_t i = 0; i < values.numel(); ++i) {
      values[i].fill_(stream.normal(static_cast<uint64_t>(i)));
    }
  }

  void declare(const std::vector<ParameterSpec>& pieces) {
    int64_t numel = 0;
    for (const ParameterSpec& spec : pieces) {
      numel += Parameter(spec, parameters.groups()).local_numel();
    }
    parameters.declare(pieces, {numel});
  }

  void declare_layer(const std::string& prefix) {
    declare({dense(prefix + "norm", {8}, Placement::replicated())});
    declare({dense(prefix + "q", {8, 2, 8}, Placement::sharded(0, 8)),
             dense(prefix + "k", {4, 2, 8}, Placement::sharded(0, 4)),
             dense(prefix + "v", {4, 2, 8}, Placement::sharded(0, 4))});
    declare({dense(prefix + "output", {8, 16}, Placement::sharded(1, 16))});
    declare({dense(prefix + "router", {4, 8}, Placement::invariant())});
    declare({expert(prefix + "experts.up", {4, 2, 12, 8}, Placement::sharded(2, 12))});
    declare({expert(prefix + "experts.down", {4, 8, 12}, Placement::sharded(2, 12))});
    declare({expert(prefix + "experts.bias", {4, 8}, Placement::invariant())});
    parameters.declare_buffer(prefix + "expert_bias", {4});
  }
};

// Every element bit for bit; names the first part that differs.
inline std::string first_difference(const std::vector<TensorPart>& actual,
                                    const std::vector<TensorPart>& expected) {
  if (actual.size() != expected.size()) {
    return "another number of parts";
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    const at::Tensor a = actual[i].values.contiguous();
    const at::Tensor b = expected[i].values.contiguous();
    const bool is_same = actual[i].name == expected[i].name && a.sizes() == b.sizes() &&
                         a.scalar_type() == b.scalar_type() &&
                         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
    if (!is_same) {
      return actual[i].name;
    }
  }
  return "";
}

inline CheckpointRecord record_at(int64_t step) {
  CheckpointRecord record;
  record.step = step;
  record.fingerprint = fmt::format("print {}", step);
  return record;
}

}  // namespace switchyard

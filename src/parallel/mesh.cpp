#include "parallel/mesh.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "config/sections.h"

namespace switchyard {
namespace {

struct AxisText {
  Axis axis;
  std::string_view name;
};
constexpr std::array<AxisText, 7> kAxes = {{{Axis::kTensor, "tp"},
                                            {Axis::kContext, "cp"},
                                            {Axis::kData, "dp"},
                                            {Axis::kPipeline, "pp"},
                                            {Axis::kExpertTensor, "etp"},
                                            {Axis::kExpert, "ep"},
                                            {Axis::kExpertData, "edp"}}};

struct GroupText {
  GroupName group;
  std::string_view name;
  std::vector<Axis> axes;  // empty: every rank
};

const std::vector<GroupText>& group_table() {
  static const std::vector<GroupText> table = {
      {GroupName::kWorld, "world", {}},
      {GroupName::kTensor, "tp", {Axis::kTensor}},
      {GroupName::kContext, "cp", {Axis::kContext}},
      {GroupName::kData, "dp", {Axis::kData}},
      {GroupName::kDataContext, "dp-cp", {Axis::kData, Axis::kContext}},
      {GroupName::kDataContextTensor, "dp-cp-tp", {Axis::kData, Axis::kContext, Axis::kTensor}},
      {GroupName::kPipeline, "pp", {Axis::kPipeline}},
      {GroupName::kExpertTensor, "etp", {Axis::kExpertTensor}},
      {GroupName::kExpert, "ep", {Axis::kExpert}},
      {GroupName::kExpertExpertTensor, "ep-etp", {Axis::kExpert, Axis::kExpertTensor}},
      {GroupName::kExpertData, "edp", {Axis::kExpertData}},
  };
  return table;
}

const GroupText& find(GroupName name) {
  return *std::find_if(group_table().begin(), group_table().end(),
                       [&](const GroupText& entry) { return entry.group == name; });
}

bool is_expert_axis(Axis axis) {
  return axis == Axis::kExpert || axis == Axis::kExpertTensor || axis == Axis::kExpertData;
}

// The axes that `order` names, checked to be each of tp, cp, ep, dp, pp once.
std::vector<std::string> split_order(const std::string& order) {
  std::vector<std::string> words;
  std::istringstream in(order);
  for (std::string word; std::getline(in, word, '-');) {
    words.push_back(word);
  }
  auto sorted = words;
  std::sort(sorted.begin(), sorted.end());
  check<ConfigError>(
      sorted == std::vector<std::string>{"cp", "dp", "ep", "pp", "tp"} && order.back() != '-',
      "parallel.order is \"{}\": it must name each of tp, cp, ep, dp and pp once, "
      "joined by \"-\", as in tp-cp-ep-dp-pp",
      order);
  return words;
}

void check_sizes(const MeshShape& shape) {
  const std::pair<std::string_view, int64_t> sizes[] = {
      {"the number of ranks", shape.world_size},
      {"parallel.tensor_size", shape.tensor},
      {"parallel.context_size", shape.context},
      {"parallel.pipeline_size", shape.pipeline},
      {"parallel.expert_size", shape.expert},
      {"parallel.expert_tensor_size", shape.expert_tensor},
  };
  for (const auto& [key, size] : sizes) {
    check<ConfigError>(size >= 1, "{} is {}: at least 1 is expected", key, size);
  }
}

}  // namespace

std::string_view to_string(Axis axis) {
  return std::find_if(kAxes.begin(), kAxes.end(), [&](const AxisText& a) { return a.axis == axis; })
      ->name;
}

std::string_view to_string(GroupName name) {
  return find(name).name;
}

MeshShape mesh_shape(const ParallelConfig& parallel, int64_t num_ranks) {
  return {.world_size = num_ranks,
          .tensor = parallel.tensor_size,
          .context = parallel.context_size,
          .pipeline = parallel.pipeline_size,
          .expert = parallel.expert_size,
          .expert_tensor = parallel.expert_tensor_size,
          .order = parallel.order,
          .ranks_per_node = parallel.ranks_per_node};
}

Mesh::Mesh(const MeshShape& shape) : shape_(shape) {
  check_sizes(shape);
  const int64_t dense = shape.tensor * shape.context * shape.pipeline;
  const int64_t expert = shape.expert * shape.expert_tensor * shape.pipeline;
  check<ConfigError>(shape.world_size % dense == 0,
                     "{} ranks cannot be laid out: parallel.tensor_size {} x context_size {} x "
                     "pipeline_size {} = {} does not divide them",
                     shape.world_size, shape.tensor, shape.context, shape.pipeline, dense);
  check<ConfigError>(shape.world_size % expert == 0,
                     "{} ranks cannot be laid out: parallel.expert_size {} x expert_tensor_size {} "
                     "x pipeline_size {} = {} does not divide them",
                     shape.world_size, shape.expert, shape.expert_tensor, shape.pipeline, expert);
  int64_t dense_stride = 1;
  int64_t expert_stride = 1;
  const auto extend = [](Folding& folding, int64_t& stride, Axis axis, int64_t size) {
    folding.push_back({axis, size, stride});
    stride *= size;
  };
  for (const std::string& word : split_order(shape.order)) {
    if (word == "tp") {
      extend(dense_, dense_stride, Axis::kTensor, shape.tensor);
      extend(expert_, expert_stride, Axis::kExpertTensor, shape.expert_tensor);
    } else if (word == "cp") {
      extend(dense_, dense_stride, Axis::kContext, shape.context);
    } else if (word == "ep") {
      extend(expert_, expert_stride, Axis::kExpert, shape.expert);
    } else if (word == "dp") {
      extend(dense_, dense_stride, Axis::kData, shape.world_size / dense);
      extend(expert_, expert_stride, Axis::kExpertData, shape.world_size / expert);
    } else {
      extend(dense_, dense_stride, Axis::kPipeline, shape.pipeline);
      extend(expert_, expert_stride, Axis::kPipeline, shape.pipeline);
    }
  }
  for (int64_t rank = 0; rank < shape.world_size; ++rank) {
    check<ConfigError>(
        coordinate_in(dense_, rank, Axis::kPipeline) ==
            coordinate_in(expert_, rank, Axis::kPipeline),
        "parallel.order \"{}\" puts rank {} on pipeline stage {} of the dense layers "
        "and {} of the expert layers: let it end in pp",
        shape.order, rank, coordinate_in(dense_, rank, Axis::kPipeline),
        coordinate_in(expert_, rank, Axis::kPipeline));
  }
}

const Mesh::Folding& Mesh::folding_of(Axis axis) const {
  return is_expert_axis(axis) ? expert_ : dense_;
}

int64_t Mesh::coordinate_in(const Folding& folding, int64_t rank, Axis axis) {
  for (const Extent& extent : folding) {
    if (extent.axis == axis) {
      return rank / extent.stride % extent.size;
    }
  }
  return 0;
}

std::vector<int64_t> Mesh::declared_nodes() const {
  std::vector<int64_t> nodes(static_cast<size_t>(world_size()), 0);
  for (int64_t rank = 0; shape_.ranks_per_node > 0 && rank < world_size(); ++rank) {
    nodes[static_cast<size_t>(rank)] = rank / shape_.ranks_per_node;
  }
  return nodes;
}

int64_t Mesh::size(Axis axis) const {
  for (const Extent& extent : folding_of(axis)) {
    if (extent.axis == axis) {
      return extent.size;
    }
  }
  return 1;
}

int64_t Mesh::size(GroupName name) const {
  if (name == GroupName::kWorld) {
    return shape_.world_size;
  }
  int64_t product = 1;
  for (const Axis axis : find(name).axes) {
    product *= size(axis);
  }
  return product;
}

int64_t Mesh::coordinate(int64_t rank, Axis axis) const {
  return coordinate_in(folding_of(axis), rank, axis);
}

std::vector<int64_t> Mesh::members(int64_t rank, GroupName name) const {
  std::vector<Axis> free = find(name).axes;
  if (name == GroupName::kWorld) {
    free = {Axis::kTensor, Axis::kContext, Axis::kData, Axis::kPipeline};
  }
  std::vector<int64_t> ranks{rank};
  // Strides rise within a folding, so each axis appends blocks of higher ranks.
  for (const Extent& extent : folding_of(free.front())) {
    if (std::find(free.begin(), free.end(), extent.axis) == free.end()) {
      continue;
    }
    std::vector<int64_t> extended;
    for (int64_t coordinate = 0; coordinate < extent.size; ++coordinate) {
      for (const int64_t other : ranks) {
        const int64_t own = other / extent.stride % extent.size;
        extended.push_back(other + (coordinate - own) * extent.stride);
      }
    }
    ranks = std::move(extended);
  }
  return ranks;
}

std::string Mesh::describe(int64_t rank) const {
  std::string text;
  for (const auto& [axis, name] : kAxes) {
    if (size(axis) > 1) {
      text += fmt::format("{}{} {}", text.empty() ? "" : " ", name, coordinate(rank, axis));
    }
  }
  return text;
}

}  // namespace switchyard

#include "parallel/draw_mesh.h"

#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace switchyard {
namespace {

constexpr Axis kColumns[] = {Axis::kTensor,       Axis::kContext, Axis::kData,      Axis::kPipeline,
                             Axis::kExpertTensor, Axis::kExpert,  Axis::kExpertData};

struct DrawnGroup {
  GroupName name;
  const char* shares;
};
constexpr DrawnGroup kDrawnGroups[] = {
    {GroupName::kTensor, "share attention and dense layers"},
    {GroupName::kContext, "share the tokens of a sequence"},
    {GroupName::kDataContext, "hold the same dense parameters"},
    {GroupName::kPipeline, "hold one layer after the other"},
    {GroupName::kExpertTensor, "share each expert"},
    {GroupName::kExpert, "share the experts of a layer"},
    {GroupName::kExpertData, "hold the same expert parameters"},
};

std::string coordinates(const Mesh& mesh) {
  const std::vector<int64_t> nodes = mesh.declared_nodes();
  const bool has_nodes = nodes.back() > 0;
  std::string text = " rank";
  for (const Axis axis : kColumns) {
    text += fmt::format("{:>5}", to_string(axis));
  }
  text += has_nodes ? " node\n" : "\n";
  for (int64_t rank = 0; rank < mesh.world_size(); ++rank) {
    text += fmt::format("{:>5}", rank);
    for (const Axis axis : kColumns) {
      text += fmt::format("{:>5}", mesh.coordinate(rank, axis));
    }
    text += has_nodes ? fmt::format("{:>5}\n", nodes[static_cast<size_t>(rank)]) : "\n";
  }
  return text;
}

std::string members(const Mesh& mesh, GroupName name) {
  std::set<std::vector<int64_t>> groups;
  for (int64_t rank = 0; rank < mesh.world_size(); ++rank) {
    groups.insert(mesh.members(rank, name));
  }
  std::string text;
  for (const std::vector<int64_t>& group : groups) {
    text += fmt::format(" {{{}}}", fmt::join(group, " "));
  }
  return text;
}

}  // namespace

std::string draw_mesh(const Mesh& mesh) {
  std::string text = coordinates(mesh);
  for (const auto& [name, shares] : kDrawnGroups) {
    if (mesh.size(name) > 1) {
      text += fmt::format("{}, ranks that {}:{}\n", to_string(name), shares, members(mesh, name));
    }
  }
  return text;
}

}  // namespace switchyard

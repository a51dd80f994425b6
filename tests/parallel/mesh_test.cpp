#include "parallel/mesh.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace switchyard {
namespace {

using Ranks = std::vector<int64_t>;

std::vector<GroupName> all_group_names() {
  std::vector<GroupName> names;
  for (int i = 0; i < kNumGroupNames; ++i) {
    names.push_back(static_cast<GroupName>(i));
  }
  return names;
}

// The groups of a name, each once.
std::set<Ranks> partition(const Mesh& mesh, GroupName name) {
  std::set<Ranks> groups;
  for (int64_t rank = 0; rank < mesh.world_size(); ++rank) {
    groups.insert(mesh.members(rank, name));
  }
  return groups;
}

std::string refusal(const MeshShape& shape) {
  try {
    const Mesh mesh(shape);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

std::string describe(const MeshShape& shape) {
  return fmt::format("world {} tp {} cp {} pp {} ep {} etp {} {}", shape.world_size, shape.tensor,
                     shape.context, shape.pipeline, shape.expert, shape.expert_tensor, shape.order);
}

// Layouts of up to 48 ranks in every order of the axes, all of which the mesh accepts.
std::vector<MeshShape> random_shapes(int count) {
  std::mt19937 random(1);
  const auto pick = [&](const Ranks& choices) { return choices[random() % choices.size()]; };
  std::vector<MeshShape> shapes;
  while (static_cast<int>(shapes.size()) < count) {
    MeshShape shape;
    shape.tensor = pick({1, 1, 2, 3, 4});
    shape.context = pick({1, 1, 2, 3});
    shape.pipeline = pick({1, 1, 2, 3});
    shape.expert = pick({1, 2, 3, 4});
    shape.expert_tensor = pick({1, 1, 2, 4});
    shape.world_size = shape.pipeline * pick({1, 2, 4, 6, 8, 12, 16});
    std::vector<std::string> words{"tp", "cp", "ep", "dp", "pp"};
    std::shuffle(words.begin(), words.end(), random);
    shape.order = fmt::format("{}", fmt::join(words, "-"));
    if (refusal(shape) == "accepted") {
      shapes.push_back(shape);
    }
  }
  return shapes;
}

TEST(Mesh, FoldsEightRanksAsTheWorkedExampleOfMegatron) {
  MeshShape shape;
  shape.world_size = 8;
  shape.tensor = 2;
  shape.expert = 4;
  const Mesh mesh(shape);
  using Groups = std::set<Ranks>;
  EXPECT_EQ(partition(mesh, GroupName::kTensor), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(partition(mesh, GroupName::kData), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_EQ(partition(mesh, GroupName::kExpert), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(partition(mesh, GroupName::kExpertData), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(partition(mesh, GroupName::kExpertTensor),
            (Groups{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}));
  EXPECT_EQ(partition(mesh, GroupName::kWorld), (Groups{{0, 1, 2, 3, 4, 5, 6, 7}}));
}

TEST(Mesh, LeavesOutLengthOneAxesWhenItDescribesARank) {
  MeshShape shape;
  shape.world_size = 8;
  shape.tensor = 2;
  shape.expert = 4;
  EXPECT_EQ(Mesh(shape).describe(5), "tp 1 dp 2 ep 1 edp 1");
  EXPECT_EQ(Mesh(MeshShape{}).describe(0), "");
}

TEST(Mesh, PartitionsTheWorldByEveryGroup) {
  for (const MeshShape& shape : random_shapes(300)) {
    const Mesh mesh(shape);
    for (const GroupName name : all_group_names()) {
      std::vector<int64_t> covered;
      for (const Ranks& group : partition(mesh, name)) {
        EXPECT_EQ(static_cast<int64_t>(group.size()), mesh.size(name)) << describe(shape);
        EXPECT_TRUE(std::is_sorted(group.begin(), group.end())) << describe(shape);
        covered.insert(covered.end(), group.begin(), group.end());
      }
      // Each rank in exactly one group.
      std::sort(covered.begin(), covered.end());
      for (int64_t rank = 0; rank < mesh.world_size(); ++rank) {
        ASSERT_EQ(covered.at(static_cast<size_t>(rank)), rank) << describe(shape);
      }
      ASSERT_EQ(static_cast<int64_t>(covered.size()), mesh.world_size()) << describe(shape);
    }
  }
}

TEST(Mesh, PutsThoseRanksInAGroupThatDifferOnlyAlongItsAxes) {
  const std::vector<Axis> dense{Axis::kTensor, Axis::kContext, Axis::kData, Axis::kPipeline};
  const std::vector<Axis> expert{Axis::kExpertTensor, Axis::kExpert, Axis::kExpertData,
                                 Axis::kPipeline};
  const std::map<GroupName, std::pair<std::vector<Axis>, std::set<Axis>>> expected = {
      {GroupName::kTensor, {dense, {Axis::kTensor}}},
      {GroupName::kContext, {dense, {Axis::kContext}}},
      {GroupName::kData, {dense, {Axis::kData}}},
      {GroupName::kDataContext, {dense, {Axis::kData, Axis::kContext}}},
      {GroupName::kDataContextTensor, {dense, {Axis::kData, Axis::kContext, Axis::kTensor}}},
      {GroupName::kPipeline, {dense, {Axis::kPipeline}}},
      {GroupName::kExpertTensor, {expert, {Axis::kExpertTensor}}},
      {GroupName::kExpert, {expert, {Axis::kExpert}}},
      {GroupName::kExpertExpertTensor, {expert, {Axis::kExpert, Axis::kExpertTensor}}},
      {GroupName::kExpertData, {expert, {Axis::kExpertData}}},
  };
  for (const MeshShape& shape : random_shapes(100)) {
    const Mesh mesh(shape);
    for (const auto& [name, axes] : expected) {
      for (int64_t rank = 0; rank < mesh.world_size(); ++rank) {
        Ranks together;
        for (int64_t other = 0; other < mesh.world_size(); ++other) {
          const bool differs_elsewhere =
              std::any_of(axes.first.begin(), axes.first.end(), [&](Axis axis) {
                return !axes.second.contains(axis) &&
                       mesh.coordinate(rank, axis) != mesh.coordinate(other, axis);
              });
          if (!differs_elsewhere) {
            together.push_back(other);
          }
        }
        ASSERT_EQ(mesh.members(rank, name), together)
            << describe(shape) << " group " << to_string(name) << " rank " << rank;
      }
    }
  }
}

TEST(Mesh, GivesEachRankItsOwnCoordinatesInBothFoldings) {
  for (const MeshShape& shape : random_shapes(300)) {
    const Mesh mesh(shape);
    EXPECT_EQ(
        mesh.size(Axis::kTensor) * mesh.size(Axis::kContext) * mesh.size(Axis::kData),
        mesh.size(Axis::kExpertTensor) * mesh.size(Axis::kExpert) * mesh.size(Axis::kExpertData));
    EXPECT_EQ(mesh.size(GroupName::kDataContextTensor) * mesh.size(Axis::kPipeline),
              mesh.world_size());
    EXPECT_EQ(mesh.size(GroupName::kWorld), mesh.world_size());
    std::set<Ranks> dense;
    std::set<Ranks> expert;
    for (int64_t rank = 0; rank < mesh.world_size(); ++rank) {
      const auto at = [&](Axis axis) {
        EXPECT_LT(mesh.coordinate(rank, axis), mesh.size(axis));
        return mesh.coordinate(rank, axis);
      };
      dense.insert({at(Axis::kTensor), at(Axis::kContext), at(Axis::kData), at(Axis::kPipeline)});
      expert.insert(
          {at(Axis::kExpertTensor), at(Axis::kExpert), at(Axis::kExpertData), at(Axis::kPipeline)});
      // The two foldings agree on the pipeline: a stage's ranks of one are those of the other.
      EXPECT_EQ(mesh.size(GroupName::kExpertExpertTensor) * mesh.size(Axis::kExpertData),
                mesh.size(GroupName::kDataContextTensor));
      for (const int64_t other : mesh.members(rank, GroupName::kExpert)) {
        EXPECT_EQ(at(Axis::kPipeline), mesh.coordinate(other, Axis::kPipeline)) << describe(shape);
      }
    }
    EXPECT_EQ(static_cast<int64_t>(dense.size()), mesh.world_size()) << describe(shape);
    EXPECT_EQ(static_cast<int64_t>(expert.size()), mesh.world_size()) << describe(shape);
  }
}

// "0 1,2 3" is {{0, 1}, {2, 3}}.
std::set<Ranks> read_partition(const std::string& text) {
  std::set<Ranks> groups;
  std::istringstream all(text);
  for (std::string one; std::getline(all, one, ',');) {
    std::istringstream ranks(one);
    Ranks group;
    for (int64_t rank = 0; ranks >> rank;) {
      group.push_back(rank);
    }
    groups.insert(group);
  }
  return groups;
}

TEST(Mesh, EqualsMegatronsRankGenerator) {
  const std::vector<std::string> cases = {
#include "parallel/mesh_golden.inc"
  };
  for (const std::string& text : cases) {
    std::istringstream lines(text);
    MeshShape shape;
    lines >> shape.world_size >> shape.tensor >> shape.context >> shape.pipeline >> shape.expert >>
        shape.expert_tensor >> shape.order;
    const Mesh mesh(shape);
    int num_compared = 0;
    for (std::string line; std::getline(lines, line);) {
      const std::string name = line.substr(0, line.find(':'));
      for (const GroupName group : all_group_names()) {
        if (to_string(group) == name) {
          ++num_compared;
          EXPECT_EQ(partition(mesh, group), read_partition(line.substr(name.size() + 1)))
              << describe(shape) << " " << name;
        }
      }
    }
    EXPECT_EQ(num_compared, kNumGroupNames - 1) << "all but the world: " << text;
  }
}

TEST(Mesh, RefusesSizesThatDoNotMultiplyWithTheArithmetic) {
  MeshShape shape;
  shape.world_size = 8;
  shape.tensor = 3;
  EXPECT_EQ(refusal(shape),
            "8 ranks cannot be laid out: parallel.tensor_size 3 x context_size 1 x pipeline_size 1 "
            "= 3 does not divide them");
  shape.tensor = 2;
  shape.expert = 4;
  shape.expert_tensor = 4;
  EXPECT_EQ(refusal(shape),
            "8 ranks cannot be laid out: parallel.expert_size 4 x expert_tensor_size 4 x "
            "pipeline_size 1 = 16 does not divide them");
}

TEST(Mesh, RefusesSizesBelowOne) {
  MeshShape shape;
  shape.tensor = 0;
  EXPECT_EQ(refusal(shape), "parallel.tensor_size is 0: at least 1 is expected");
  shape.tensor = 1;
  shape.expert = -2;
  EXPECT_EQ(refusal(shape), "parallel.expert_size is -2: at least 1 is expected");
  shape.expert = 1;
  shape.world_size = 0;
  EXPECT_EQ(refusal(shape), "the number of ranks is 0: at least 1 is expected");
}

TEST(Mesh, RefusesAnOrderThatDoesNotNameEachAxisOnce) {
  for (const std::string order : {"tp-cp-ep-dp", "tp-cp-ep-dp-dp", "tp-cp-ep-dp-pp-", "", "tp",
                                  "-tp-cp-ep-dp-pp", "tp-cp-ep-dp-pp-pp", "TP-cp-ep-dp-pp"}) {
    MeshShape shape;
    shape.order = order;
    EXPECT_EQ(refusal(shape), "parallel.order is \"" + order +
                                  "\": it must name each of tp, cp, ep, dp and pp once, joined by "
                                  "\"-\", as in tp-cp-ep-dp-pp");
  }
}

TEST(Mesh, RefusesFoldingsThatDisagreeOnTheStages) {
  MeshShape shape;
  shape.world_size = 8;
  shape.tensor = 2;
  shape.pipeline = 2;
  shape.order = "tp-cp-ep-pp-dp";
  EXPECT_EQ(refusal(shape),
            "parallel.order \"tp-cp-ep-pp-dp\" puts rank 1 on pipeline stage 0 of the dense layers "
            "and 1 of the expert layers: let it end in pp");
  shape.expert = 2;  // then both foldings have two ranks below each stage
  EXPECT_EQ(refusal(shape), "accepted");
}

TEST(Mesh, PutsRanksOnTheNodesThatAreDeclared) {
  EXPECT_EQ(Mesh({.world_size = 3}).declared_nodes(), (std::vector<int64_t>{0, 0, 0}));
  EXPECT_EQ(Mesh({.world_size = 5, .ranks_per_node = 2}).declared_nodes(),
            (std::vector<int64_t>{0, 0, 1, 1, 2}));
}

}  // namespace
}  // namespace switchyard

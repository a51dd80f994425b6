#include "parallel/draw_mesh.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

// The example of Megatron-Core's parallel state: 8 ranks, tp 2, ep 4, etp 1.
TEST(DrawMesh, ListsCoordinatesAndGroups) {
  EXPECT_EQ(draw_mesh(Mesh({.world_size = 8, .tensor = 2, .expert = 4})),
            " rank   tp   cp   dp   pp  etp   ep  edp\n"
            "    0    0    0    0    0    0    0    0\n"
            "    1    1    0    0    0    0    1    0\n"
            "    2    0    0    1    0    0    2    0\n"
            "    3    1    0    1    0    0    3    0\n"
            "    4    0    0    2    0    0    0    1\n"
            "    5    1    0    2    0    0    1    1\n"
            "    6    0    0    3    0    0    2    1\n"
            "    7    1    0    3    0    0    3    1\n"
            "tp, ranks that share attention and dense layers: {0 1} {2 3} {4 5} {6 7}\n"
            "dp-cp, ranks that hold the same dense parameters: {0 2 4 6} {1 3 5 7}\n"
            "ep, ranks that share the experts of a layer: {0 1 2 3} {4 5 6 7}\n"
            "edp, ranks that hold the same expert parameters: {0 4} {1 5} {2 6} {3 7}\n");
}

TEST(DrawMesh, SaysNothingOfGroupsOfOneRank) {
  EXPECT_EQ(draw_mesh(Mesh({.world_size = 1})),
            " rank   tp   cp   dp   pp  etp   ep  edp\n"
            "    0    0    0    0    0    0    0    0\n");
}

TEST(DrawMesh, ShowsNodesThatAreDeclared) {
  EXPECT_EQ(draw_mesh(Mesh({.world_size = 2, .expert = 2, .ranks_per_node = 1})),
            " rank   tp   cp   dp   pp  etp   ep  edp node\n"
            "    0    0    0    0    0    0    0    0    0\n"
            "    1    0    0    1    0    0    1    0    1\n"
            "dp-cp, ranks that hold the same dense parameters: {0 1}\n"
            "ep, ranks that share the experts of a layer: {0 1}\n");
}

}  // namespace
}  // namespace switchyard

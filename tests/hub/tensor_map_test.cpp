#include "hub/tensor_map.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint/checkpoint_tests.h"

namespace switchyard {
namespace {

TEST(NamePattern, PutsLayerAndExpertInPlaceOfNumbers) {
  std::vector<int64_t> numbers;
  EXPECT_EQ(name_pattern("model.layers.12.mlp.experts.3.w1.weight", numbers),
            "model.layers.{layer}.mlp.experts.{expert}.w1.weight");
  EXPECT_EQ(numbers, (std::vector<int64_t>{12, 3}));
}

ModelFamily small_family() {
  ModelFamily family;
  family.model_type = "small";
  family.tensors = {
      {"m.{layer}.q", "layers.{layer}.attention.q", {}, {2, 1}},
      {"m.{layer}.o", "layers.{layer}.attention.o", {}, {1, 2}},
      {"m.{layer}.b", "layers.{layer}.attention.q_bias", {}, {kAllDims}},
      {"m.{layer}.e.{expert}.up", "layers.{layer}.moe.experts.gate_up", {kExpertIndex, 1}},
  };
  return family;
}

TEST(MapTensors, WritesRulesOutForEveryLayerAndExpert) {
  const auto mapped = map_tensors(small_family(), {{"layers.7.moe.experts.gate_up", {2, 2, 3, 4}}});
  ASSERT_EQ(mapped.size(), 2U);
  EXPECT_EQ(mapped[1].name, "m.7.e.1.up");
  EXPECT_EQ(mapped[1].shape, (std::vector<int64_t>{3, 4}));
  ASSERT_EQ(mapped[1].parts.size(), 1U);
  EXPECT_EQ(mapped[1].parts[0].box, (Box{{1, 1, 0, 0}, {1, 1, 3, 4}}));
}

TEST(MapTensors, PutsTheRulesOfOneTensorEndToEnd) {
  ModelFamily family;
  family.tensors = {
      {"conv", "x", {}, {2, 0, 1}}, {"conv", "c", {}, {1, 0, 1}}, {"conv", "b", {}, {1, 0, 1}}};
  const auto mapped = map_tensors(family, {{"b", {5, 4}}, {"c", {6, 4}}, {"x", {2, 3, 4}}});
  ASSERT_EQ(mapped.size(), 1U);
  EXPECT_EQ(mapped[0].shape, (std::vector<int64_t>{6 + 6 + 5, 1, 4}));
  ASSERT_EQ(mapped[0].parts.size(), 3U);
  EXPECT_EQ(mapped[0].parts[0].logical, "x");
  EXPECT_EQ(mapped[0].parts[1].logical, "c");
  EXPECT_EQ(mapped[0].parts[1].first, 24);
  EXPECT_EQ(mapped[0].parts[2].logical, "b");
  EXPECT_EQ(mapped[0].parts[2].first, 48);
}

TEST(MapTensors, InterleavesThemByTheFirstDim) {
  ModelFamily family;
  family.tensors = {{.tensor = "qkv", .logical = "q", .dims = {2, 1}, .is_interleaved = true},
                    {.tensor = "qkv", .logical = "k", .dims = {3, 1}, .is_interleaved = true}};
  const auto mapped = map_tensors(family, {{"k", {2, 2, 1, 7}}, {"q", {2, 3, 7}}});
  ASSERT_EQ(mapped.size(), 1U);
  EXPECT_EQ(mapped[0].shape, (std::vector<int64_t>{2 * (3 + 2), 7}));
  ASSERT_EQ(mapped[0].parts.size(), 4U);
  EXPECT_EQ(mapped[0].parts[1].logical, "k");
  EXPECT_EQ(mapped[0].parts[1].first, 21);
  EXPECT_EQ(mapped[0].parts[1].box, (Box{{0, 0, 0, 0}, {1, 2, 1, 7}}));
  EXPECT_EQ(mapped[0].parts[2].logical, "q");
  EXPECT_EQ(mapped[0].parts[2].first, 35);
  EXPECT_EQ(mapped[0].parts[2].box, (Box{{1, 0, 0}, {1, 3, 7}}));
}

TEST(MapTensors, PutsDimsInTheOrderOfTheFile) {
  ModelFamily family;
  family.tensors = {{.tensor = "t", .logical = "a", .dims = {1, 1, 2}, .order = {0, 3, 2, 1}}};
  const auto mapped = map_tensors(family, {{"a", {5, 2, 3, 4}}});
  ASSERT_EQ(mapped.size(), 1U);
  EXPECT_EQ(mapped[0].shape, (std::vector<int64_t>{5, 4, 6}));
  ASSERT_EQ(mapped[0].parts.size(), 1U);
  EXPECT_EQ(mapped[0].parts[0].view.strides, (std::vector<int64_t>{24, 1, 2, 6}));
  family.tensors = {{.tensor = "t", .logical = "a", .order = {1, 0}},
                    {.tensor = "t", .logical = "b"}};
  EXPECT_EQ(message_of<ShapeError>([&] {
              map_tensors(family, {{"a", {2, 3}}, {"b", {3, 2}}});
            }),
            "the rule for t with an order is not its only one");
}

TEST(MapTensors, RefusesPartsThatDoNotFitTogether) {
  ModelFamily family;
  family.tensors = {{"t", "a", {}, {1, 1}}, {"t", "b", {}, {1, 1}}};
  EXPECT_EQ(message_of<ShapeError>([&] {
              map_tensors(family, {{"a", {2, 3}}, {"b", {2, 4}}});
            }),
            "the rules for t make its parts of different widths");
  family.tensors[1].is_interleaved = true;
  EXPECT_EQ(message_of<ShapeError>([&] {
              map_tensors(family, {{"a", {2, 3}}, {"b", {2, 3}}});
            }),
            "the rules for t do not say alike how its parts take turns");
}

TEST(MapTensors, TakesDimsTogetherAsTheRuleSays) {
  const auto shape_of = [](const std::string& name, const std::vector<int64_t>& shape) {
    return map_tensors(small_family(), {{name, shape}}).at(0).shape;
  };
  EXPECT_EQ(shape_of("layers.0.attention.q", {4, 8, 32}), (std::vector<int64_t>{32, 32}));
  EXPECT_EQ(shape_of("layers.0.attention.o", {32, 4, 8}), (std::vector<int64_t>{32, 32}));
  EXPECT_EQ(shape_of("layers.0.attention.q_bias", {4, 8}), (std::vector<int64_t>{32}));
}

TEST(MapTensors, RefusesALogicalTensorWithoutARule) {
  EXPECT_EQ(message_of<ConfigError>([] {
              map_tensors(small_family(), {{"layers.0.attention.q_norm", {8}}});
            }),
            "a model of type small has no tensor for layers.0.attention.q_norm: the settings "
            "describe another kind of model");
}

}  // namespace
}  // namespace switchyard

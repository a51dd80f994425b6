#include "checkpoint/box.h"

#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace switchyard {
namespace {

// The row-major indices in a tensor of `shape` of every element of `box`, by a plain loop.
std::vector<int64_t> elements_of(const Box& box, const std::vector<int64_t>& shape) {
  std::vector<int64_t> elements{0};
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    std::vector<int64_t> longer;
    for (const int64_t prefix : elements) {
      for (int64_t i = 0; i < box.shape[dim]; ++i) {
        longer.push_back(prefix * shape[dim] + box.start[dim] + i);
      }
    }
    elements = longer;
  }
  return elements;
}

class Draw {
 public:
  explicit Draw(uint64_t seed) : stream_(seed, "box_test") {}
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(stream_.below(next_++, static_cast<uint64_t>(limit)));
  }
  Box box_in(const std::vector<int64_t>& shape) {
    Box box;
    for (const int64_t size : shape) {
      box.start.push_back(below(size));
      box.shape.push_back(1 + below(size - box.start.back()));
    }
    return box;
  }

 private:
  RandomStream stream_;
  uint64_t next_ = 0;
};

TEST(Box, DescribesItsRanges) {
  EXPECT_EQ((Box{{0, 8}, {2, 8}}).describe(), "[0:2, 8:16]");
  EXPECT_EQ((Box{}).describe(), "[]");
  EXPECT_EQ((Box{}).numel(), 1);
  EXPECT_EQ((Box{{4, 0}, {0, 3}}).numel(), 0);
}

TEST(Intersect, HoldsTheElementsOfBoth) {
  const std::vector<int64_t> shape{4, 5, 3};
  Draw draw(1);
  int num_empty = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const Box a = draw.box_in(shape);
    const Box b = draw.box_in(shape);
    const auto in_a = elements_of(a, shape);
    const std::set<int64_t> set_of_a(in_a.begin(), in_a.end());
    std::vector<int64_t> expected;
    for (const int64_t element : elements_of(b, shape)) {
      if (set_of_a.contains(element)) {
        expected.push_back(element);
      }
    }
    const auto both = intersect(a, b);
    num_empty += both ? 0 : 1;
    EXPECT_EQ(both ? elements_of(*both, shape) : std::vector<int64_t>{}, expected);
  }
  EXPECT_GT(num_empty, 10);
}

TEST(ForEachRun, VisitsEveryElementInBothStorages) {
  const std::vector<int64_t> shape{4, 3, 5};
  Draw draw(2);
  for (int trial = 0; trial < 300; ++trial) {
    const Box a = draw.box_in(shape);
    const Box b = draw.box_in(shape);
    const auto both = intersect(a, b);
    if (!both) {
      continue;
    }
    const auto in_a = elements_of(a, shape);
    const auto in_b = elements_of(b, shape);
    std::vector<int64_t> visited;
    for_each_run(*both, a, b, [&](int64_t from, int64_t to, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        EXPECT_EQ(in_a.at(static_cast<size_t>(from + i)), in_b.at(static_cast<size_t>(to + i)));
        visited.push_back(in_a.at(static_cast<size_t>(from + i)));
      }
    });
    EXPECT_EQ(visited, elements_of(*both, shape));
  }
}

TEST(ForEachRun, MakesOneRunOfWhatLiesEndToEnd) {
  const auto num_runs = [](const Box& a, const Box& b) {
    int count = 0;
    for_each_run(*intersect(a, b), a, b, [&](int64_t, int64_t, int64_t) { ++count; });
    return count;
  };
  const Box whole{{0, 0, 0}, {4, 3, 5}};
  EXPECT_EQ(num_runs(whole, whole), 1);
  EXPECT_EQ(num_runs(whole, {{1, 0, 0}, {2, 3, 5}}), 1);  // cut along the first dim
  EXPECT_EQ(num_runs(whole, {{0, 1, 0}, {4, 1, 5}}), 4);
  EXPECT_EQ(num_runs(whole, {{0, 0, 1}, {4, 3, 1}}), 12);
  EXPECT_EQ(num_runs(Box{}, Box{}), 1);  // a scalar
}

TEST(FindTilingFault, AcceptsAGridInAnyOrder) {
  const std::vector<int64_t> shape{4, 6};
  EXPECT_FALSE(find_tiling_fault(
      shape, {{{2, 3}, {2, 3}}, {{0, 0}, {2, 3}}, {{2, 0}, {2, 3}}, {{0, 3}, {2, 3}}}));
  EXPECT_FALSE(find_tiling_fault(shape, {{{0, 0}, {4, 6}}}));
  EXPECT_FALSE(find_tiling_fault(shape, {{{0, 0}, {4, 6}}, {{1, 1}, {0, 3}}}));  // one is empty
  EXPECT_FALSE(find_tiling_fault({}, {Box{}}));
  EXPECT_FALSE(find_tiling_fault({3, 0}, {}));
  EXPECT_FALSE(find_tiling_fault({3, 0}, {{{0, 0}, {3, 0}}}));
}

TEST(FindTilingFault, FindsGapsOverlapsAndWhatReachesOutside) {
  const std::vector<int64_t> shape{4, 6};
  const auto gap = find_tiling_fault(shape, {{{0, 0}, {4, 3}}, {{0, 4}, {4, 2}}});
  ASSERT_TRUE(gap);
  EXPECT_EQ(gap->num_missing, 4);
  const auto none = find_tiling_fault({}, {});
  ASSERT_TRUE(none);
  EXPECT_EQ(none->num_missing, 1);

  const auto overlap =
      find_tiling_fault(shape, {{{2, 0}, {2, 6}}, {{0, 0}, {2, 6}}, {{1, 5}, {2, 1}}});
  ASSERT_TRUE(overlap);
  EXPECT_EQ((std::set{overlap->first, overlap->second}), (std::set<size_t>{1, 2}));
  const auto twice = find_tiling_fault({}, {Box{}, Box{}});
  ASSERT_TRUE(twice);
  EXPECT_EQ(twice->num_missing, 0);

  for (const Box& outside : {Box{{3, 0}, {2, 6}}, Box{{-1, 0}, {1, 6}}, Box{{0, 0}, {-4, -6}},
                             Box{{INT64_MAX, 0}, {1, 6}}}) {
    const auto fault = find_tiling_fault(shape, {outside});
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->first, 0U);
    EXPECT_EQ(fault->second, 0U);
  }
}

TEST(BoxesOfRange, HoldTheElementsInOrder) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{7}, {4, 3}, {3, 1, 4}, {2, 3, 2, 2}, {1, 1}}) {
    int64_t numel = 1;
    for (const int64_t size : shape) {
      numel *= size;
    }
    for (int64_t begin = 0; begin <= numel; ++begin) {
      for (int64_t end = begin; end <= numel; ++end) {
        std::vector<int64_t> expected(static_cast<size_t>(end - begin));
        std::iota(expected.begin(), expected.end(), begin);
        std::vector<int64_t> found;
        const std::vector<Box> boxes = boxes_of_range(shape, begin, end);
        for (const Box& box : boxes) {
          const auto elements = elements_of(box, shape);
          found.insert(found.end(), elements.begin(), elements.end());
        }
        EXPECT_EQ(found, expected) << begin << " to " << end;
        EXPECT_LT(boxes.size(), 2 * shape.size());
      }
    }
  }
}

// Cuts a tensor at random places into boxes, then does harm to one: by the count of each element's
// boxes it must be a tiling exactly when no harm was done.
TEST(FindTilingFault, AgreesWithCountingEveryElement) {
  const std::vector<int64_t> shape{5, 4, 3};
  Draw draw(3);
  int num_tilings = 0;
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<Box> boxes{{{0, 0, 0}, shape}};
    for (int cut = 0; cut < 5; ++cut) {
      Box& first = boxes[static_cast<size_t>(draw.below(static_cast<int64_t>(boxes.size())))];
      const auto dim = static_cast<size_t>(draw.below(3));
      const int64_t size = draw.below(first.shape[dim] + 1);
      Box second = first;
      first.shape[dim] = size;
      second.start[dim] += size;
      second.shape[dim] -= size;
      boxes.push_back(second);
    }
    if (draw.below(2) == 0) {
      boxes[static_cast<size_t>(draw.below(6))] = draw.box_in(shape);
    }
    std::map<int64_t, int> times;
    for (const Box& box : boxes) {
      for (const int64_t element : elements_of(box, shape)) {
        ++times[element];
      }
    }
    bool is_tiling = times.size() == 60;
    for (const auto& [element, count] : times) {
      is_tiling = is_tiling && count == 1;
    }
    num_tilings += is_tiling ? 1 : 0;
    EXPECT_EQ(!find_tiling_fault(shape, boxes).has_value(), is_tiling);
  }
  EXPECT_GT(num_tilings, 100);
  EXPECT_LT(num_tilings, 400);
}

}  // namespace
}  // namespace switchyard

#include "checkpoint/file_view.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

namespace switchyard {
namespace {

TEST(FileView, KnowsWhatIsRowMajor) {
  EXPECT_EQ(FileView::plain({2, 3, 4}).strides, (std::vector<int64_t>{12, 4, 1}));
  EXPECT_TRUE((FileView{{12, 4, 1}, 0}).is_plain({2, 3, 4}));
  EXPECT_TRUE((FileView{{0, 4, 1}, 0}).is_plain({1, 3, 4}));  // of one index no stride counts
  EXPECT_FALSE((FileView{{12, 1, 3}, 0}).is_plain({2, 3, 4}));
  EXPECT_FALSE((FileView{{12, 4, 1}, 5}).is_plain({2, 3, 4}));
}

// A box [2, 3] of a logical tensor, from [4, 5] on, that a file holds transposed: [3, 2].
TEST(FileView, FindsElementsInAnotherOrder) {
  const FileView view{{1, 2}, 0};
  const std::vector<int64_t> start{4, 5};
  const Box part{{5, 6}, {1, 2}};
  EXPECT_EQ(view.first_of(part, start), 3);
  EXPECT_EQ(view.last_of(part, start), 5);
  const at::Tensor file = at::arange(6).view({3, 2});
  EXPECT_TRUE(at::equal(view.in(file, part.shape, 3), file.t().narrow(0, 1, 1).narrow(1, 1, 2)));
  // The rows of the file from the second on.
  EXPECT_TRUE(at::equal(view.in(file.narrow(0, 1, 2), part.shape, 3, 2),
                        file.t().narrow(0, 1, 1).narrow(1, 1, 2)));
}

TEST(SlicesOf, CoverTheBoxInOrder) {
  EXPECT_EQ(slices_of({{0, 0}, {3, 4}}, 12).size(), 1U);
  const std::vector<Box> slices = slices_of({{7, 2, 0}, {1, 5, 4}}, 8);
  EXPECT_EQ(slices, (std::vector<Box>{
                        {{7, 2, 0}, {1, 2, 4}}, {{7, 4, 0}, {1, 2, 4}}, {{7, 6, 0}, {1, 1, 4}}}));
  EXPECT_EQ(slices_of({{0, 0}, {2, 100}}, 10).size(), 2U);  // an index is not cut
  EXPECT_EQ(slices_of({{}, {}}, 10).size(), 1U);
}

}  // namespace
}  // namespace switchyard

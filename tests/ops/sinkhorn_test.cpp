#include "ops/sinkhorn.h"

#include <limits>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "ops/op_checks.h"

namespace switchyard {
namespace {

TEST(Sinkhorn, GivesEveryTokenAndEveryExpertItsShare) {
  at::manual_seed(31);
  const at::Tensor scores = sinkhorn(at::randn({40, 8}, at::kDouble) * 3);
  EXPECT_TRUE(at::allclose(scores.sum(0), at::full({8}, 1.0 / 8, at::kDouble), 1e-6));
  EXPECT_TRUE(at::allclose(scores.sum(1), at::full({40}, 1.0 / 40, at::kDouble), 2e-3));
}

TEST(Sinkhorn, SpreadsTokensThatAllPreferOneExpert) {
  at::manual_seed(32);
  at::Tensor logits = at::randn({64, 4}, at::kDouble) * 0.1;
  logits.select(1, 2) += 3;
  const at::Tensor best = sinkhorn(logits).argmax(1);
  for (int64_t expert = 0; expert < 4; ++expert) {
    EXPECT_GT(best.eq(expert).sum().item<int64_t>(), 4) << expert;
  }
  EXPECT_TRUE(logits.argmax(1).eq(2).all().item<bool>());
}

TEST(Sinkhorn, EndsForAnyLogits) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(sinkhorn(at::zeros({0, 4})).sizes(), (std::vector<int64_t>{0, 4}));
  EXPECT_TRUE(at::isfinite(sinkhorn(at::full({3, 4}, -2000.0))).all().item<bool>());
  sinkhorn(at::full({3, 4}, infinity));
  sinkhorn(at::tensor({600., -600., -600., 600.}, at::kDouble).view({2, 2}));
}

}  // namespace
}  // namespace switchyard

#include "ops/permute.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/error.h"
#include "ops/op_checks.h"

namespace switchyard {
namespace {

at::Tensor longs(const std::vector<int64_t>& values) {
  return at::tensor(values, at::kLong);
}

// The indices that a stable sort gives.
at::Tensor ascending(const at::Tensor& values, int64_t dim) {
  return std::get<1>(values.sort(/*stable=*/true, dim, /*descending=*/false));
}

// Distinct experts per token, as a router gives them.
at::Tensor random_expert_ids(int64_t tokens, int64_t num_experts, int64_t k) {
  return ascending(at::rand({tokens, num_experts}), 1).slice(1, 0, k).contiguous();
}

// rows[row_of_copy[token][slot]] summed over slots, one value at a time.
at::Tensor naive_combine(const at::Tensor& rows, const ExpertOrder& order) {
  const at::Tensor wide = rows.to(rows.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  at::Tensor sums = at::zeros({order.row_of_copy.size(0), rows.size(1)}, wide.options());
  for (int64_t token = 0; token < sums.size(0); ++token) {
    for (int64_t slot = 0; slot < order.row_of_copy.size(1); ++slot) {
      const auto row = order.row_of_copy[token][slot].item<int64_t>();
      if (row >= 0) {
        sums[token] += wide[row];
      }
    }
  }
  return sums.to(rows.scalar_type());
}

TEST(ExpertOrder, KeepsTokenAndSlotOrderWithinAnExpert) {
  const at::Tensor ids = longs({2, 0, 0, 2, 1, 2}).view({3, 2});
  const ExpertOrder order = expert_order(ids, 4);
  EXPECT_EQ(order.rows_per_expert, (std::vector<int64_t>{2, 1, 3, 0}));
  EXPECT_TRUE(at::equal(order.token_of_row, longs({0, 1, 2, 0, 1, 2})));
  EXPECT_TRUE(at::equal(order.row_of_copy, longs({3, 0, 1, 4, 2, 5}).view({3, 2})));
}

TEST(ExpertOrder, GivesNoRowToDroppedCopiesAndAddsEmptyRows) {
  const PoisonNewTensors poison;
  const at::Tensor ids = longs({2, -1, 0, 2, -1, -1}).view({3, 2});
  const ExpertOrder order = expert_order(ids, 3, {1, 2, 0});
  EXPECT_EQ(order.rows_per_expert, (std::vector<int64_t>{2, 2, 2}));
  EXPECT_TRUE(at::equal(order.token_of_row, longs({1, -1, -1, -1, 0, 1})));
  EXPECT_TRUE(at::equal(order.row_of_copy, longs({4, -1, 0, 5, -1, -1}).view({3, 2})));
  const ExpertOrder local = local_expert_order(ids, 1, 2, {2, 0});
  EXPECT_EQ(local.rows_per_expert, (std::vector<int64_t>{2, 2}));

  // Empty rows are zeros with weight zero, and nothing comes back from them.
  const at::Tensor tokens = at::randn({3, 5}, at::kDouble);
  const at::Tensor weights = at::rand({3, 2}, at::kDouble);
  const at::Tensor rows = permute(tokens, order);
  EXPECT_TRUE(at::equal(rows[0], tokens[1]));
  EXPECT_TRUE(at::equal(rows.slice(0, 1, 4), at::zeros({3, 5}, at::kDouble)));
  const at::Tensor row_weights = permute_weights(weights, order);
  EXPECT_TRUE(at::equal(row_weights.slice(0, 1, 4), at::zeros({3}, at::kDouble)));
  EXPECT_TRUE(at::equal(combine(rows, order)[2], at::zeros({5}, at::kDouble)));
  expect_gradients_match_differences(
      [&](const Tensors& x) {
        const at::Tensor weighted =
            permute(x[0], order) * permute_weights(x[1], order).unsqueeze(1);
        return Tensors{combine(weighted, order)};
      },
      {tokens, weights});
}

TEST(ExpertOrder, EqualsAStableSort) {
  at::manual_seed(2);
  const at::Tensor ids = random_expert_ids(300, 16, 4);
  const ExpertOrder order = expert_order(ids, 16);
  const at::Tensor sorted = ascending(ids.flatten(), 0);
  EXPECT_TRUE(at::equal(order.token_of_row, sorted.div(4, "floor")));
  EXPECT_TRUE(at::equal(order.row_of_copy.flatten().index_select(0, sorted), at::arange(1200)));
  EXPECT_TRUE(at::equal(longs(order.rows_per_expert), ids.flatten().bincount({}, 16)));
}

TEST(ExpertOrder, LeavesOutCopiesOfExpertsElsewhere) {
  const at::Tensor ids = longs({2, 0, 0, 3, 1, 2}).view({3, 2});
  const ExpertOrder order = local_expert_order(ids, 2, 2);
  EXPECT_EQ(order.rows_per_expert, (std::vector<int64_t>{2, 1}));
  EXPECT_TRUE(at::equal(order.token_of_row, longs({0, 2, 1})));
  EXPECT_TRUE(at::equal(order.row_of_copy, longs({0, -1, -1, 2, -1, 1}).view({3, 2})));
}

TEST(ExpertOrder, AcceptsNoTokens) {
  const ExpertOrder order = expert_order(at::empty({0, 2}, at::kLong), 3);
  EXPECT_EQ(order.rows_per_expert, (std::vector<int64_t>{0, 0, 0}));
  EXPECT_EQ(permute(at::empty({0, 5}), order).sizes(), (std::vector<int64_t>{0, 5}));
  EXPECT_EQ(combine(at::empty({0, 5}), order).sizes(), (std::vector<int64_t>{0, 5}));
  EXPECT_EQ(permute_weights(at::empty({0, 2}), order).sizes(), (std::vector<int64_t>{0}));
}

// A rank may have empty rows and no tokens. Memory that was used before shows rows that nobody
// wrote.
TEST(ExpertOrder, MakesEmptyRowsZeroAlsoWithoutTokens) {
  const ExpertOrder order = expert_order(at::empty({0, 2}, at::kLong), 3, {2, 0, 5});
  for (int repeat = 0; repeat < 10; ++repeat) {
    at::full({7, 5}, NAN);
    EXPECT_TRUE(permute(at::empty({0, 5}), order).eq(0).all().item<bool>());
    EXPECT_TRUE(permute_weights(at::empty({0, 2}), order).eq(0).all().item<bool>());
  }
}

TEST(ExpertOrder, NamesTheIdThatIsNoExpert) {
  EXPECT_EQ(message_of([] {
              expert_order(longs({0, 4, 1, 2}).view({2, 2}), 4);
            }),
            "expert_ids must be 0 to 3, or -1, got 4");
  EXPECT_EQ(message_of([] {
              expert_order(longs({0, -2}).view({1, 2}), 4);
            }),
            "expert_ids must be 0 to 3, or -1, got -2");
  EXPECT_EQ(message_of([] {
              expert_order(longs({0, 1}).view({1, 2}), 4, {1, 2});
            }),
            "empty_rows must have one number per expert (4), got 2");
  EXPECT_EQ(message_of([] {
              expert_order(at::zeros({1, 2}), 4);
            }),
            "expert_ids must be int64 on the CPU");
}

TEST(Permute, CopiesTokensIntoExpertOrder) {
  const PoisonNewTensors poison;
  const at::Tensor ids = random_expert_ids(50, 8, 3);
  const ExpertOrder order = expert_order(ids, 8);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor tokens = at::randn({50, 33}).to(type);
    EXPECT_TRUE(at::equal(permute(tokens, order), tokens.index_select(0, order.token_of_row)));
    EXPECT_TRUE(at::equal(permute(tokens.t().contiguous().t(), order), permute(tokens, order)));
  }
}

TEST(Combine, SumsSlotsInOrderInFp32) {
  const PoisonNewTensors poison;
  const at::Tensor ids = random_expert_ids(50, 8, 3);
  for (const ExpertOrder& order : {expert_order(ids, 8), local_expert_order(ids, 3, 2)}) {
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      for (const int64_t hidden : {1, 7, 64, 200}) {
        const at::Tensor rows = at::randn({order.token_of_row.size(0), hidden}).to(type);
        EXPECT_TRUE(same_bytes(combine(rows, order), naive_combine(rows, order)))
            << type << " hidden " << hidden;
      }
    }
  }
}

TEST(Combine, GivesZeroToTokensWithoutCopies) {
  const PoisonNewTensors poison;
  const ExpertOrder order = local_expert_order(longs({0, 1, 2, 3}).view({2, 2}), 2, 2);
  const at::Tensor out = combine(at::ones({2, 40}), order);
  EXPECT_TRUE(at::equal(out[0], at::zeros({40})));
  EXPECT_TRUE(at::equal(out[1], at::full({40}, 2.0)));
}

TEST(Permute, HasTheGradientsOfDifferences) {
  const at::Tensor ids = random_expert_ids(6, 5, 2);
  for (const ExpertOrder& order : {expert_order(ids, 5), local_expert_order(ids, 1, 3)}) {
    const int64_t copies = order.token_of_row.size(0);
    expect_gradients_match_differences(
        [&](const Tensors& x) { return Tensors{permute(x[0], order)}; },
        {at::randn({6, 5}, at::kDouble)});
    expect_gradients_match_differences(
        [&](const Tensors& x) { return Tensors{combine(x[0], order)}; },
        {at::randn({copies, 5}, at::kDouble)});
    expect_gradients_match_differences(
        [&](const Tensors& x) { return Tensors{permute_weights(x[0], order)}; },
        {at::randn({6, 2}, at::kDouble)});
  }
}

TEST(Permute, SumsGradientsOfCopiesInSlotOrder) {
  const ExpertOrder order = expert_order(random_expert_ids(40, 8, 4), 8);
  const at::Tensor tokens = at::randn({40, 24}).to(at::kBFloat16);
  const at::Tensor probe = at::randn({160, 24}).to(at::kBFloat16);
  const Tensors grads =
      gradients([&](const Tensors& x) { return Tensors{permute(x[0], order)}; }, {tokens}, {probe});
  EXPECT_TRUE(same_bytes(grads[0], naive_combine(probe, order)));
}

TEST(PermuteWeights, FollowsTheRows) {
  const at::Tensor ids = random_expert_ids(50, 8, 3);
  const ExpertOrder order = expert_order(ids, 8);
  const at::Tensor weights = at::rand({50, 3});
  const at::Tensor rows = permute_weights(weights, order);
  EXPECT_TRUE(at::equal(rows.index_select(0, order.row_of_copy.flatten()).view({50, 3}), weights));
}

TEST(ReorderRows, PermutesAndBackwardUndoesIt) {
  const at::Tensor row_of_output = ascending(at::rand({30}), 0);
  const at::Tensor inverse = ascending(row_of_output, 0);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor rows = at::randn({30, 9}).to(type);
    const at::Tensor reordered = reorder_rows(rows, row_of_output, inverse);
    EXPECT_TRUE(at::equal(reordered, rows.index_select(0, row_of_output)));
    EXPECT_TRUE(at::equal(reorder_rows(reordered, inverse, row_of_output), rows));
  }
  EXPECT_TRUE(at::equal(reorder_rows(at::arange(30, at::kFloat), row_of_output, inverse),
                        row_of_output.to(at::kFloat)));
  expect_gradients_match_differences(
      [&](const Tensors& x) { return Tensors{reorder_rows(x[0], row_of_output, inverse)}; },
      {at::randn({30, 2}, at::kDouble)});
}

TEST(ReorderRows, RefusesAnInverseThatIsNone) {
  EXPECT_EQ(message_of([] {
              reorder_rows(at::zeros({3, 2}), longs({1, 2, 0}), longs({1, 2, 0}));
            }),
            "reorder_rows: row_of_output[0] is 1, which `inverse` does not undo");
  EXPECT_EQ(message_of([] {
              reorder_rows(at::zeros({2, 2}), longs({0, 7}), longs({0, 1}));
            }),
            "reorder_rows: row_of_output[1] is 7, which `inverse` does not undo");
  EXPECT_EQ(message_of([] {
              reorder_rows(at::zeros({2, 2}), longs({0}), longs({0, 1}));
            }),
            "reorder_rows: row_of_output must have shape [2], got [1]");
}

TEST(Permute, NamesSizesThatDoNotBelongTogether) {
  const ExpertOrder order = expert_order(longs({0, 1, 1, 0}).view({2, 2}), 2);
  EXPECT_EQ(message_of([&] {
              permute(at::zeros({3, 5}), order);
            }),
            "permute: tokens must have shape [2, *], got [3, 5]");
  EXPECT_EQ(message_of([&] {
              combine(at::zeros({3, 5}), order);
            }),
            "combine: rows must have shape [4, *], got [3, 5]");
  EXPECT_EQ(message_of([&] {
              permute_weights(at::zeros({2, 3}), order);
            }),
            "permute_weights: weights must have shape [2, 2], got [2, 3]");
}

TEST(Permute, DoesNotDependOnThreads) {
  const ExpertOrder order = expert_order(random_expert_ids(2000, 8, 4), 8);
  const at::Tensor tokens = at::randn({2000, 65});
  const at::Tensor probe = at::randn({8000, 65});
  expect_same_bytes_for_all_thread_counts([&] {
    return Tensors{permute(tokens, order), combine(probe, order),
                   gradients([&](const Tensors& x) { return Tensors{permute(x[0], order)}; },
                             {tokens}, {probe})[0]};
  });
}

}  // namespace
}  // namespace switchyard

// Attention over a row that ranks divide, against attention over the whole row on one rank.
#include "nn/context_attention.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/error.h"
#include "parallel/launch.h"

namespace switchyard {
namespace {

struct Case {
  std::vector<int64_t> lengths;
  int64_t num_tokens;
  int64_t heads;
  int64_t kv_heads;
  int64_t window = 0;
  double softcap = 0;
  bool has_sinks = false;
};

constexpr int64_t kHeadDim = 4;

struct RowTensors {
  at::Tensor q, k, v, grad_out;
};

RowTensors random_row(const Case& one, at::ScalarType type) {
  const at::Generator generator = at::detail::createCPUGenerator(17);
  const auto draw = [&](int64_t heads) {
    return at::randn({one.num_tokens, heads, kHeadDim}, generator, at::kDouble).to(type);
  };
  return {draw(one.heads), draw(one.kv_heads), draw(one.kv_heads), draw(one.heads)};
}

// out, then the gradients of q, k, v and, where there are any, sinks.
using Results = std::vector<at::Tensor>;

template <class Attend>
Results run(const RowTensors& row, const at::Tensor& sinks, Attend attend) {
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& tensor : {row.q, row.k, row.v}) {
    inputs.push_back(tensor.clone().requires_grad_(true));
  }
  if (sinks.defined()) {
    inputs.push_back(sinks.clone().requires_grad_(true));
  }
  const at::Tensor out =
      attend(inputs[0], inputs[1], inputs[2], sinks.defined() ? inputs[3] : at::Tensor());
  (out * row.grad_out).sum().backward();
  Results results{out.detach()};
  for (const at::Tensor& input : inputs) {
    results.push_back(input.grad());
  }
  return results;
}

void expect_equal_to_one_rank(const Case& one, ContextExchange exchange, int64_t ranks,
                              at::ScalarType type = at::kDouble, double tolerance = 1e-12) {
  const auto table = SequenceTable::from_lengths(one.lengths, one.num_tokens);
  const RowTensors row = random_row(one, type);
  const at::Tensor sinks =
      one.has_sinks ? at::linspace(-1, 3, one.heads, at::kDouble).to(type) : at::Tensor();
  const auto options_with = [&](const at::Tensor& leaf) {
    return AttentionOptions{
        .scale = {}, .window = one.window, .softcap = one.softcap, .sinks = leaf};
  };
  const Results whole = run(
      row, sinks,
      [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& leaf) {
        return attention(q, k, v, table, options_with(leaf)).out;
      });
  run_ranks({.world_size = ranks, .context = ranks}, [&](Groups& groups) {
    const auto share = table.share(ranks, groups.rank());
    const auto attend = make_context_attention(exchange, groups[GroupName::kContext]);
    const auto own = [&](const at::Tensor& tensor) { return share.held.select(tensor); };
    Results part = run(
        {own(row.q), own(row.k), own(row.v), own(row.grad_out)}, sinks,
        [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& leaf) {
          return attend->forward(q, k, v, share, options_with(leaf));
        });
    const size_t of_tokens = 4;
    for (size_t i = of_tokens; i < part.size(); ++i) {  // the sinks': the sum over ranks
      part[i] = part[i].clone();
      groups[GroupName::kContext].all_reduce(part[i], {"test.sinks"});
    }
    for (size_t i = 0; i < whole.size(); ++i) {
      const at::Tensor expected = (i < of_tokens ? own(whole[i]) : whole[i]).to(at::kDouble);
      EXPECT_EQ(part[i].scalar_type(), type);
      EXPECT_TRUE(at::allclose(part[i].to(at::kDouble), expected, tolerance, tolerance))
          << "result " << i << ", rank " << groups.rank() << " of " << ranks;
    }
  });
}

constexpr ContextExchange kExchanges[] = {ContextExchange::kRing, ContextExchange::kAllGather,
                                          ContextExchange::kAllToAll};

TEST(ContextAttention, EqualsOneRank) {
  const std::vector<Case> cases = {
      {{24}, 24, 4, 4},
      {{5, 11, 1, 6}, 24, 4, 2},
      {{40}, 40, 4, 1, 7},
      {{13, 17}, 33, 4, 2, 3},
      {{9}, 25, 4, 4},
      {{3}, 3, 4, 2},
      {{1}, 1, 4, 2},
      {{}, 4, 4, 2},
      {{700, 30, 500}, 1233, 4, 2},
      {{1200}, 1200, 4, 2, 100},
      {{1200}, 1200, 4, 1, 601},
      {{5, 11, 1, 6}, 24, 4, 2, 0, 1.2},
      {{13, 17}, 33, 4, 2, 0, 0, true},
      {{13, 17}, 33, 4, 2, 3, 0.9, true},
      {{1}, 1, 4, 2, 0, 0, true},
      {{}, 4, 4, 2, 0, 0, true},
      {{1200}, 1200, 4, 2, 100, 2.5, true},
  };
  for (const Case& one : cases) {
    for (const ContextExchange exchange : kExchanges) {
      for (const int64_t ranks : {2, 4}) {
        SCOPED_TRACE(fmt::format("{} tokens, window {}, {} ranks, exchange {}", one.num_tokens,
                                 one.window, ranks, static_cast<int>(exchange)));
        expect_equal_to_one_rank(one, exchange, ranks);
      }
    }
  }
  expect_equal_to_one_rank({{19, 8}, 31, 3, 3, 4}, ContextExchange::kRing, 3);
  expect_equal_to_one_rank({{19, 8}, 31, 6, 3, 4}, ContextExchange::kAllToAll, 3);
  expect_equal_to_one_rank({{19, 8}, 31, 3, 1}, ContextExchange::kAllGather, 3);
}

TEST(ContextAttention, RoundsAsTheDtypeDoes) {
  for (const ContextExchange exchange : kExchanges) {
    expect_equal_to_one_rank({{40, 24}, 64, 4, 2}, exchange, 4, at::kFloat, 1e-5);
    expect_equal_to_one_rank({{40, 24}, 64, 4, 2}, exchange, 4, at::kBFloat16, 4e-2);
  }
}

TEST(ContextAttention, RefusesHeadsThatRanksCannotDivide) {
  EXPECT_THROW(run_ranks({.world_size = 2, .context = 2},
                         [](Groups& groups) {
                           const auto table =
                               SequenceTable::from_lengths({8}).share(2, groups.rank());
                           const at::Tensor heads = at::ones({4, 3, kHeadDim}, at::kDouble);
                           make_head_exchange_attention(groups[GroupName::kContext])
                               ->forward(heads, heads, heads, table, {});
                         }),
               ShapeError);
}

// What each rank sends, in bytes, by the arithmetic of each exchange.
TEST(ContextAttention, SendsWhatTheArithmeticSays) {
  const Case one{{40, 21}, 67, 8, 2};
  for (const at::ScalarType type : {at::kDouble, at::kBFloat16}) {
    const RowTensors row = random_row(one, type);
    const auto table = SequenceTable::from_lengths(one.lengths, one.num_tokens);
    const auto element = static_cast<int64_t>(row.q.element_size());
    const int64_t wide_element = std::max<int64_t>(element, 4);  // gradients are summed in fp32
    for (const int64_t ranks : {2, 4}) {
      const int64_t keys_values = 2 * one.kv_heads * kHeadDim;
      const std::vector<int64_t> sizes = table.share(ranks, 0).share_sizes();
      for (const ContextExchange exchange : kExchanges) {
        run_ranks({.world_size = ranks, .context = ranks}, [&](Groups& groups) {
          const int64_t rank = groups.rank();
          const auto share = table.share(ranks, rank);
          const int64_t held = share.held.size();
          const auto own = [&](const at::Tensor& tensor) { return share.held.select(tensor); };
          const auto attend = make_context_attention(exchange, groups[GroupName::kContext]);
          run({own(row.q), own(row.k), own(row.v), own(row.grad_out)}, {},
              [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const at::Tensor&) { return attend->forward(q, k, v, share, {}); });
          const auto held_by = [&](int64_t index) {
            return sizes[static_cast<size_t>((index + ranks) % ranks)];
          };
          // Around the ring all keys and values pass but those of the next rank, which arrive last;
          // the sums all but those of this rank's own.
          const int64_t ring = (one.num_tokens - held_by(rank + 1)) * keys_values * element;
          const int64_t sums = (one.num_tokens - held) * keys_values * wide_element;
          const int64_t gathered = held * (ranks - 1) * keys_values * element;
          const int64_t scattered = (one.num_tokens - held) * keys_values * element;
          const int64_t q_heads = one.heads / ranks;
          const int64_t all_heads = q_heads + 2 * std::max<int64_t>(1, one.kv_heads / ranks);
          const int64_t there = held * (ranks - 1) * all_heads * kHeadDim * element;
          const int64_t back = (one.num_tokens - held) * q_heads * kHeadDim * element;
          const int64_t there_backward = (one.num_tokens - held) * all_heads * kHeadDim * element;
          const int64_t back_backward = held * (ranks - 1) * q_heads * kHeadDim * element;
          std::map<std::string, int64_t> expected;
          switch (exchange) {
            case ContextExchange::kRing:
              expected = {{"attention.ring_keys_values", ring},
                          {"attention.ring_keys_values/backward", ring},
                          {"attention.ring_gradients/backward", sums}};
              break;
            case ContextExchange::kAllGather:
              expected = {{"attention.context_keys_values", gathered},
                          {"attention.context_keys_values/backward", scattered}};
              break;
            case ContextExchange::kAllToAll:
              expected = {{"attention.context_heads", there},
                          {"attention.context_tokens", back},
                          {"attention.context_tokens/backward", back_backward},
                          {"attention.context_heads/backward", there_backward}};
              break;
          }
          std::map<std::string, int64_t> sent;
          for (const LedgerEntry& entry : groups.ledger().entries()) {
            EXPECT_EQ(entry.purpose, Purpose::kContextParallel);
            EXPECT_EQ(entry.group, "cp");
            sent[entry.site] += entry.bytes;
          }
          EXPECT_EQ(sent, expected) << "rank " << rank << " of " << ranks;
        });
      }
    }
  }
}

}  // namespace
}  // namespace switchyard

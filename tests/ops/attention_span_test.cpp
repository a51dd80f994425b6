// Attention in parts: ranges of queries against ranges of keys.
#include "ops/attention_span.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "ops/attention.h"

namespace switchyard {
namespace {

// Which key tokens of the row a query token sees by its spans.
std::vector<int64_t> keys_seen(const std::vector<AttentionSpan>& spans, const TokenRange& queries,
                               const TokenRange& keys, int64_t window, int64_t token) {
  std::vector<int64_t> seen;
  for (const AttentionSpan& span : spans) {
    const int64_t query = token - queries.begin - span.first_query;
    if (query < 0 || query >= span.num_queries) {
      continue;
    }
    const int64_t end = span.seen_by_first + query;
    for (int64_t key = window > 0 ? std::max<int64_t>(0, end - window) : 0;
         key < std::min(end, span.num_keys); ++key) {
      seen.push_back(keys.begin + span.first_key + key);
    }
  }
  return seen;
}

TEST(AttentionSpans, LetATokenSeeThoseBeforeItInItsSequence) {
  const auto table = SequenceTable::from_lengths({5, 1, 7, 4}, 20);
  const at::Tensor ids = table.sequence_ids();
  const auto* id = ids.const_data_ptr<int64_t>();
  for (const int64_t window : {0, 1, 3, 100}) {
    for (const TokenRange queries : {TokenRange{0, 20}, {3, 9}, {9, 9}, {8, 15}, {14, 20}}) {
      for (const TokenRange keys : {TokenRange{0, 20}, {0, 3}, {3, 9}, {7, 12}, {16, 20}}) {
        const auto spans = attention_spans(table.starts, queries, keys, window);
        for (int64_t token = queries.begin; token < queries.end; ++token) {
          std::vector<int64_t> expected;
          for (int64_t key = keys.begin; key < keys.end; ++key) {
            if (id[token] >= 0 && id[key] == id[token] && key <= token &&
                (window == 0 || key > token - window)) {
              expected.push_back(key);
            }
          }
          EXPECT_EQ(keys_seen(spans, queries, keys, window, token), expected)
              << "token " << token << ", window " << window;
        }
        for (const AttentionSpan& span : spans) {
          for (int64_t i = 0; i < span.num_queries; ++i) {
            EXPECT_FALSE(
                keys_seen(spans, queries, keys, window, queries.begin + span.first_query + i)
                    .empty())
                << "a query of a span sees nothing";
          }
        }
      }
    }
  }
}

class AttentionInParts : public testing::Test {
 protected:
  AttentionInParts() { at::manual_seed(4); }

  static constexpr int64_t kTokens = 150;
  SequenceTable table = SequenceTable::from_lengths({90, 7, 40}, kTokens);
  at::Tensor q = at::randn({kTokens, 4, 8}, at::kDouble);
  at::Tensor k = at::randn({kTokens, 2, 8}, at::kDouble);
  at::Tensor v = at::randn({kTokens, 2, 8}, at::kDouble);
  at::Tensor grad_out = at::randn({kTokens, 4, 8}, at::kDouble);
  const std::vector<TokenRange> blocks{{0, 33}, {33, 34}, {34, 100}, {100, kTokens}};

  at::Tensor of(const at::Tensor& tensor, const TokenRange& range) const {
    return tensor.narrow(0, range.begin, range.size());
  }
};

TEST_F(AttentionInParts, JoinedIsAttentionToAllKeys) {
  for (const int64_t window : {0, 20}) {
    const AttentionOptions options{.scale = {}, .window = window};
    const AttentionOutput whole = attention(q, k, v, table, options);
    AttentionOutput joined;
    for (const TokenRange& keys : blocks) {
      const auto spans = attention_spans(table.starts, {0, kTokens}, keys, window);
      const AttentionOutput part = attention_over(q, of(k, keys), of(v, keys), spans, options);
      joined = joined.out.defined() ? join(joined, part) : part;
    }
    EXPECT_TRUE(at::allclose(joined.out, whole.out, 1e-12, 1e-12));
    const int64_t real = table.num_real_tokens();
    EXPECT_TRUE(at::allclose(joined.log_sum_exp.slice(0, 0, real),
                             whole.log_sum_exp.slice(0, 0, real), 1e-12, 1e-12));
    EXPECT_TRUE(joined.log_sum_exp.slice(0, real).isinf().all().item<bool>());
    EXPECT_TRUE(joined.out.slice(0, real).eq(0).all().item<bool>());
  }
}

TEST_F(AttentionInParts, GradientsAddUp) {
  for (const int64_t window : {0, 20}) {
    const AttentionOptions options{.scale = 0.3, .window = window};
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& tensor : {q, k, v}) {
      leaves.push_back(tensor.clone().requires_grad_(true));
    }
    const AttentionOutput whole = attention(leaves[0], leaves[1], leaves[2], table, options);
    (whole.out * grad_out).sum().backward();
    const AttentionOutput known{whole.out.detach(), whole.log_sum_exp};
    at::Tensor grad_q = at::zeros_like(q);
    for (const TokenRange& keys : blocks) {
      const auto spans = attention_spans(table.starts, {0, kTokens}, keys, window);
      const AttentionGradients part =
          attention_gradients(q, of(k, keys), of(v, keys), known, grad_out, spans, options);
      grad_q += part.q;
      EXPECT_TRUE(at::allclose(part.k, of(leaves[1].grad(), keys), 1e-11, 1e-11));
      EXPECT_TRUE(at::allclose(part.v, of(leaves[2].grad(), keys), 1e-11, 1e-11));
    }
    EXPECT_TRUE(at::allclose(grad_q, leaves[0].grad(), 1e-11, 1e-11));
  }
}

}  // namespace
}  // namespace switchyard

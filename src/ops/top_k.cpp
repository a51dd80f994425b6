#include "ops/top_k.h"

#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/error.h"
#include "base/shape.h"
#include "ops/float_types.h"
#include "ops/ranking.h"

namespace switchyard {
namespace {

// Enough scores to be worth waking another thread.
constexpr int64_t kScoresPerTask = 16384;

}  // namespace

at::Tensor top_k_ids(const at::Tensor& scores, int64_t k) {
  check_float_cpu("top_k_ids: scores", scores);
  check_shape("top_k_ids: scores", scores, {kAnySize, kAnySize});
  const int64_t tokens = scores.size(0);
  const int64_t num_experts = scores.size(1);
  check<ShapeError>(k >= 1 && k <= num_experts, "top_k_ids: k ({}) must be 1 to num_experts ({})",
                    k, num_experts);
  const at::Tensor rows = scores.detach().contiguous();
  at::Tensor ids = at::empty({tokens, k}, scores.options().dtype(at::kLong));
  auto* out = ids.mutable_data_ptr<int64_t>();
  visit_float_type(rows.scalar_type(), [&](auto type) {
    using T = decltype(type);
    const auto* in = rows.const_data_ptr<T>();
    at::parallel_for(0, tokens, 1 + kScoresPerTask / num_experts, [&](int64_t begin, int64_t end) {
      std::vector<Accumulator<T>> best(static_cast<size_t>(k));
      for (int64_t token = begin; token < end; ++token) {
        rank(in + token * num_experts, num_experts, k, best.data(), out + token * k);
      }
    });
  });
  return ids;
}

}  // namespace switchyard

#include "ops/top_k.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/error.h"
#include "base/shape.h"
#include "ops/float_types.h"

namespace switchyard {
namespace {

// Enough scores to be worth waking another thread.
constexpr int64_t kScoresPerTask = 16384;

// The order of the ranking: numbers downwards, then NaN. Equal scores are not better than each
// other, so that the expert seen first, of the lowest id, stays ahead.
bool is_better(float score, float than) {
  return score > than || (std::isnan(than) && !std::isnan(score));
}
bool is_better(double score, double than) {
  return score > than || (std::isnan(than) && !std::isnan(score));
}

// Insertion into a list of k, best first. `best` has room for k scores.
template <class T, class Score>
void rank_experts(const T* scores, int64_t num_experts, int64_t k, Score* best, int64_t* ids) {
  for (int64_t expert = 0; expert < num_experts; ++expert) {
    const auto score = static_cast<Score>(scores[expert]);
    int64_t place = std::min(expert, k);
    if (place == k && !is_better(score, best[k - 1])) {
      continue;
    }
    place = std::min(place, k - 1);
    while (place > 0 && is_better(score, best[place - 1])) {
      best[place] = best[place - 1];
      ids[place] = ids[place - 1];
      --place;
    }
    best[place] = score;
    ids[place] = expert;
  }
}

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
        rank_experts(in + token * num_experts, num_experts, k, best.data(), out + token * k);
      }
    });
  });
  return ids;
}

}  // namespace switchyard

#include "selfcheck/expert_choices.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include <ATen/ATen.h>

#include "moe/row_ranks.h"

namespace switchyard {
namespace {

// Calls `visit(place, number)` for each token that this rank routes: where its choice lies in the
// memo, and its number in the run, or -1 for padding.
void for_each_token(const TokenBatch& batch, const Groups& groups,
                    const std::function<void(int64_t place, int64_t number)>& visit) {
  const TokenRanges own = RowRanks(groups).own_tokens(batch.table);
  int64_t place = 0;
  for (const TokenRange& range : own.ranges()) {
    for (int64_t token = range.begin; token < range.end; ++token, ++place) {
      visit(place, token < batch.table.num_real_tokens() ? batch.first_token + token : -1);
    }
  }
}

std::vector<int64_t> row_of(const at::Tensor& ids, int64_t place) {
  const auto* first = ids.const_data_ptr<int64_t>() + place * ids.size(1);
  return {first, first + ids.size(1)};
}

}  // namespace

void ExpertChoices::record(const TokenBatch& batch, const RoutingMemos& memos,
                           const Groups& groups) {
  const std::lock_guard lock(mutex_);
  const auto keep = [&](const at::Tensor& ids, size_t layer, std::map<Key, Ids>& all) {
    const at::Tensor rows = ids.contiguous();
    for_each_token(batch, groups, [&](int64_t place, int64_t number) {
      if (number >= 0) {
        all[{layer, number}] = row_of(rows, place);
      }
    });
  };
  for (size_t layer = 0; layer < memos.size(); ++layer) {
    const RoutingMemo& memo = *memos[layer];
    if (memo.expert_ids.defined()) {
      keep(memo.expert_ids, layer, ids_);
    }
    if (memo.kept.has_value()) {
      keep(memo.kept->expert_ids, layer, kept_ids_);
    }
  }
}

// What `all` has of this rank's tokens in one layer; any for padding, which nothing counts.
// [own tokens, top_k]; undefined where the layer has none.
at::Tensor ExpertChoices::recorded(const std::map<Key, Ids>& all, size_t layer, bool is_kept,
                                   const TokenBatch& batch, const Groups& groups) {
  const auto any = all.lower_bound({layer, 0});
  if (any == all.end() || any->first.first != layer) {
    return {};
  }
  const int64_t top_k = std::ssize(any->second);
  Ids of_padding(static_cast<size_t>(top_k), -1);
  if (!is_kept) {
    std::iota(of_padding.begin(), of_padding.end(), 0);
  }
  Ids rows;
  for_each_token(batch, groups, [&](int64_t, int64_t number) {
    const Ids& ids = number < 0 ? of_padding : all.at({layer, number});
    rows.insert(rows.end(), ids.begin(), ids.end());
  });
  return at::tensor(rows, at::kLong).view({-1, top_k});
}

void ExpertChoices::replay(const TokenBatch& batch, const RoutingMemos& memos,
                           const Groups& groups) const {
  const std::lock_guard lock(mutex_);
  for (size_t layer = 0; layer < memos.size(); ++layer) {
    memos[layer]->expert_ids = recorded(ids_, layer, /*is_kept=*/false, batch, groups);
    const at::Tensor kept = recorded(kept_ids_, layer, /*is_kept=*/true, batch, groups);
    if (kept.defined()) {
      memos[layer]->kept.emplace().expert_ids = kept;
    }
  }
}

void ExpertChoices::count_flips(const TokenBatch& batch, const RoutingMemos& memos,
                                const Groups& groups) {
  const std::lock_guard lock(mutex_);
  const auto sorted = [](std::vector<int64_t> ids) {
    std::sort(ids.begin(), ids.end());
    return ids;
  };
  for (size_t layer = 0; layer < memos.size(); ++layer) {
    if (!memos[layer]->expert_ids.defined()) {
      continue;
    }
    const at::Tensor ids = memos[layer]->expert_ids.contiguous();
    for_each_token(batch, groups, [&](int64_t place, int64_t number) {
      const bool is_other =
          number >= 0 && sorted(row_of(ids, place)) != sorted(ids_.at({layer, number}));
      num_flips_ += is_other ? 1 : 0;
    });
  }
}

int64_t ExpertChoices::num_recorded() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(ids_);
}

int64_t ExpertChoices::num_flips() const {
  const std::lock_guard lock(mutex_);
  return num_flips_;
}

}  // namespace switchyard

#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/token_batch.h"
#include "model/language_model.h"
#include "parallel/groups.h"

namespace switchyard {

// Which experts the tokens of some batches chose, and which copies the experts took, by the tokens'
// numbers in the run. In fp32 two layouts round differently: a token whose experts are nearly equal
// may choose another one, and of two copies with nearly equal weights the other may be dropped. To
// be compared, one layout replays the choices of the other. Ranks are threads and may call it at
// the same time.
class ExpertChoices {
 public:
  // Keeps what the memos of a forward pass of `batch` hold.
  void record(const TokenBatch& batch, const RoutingMemos& memos, const Groups& groups);
  // Makes fresh memos choose what was recorded, in the layers that were. Empty rows are left out:
  // they change no value.
  void replay(const TokenBatch& batch, const RoutingMemos& memos, const Groups& groups) const;
  // Counts the tokens that chose other experts than those recorded.
  void count_flips(const TokenBatch& batch, const RoutingMemos& memos, const Groups& groups);

  int64_t num_recorded() const;  // tokens, of every layer
  int64_t num_flips() const;

 private:
  using Key = std::pair<size_t, int64_t>;  // layer, number of the token
  using Ids = std::vector<int64_t>;        // of a token, in the order of slots

  static at::Tensor recorded(const std::map<Key, Ids>& all, size_t layer, bool is_kept,
                             const TokenBatch& batch, const Groups& groups);

  mutable std::mutex mutex_;
  std::map<Key, Ids> ids_;
  std::map<Key, Ids> kept_ids_;  // with capacity; -1: dropped
  int64_t num_flips_ = 0;
};

}  // namespace switchyard

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace switchyard {

// The order of the ranking: numbers downwards, then NaN. Equal scores are not better than each
// other, so that the one seen first, of the lowest id, stays ahead.
template <class T>
bool is_better(T score, T than) {
  return score > than || (std::isnan(than) && !std::isnan(score));
}

// The ids of the k best of `count` scores, best first, by insertion into a list of k. `best` has
// room for k scores, which it then holds.
template <class T, class Score>
void rank(const T* scores, int64_t count, int64_t k, Score* best, int64_t* ids) {
  for (int64_t id = 0; id < count; ++id) {
    const auto score = static_cast<Score>(scores[id]);
    int64_t place = std::min(id, k);
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
    ids[place] = id;
  }
}

}  // namespace switchyard

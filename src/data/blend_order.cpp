#include "data/blend_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace switchyard {
namespace {

constexpr int64_t kWholeOfWeights = int64_t{1} << 60;

__extension__ using int128 = __int128;

// x * numerator / denominator, rounded down or up. The product needs more than 64 bits.
int64_t scale_down(int64_t x, int64_t numerator, int64_t denominator) {
  return static_cast<int64_t>(int128{x} * numerator / denominator);
}
int64_t scale_up(int64_t x, int64_t numerator, int64_t denominator) {
  return static_cast<int64_t>((int128{x} * numerator + denominator - 1) / denominator);
}

// Where to cut sets, sorted by falling share, in two parts: the number in the first part for which
// reaching a position costs least. A part costs its share over the smallest share in it.
size_t best_cut(const std::vector<int64_t>& sorted_shares) {
  std::vector<double> tails(sorted_shares.size() + 1);  // sums of the shares from i on
  for (size_t i = sorted_shares.size(); i-- > 0;) {
    tails[i] = tails[i + 1] + static_cast<double>(sorted_shares[i]);
  }
  size_t best = sorted_shares.size();
  double best_cost = tails[0] / static_cast<double>(sorted_shares.back());
  for (size_t cut = 1; cut < sorted_shares.size(); ++cut) {
    const double cost = (tails[0] - tails[cut]) / static_cast<double>(sorted_shares[cut - 1]) +
                        tails[cut] / static_cast<double>(sorted_shares.back());
    if (cost < best_cost) {
      best = cut;
      best_cost = cost;
    }
  }
  return best;
}

}  // namespace

BlendOrder::BlendOrder(const std::vector<int64_t>& shares) {
  std::vector<int64_t> sets(shares.size());
  std::iota(sets.begin(), sets.end(), 0);
  const auto share_of = [&](int64_t set) { return shares[static_cast<size_t>(set)]; };
  std::stable_sort(sets.begin(), sets.end(),
                   [&](int64_t a, int64_t b) { return share_of(a) > share_of(b); });
  std::vector<int64_t> sorted_shares;
  std::transform(sets.begin(), sets.end(), std::back_inserter(sorted_shares), share_of);

  const int64_t whole = std::accumulate(shares.begin(), shares.end(), int64_t{0});
  const auto cut = static_cast<std::ptrdiff_t>(best_cut(sorted_shares));
  parts_.emplace_back(std::vector(sets.begin(), sets.begin() + cut), shares, whole,
                      Part::Rounding::kUp);
  if (cut < std::ssize(sets)) {
    parts_.emplace_back(std::vector(sets.begin() + cut, sets.end()), shares, whole,
                        Part::Rounding::kDown);
  }
  for (Part& part : parts_) {
    restart_cost_ += part.restart_cost();
    part.seek(0);
  }
}

BlendDraw BlendOrder::at(int64_t position) {
  if (position < next_ - 1 || position - next_ > restart_cost_) {
    for (Part& part : parts_) {
      part.seek(position);
    }
    next_ = position;
  }
  for (; next_ <= position; ++next_) {
    const bool is_small_share =
        parts_.size() > 1 && parts_[1].owned_before(next_ + 1) > parts_[1].owned_before(next_);
    last_ = parts_[is_small_share ? 1 : 0].draw(next_);
  }
  return last_;
}

BlendOrder::Part::Part(std::vector<int64_t> sets, const std::vector<int64_t>& shares, int64_t whole,
                       Rounding rounding)
    : sets_(std::move(sets)), whole_(whole), rounding_(rounding) {
  for (const int64_t set : sets_) {
    shares_.push_back(shares[static_cast<size_t>(set)]);
    share_ += shares_.back();
  }
  look_back_ = scale_up(1, whole_, *std::min_element(shares_.begin(), shares_.end())) + 1;
}

int64_t BlendOrder::Part::owned_before(int64_t position) const {
  return rounding_ == Rounding::kDown ? scale_down(position, share_, whole_)
                                      : scale_up(position, share_, whole_);
}

int64_t BlendOrder::Part::position_of(int64_t owned) const {
  return rounding_ == Rounding::kDown ? scale_up(owned + 1, whole_, share_) - 1
                                      : scale_down(owned, whole_, share_);
}

int64_t BlendOrder::Part::restart_cost() const {
  return scale_up(look_back_, share_, whole_);
}

void BlendOrder::Part::seek(int64_t position) {
  const int64_t start = std::max(int64_t{0}, position - look_back_);
  restart(start);
  for (int64_t owned = owned_before(start); owned < owned_before(position); ++owned) {
    draw(position_of(owned));
  }
}

// The draws made before `position`: those whose deadline has passed, and of the open ones those
// with the earliest deadlines, which leaves the latest open.
void BlendOrder::Part::restart(int64_t position) {
  counts_.resize(sets_.size());
  std::vector<Event> open;
  int64_t missing = owned_before(position);
  for (size_t member = 0; member < sets_.size(); ++member) {
    counts_[member] = scale_down(position, shares_[member], whole_);
    missing -= counts_[member];
    if (release(member).position < position) {
      open.push_back(deadline(member));
    }
  }
  std::sort(open.begin(), open.end(),
            [](const Event& a, const Event& b) { return is_later(b, a); });
  for (int64_t i = 0; i < missing; ++i) {
    ++counts_[open[static_cast<size_t>(i)].member];
  }
  open_.clear();
  waiting_.clear();
  for (size_t member = 0; member < sets_.size(); ++member) {
    waiting_.push_back(release(member));
  }
  std::make_heap(waiting_.begin(), waiting_.end(), is_later);
}

BlendDraw BlendOrder::Part::draw(int64_t position) {
  while (!waiting_.empty() && waiting_.front().position <= position) {
    std::pop_heap(waiting_.begin(), waiting_.end(), is_later);
    open_.push_back(deadline(waiting_.back().member));
    std::push_heap(open_.begin(), open_.end(), is_later);
    waiting_.pop_back();
  }
  std::pop_heap(open_.begin(), open_.end(), is_later);
  const size_t member = open_.back().member;
  open_.pop_back();
  const int64_t count = counts_[member]++;
  waiting_.push_back(release(member));
  std::push_heap(waiting_.begin(), waiting_.end(), is_later);
  return {sets_[member], count};
}

BlendOrder::Part::Event BlendOrder::Part::release(size_t member) const {
  return {scale_down(counts_[member], whole_, shares_[member]), member};
}

BlendOrder::Part::Event BlendOrder::Part::deadline(size_t member) const {
  return {scale_up(counts_[member] + 1, whole_, shares_[member]), member};
}

// Ties go to the set that comes first, so that the order is total.
bool BlendOrder::Part::is_later(const Event& a, const Event& b) {
  return a.position != b.position ? a.position > b.position : a.member > b.member;
}

std::vector<int64_t> shares_of_weights(const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> shares;
  for (const double weight : weights) {
    shares.push_back(static_cast<int64_t>(weight / sum * static_cast<double>(kWholeOfWeights)));
    check<ConfigError>(shares.back() > 0, "a weight of {} beside others of {} in all is too small",
                       weight, sum);
  }
  // What rounding lost goes where it is least felt.
  const int64_t lost = kWholeOfWeights - std::accumulate(shares.begin(), shares.end(), int64_t{0});
  *std::max_element(shares.begin(), shares.end()) += lost;
  return shares;
}

}  // namespace switchyard

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace switchyard {

struct BlendDraw {
  int64_t set = 0;    // the data set that a position draws from
  int64_t count = 0;  // how many earlier positions drew from it
};

// In which order several data sets are drawn from, so that every prefix holds its share of each:
// in the first n positions, set s is drawn floor(n x share) or ceil(n x share) times. Nothing is
// stored that grows with n, and any position is reached directly.
//
// Draw j of a set may not come before position floor(j / share) and must come before position
// ceil((j + 1) / share); of the draws that may come, the one that must come soonest does. As the
// shares add up to one, this earliest-deadline order misses no deadline, which is the bound above
// (Baruah, Cohen, Plaxton and Varvel 1996, "Proportionate progress", for one processor).
//
// To reach position n, the order is started anew some positions earlier. Two earliest-deadline
// orders that differ at m in which draws are still open agree from the moment that the later ones
// among these are made; so, started from the state with the latest deadlines open, it has joined
// the true order after 1 / (smallest share) positions. To keep this short beside very small shares,
// the sets that have them form a part of their own, which owns the positions where floor(n x share
// of the part) rises. Any stretch of positions gives each part at least as many as draws must be
// made in it, so each part keeps all deadlines within its own positions.
class BlendOrder {
 public:
  // One positive share per set; only their ratios count. Their sum must be at most 2^60.
  explicit BlendOrder(const std::vector<int64_t>& shares);

  // The draw at `position`, 0 to 2^60. Cheapest when positions are asked for in rising order. Not
  // for several threads at once.
  BlendDraw at(int64_t position);

 private:
  // Sets that share the positions of one part, which holds `share` of `whole` of all positions.
  class Part {
   public:
    enum class Rounding { kDown, kUp };  // of the number of positions owned in a prefix

    Part(std::vector<int64_t> sets, const std::vector<int64_t>& shares, int64_t whole,
         Rounding rounding);

    int64_t owned_before(int64_t position) const;
    int64_t restart_cost() const;      // draws that seek makes
    void seek(int64_t position);       // gets ready for the first draw at `position` or later
    BlendDraw draw(int64_t position);  // at the next position it owns

   private:
    struct Event {
      int64_t position;
      size_t member;
    };
    static bool is_later(const Event& a, const Event& b);
    int64_t position_of(int64_t owned) const;
    void restart(int64_t position);
    Event release(size_t member) const;
    Event deadline(size_t member) const;

    std::vector<int64_t> sets_;    // [members]
    std::vector<int64_t> shares_;  // [members]
    int64_t share_ = 0;
    int64_t whole_;
    Rounding rounding_;
    int64_t look_back_;            // positions
    std::vector<int64_t> counts_;  // [members], draws made
    std::vector<Event> waiting_;   // heap: the next draw of a set, by the position it may come at
    std::vector<Event> open_;      // heap: draws that may come, by the position they must precede
  };

  std::vector<Part> parts_;  // one or two; the small shares come second
  int64_t restart_cost_ = 0;
  int64_t next_ = 0;  // position of the next draw
  BlendDraw last_;    // the draw before it
};

// Shares in the ratios of `weights`, which must be finite and positive.
// Throws ConfigError when one is below 1e-18 of their sum.
std::vector<int64_t> shares_of_weights(const std::vector<double>& weights);

}  // namespace switchyard

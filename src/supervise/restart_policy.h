#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace switchyard {

// What is compared to tell whether a failure is the one of before.
struct Failure {
  int64_t rank = 0;
  std::string how;         // "ended with code 1: <its error>", "hung"
  std::string checkpoint;  // the newest one at that time: no progress, if it is the same again

  bool operator==(const Failure&) const = default;
};

enum class NextAttempt {
  kSame,
  kFewerRanks,
  kNoneLeft,         // all restarts are used up
  kNothingIsGained,  // the same failure over and over
};

// Whether and how to go on after a failure.
class RestartPolicy {
 public:
  // `most_alike` failures alike in a row, without a new checkpoint in between, end the run, or the
  // work with that many ranks where it may go on with fewer.
  RestartPolicy(int64_t most_restarts, int64_t most_alike)
      : most_restarts_(most_restarts), most_alike_(most_alike) {}

  // `may_shrink`: there is a layout for fewer ranks, and it is allowed.
  NextAttempt after(const Failure& failure, bool may_shrink);

  int64_t num_restarts() const { return num_restarts_; }
  int64_t num_alike() const { return num_alike_; }  // in a row, up to the last one

 private:
  int64_t most_restarts_;
  int64_t most_alike_;
  int64_t num_restarts_ = 0;
  int64_t num_alike_ = 0;
  std::optional<Failure> last_;
};

}  // namespace switchyard

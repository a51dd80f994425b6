#include "supervise/restart_policy.h"

namespace switchyard {

NextAttempt RestartPolicy::after(const Failure& failure, bool may_shrink) {
  num_alike_ = last_ == failure ? num_alike_ + 1 : 1;
  last_ = failure;
  if (num_restarts_ >= most_restarts_) {
    return NextAttempt::kNoneLeft;
  }
  if (num_alike_ >= most_alike_ && !may_shrink) {
    return NextAttempt::kNothingIsGained;
  }
  ++num_restarts_;
  if (num_alike_ < most_alike_) {
    return NextAttempt::kSame;
  }
  last_.reset();  // another world: its failures are others
  return NextAttempt::kFewerRanks;
}

}  // namespace switchyard

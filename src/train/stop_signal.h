#pragma once

namespace switchyard {

// While alive, SIGTERM, SIGINT and SIGHUP (a terminal that was closed; not when it is ignored, as
// under nohup) no longer end the process but are remembered, so that a step can be finished and
// saved. A second SIGINT ends it at once, for who does not want to wait. One at a
// time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool is_set() const;
};

}  // namespace switchyard

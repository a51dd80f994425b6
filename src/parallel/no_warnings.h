#pragma once

namespace switchyard {

// While one lives, c10d prints no warnings, in any thread: about a wait that times out or a store
// whose server is gone it prints stack traces and addresses. What happened is told in our words.
class NoWarnings {
 public:
  NoWarnings();
  ~NoWarnings();
  NoWarnings(const NoWarnings&) = delete;
  NoWarnings& operator=(const NoWarnings&) = delete;
};

}  // namespace switchyard

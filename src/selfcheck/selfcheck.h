#pragma once

#include <string>
#include <vector>

#include "selfcheck/layout_run.h"
#include "selfcheck/shrink.h"

namespace switchyard {

// What was compared of one kind of tensors, and how far the furthest of them was.
struct ComparedKind {
  std::string kind;
  int64_t num_tensors = 0;
  double largest = 0;  // relative difference: see compare()
  std::string largest_name = {};
};

struct SelfcheckReport {
  std::vector<ComparedKind> kinds;
  std::vector<std::string> failures;  // one line each; empty: the layout gives the one-rank result
  LayoutRunSites sites;               // what the layout communicated
};

constexpr double kSelfcheckTolerance = 1e-9;  // in fp64

// The layout test of docs/design.md: trains a few steps in the layout of `shrunk` and on one rank,
// ranks being threads of this process, and compares losses, every logical gradient and the weights,
// tensor by tensor; replicas must have equal bits.
SelfcheckReport selfcheck(const ShrunkConfig& shrunk);

}  // namespace switchyard

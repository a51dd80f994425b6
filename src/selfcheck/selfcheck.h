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
  // The first step in fp32, with the choices of experts of one rank; and how many of them, over
  // tokens and layers, would have been others.
  std::vector<ComparedKind> kinds_in_fp32;
  int64_t num_choices = 0;
  int64_t num_flips = 0;
};

constexpr double kSelfcheckTolerance = 1e-9;  // in fp64
// In fp32. Layers that carry a state from token to token multiply rounding: transformers' own
// Qwen3-Next is 4.6e-5 away from itself in fp64. What is wrong shows in fp64.
constexpr double kFp32Tolerance = 1e-5;
double fp32_tolerance(const Config& config);
// In fp32 a gradient is known to the rounding of the largest ones.
constexpr double kFp32LeastShare = 1e-2;

// The layout test of docs/design.md: trains a few steps in the layout of `shrunk` and on one rank,
// ranks being threads of this process, and compares losses, every logical gradient and the weights,
// tensor by tensor; replicas must have equal bits. Then the
// first step's gradients in fp32 as well.
SelfcheckReport selfcheck(const ShrunkConfig& shrunk);

}  // namespace switchyard

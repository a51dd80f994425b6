// Linked into every test: fills each new tensor with NaN (or the largest integer) before anyone
// writes to it, so that a row or an expert that is never written shows.
#include <ATen/Context.h>

namespace {

const bool is_poisoned = [] {
  // libtorch fills new memory only together with its deterministic kernels.
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  at::globalContext().setDeterministicFillUninitializedMemory(true);
  return true;
}();

}  // namespace

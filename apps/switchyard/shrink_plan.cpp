#include "shrink_plan.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

namespace switchyard {

void print_changes(const ShrunkConfig& shrunk) {
  fmt::print("changed to fit this machine; everything else is as configured:\n");
  size_t width = 0;
  for (const SettingChange& change : shrunk.changes) {
    width = std::max(width, change.name.size());
  }
  for (const SettingChange& change : shrunk.changes) {
    fmt::print("  {:<{}}  {} -> {}\n", change.name, width, change.before, change.after);
  }
  std::fflush(stdout);
}

}  // namespace switchyard

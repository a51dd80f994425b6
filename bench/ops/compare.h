#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

// What the benchmarks of operators share.
namespace switchyard {

struct Contender {
  std::string name;
  std::function<void()> run;
};

inline double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// One line: the first contender's time and rate, and how many times longer the others take.
inline void compare(const std::string& work, double amount, const std::string& unit,
                    const std::vector<Contender>& contenders) {
  constexpr int kRounds = 30;
  std::vector<std::vector<double>> times(contenders.size());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < contenders.size(); ++i) {
      times[i].push_back(seconds_of(contenders[i].run));
    }
  }
  std::string line;
  double ours = 0;
  for (size_t i = 0; i < contenders.size(); ++i) {
    const double best = *std::min_element(times[i].begin(), times[i].end());
    if (i == 0) {
      ours = best;
      line =
          fmt::format("{:34} {:8.3f} ms {:7.1f} {}", work, 1e3 * best, amount / best / 1e9, unit);
    } else {
      line += fmt::format("   {} x{:.2f}", contenders[i].name, best / ours);
    }
  }
  fmt::print("{}\n", line);
}

}  // namespace switchyard

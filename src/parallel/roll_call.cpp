#include "parallel/roll_call.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <thread>

#include <fmt/ranges.h>

#include "base/error.h"
#include "parallel/no_warnings.h"

namespace switchyard {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Who waits for rank 0's verdict gives it time to wait for the others in full.
constexpr milliseconds kVerdictTime{2000};
// How long rank 0, which may serve the store, stays for those who still have to read a refusal.
constexpr milliseconds kFarewellTime{1000};
constexpr milliseconds kPoll{10};

constexpr const char* kVerdict = "verdict";
constexpr const char* kNumHeard = "num_heard";

// The first character of a verdict.
constexpr char kWelcome = '+';
constexpr char kRefused = 'r';
constexpr char kMissing = 'm';

std::string key(int64_t rank) {
  return fmt::format("introduction/{}", rank);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// World size, program and node in a line each, then the settings.
std::string to_text(const Introduction& own) {
  return fmt::format("{}\n{}\n{}\n{}", own.world_size, own.program, own.node, own.settings);
}

Introduction from_text(int64_t rank, const std::string& text) {
  std::vector<std::string> lines = lines_of(text);
  check<CommError>(lines.size() >= 3,
                   "rank {} introduces itself in another way: it runs another program", rank);
  return {.rank = rank,
          .world_size = std::stoll(lines[0]),
          .program = lines[1],
          .settings = fmt::format("{}", fmt::join(lines.begin() + 3, lines.end(), "\n")),
          .node = lines[2]};
}

std::string first_difference(const std::string& expected, const std::string& actual) {
  const std::vector<std::string> ours = lines_of(expected);
  const std::vector<std::string> theirs = lines_of(actual);
  for (size_t i = 0; i < std::max(ours.size(), theirs.size()); ++i) {
    const std::string one = i < ours.size() ? ours[i] : "nothing";
    const std::string other = i < theirs.size() ? theirs[i] : "nothing";
    if (one != other) {
      return fmt::format("\"{}\" there, \"{}\" on rank 0", other, one);
    }
  }
  return "";
}

std::vector<int64_t> numbers_of_nodes(const std::vector<Introduction>& introductions) {
  std::map<std::string, int64_t> numbers;
  std::vector<int64_t> result;
  for (const Introduction& one : introductions) {
    result.push_back(numbers.try_emplace(one.node, std::ssize(numbers)).first->second);
  }
  return result;
}

bool comes_until(c10d::Store& store, const std::string& name, Clock::time_point deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
  try {
    store.wait({name}, std::max(left, milliseconds(1)));
    return true;
  } catch (const std::exception&) {
    return store.check({name});
  }
}

std::string verdict_on(c10d::Store& store, const Introduction& own, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  std::vector<Introduction> introductions;
  std::vector<int64_t> missing;
  for (int64_t rank = 0; rank < own.world_size; ++rank) {
    if (comes_until(store, key(rank), deadline)) {
      introductions.push_back(from_text(rank, store.get_to_str(key(rank))));
    } else {
      missing.push_back(rank);
    }
  }
  if (!missing.empty()) {
    return fmt::format(
        "{}rank{} {} of {} did not come within {} s: are they started, and can they reach rank 0?",
        kMissing, missing.size() > 1 ? "s" : "", fmt::join(missing, " "), own.world_size,
        std::chrono::duration<double>(timeout).count());
  }
  const std::string fault = disagreement(introductions);
  return fault.empty()
             ? fmt::format("{}{}", kWelcome, fmt::join(numbers_of_nodes(introductions), " "))
             : kRefused + fault;
}

std::string hear_verdict(c10d::Store& store, const Introduction& own, milliseconds timeout) {
  if (own.rank != 0) {
    check<CommError>(comes_until(store, kVerdict, Clock::now() + timeout + kVerdictTime),
                     "rank 0 of {} did not come within {} s: is it started?", own.world_size,
                     std::chrono::duration<double>(timeout).count());
    std::string verdict = store.get_to_str(kVerdict);
    store.add(kNumHeard, 1);
    return verdict;
  }
  std::string verdict = verdict_on(store, own, timeout);
  store.set(kVerdict, verdict);
  if (verdict.front() != kWelcome) {
    const auto deadline = Clock::now() + kFarewellTime;
    while (store.add(kNumHeard, 0) < own.world_size - 1 && Clock::now() < deadline) {
      std::this_thread::sleep_for(kPoll);
    }
  }
  return verdict;
}

std::vector<int64_t> numbers_in(const std::string& text) {
  std::vector<int64_t> numbers;
  for (size_t at = 0; at < text.size(); at = std::min(text.find(' ', at), text.size() - 1) + 1) {
    numbers.push_back(std::stoll(text.substr(at)));
  }
  return numbers;
}

}  // namespace

std::string disagreement(const std::vector<Introduction>& introductions) {
  const Introduction& first = introductions.front();
  for (const Introduction& other : introductions) {
    if (other.program != first.program) {
      return fmt::format("rank {} runs another program: {} there, {} on rank 0", other.rank,
                         other.program, first.program);
    }
    if (other.world_size != first.world_size) {
      return fmt::format("rank {} was told of {} ranks, rank 0 of {}", other.rank, other.world_size,
                         first.world_size);
    }
    if (other.settings != first.settings) {
      return fmt::format("rank {} has other settings: {}", other.rank,
                         first_difference(first.settings, other.settings));
    }
  }
  return "";
}

std::vector<int64_t> call_roll(c10d::Store& store, const Introduction& own, milliseconds timeout) {
  const NoWarnings no_warnings;
  check<ConfigError>(store.add(fmt::format("num_called/{}", own.rank), 1) == 1,
                     "rank {} was started twice: each process needs a number of its own", own.rank);
  store.set(key(own.rank), to_text(own));
  const std::string verdict = hear_verdict(store, own, timeout);
  const std::string text = verdict.substr(1);
  check<ConfigError>(verdict.front() != kRefused, "{}", text);
  check<CommError>(verdict.front() != kMissing, "{}", text);
  std::vector<int64_t> nodes = numbers_in(text);
  check<ConfigError>(std::ssize(nodes) == own.world_size,
                     "rank {} was told of {} ranks, rank 0 of {}", own.rank, own.world_size,
                     nodes.size());
  return nodes;
}

}  // namespace switchyard

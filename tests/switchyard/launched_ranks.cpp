#include "switchyard/launched_ranks.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "switchyard/run_program.h"

namespace switchyard {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> split(const std::string& words) {
  std::istringstream stream("switchyard " + words);
  std::vector<std::string> result;
  for (std::string word; stream >> word;) {
    result.push_back(word);
  }
  return result;
}

void read_all(int descriptor, std::string& text) {
  std::array<char, 4096> bytes;
  for (ssize_t count = 1; count > 0;) {
    count = read(descriptor, bytes.data(), bytes.size());
    text.append(bytes.data(), static_cast<size_t>(std::max<ssize_t>(count, 0)));
  }
}

}  // namespace

LaunchedRanks::LaunchedRanks(const std::string& words)
    : process_(program_path(), split(words), {}) {}

std::vector<pid_t> LaunchedRanks::ranks() const {
  std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", launcher()));
  std::vector<pid_t> result;
  for (pid_t process = 0; file >> process;) {
    result.push_back(process);
  }
  return result;
}

bool LaunchedRanks::has_ended() {
  read_all(process_.output(), output_);
  read_all(process_.errors(), output_);
  end_ = end_ ? end_ : process_.poll_end();
  return end_.has_value();
}

bool LaunchedRanks::wait_until(const std::function<bool()>& is_true) {
  const auto deadline = Clock::now() + std::chrono::minutes(1);
  while (!is_true()) {
    if (has_ended() || Clock::now() > deadline) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
  return true;
}

ProcessEnd LaunchedRanks::wait() {
  const auto deadline = Clock::now() + std::chrono::minutes(3);
  while (!has_ended()) {
    if (Clock::now() > deadline) {
      process_.signal(SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  has_ended();  // the last of its output
  return *end_;
}

}  // namespace switchyard

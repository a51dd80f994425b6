#include "launched_groups.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include <ATen/Parallel.h>

#include "base/crc32c.h"
#include "base/files.h"
#include "config/rules.h"
#include "config/settings.h"
#include "parallel/launch.h"

namespace switchyard {
namespace {

void share_cores(int64_t ranks_on_host) {
  // Slurm binds its ranks to cores of their own, which OpenMP sees; torchrun sets OMP_NUM_THREADS.
  if (ranks_on_host > 1 && std::getenv("OMP_NUM_THREADS") == nullptr) {
    at::set_num_threads(
        static_cast<int>(std::max(int64_t{1}, at::get_num_threads() / ranks_on_host)));
  }
}

std::string describe_program() {
  const std::string bytes = read_text("/proc/self/exe");
  return fmt::format("checksum {:08x}", crc32c(bytes.data(), bytes.size()));
}

std::string describe_settings(const Config& config) {
  std::string lines;
  for (const Setting& setting : settings()) {
    lines += fmt::format("{}: {}\n", setting.name, setting.print(config));
  }
  return lines;
}

}  // namespace

std::unique_ptr<Groups> join_launched_ranks(const Config& config) {
  const LaunchEnvironment environment = read_launch_environment();
  check_rules_of_world(config, environment.world_size);
  share_cores(environment.ranks_on_host);
  const ParallelConfig& parallel = config.parallel;
  return connect(environment, mesh_shape(parallel, environment.world_size),
                 std::chrono::seconds(parallel.timeout_s),
                 {.program = describe_program(),
                  .settings = describe_settings(config),
                  .verify_calls = parallel.verify_calls,
                  .slow = slow_groups(parallel)});
}

}  // namespace switchyard

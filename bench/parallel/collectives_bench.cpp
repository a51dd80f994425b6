// Collectives between processes on this machine, ours against Gloo's own, in one run:
//   parallel_collectives_bench [ranks ...]        default: 2 4
// Prints for rank 0 the median time, its 90th percentile and the processor time of all its threads,
// and the ratio of the medians (above 1: ours is faster). Where ranks or other programs outnumber
// cores, the scheduler adds milliseconds: then compare processor times.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "parallel/launch.h"

namespace switchyard {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Site kSite{"bench"};
constexpr std::chrono::seconds kTimeout{60};

struct Times {
  double median;
  double slow;       // 90th percentile
  double processor;  // mean
};

double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Times time_runs(const Group& world, int64_t bytes, const std::function<void()>& run) {
  const int repeats = bytes <= (64 << 10) ? 300 : bytes <= (4 << 20) ? 60 : 10;
  constexpr int kWarmUp = 3;
  std::vector<double> seconds;
  double processor = 0;
  for (int i = 0; i < kWarmUp + repeats; ++i) {
    world.barrier(kSite);
    const double processor_before = processor_seconds();
    const auto start = Clock::now();
    run();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    processor += i < kWarmUp ? 0 : processor_seconds() - processor_before;
  }
  seconds.erase(seconds.begin(), seconds.begin() + kWarmUp);
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds[seconds.size() * 9 / 10], processor / repeats};
}

void compare(const Group& world, const std::string& name, int64_t bytes,
             const std::function<void()>& ours, const std::function<void()>& gloo) {
  const Times our_times = time_runs(world, bytes, ours);
  const Times gloo_times = time_runs(world, bytes, gloo);
  if (world.rank() == 0) {
    const auto text = [](const Times& times) {
      return fmt::format("{:>8.3f} ms (p90 {:>8.3f}, processor {:>8.3f})", times.median * 1e3,
                         times.slow * 1e3, times.processor * 1e3);
    };
    fmt::print("{} ranks {:>9} B {:<15}{}   Gloo{} {:>6.2f}\n", world.size(), bytes, name,
               text(our_times), text(gloo_times), gloo_times.median / our_times.median);
    std::fflush(stdout);
  }
}

// Tensors of `bytes` on each rank; gathered results are of `bytes` too.
void bench_size(const Group& world, c10d::ProcessGroupGloo& gloo, int64_t bytes) {
  const int64_t size = world.size();
  const at::Tensor values = at::ones({bytes / 4});
  const at::Tensor local = at::ones({bytes / 4 / size});
  const std::vector<int64_t> counts(static_cast<size_t>(size), local.numel());
  std::vector<at::Tensor> in_place{values.clone()};

  compare(
      world, "all_reduce", bytes, [&] { world.all_reduce(in_place[0], kSite); },
      [&] { gloo.allreduce(in_place)->wait(); });
  compare(
      world, "reduce_scatter", bytes, [&] { world.reduce_scatter(values, 0, kSite); },
      [&] {
        at::Tensor output = at::empty_like(local);
        at::Tensor input = values;
        gloo.reduce_scatter_single(output, input)->wait();
      });
  compare(
      world, "all_gather", bytes, [&] { world.all_gather(local, 0, local.numel() * size, kSite); },
      [&] {
        std::vector<std::vector<at::Tensor>> outputs{at::empty_like(values).split(local.numel())};
        std::vector<at::Tensor> inputs{local};
        gloo.allgather(outputs, inputs)->wait();
      });
  compare(
      world, "all_to_all", bytes, [&] { world.all_to_all(values, counts, counts, kSite); },
      [&] {
        at::Tensor output = at::empty_like(values);
        at::Tensor input = values;
        auto received = counts;
        auto sent = counts;
        gloo.all_to_all_single(output, input, received, sent)->wait();
      });
}

void run_rank(int64_t rank, int64_t size, const std::string& folder, uint16_t port) {
  at::set_num_threads(1);
  LaunchEnvironment environment;
  environment.rank = rank;
  environment.world_size = size;
  environment.master_port = port;
  MeshShape shape;
  shape.world_size = size;
  const auto groups = connect(environment, shape, kTimeout);

  auto store = c10::make_intrusive<c10d::FileStore>(folder + "/store", static_cast<int>(size));
  auto options = c10d::ProcessGroupGloo::Options::create(kTimeout);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  c10d::ProcessGroupGloo gloo(store, static_cast<int>(rank), static_cast<int>(size), options);

  const Group& world = (*groups)[GroupName::kWorld];
  for (const int64_t bytes :
       {int64_t{1} << 10, int64_t{1} << 16, int64_t{1} << 20, int64_t{32} << 20}) {
    bench_size(world, gloo, bytes);
  }
  world.barrier(kSite);
}

void run_ranks_as_processes(int64_t size, uint16_t port) {
  std::string folder = std::filesystem::temp_directory_path() / "collectives_bench_XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    std::perror("mkdtemp");
    return;
  }
  std::vector<pid_t> children;
  for (int64_t rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      run_rank(rank, size, folder, port);
      std::_Exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    waitpid(child, nullptr, 0);
  }
  unlink((folder + "/store").c_str());
  rmdir(folder.c_str());
}

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) {
  constexpr uint16_t kFirstPort = 21500;
  std::vector<std::string> sizes(argv + 1, argv + argc);
  if (sizes.empty()) {
    sizes = {"2", "4"};
  }
  uint16_t port = kFirstPort;
  for (const std::string& size : sizes) {
    switchyard::run_ranks_as_processes(std::stoll(size), port++);
  }
  return 0;
}

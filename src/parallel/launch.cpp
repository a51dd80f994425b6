#include "parallel/launch.h"

#include <charconv>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/error.h"
#include "parallel/backend.h"

namespace switchyard {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

int64_t number(const char* name, std::optional<int64_t> fallback = std::nullopt) {
  const auto text = variable(name);
  if (!text && fallback) {
    return *fallback;
  }
  check<ConfigError>(text.has_value(),
                     "the environment variable {} is missing although its launcher's others are "
                     "set: start the ranks with torchrun, srun or mpirun, or unset them all",
                     name);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  check<ConfigError>(error == std::errc() && end == text->data() + text->size() && value >= 0,
                     "the environment variable {} is \"{}\": a number from 0 up is expected", name,
                     *text);
  return value;
}

std::string first_slurm_node() {
  // "node[03-05],node9" starts with node03.
  std::string list = variable("SLURM_STEP_NODELIST").value_or(
      variable("SLURM_NODELIST").value_or("127.0.0.1"));
  const size_t bracket = list.find('[');
  const size_t comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) {
    return list.substr(0, comma);
  }
  const size_t end = list.find_first_of("-,]", bracket);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1);
}

}  // namespace

LaunchEnvironment read_launch_environment() {
  LaunchEnvironment environment;
  if (variable("RANK") || variable("WORLD_SIZE")) {
    environment.launcher = "torchrun";
    environment.rank = number("RANK");
    environment.world_size = number("WORLD_SIZE");
    environment.local_rank = number("LOCAL_RANK", environment.rank);
  } else if (variable("SLURM_PROCID") && variable("SLURM_STEP_NUM_TASKS")) {
    environment.launcher = "Slurm";
    environment.rank = number("SLURM_PROCID");
    environment.world_size = number("SLURM_STEP_NUM_TASKS");
    environment.local_rank = number("SLURM_LOCALID", 0);
    environment.master_address = first_slurm_node();
  } else if (variable("OMPI_COMM_WORLD_RANK")) {
    environment.launcher = "Open MPI";
    environment.rank = number("OMPI_COMM_WORLD_RANK");
    environment.world_size = number("OMPI_COMM_WORLD_SIZE");
    environment.local_rank = number("OMPI_COMM_WORLD_LOCAL_RANK", 0);
  }
  environment.master_address = variable("MASTER_ADDR").value_or(environment.master_address);
  environment.master_port = static_cast<uint16_t>(number("MASTER_PORT", 29500));
  check<ConfigError>(environment.rank < environment.world_size,
                     "{} says rank {} of {} ranks: ranks count from 0", environment.launcher,
                     environment.rank, environment.world_size);
  return environment;
}

std::unique_ptr<Groups> connect(const LaunchEnvironment& environment, const MeshShape& shape,
                                std::chrono::milliseconds timeout) {
  Mesh mesh(shape);
  if (shape.world_size == 1) {
    return std::make_unique<Groups>(std::move(mesh), 0, Groups::MakeBackend{});
  }
  c10d::TCPStoreOptions options;
  options.port = environment.master_port;
  options.isServer = environment.rank == 0;
  options.numWorkers = static_cast<size_t>(shape.world_size);
  options.timeout = timeout;
  try {
    const c10::intrusive_ptr<c10d::Store> store =
        c10::make_intrusive<c10d::TCPStore>(environment.master_address, options);
    const bool is_local =
        environment.master_address == "127.0.0.1" || environment.master_address == "localhost";
    return std::make_unique<Groups>(
        std::move(mesh), environment.rank,
        [&](const std::string& key, int64_t rank, int64_t size) {
          return make_gloo_backend(store, key, rank, size, is_local ? "127.0.0.1" : "", timeout);
        });
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::string_view text = error.what();
    throw CommError(fmt::format(
        "rank {} of {} cannot meet the others at {}:{} within {} s: are all ranks started, and is "
        "the port free? ({})",
        environment.rank, environment.world_size, environment.master_address,
        environment.master_port, std::chrono::duration<double>(timeout).count(),
        text.substr(0, text.find('\n'))));
  }
}

void run_ranks(const MeshShape& shape, const std::function<void(Groups&)>& body,
               std::chrono::milliseconds timeout) {
  const Mesh mesh(shape);
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  std::mutex mutex;
  std::exception_ptr first;
  const auto run = [&](int64_t rank) {
    at::set_num_threads(1);
    try {
      Groups groups(mesh, rank, [&](const std::string& key, int64_t place, int64_t size) {
        return make_gloo_backend(store, key, place, size, "127.0.0.1", timeout);
      });
      body(groups);
    } catch (...) {
      const std::lock_guard lock(mutex);
      first = first ? first : std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < shape.world_size; ++rank) {
    threads.emplace_back(run, rank);
  }
  for (auto& thread : threads) {
    thread.join();
  }
  if (first) {
    std::rethrow_exception(first);
  }
}

}  // namespace switchyard

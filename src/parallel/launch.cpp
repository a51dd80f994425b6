#include "parallel/launch.h"

#include <array>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include <sys/resource.h>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/error.h"
#include "parallel/gloo_transport.h"
#include "parallel/no_warnings.h"
#include "parallel/roll_call.h"

namespace switchyard {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

constexpr int64_t kHighestPort = 65535;
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

int64_t number(const char* name, std::optional<int64_t> fallback = std::nullopt, int64_t lowest = 0,
               int64_t highest = kNoLimit) {
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
  const bool is_number = error == std::errc() && end == text->data() + text->size();
  check<ConfigError>(is_number && value >= lowest && value <= highest,
                     "the environment variable {} is \"{}\": a number from {} {} is expected", name,
                     *text, lowest, highest == kNoLimit ? "up" : fmt::format("to {}", highest));
  return value;
}

std::string first_slurm_node() {
  // "node[03-05],node9" starts with node03.
  std::string list =
      variable("SLURM_STEP_NODELIST").value_or(variable("SLURM_NODELIST").value_or("127.0.0.1"));
  const size_t bracket = list.find('[');
  const size_t comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) {
    return list.substr(0, comma);
  }
  const size_t end = list.find_first_of("-,]", bracket);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1);
}

// Gloo writes to a connection that the peer has just closed; by default the signal for that ends
// the process without a word.
void ignore_broken_pipes() {
  struct sigaction current {};
  if (sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) {
    current.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &current, nullptr);
  }
}

void raise_open_files_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

double seconds(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

std::string first_line(const std::exception& error) {
  const std::string_view text = error.what();
  return std::string(text.substr(0, text.find('\n')));
}

// `port` 0 takes a free one. Throws ConfigError when it is in use.
c10::intrusive_ptr<c10d::TCPStore> serve_store(uint16_t port, std::chrono::milliseconds timeout) {
  const NoWarnings no_warnings;
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  } catch (const std::exception& error) {
    throw ConfigError(
        fmt::format("cannot serve port {} for the ranks to meet at: it is in use or reserved; "
                    "choose another, as with MASTER_PORT ({})",
                    port, first_line(error)));
  }
}

c10::intrusive_ptr<c10d::TCPStore> reach_store(const LaunchEnvironment& environment,
                                               std::chrono::milliseconds timeout) {
  const NoWarnings no_warnings;
  c10d::TCPStoreOptions options;
  options.port = environment.master_port;
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>(environment.master_address, options);
  } catch (const std::exception& error) {
    throw CommError(fmt::format(
        "rank {} of {} cannot reach {} at {}:{} within {} s: is it started, and is this its "
        "address and port? ({})",
        environment.rank, environment.world_size,
        environment.launcher_serves_store ? "the launcher" : "rank 0", environment.master_address,
        environment.master_port, seconds(timeout), first_line(error)));
  }
}

// Where the ranks find each other's addresses.
c10::intrusive_ptr<c10d::Store> meet(const LaunchEnvironment& environment,
                                     std::chrono::milliseconds timeout) {
  const bool serves = environment.rank == 0 && !environment.launcher_serves_store;
  const auto store =
      serves ? serve_store(environment.master_port, timeout) : reach_store(environment, timeout);
  // A restarted attempt must not find the addresses of the one before.
  return c10::make_intrusive<c10d::PrefixStore>(
      fmt::format("switchyard/attempt_{}", environment.attempt), store);
}

}  // namespace

LaunchEnvironment read_launch_environment() {
  LaunchEnvironment environment;
  if (variable("RANK") || variable("WORLD_SIZE")) {
    environment.launcher = "torchrun";
    environment.rank = number("RANK");
    environment.world_size = number("WORLD_SIZE", std::nullopt, 1);
    environment.local_rank = number("LOCAL_RANK", environment.rank);
    environment.ranks_on_host = number("LOCAL_WORLD_SIZE", 1, 1);
    environment.node = variable("GROUP_RANK").value_or("");
    environment.launcher_serves_store = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
    environment.attempt = number("TORCHELASTIC_RESTART_COUNT", 0);
  } else if (variable("SLURM_PROCID") && variable("SLURM_STEP_NUM_TASKS")) {
    environment.launcher = "Slurm";
    environment.rank = number("SLURM_PROCID");
    environment.world_size = number("SLURM_STEP_NUM_TASKS", std::nullopt, 1);
    environment.local_rank = number("SLURM_LOCALID", 0);
    environment.master_address = first_slurm_node();
    environment.node = variable("SLURM_NODEID").value_or("");
  } else if (variable("OMPI_COMM_WORLD_RANK")) {
    environment.launcher = "Open MPI";
    environment.rank = number("OMPI_COMM_WORLD_RANK");
    environment.world_size = number("OMPI_COMM_WORLD_SIZE", std::nullopt, 1);
    environment.local_rank = number("OMPI_COMM_WORLD_LOCAL_RANK", 0);
    environment.ranks_on_host = number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, 1);
    check<ConfigError>(
        variable("MASTER_ADDR") ||
            number("OMPI_COMM_WORLD_LOCAL_SIZE", environment.world_size) == environment.world_size,
        "Open MPI started ranks on several nodes and does not say where rank 0 is: "
        "set MASTER_ADDR to the address of its node (mpirun -x MASTER_ADDR=...)");
  }
  environment.node = environment.node.empty() ? host_name() : environment.node;
  environment.master_address = variable("MASTER_ADDR").value_or(environment.master_address);
  environment.master_port =
      static_cast<uint16_t>(number("MASTER_PORT", environment.master_port, 1, kHighestPort));
  check<ConfigError>(environment.rank < environment.world_size,
                     "{} says rank {} of {} ranks: ranks count from 0", environment.launcher,
                     environment.rank, environment.world_size);
  return environment;
}

struct MeetingPoint::Server {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

MeetingPoint::MeetingPoint(uint16_t port)
    : server_(std::make_unique<Server>(Server{serve_store(port, std::chrono::minutes(1))})) {}

MeetingPoint::~MeetingPoint() = default;

uint16_t MeetingPoint::port() const {
  return server_->store->getPort();
}

std::unique_ptr<Groups> connect(const LaunchEnvironment& environment, const MeshShape& shape,
                                std::chrono::milliseconds timeout, const ConnectOptions& options) {
  Mesh mesh(shape);
  check<ConfigError>(shape.world_size == environment.world_size,
                     "the layout is for {} ranks, {} were started", shape.world_size,
                     environment.world_size);
  if (shape.world_size == 1) {
    return std::make_unique<Groups>(std::move(mesh), 0, nullptr);
  }
  ignore_broken_pipes();
  raise_open_files_limit();
  const auto store = meet(environment, timeout);
  const std::vector<int64_t> nodes = call_roll(*store,
                                               {.rank = environment.rank,
                                                .world_size = environment.world_size,
                                                .program = options.program,
                                                .settings = options.settings,
                                                .node = environment.node},
                                               timeout);
  try {
    const bool is_local =
        environment.master_address == "127.0.0.1" || environment.master_address == "localhost";
    auto transport = make_gloo_transport(store, environment.rank, environment.world_size,
                                         is_local ? "127.0.0.1" : "", timeout);
    auto groups = std::make_unique<Groups>(std::move(mesh), environment.rank, std::move(transport),
                                           options.verify_calls, options.slow);
    if (shape.ranks_per_node == 0) {
      groups->set_nodes(nodes);
    }
    return groups;
  } catch (const std::exception& error) {
    throw CommError(fmt::format("rank {} of {} cannot connect to the others within {} s ({})",
                                environment.rank, environment.world_size, seconds(timeout),
                                first_line(error)));
  }
}

void run_ranks(const MeshShape& shape, const std::function<void(Groups&)>& body,
               std::chrono::milliseconds timeout, bool verify_calls, const SlowGroups& slow) {
  const Mesh mesh(shape);
  ignore_broken_pipes();
  raise_open_files_limit();
  const auto store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(timeout);
  std::mutex mutex;
  std::exception_ptr first;
  const auto keep_if_first = [&] {
    const std::lock_guard lock(mutex);
    first = first ? first : std::current_exception();
  };
  const auto run = [&](int64_t rank) {
    at::set_num_threads(1);
    try {
      const auto transport =
          shape.world_size > 1
              ? make_gloo_transport(store, rank, shape.world_size, "127.0.0.1", timeout)
              : nullptr;
      Groups groups(mesh, rank, transport, verify_calls, slow);
      try {
        body(groups);
      } catch (...) {
        keep_if_first();  // before the connections close, at which the others fail too
        throw;
      }
    } catch (...) {
      keep_if_first();
    }
  };
  const int num_threads = at::get_num_threads();
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < shape.world_size; ++rank) {
    threads.emplace_back(run, rank);
  }
  for (auto& thread : threads) {
    thread.join();
  }
  at::set_num_threads(num_threads);  // libtorch keeps part of it per process
  if (first) {
    std::rethrow_exception(first);
  }
}

}  // namespace switchyard

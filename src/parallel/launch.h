#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "parallel/groups.h"

namespace switchyard {

// Who this process is among its peers, as its launcher says.
struct LaunchEnvironment {
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t local_rank = 0;
  int64_t ranks_on_host = 1;  // how many share this machine's cores, as far as the launcher says
  std::string master_address = "127.0.0.1";
  uint16_t master_port = 29500;
  // torchrun serves the meeting point itself, for all attempts; else rank 0 does.
  bool launcher_serves_store = false;
  int64_t attempt = 0;  // how often the launcher has restarted the ranks
  std::string node;     // tells machines apart: the launcher's number, else the host's name
  std::string launcher = "none";
};

// Reads torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), else
// Slurm's, else Open MPI's; with none of them it is one rank. MASTER_ADDR and MASTER_PORT may be
// set beside the variables of all three. Throws ConfigError naming the variable that is missing or
// not a number.
LaunchEnvironment read_launch_environment();

// Where the ranks meet, served by whoever starts them, so that it outlives each of them.
class MeetingPoint {
 public:
  // `port` 0 takes a free one. Throws ConfigError when the port is in use.
  explicit MeetingPoint(uint16_t port);
  ~MeetingPoint();
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;

  uint16_t port() const;

 private:
  struct Server;
  std::unique_ptr<Server> server_;
};

struct ConnectOptions {
  // What all ranks must have alike, see call_roll().
  std::string program = {};   // one line
  std::string settings = {};  // one per line
  bool verify_calls = false;  // see Group
  SlowGroups slow = {};
};

// Meets the other ranks and makes all groups. Collective over the world. Throws ConfigError when
// the mesh cannot be or is not for the ranks that were started, when ranks do not agree, and when
// the port is in use; CommError when a rank does not come within the timeout. Each is one line that
// names what is wrong.
//
// Changes two things of the process: the limit of open files rises to what the system allows, since
// a rank holds a connection to each other one, and SIGPIPE is ignored unless somebody handles it.
std::unique_ptr<Groups> connect(const LaunchEnvironment& environment, const MeshShape& shape,
                                std::chrono::milliseconds timeout,
                                const ConnectOptions& options = {});

// Runs `body` once per rank, as threads of this process that share nothing but a store: a run of
// many ranks as an ordinary function call, for tests and self-checks on CPU. Each thread computes
// on one core. When one fails, the others fail at their next call to it; throws what the first
// failing rank threw, after all have ended. Changes the process as
// connect() does.
void run_ranks(const MeshShape& shape, const std::function<void(Groups&)>& body,
               std::chrono::milliseconds timeout = std::chrono::seconds(60),
               bool verify_calls = false, const SlowGroups& slow = {});

}  // namespace switchyard

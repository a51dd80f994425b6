#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nn/parameters.h"
#include "optim/buckets.h"

namespace switchyard {

// Parameters that ranks divide among themselves as the optimizer's state (ZeRO-3,
// arXiv:1910.02054), or their gradients only (ZeRO-2), part by part: see PartListener.
//
// Sharded parameters: at rest a rank has the master values of its own elements alone. Before a use
// the leaves of a part get memory and the elements of all ranks, in the compute dtype, and lose
// them after it. While one part is in use the next `prefetch_layers`, in the direction of the pass,
// are gathered.
//
// Sharded gradients: as soon as the backward pass has left a part, its gradients are summed over
// ranks into the shards of those who own them, and the leaves' are dropped. Those of the embedding
// wait for the end of the pass, since a tied head adds to them.
//
// Hears of uses as the part listener of `parameters`, while it lives. All that it is told is
// collective over the world (pipeline stages excepted). Deterministic.
class Partition final : public PartListener {
 public:
  // `parameters` must be complete, sharded, and outlive it.
  Partition(Parameters& parameters, int64_t prefetch_layers);
  ~Partition() override;
  Partition(const Partition&) = delete;
  Partition& operator=(const Partition&) = delete;

  void forward_begins(const std::string& part) override;
  void forward_ends(const std::string& part) override;
  void backward_begins(const std::string& part) override;
  void backward_ends(const std::string& part) override;
  void pass_ends(const std::vector<std::string>& parts) override;
  void values_change() override;

  // Runs `act` with the leaves of all parts in memory. Collective.
  void with_all_present(const std::function<void()>& act);

 private:
  struct Part;
  enum class Direction { kForward, kBackward };

  size_t index_of(const std::string& name) const;
  void begin_use(size_t index, Direction direction);
  void end_use(size_t index);
  void start_gathers(Part& part);
  void finish_gathers(Part& part);
  void reduce(Part& part);

  Parameters& parameters_;
  int64_t prefetch_layers_;
  std::vector<std::unique_ptr<Part>> parts_;  // in the order of the forward pass
};

// The listener that the settings ask for; null where ranks divide neither gradients nor parameters.
std::unique_ptr<Partition> make_partition(Parameters& parameters, const ParallelConfig& parallel);

}  // namespace switchyard

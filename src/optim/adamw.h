#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "config/sections.h"
#include "nn/host_memory.h"
#include "nn/parameters.h"

namespace switchyard {

// The moments of one storage's owned elements: [num_owned], master dtype; owned_of() cuts them.
struct AdamWMoments {
  at::Tensor first;
  at::Tensor second;
};

// AdamW over all storages, by the formulas of ops/adamw.h. Every storage is updated at every step:
// one whose gradient is zero still decays, whether or not a token of this rank reached it.
class AdamW {
 public:
  // Takes betas, epsilon and weight decay from the settings; pieces without has_weight_decay get no
  // decay. Moments start at zero. `parameters` must be complete and outlive the optimizer.
  // With optimizer.offload moments, and masters that are not the parameters themselves, stay in
  // `memory` and visit the device for their part of a step.
  AdamW(Parameters& parameters, const OptimizerConfig& settings,
        HostMemory& memory = HostMemory::of_process());

  // One step on the owned elements of reduced gradients, of which none may be undefined; writes
  // those of the leaves as well. Follow it with publish_parameters() where the optimizer is
  // sharded. `weight_decay` takes the place of the settings' where it is given. Not collective:
  // replicas compute the same. Deterministic, whatever the number of threads.
  void step(double lr, double gradient_scale, std::optional<double> weight_decay = std::nullopt);

  // What a checkpoint holds beside the weights: moments[i] belongs to parameters.storages()[i].
  // Tensors may be written in place.
  const std::vector<AdamWMoments>& moments() const { return moments_; }
  int64_t num_steps() const { return num_steps_; }  // those made; skipped ones do not count
  void set_num_steps(int64_t num_steps) { num_steps_ = num_steps; }

 private:
  Parameters& parameters_;
  OptimizerConfig settings_;
  HostMemory& memory_;
  std::vector<AdamWMoments> moments_;
  int64_t num_steps_ = 0;
};

}  // namespace switchyard

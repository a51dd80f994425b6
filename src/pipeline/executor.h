#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "parallel/group.h"
#include "pipeline/schedule.h"
#include "pipeline/simulate.h"

namespace switchyard {

// What a rank computes in its stages. Of a micro-batch, "hidden" is what one stage hands to the
// next: the same shape at every border.
class StageRunner {
 public:
  virtual ~StageRunner() = default;

  // Not initialised: to receive the hidden state, or its gradient, of this micro-batch.
  virtual at::Tensor new_hidden(int64_t micro_batch) = 0;
  // `input` is undefined in the first stage. Returns the hidden state; undefined in the last stage.
  virtual at::Tensor forward(int64_t micro_batch, int64_t stage, const at::Tensor& input) = 0;
  // `output_gradient` is undefined in the last stage. Returns the gradient of the input; undefined
  // in the first.
  virtual at::Tensor backward(int64_t micro_batch, int64_t stage,
                              const at::Tensor& output_gradient) = 0;
  // The same without the gradients of weights, and those, some time later.
  virtual at::Tensor input_gradient(int64_t micro_batch, int64_t stage,
                                    const at::Tensor& output_gradient) = 0;
  virtual void weight_gradient(int64_t micro_batch, int64_t stage) = 0;
};

// Does what the schedule says for this rank of the pipeline, and returns when it began and ended
// each computation, on the system's steady clock; of a pair that runs together, each is given half
// of their time. Transfers go on while it computes. Throws
// ConfigError for a schedule of another number of ranks. Collective over `pipeline`.
std::vector<TimedAction> run_schedule(const Schedule& schedule, StageRunner& runner,
                                      const Group& pipeline);

}  // namespace switchyard

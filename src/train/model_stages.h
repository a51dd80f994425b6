#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "base/token_batch.h"
#include "model/language_model.h"
#include "pipeline/executor.h"

namespace switchyard {

// The stages of a model that are on this rank, over the micro-batches of one optimizer step, as a
// pipeline schedule runs them. While gradients are recorded it keeps, of each micro-batch in a
// stage, the graph of its forward pass until its backward pass. On one rank the whole model is one
// stage.
class ModelStages : public StageRunner {
 public:
  // Called with what each forward pass made.
  using OnOutput = std::function<void(int64_t micro_batch, const ModelOutput&)>;

  // All of these must outlive it. `memos`: one per micro-batch. Gradients are added up in
  // `parameters`; null where there is no backward pass.
  ModelStages(const LanguageModel& model, Parameters* parameters,
              const std::vector<TokenBatch>& micro_batches, const Denominators& denominators,
              const std::vector<RoutingMemos>& memos, OnOutput on_output);

  at::Tensor new_hidden(int64_t micro_batch) override;
  at::Tensor forward(int64_t micro_batch, int64_t stage, const at::Tensor& input) override;
  at::Tensor backward(int64_t micro_batch, int64_t stage,
                      const at::Tensor& output_gradient) override;

 private:
  struct Visit {
    at::Tensor input;  // leaf
    at::Tensor hidden;
    at::Tensor objective;
  };

  const LanguageModel& model_;
  Parameters* parameters_;
  const std::vector<TokenBatch>& micro_batches_;
  const Denominators& denominators_;
  const std::vector<RoutingMemos>& memos_;
  OnOutput on_output_;
  std::map<std::pair<int64_t, int64_t>, Visit> visits_;  // by micro-batch and stage
};

// The shape of the pipeline that takes this many micro-batches through `model`.
PipelineShape pipeline_shape(const LanguageModel& model, int64_t num_micro_batches);

}  // namespace switchyard

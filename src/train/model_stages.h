#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "model/language_model.h"
#include "ops/deferred_gradients.h"
#include "pipeline/executor.h"
#include "train/micro_batches.h"

namespace switchyard {

// The routing memos of the micro-batches of one optimizer step.
class StepMemos {
 public:
  // Made when they are needed, and let go when the micro-batch is done.
  explicit StepMemos(const LanguageModel& model) : model_(&model), first_(model.new_memos()) {}
  // To replay or record expert ids: one per micro-batch.
  explicit StepMemos(std::vector<RoutingMemos> given);

  const RoutingMemos& of(int64_t micro_batch);
  void finish(int64_t micro_batch);

 private:
  const LanguageModel* model_ = nullptr;  // null: all were given
  RoutingMemos first_;                    // what the memos of one step share
  std::map<int64_t, RoutingMemos> memos_;
};

// The stages of a model that are on this rank, over the micro-batches of one optimizer step, as a
// pipeline schedule runs them. While gradients are recorded it keeps, of each micro-batch in a
// stage, the graph of its forward pass until its backward pass. On one rank the whole model is one
// stage.
class ModelStages : public StageRunner {
 public:
  // Called with what each forward pass made.
  using OnOutput = std::function<void(int64_t micro_batch, const ModelOutput&)>;

  // All of these must outlive it. Gradients are added up in `parameters`; null where there is no
  // backward pass.
  ModelStages(const LanguageModel& model, Parameters* parameters, const MicroBatches& micro_batches,
              const Denominators& denominators, StepMemos& memos, OnOutput on_output);

  at::Tensor new_hidden(int64_t micro_batch) override;
  at::Tensor forward(int64_t micro_batch, int64_t stage, const at::Tensor& input) override;
  at::Tensor backward(int64_t micro_batch, int64_t stage,
                      const at::Tensor& output_gradient) override;
  at::Tensor input_gradient(int64_t micro_batch, int64_t stage,
                            const at::Tensor& output_gradient) override;
  void weight_gradient(int64_t micro_batch, int64_t stage) override;

 private:
  struct Visit {
    at::Tensor input;  // leaf
    at::Tensor hidden;
    at::Tensor objective;
  };

  const LanguageModel& model_;
  Parameters* parameters_;
  const MicroBatches& micro_batches_;
  const Denominators& denominators_;
  StepMemos& memos_;
  OnOutput on_output_;
  // By micro-batch and stage.
  std::map<std::pair<int64_t, int64_t>, Visit> visits_;
  std::map<std::pair<int64_t, int64_t>, DeferredGradients> deferred_;
};

// The shape of the pipeline that takes this many micro-batches through `model`.
PipelineShape pipeline_shape(const LanguageModel& model, int64_t num_micro_batches);

}  // namespace switchyard

#include "train/model_stages.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "optim/gradients.h"

namespace switchyard {

StepMemos::StepMemos(std::vector<RoutingMemos> given) {
  for (size_t i = 0; i < given.size(); ++i) {
    memos_.emplace(static_cast<int64_t>(i), std::move(given[i]));
  }
}

const RoutingMemos& StepMemos::of(int64_t micro_batch) {
  auto found = memos_.find(micro_batch);
  if (found == memos_.end()) {
    found = memos_.emplace(micro_batch, model_->new_memos(first_)).first;
  }
  return found->second;
}

void StepMemos::finish(int64_t micro_batch) {
  if (model_ != nullptr) {
    memos_.erase(micro_batch);
  }
}

ModelStages::ModelStages(const LanguageModel& model, Parameters* parameters,
                         const MicroBatches& micro_batches, const Denominators& denominators,
                         StepMemos& memos, OnOutput on_output)
    : model_(model),
      parameters_(parameters),
      micro_batches_(micro_batches),
      denominators_(denominators),
      memos_(memos),
      on_output_(std::move(on_output)) {}

at::Tensor ModelStages::new_hidden(int64_t micro_batch) {
  return at::empty(model_.hidden_shape(micro_batches_[micro_batch]), model_.hidden_dtype());
}

at::Tensor ModelStages::forward(int64_t micro_batch, int64_t stage, const at::Tensor& input) {
  const bool is_training = at::GradMode::is_enabled();
  if (input.defined() && is_training) {
    input.requires_grad_(true);
  }
  const ModelOutput output = model_.forward_stage(stage, input, micro_batches_[micro_batch],
                                                  denominators_, memos_.of(micro_batch));
  if (is_training) {
    visits_[{micro_batch, stage}] = {input, output.hidden, output.objective};
  } else {
    memos_.finish(micro_batch);
  }
  on_output_(micro_batch, output);
  return output.hidden.defined() ? output.hidden.detach() : at::Tensor();
}

at::Tensor ModelStages::backward(int64_t micro_batch, int64_t stage,
                                 const at::Tensor& output_gradient) {
  const Visit visit = visits_.extract({micro_batch, stage}).mapped();
  std::vector<at::Tensor> roots;
  std::vector<at::Tensor> gradients;
  const auto add = [&](const at::Tensor& root, const at::Tensor& gradient) {
    if (root.defined()) {
      roots.push_back(root);
      gradients.push_back(gradient);
    }
  };
  add(visit.hidden, output_gradient);
  add(visit.objective, {});
  torch::autograd::backward(roots, gradients);
  if (PartListener* const listener = parameters_->part_listener()) {
    listener->pass_ends(model_.parts_of_stage(stage));
  } else {
    absorb_gradients(*parameters_);
  }
  const auto next = visits_.lower_bound({micro_batch, 0});
  if (next == visits_.end() || next->first.first != micro_batch) {
    memos_.finish(micro_batch);
  }
  return visit.input.defined() ? visit.input.grad() : at::Tensor();
}

at::Tensor ModelStages::input_gradient(int64_t micro_batch, int64_t stage,
                                       const at::Tensor& output_gradient) {
  const DeferGradients defer(deferred_[{micro_batch, stage}]);
  return backward(micro_batch, stage, output_gradient);
}

void ModelStages::weight_gradient(int64_t micro_batch, int64_t stage) {
  deferred_.extract({micro_batch, stage}).mapped().run();
  absorb_gradients(*parameters_);
}

PipelineShape pipeline_shape(const LanguageModel& model, int64_t num_micro_batches) {
  const int64_t ranks = model.pipeline().size();
  return {ranks, model.num_stages() / ranks, num_micro_batches};
}

}  // namespace switchyard

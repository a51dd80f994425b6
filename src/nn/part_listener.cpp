#include "nn/part_listener.h"

#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace switchyard {
namespace {

// Hooks of a tensor run when its gradient is complete: after the backward pass of everything that
// used it, and before that of what made it.
void when_gradient_is_complete(const at::Tensor& tensor, std::function<void()> act) {
  tensor.register_hook([act = std::move(act)](const at::Tensor&) { act(); });
}

bool is_recorded(const at::Tensor& tensor) {
  return tensor.defined() && tensor.requires_grad() && at::GradMode::is_enabled();
}

}  // namespace

std::string part_of(const std::string& parameter) {
  const size_t dot = parameter.find('.');
  const std::string first = parameter.substr(0, dot);
  if (first == "layers") {
    return parameter.substr(0, parameter.find('.', dot + 1));
  }
  return first == "embedding" ? "embedding" : "head";
}

PartUse::PartUse(PartListener* listener, std::string part, const at::Tensor& input)
    : listener_(listener), part_(std::move(part)) {
  if (listener_ == nullptr) {
    return;
  }
  listener_->forward_begins(part_);
  if (is_recorded(input)) {
    when_gradient_is_complete(
        input, [listener = listener_, part = part_] { listener->backward_ends(part); });
  }
}

void PartUse::ends_with(const at::Tensor& output) {
  if (listener_ != nullptr && is_recorded(output)) {
    when_gradient_is_complete(
        output, [listener = listener_, part = part_] { listener->backward_begins(part); });
  }
}

PartUse::~PartUse() {
  if (listener_ != nullptr) {
    listener_->forward_ends(part_);
  }
}

}  // namespace switchyard

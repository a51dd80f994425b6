#include "selfcheck/logical_tensors.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "checkpoint/tensor_part.h"

namespace switchyard {

void LogicalTensors::add(const std::string& name, const std::vector<int64_t>& shape,
                         const std::vector<int64_t>& start, const at::Tensor& local) {
  const std::lock_guard lock(mutex_);
  if (!values_.contains(name)) {
    values_[name] = at::zeros(shape, local.options().requires_grad(false));
    is_written_[name] = at::zeros(shape, at::kBool);
  }
  at::Tensor box = values_[name];
  at::Tensor written = is_written_[name];
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    const auto d = static_cast<int64_t>(dim);
    box = box.narrow(d, start[dim], local.size(d));
    written = written.narrow(d, start[dim], local.size(d));
  }
  const at::NoGradGuard no_grad;
  if (!at::where(written, box == local, at::ones_like(written)).all().item<bool>()) {
    problems_.push_back(name + " differs between ranks that hold the same elements");
  }
  box.copy_(local);
  written.fill_(true);
}

void LogicalTensors::add_whole(const std::string& name, const at::Tensor& value) {
  add(name, value.sizes().vec(), std::vector<int64_t>(static_cast<size_t>(value.dim()), 0), value);
}

void LogicalTensors::add_owned(const Parameters& parameters, const std::string& prefix,
                               at::Tensor ParameterStorage::*values) {
  std::vector<at::Tensor> tensors;
  for (const auto& storage : parameters.storages()) {
    tensors.push_back((*storage).*values);
  }
  for (const TensorPart& part : storage_parts(parameters, prefix, tensors)) {
    add(part.name, part.global_shape, part.start, part.values);
  }
}

void LogicalTensors::add_gradients(const Parameters& parameters) {
  add_owned(parameters, "grad.", &ParameterStorage::gradient);
}

void LogicalTensors::add_weights(const Parameters& parameters) {
  for (const auto& storage : parameters.storages()) {
    for (size_t i = 0; i < storage->pieces.size(); ++i) {
      const Parameter& piece = storage->pieces[i];
      add("weight." + piece.name(), piece.spec().shape, piece.local_start(),
          storage->piece(storage->leaf.detach(), i));
    }
  }
  if (parameters.dtypes().is_mixed()) {
    add_owned(parameters, "master.", &ParameterStorage::master);
  }
  for (const Buffer& buffer : parameters.buffers()) {
    add_whole("buffer." + buffer.name, buffer.tensor);
  }
}

std::vector<std::string> LogicalTensors::problems() const {
  std::vector<std::string> all = problems_;
  for (const auto& [name, written] : is_written_) {
    if (!written.all().item<bool>()) {
      all.push_back(name + " has elements that no rank holds");
    }
  }
  return all;
}

std::vector<Difference> compare(const LogicalTensors& expected, const LogicalTensors& actual,
                                double least_share) {
  const auto norm = [](const at::Tensor& value) {
    return value.to(at::kDouble).norm().item<double>();
  };
  double largest_gradient = 0;
  for (const auto& [name, value] : expected.values()) {
    if (name.starts_with("grad.")) {
      largest_gradient = std::max(largest_gradient, norm(value));
    }
  }
  std::vector<Difference> all;
  for (const auto& [name, value] : expected.values()) {
    const auto found = actual.values().find(name);
    if (found == actual.values().end() || found->second.sizes() != value.sizes()) {
      all.push_back({name, std::numeric_limits<double>::infinity()});
      continue;
    }
    const double difference = norm(found->second - value);
    const double scale = std::max(norm(value), least_share * largest_gradient);
    all.push_back({name, difference == 0 ? 0 : difference / scale});
  }
  return all;
}

std::vector<std::string> differences(const LogicalTensors& expected, const LogicalTensors& actual,
                                     double tolerance, double least_share) {
  std::vector<std::string> lines = actual.problems();
  for (const auto& [name, relative] : compare(expected, actual, least_share)) {
    if (!(relative <= tolerance)) {
      lines.push_back(
          fmt::format("{}: {:.3g} of its norm away from the one-rank result", name, relative));
    }
  }
  return lines;
}

}  // namespace switchyard

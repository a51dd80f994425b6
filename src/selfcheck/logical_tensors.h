#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "nn/parameters.h"

namespace switchyard {

// Logical tensors put together from what each rank holds of them; ranks are threads and may add at
// the same time. Elements that several ranks hold must have the same bits on all of them.
class LogicalTensors {
 public:
  // `local` is the box of the logical tensor that begins at `start`. Records a difference to what
  // another rank added as a problem.
  void add(const std::string& name, const std::vector<int64_t>& shape,
           const std::vector<int64_t>& start, const at::Tensor& local);
  void add_whole(const std::string& name, const at::Tensor& value);  // every rank holds all of it

  // The gradient of every parameter, of what this rank owns, as "grad.NAME".
  void add_gradients(const Parameters& parameters);
  // Every parameter as the model reads it, "weight.NAME"; its master values where they are others,
  // "master.NAME"; the buffers, "buffer.NAME".
  void add_weights(const Parameters& parameters);

  // What is wrong with the parts themselves: elements nobody added, replicas that differ.
  std::vector<std::string> problems() const;
  const std::map<std::string, at::Tensor>& values() const { return values_; }

 private:
  void add_owned(const Parameters& parameters, const std::string& prefix,
                 at::Tensor ParameterStorage::*values);

  mutable std::mutex mutex_;
  std::map<std::string, at::Tensor> values_;
  std::map<std::string, at::Tensor> is_written_;
  std::vector<std::string> problems_;
};

// A tensor counts as having at least this share of the largest norm of any "grad." tensor: one that
// is zero in truth holds the rounding of larger ones.
constexpr double kLeastShare = 1e-6;

// How far one logical tensor is from the expected one.
struct Difference {
  std::string name;
  // norm(actual - expected) / max(norm(expected), least_share x the largest norm of any "grad."
  // tensor); 0 where both are zero.
  double relative = 0;
};

// The layout test of docs/design.md, tensor by tensor, for every expected tensor. One that is
// missing or has another shape is infinitely far.
std::vector<Difference> compare(const LogicalTensors& expected, const LogicalTensors& actual,
                                double least_share = kLeastShare);

// One line per tensor that is further than `tolerance`, and per problem of `actual`.
std::vector<std::string> differences(const LogicalTensors& expected, const LogicalTensors& actual,
                                     double tolerance, double least_share = kLeastShare);

}  // namespace switchyard

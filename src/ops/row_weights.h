#pragma once

#include <string_view>

#include <ATen/core/Tensor.h>

#include "base/error.h"
#include "base/shape.h"

namespace switchyard {

// The weight of each row, and where its gradient goes; one, and nowhere, without weights.
class RowWeights {
 public:
  explicit RowWeights(const at::Tensor& weights) : weights_(weights) {}

  double operator[](int64_t row) const {
    if (!weights_.defined()) {
      return 1;
    }
    return is_double() ? weights_.const_data_ptr<double>()[row]
                       : weights_.const_data_ptr<float>()[row];
  }
  void set(int64_t row, double value) {
    if (!weights_.defined()) {
      return;
    }
    if (is_double()) {
      weights_.mutable_data_ptr<double>()[row] = value;
    } else {
      weights_.mutable_data_ptr<float>()[row] = static_cast<float>(value);
    }
  }

 private:
  bool is_double() const { return weights_.scalar_type() == at::kDouble; }

  at::Tensor weights_;
};

// Throws ShapeError unless the weights are [rows], fp32 or fp64.
inline void check_row_weights(std::string_view name, const at::Tensor& weights, int64_t rows) {
  check<ShapeError>(weights.scalar_type() == at::kFloat || weights.scalar_type() == at::kDouble,
                    "{} must be fp32 or fp64, got {}", name, c10::toString(weights.scalar_type()));
  check_shape(name, weights, {rows});
}

}  // namespace switchyard

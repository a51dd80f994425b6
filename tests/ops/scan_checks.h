#pragma once

#include <functional>

#include "ops/op_checks.h"

// What the tests of operators along sequences share.
namespace switchyard {

// Gives the outputs and the last states.
using Scan = std::function<Tensors(const Tensors&)>;

// An operator, and its formula token by token in fp64.
struct ScanCase {
  Scan op;
  Scan reference;
  // The inputs for outputs of a type; some stay wide.
  Tensors (*to_type)(const Tensors& in, at::ScalarType type);
};

inline void expect_equals_reference(const ScanCase& scan, const Tensors& in,
                                    double fp64_tolerance) {
  const Tensors expected = scan.reference(in);
  for (const auto& [type, tolerance] : std::vector<std::pair<at::ScalarType, double>>{
           {at::kDouble, fp64_tolerance}, {at::kFloat, 1e-5}}) {
    const Tensors actual = scan.op(scan.to_type(in, type));
    EXPECT_LE(relative_error(actual[0], expected[0]), tolerance);
    EXPECT_LE(relative_error(actual[1], expected[1]), tolerance);
  }
}

// bf16 rounds inputs and outputs only.
inline void expect_rounds_only_inputs_and_outputs(const ScanCase& scan, const Tensors& in) {
  Tensors rounded = scan.to_type(in, at::kBFloat16);
  const Tensors actual = scan.op(rounded);
  EXPECT_EQ(actual[0].scalar_type(), at::kBFloat16);
  EXPECT_EQ(actual[1].scalar_type(), at::kFloat);
  for (at::Tensor& tensor : rounded) {
    tensor = tensor.to(at::kDouble);
  }
  EXPECT_LE(relative_error(actual[0], scan.reference(rounded)[0]), 5e-3);
}

inline void expect_gradients_equal_reference(const ScanCase& scan, const Tensors& in,
                                             double fp64_tolerance) {
  Tensors probes;
  Tensors narrow_probes;
  for (const at::Tensor& output : scan.reference(in)) {
    probes.push_back(at::randn(output.sizes(), at::kDouble));
    narrow_probes.push_back(probes.back().to(at::kFloat));
  }
  const Tensors expected = gradients(scan.reference, in, probes);
  const Tensors actual = gradients(scan.op, in, probes);
  const Tensors narrow = gradients(scan.op, scan.to_type(in, at::kFloat), narrow_probes);
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_LE(relative_error(actual[i], expected[i]), fp64_tolerance) << "input " << i;
    EXPECT_LE(relative_error(narrow[i], expected[i]), 1e-5) << "input " << i;
  }
}

// For every output type: the same bytes on any number of threads, and every row written.
inline void expect_deterministic_and_whole(const ScanCase& scan, const Tensors& wide) {
  const auto op = [&](const Tensors& values) { return Tensors{scan.op(values)[0]}; };
  const PoisonNewTensors poison;
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const Tensors in = scan.to_type(wide, type);
    const at::Tensor probe = at::randn(op(in)[0].sizes()).to(type);
    expect_same_bytes_for_all_thread_counts([&] {
      Tensors out = gradients(op, in, {probe});
      out.push_back(op(in)[0]);
      for (const at::Tensor& tensor : out) {
        EXPECT_FALSE(tensor.isnan().any().item<bool>());
      }
      return out;
    });
  }
}

}  // namespace switchyard

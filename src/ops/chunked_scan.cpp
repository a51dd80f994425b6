#include "ops/chunked_scan.h"

#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/shape.h"
#include "ops/chunked_scan_pass.h"
#include "ops/float_types.h"

namespace switchyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The inputs in the type that is computed in, and their sizes.
struct WideInputs {
  at::Tensor x, dt, a, b, c, d;
  at::Tensor state;  // undefined: zeros
  ScanSizes sizes;

  WideInputs(const variable_list& inputs, int64_t longest_chunk) {
    const auto wide = accumulator_type(inputs[0].scalar_type());
    const auto with_adjacent_rows = [&](const at::Tensor& tensor) {
      const at::Tensor widened = tensor.to(wide);
      const bool is_adjacent =
          widened.stride(2) == 1 && widened.stride(1) == widened.size(2) && widened.size(0) > 1;
      return is_adjacent ? widened : widened.contiguous();
    };
    x = with_adjacent_rows(inputs[0]);
    dt = inputs[1].contiguous();
    a = inputs[2].contiguous();
    b = with_adjacent_rows(inputs[3]);
    c = with_adjacent_rows(inputs[4]);
    d = inputs[5].contiguous();
    state = inputs[6].defined() ? inputs[6].contiguous() : at::Tensor();
    sizes = {x.size(0), x.size(1), b.size(1), x.size(2), b.size(2), longest_chunk};
  }

  template <class T>
  ScanProblem<T> problem(const std::vector<SequenceChunk>& chunks) const {
    return {arrays<T>(), sizes, chunks, state.defined()};
  }

  template <class T>
  ScanArrays<T> arrays() const {
    return {x.const_data_ptr<T>(), x.stride(0),           dt.const_data_ptr<T>(),
            a.const_data_ptr<T>(), b.const_data_ptr<T>(), b.stride(0),
            c.const_data_ptr<T>(), c.stride(0),           d.const_data_ptr<T>()};
  }
};

at::Tensor state_room(const WideInputs& in, int64_t number) {
  return at::empty({number, in.sizes.heads, in.sizes.head_dim, in.sizes.state_size},
                   in.a.options());
}

// The rows of the chunks in rising order.
at::Tensor sum_of_rows(const at::Tensor& rows) {
  at::Tensor sum = at::zeros({rows.size(1)}, rows.options());
  for (int64_t row = 0; row < rows.size(0); ++row) {
    sum.add_(rows.select(0, row));
  }
  return sum;
}

struct ChunkedScan : torch::autograd::Function<ChunkedScan> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& dt,
                               const at::Tensor& a, const at::Tensor& b, const at::Tensor& c,
                               const at::Tensor& d, const std::optional<at::Tensor>& state,
                               const std::vector<int64_t>& starts, int64_t chunk_size) {
    const variable_list inputs{x, dt, a, b, c, d, state.value_or(at::Tensor())};
    const std::vector<SequenceChunk> chunks = sequence_chunks(starts, chunk_size);
    const WideInputs wide(inputs, longest_of(chunks));
    at::Tensor states = state_room(wide, static_cast<int64_t>(chunks.size()));
    at::Tensor last = state_room(wide, static_cast<int64_t>(starts.size()) - 1);
    if (wide.state.defined()) {
      last.copy_(wide.state);
    } else {
      last.zero_();
    }
    at::Tensor out = at::empty(x.sizes(), wide.a.options());
    out.slice(0, starts.back()).zero_();
    visit_wide_type(wide.x.scalar_type(), [&](auto type) {
      using T = decltype(type);
      scan_forward<T>(wide.problem<T>(chunks), states.mutable_data_ptr<T>(),
                      last.mutable_data_ptr<T>(), out.mutable_data_ptr<T>());
    });
    variable_list saved = inputs;
    saved.push_back(states);
    ctx->save_for_backward(saved);
    ctx->saved_data["starts"] = starts;
    ctx->saved_data["chunk_size"] = chunk_size;
    ctx->set_materialize_grads(false);
    return {out.to(x.scalar_type()), last};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const std::vector<int64_t> starts = ctx->saved_data["starts"].toIntVector();
    const std::vector<SequenceChunk> chunks =
        sequence_chunks(starts, ctx->saved_data["chunk_size"].toInt());
    const WideInputs wide(saved, longest_of(chunks));
    const auto options = wide.a.options();
    const auto num_chunks = static_cast<int64_t>(chunks.size());
    const at::Tensor grad_out = grads[0].defined() ? grads[0].to(wide.a.scalar_type()).contiguous()
                                                   : at::zeros(saved[0].sizes(), options);
    at::Tensor grad_states = state_room(wide, num_chunks);
    at::Tensor grad_state = state_room(wide, static_cast<int64_t>(starts.size()) - 1);
    if (grads[1].defined()) {
      grad_state.copy_(grads[1]);
    } else {
      grad_state.zero_();
    }
    const auto room_like = [&](const at::Tensor& tensor) {
      at::Tensor room = at::empty(tensor.sizes(), options);
      room.slice(0, starts.back()).zero_();
      return room;
    };
    at::Tensor x = room_like(saved[0]);
    at::Tensor dt = room_like(saved[1]);
    at::Tensor b = room_like(saved[3]);
    at::Tensor c = room_like(saved[4]);
    at::Tensor a = at::empty({num_chunks, wide.sizes.heads}, options);
    at::Tensor d = at::empty({num_chunks, wide.sizes.heads}, options);
    visit_wide_type(wide.a.scalar_type(), [&](auto type) {
      using T = decltype(type);
      scan_backward<T>(
          wide.problem<T>(chunks),
          {saved[7].const_data_ptr<T>(), grad_out.const_data_ptr<T>(), grads[1].defined()},
          grad_states.mutable_data_ptr<T>(), grad_state.mutable_data_ptr<T>(),
          {x.mutable_data_ptr<T>(), dt.mutable_data_ptr<T>(), a.mutable_data_ptr<T>(),
           b.mutable_data_ptr<T>(), c.mutable_data_ptr<T>(), d.mutable_data_ptr<T>()});
    });
    const auto type = saved[0].scalar_type();
    return {x.to(type),
            dt,
            sum_of_rows(a),
            b.to(type),
            c.to(type),
            sum_of_rows(d),
            saved[6].defined() ? grad_state : at::Tensor(),
            {},
            {}};
  }
};

void check_scan_inputs(const char* op, const ChunkedScanInputs& in, int64_t num_sequences) {
  check_float_cpu(fmt::format("{}: x", op), in.x);
  check_shape(fmt::format("{}: x", op), in.x, {kAnySize, kAnySize, kAnySize});
  check_shape(fmt::format("{}: dt", op), in.dt, {in.x.size(0), in.x.size(1)});
  check_shape(fmt::format("{}: a", op), in.a, {in.x.size(1)});
  check_shape(fmt::format("{}: b", op), in.b, {in.x.size(0), kAnySize, kAnySize});
  check_shape(fmt::format("{}: c", op), in.c, {in.x.size(0), in.b.size(1), in.b.size(2)});
  check_shape(fmt::format("{}: d", op), in.d, {in.x.size(1)});
  check<ShapeError>(in.b.size(1) > 0 && in.x.size(1) % in.b.size(1) == 0,
                    "{}: the number of heads ({}) must be a multiple of the groups ({})", op,
                    in.x.size(1), in.b.size(1));
  const auto type = in.x.scalar_type();
  check<ShapeError>(in.b.scalar_type() == type && in.c.scalar_type() == type,
                    "{}: x is {}, b {} and c {}; they must have one dtype", op, c10::toString(type),
                    c10::toString(in.b.scalar_type()), c10::toString(in.c.scalar_type()));
  const auto wide = accumulator_type(type);
  check<ShapeError>(
      in.dt.scalar_type() == wide && in.a.scalar_type() == wide && in.d.scalar_type() == wide,
      "{}: dt is {}, a {} and d {}; with x of {} they must be {}", op,
      c10::toString(in.dt.scalar_type()), c10::toString(in.a.scalar_type()),
      c10::toString(in.d.scalar_type()), c10::toString(type), c10::toString(wide));
  if (in.state) {
    check_shape(fmt::format("{}: state", op), *in.state,
                {num_sequences, in.x.size(1), in.x.size(2), in.b.size(2)});
    check<ShapeError>(in.state->scalar_type() == wide, "{}: state is {}, but dt is {}", op,
                      c10::toString(in.state->scalar_type()), c10::toString(wide));
  }
}

}  // namespace

ScanOutput chunked_scan(const ChunkedScanInputs& inputs, const SequenceTable& table,
                        int64_t chunk_size) {
  check_scan_inputs("chunked_scan", inputs, table.num_sequences());
  check<ShapeError>(inputs.x.size(0) == table.num_tokens,
                    "chunked_scan: x has {} tokens, the sequence table {}", inputs.x.size(0),
                    table.num_tokens);
  check<ShapeError>(chunk_size > 0, "chunked_scan: the chunk size ({}) must be above 0",
                    chunk_size);
  const variable_list out = ChunkedScan::apply(inputs.x, inputs.dt, inputs.a, inputs.b, inputs.c,
                                               inputs.d, inputs.state, table.starts, chunk_size);
  return {out[0], out[1]};
}

ScanOutput step_scan(const ChunkedScanInputs& inputs) {
  check_scan_inputs("step_scan", inputs, 1);
  check<ShapeError>(inputs.state.has_value(), "step_scan: the state must be given");
  const at::NoGradGuard no_grad;
  const WideInputs wide(
      {inputs.x, inputs.dt, inputs.a, inputs.b, inputs.c, inputs.d, *inputs.state}, 1);
  at::Tensor state = wide.state.clone();
  at::Tensor out = at::empty(inputs.x.sizes(), wide.a.options());
  visit_wide_type(wide.a.scalar_type(), [&](auto type) {
    using T = decltype(type);
    scan_steps<T>(wide.arrays<T>(), wide.sizes, state.mutable_data_ptr<T>(),
                  out.mutable_data_ptr<T>());
  });
  return {out.to(inputs.x.scalar_type()), state};
}

}  // namespace switchyard

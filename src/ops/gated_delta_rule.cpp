#include "ops/gated_delta_rule.h"

#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/shape.h"
#include "ops/float_types.h"
#include "ops/gated_delta_pass.h"
#include "ops/unit_rows.h"

namespace switchyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The inputs in the type that is computed in; q and k as they come, and normalised.
struct WideInputs {
  at::Tensor q, k, v, log_decay, beta;
  at::Tensor unit_q, unit_k;
  at::Tensor state;  // undefined: zeros
  RuleSizes sizes;

  WideInputs(const variable_list& inputs, int64_t longest_chunk) {
    const auto wide = accumulator_type(inputs[0].scalar_type());
    const auto widened = [&](const at::Tensor& tensor) { return tensor.to(wide).contiguous(); };
    q = widened(inputs[0]);
    k = widened(inputs[1]);
    v = widened(inputs[2]);
    log_decay = inputs[3].contiguous();
    beta = inputs[4].contiguous();
    state = inputs[5].defined() ? inputs[5].contiguous() : at::Tensor();
    sizes = {q.size(1), v.size(1), q.size(2), v.size(2), longest_chunk};
    unit_q = unit_rows(q, query_scale());
    unit_k = unit_rows(k, 1);
  }

  double query_scale() const { return 1 / std::sqrt(static_cast<double>(q.size(2))); }

  template <class T>
  RuleArrays<T> arrays() const {
    return {unit_q.const_data_ptr<T>(), unit_k.const_data_ptr<T>(),
            v.const_data_ptr<T>(),      log_decay.const_data_ptr<T>(),
            beta.const_data_ptr<T>(),   state.defined() ? state.const_data_ptr<T>() : nullptr};
  }

  at::Tensor state_room(int64_t number) const {
    return at::empty({number, sizes.value_heads, sizes.key_dim, sizes.value_dim},
                     log_decay.options());
  }
};

struct GatedDeltaRule : torch::autograd::Function<GatedDeltaRule> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const at::Tensor& log_decay,
                               const at::Tensor& beta, const std::optional<at::Tensor>& state,
                               const std::vector<int64_t>& starts, int64_t chunk_size) {
    const variable_list inputs{q, k, v, log_decay, beta, state.value_or(at::Tensor())};
    const std::vector<SequenceChunk> chunks = sequence_chunks(starts, chunk_size);
    const WideInputs wide(inputs, longest_of(chunks));
    at::Tensor states = wide.state_room(static_cast<int64_t>(chunks.size()));
    at::Tensor last = wide.state_room(static_cast<int64_t>(starts.size()) - 1);
    if (wide.state.defined()) {
      last.copy_(wide.state);
    } else {
      last.zero_();
    }
    at::Tensor out = at::empty_like(wide.v);
    out.slice(0, starts.back()).zero_();
    visit_wide_type(wide.q.scalar_type(), [&](auto type) {
      using T = decltype(type);
      rule_forward(wide.arrays<T>(), wide.sizes, chunks, states.mutable_data_ptr<T>(),
                   last.mutable_data_ptr<T>(), out.mutable_data_ptr<T>());
    });
    variable_list saved = inputs;
    saved.push_back(states);
    ctx->save_for_backward(saved);
    ctx->saved_data["starts"] = starts;
    ctx->saved_data["chunk_size"] = chunk_size;
    ctx->set_materialize_grads(false);
    return {out.to(q.scalar_type()), last};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const std::vector<int64_t> starts = ctx->saved_data["starts"].toIntVector();
    const std::vector<SequenceChunk> chunks =
        sequence_chunks(starts, ctx->saved_data["chunk_size"].toInt());
    const WideInputs wide(saved, longest_of(chunks));
    const at::Tensor grad_out = grads[0].defined() ? grads[0].to(wide.v.scalar_type()).contiguous()
                                                   : at::zeros_like(wide.v);
    at::Tensor grad_state = wide.state_room(static_cast<int64_t>(starts.size()) - 1);
    if (grads[1].defined()) {
      grad_state.copy_(grads[1]);
    } else {
      grad_state.zero_();
    }
    const auto room_like = [&](const at::Tensor& tensor) {
      at::Tensor room = at::empty_like(tensor);
      room.slice(0, starts.back()).zero_();
      return room;
    };
    at::Tensor q = room_like(wide.q);
    at::Tensor k = room_like(wide.k);
    at::Tensor v = room_like(wide.v);
    at::Tensor log_decay = room_like(wide.log_decay);
    at::Tensor beta = room_like(wide.beta);
    visit_wide_type(wide.q.scalar_type(), [&](auto type) {
      using T = decltype(type);
      rule_backward(wide.arrays<T>(), wide.sizes, chunks, saved[6].const_data_ptr<T>(),
                    grad_out.const_data_ptr<T>(), grad_state.mutable_data_ptr<T>(),
                    RuleGradArrays<T>{q.mutable_data_ptr<T>(), k.mutable_data_ptr<T>(),
                                      v.mutable_data_ptr<T>(), log_decay.mutable_data_ptr<T>(),
                                      beta.mutable_data_ptr<T>()});
    });
    unit_rows_backward(wide.q, wide.query_scale(), q);
    unit_rows_backward(wide.k, 1, k);
    const auto type = saved[0].scalar_type();
    return {q.to(type), k.to(type), v.to(type),
            log_decay,  beta,       saved[5].defined() ? grad_state : at::Tensor(),
            {},         {}};
  }
};

void check_rule_inputs(const char* op, const DeltaRuleInputs& in, int64_t num_sequences) {
  check_float_cpu(fmt::format("{}: q", op), in.q);
  check_shape(fmt::format("{}: q", op), in.q, {kAnySize, kAnySize, kAnySize});
  check_shape(fmt::format("{}: k", op), in.k, {in.q.size(0), in.q.size(1), in.q.size(2)});
  check_shape(fmt::format("{}: v", op), in.v, {in.q.size(0), kAnySize, kAnySize});
  check_shape(fmt::format("{}: log_decay", op), in.log_decay, {in.v.size(0), in.v.size(1)});
  check_shape(fmt::format("{}: beta", op), in.beta, {in.v.size(0), in.v.size(1)});
  check<ShapeError>(in.q.size(1) > 0 && in.v.size(1) % in.q.size(1) == 0,
                    "{}: the value heads ({}) must be a multiple of the key heads ({})", op,
                    in.v.size(1), in.q.size(1));
  const auto type = in.q.scalar_type();
  check<ShapeError>(in.k.scalar_type() == type && in.v.scalar_type() == type,
                    "{}: q is {}, k {} and v {}; they must have one dtype", op, c10::toString(type),
                    c10::toString(in.k.scalar_type()), c10::toString(in.v.scalar_type()));
  const auto wide = accumulator_type(type);
  check<ShapeError>(in.log_decay.scalar_type() == wide && in.beta.scalar_type() == wide,
                    "{}: log_decay is {} and beta {}; with q of {} they must be {}", op,
                    c10::toString(in.log_decay.scalar_type()), c10::toString(in.beta.scalar_type()),
                    c10::toString(type), c10::toString(wide));
  if (in.state) {
    check_shape(fmt::format("{}: state", op), *in.state,
                {num_sequences, in.v.size(1), in.q.size(2), in.v.size(2)});
    check<ShapeError>(in.state->scalar_type() == wide, "{}: state is {}, but log_decay is {}", op,
                      c10::toString(in.state->scalar_type()), c10::toString(wide));
  }
}

}  // namespace

ScanOutput gated_delta_rule(const DeltaRuleInputs& inputs, const SequenceTable& table,
                            int64_t chunk_size) {
  check_rule_inputs("gated_delta_rule", inputs, table.num_sequences());
  check<ShapeError>(inputs.q.size(0) == table.num_tokens,
                    "gated_delta_rule: q has {} tokens, the sequence table {}", inputs.q.size(0),
                    table.num_tokens);
  check<ShapeError>(chunk_size > 0, "gated_delta_rule: the chunk size ({}) must be above 0",
                    chunk_size);
  const variable_list out =
      GatedDeltaRule::apply(inputs.q, inputs.k, inputs.v, inputs.log_decay, inputs.beta,
                            inputs.state, table.starts, chunk_size);
  return {out[0], out[1]};
}

ScanOutput step_delta_rule(const DeltaRuleInputs& inputs) {
  check_rule_inputs("step_delta_rule", inputs, 1);
  check<ShapeError>(inputs.state.has_value(), "step_delta_rule: the state must be given");
  const at::NoGradGuard no_grad;
  const WideInputs wide(
      {inputs.q, inputs.k, inputs.v, inputs.log_decay, inputs.beta, *inputs.state}, 1);
  at::Tensor state = wide.state.clone();
  at::Tensor out = at::empty_like(wide.v);
  visit_wide_type(wide.q.scalar_type(), [&](auto type) {
    using T = decltype(type);
    rule_steps<T>(wide.arrays<T>(), wide.sizes, wide.q.size(0), state.mutable_data_ptr<T>(),
                  out.mutable_data_ptr<T>());
  });
  return {out.to(inputs.q.scalar_type()), state};
}

}  // namespace switchyard

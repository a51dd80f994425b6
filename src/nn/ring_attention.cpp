#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nn/context_attention.h"

namespace switchyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr Site kKeysValues{"attention.ring_keys_values", Purpose::kContextParallel};
constexpr Site kKeysValuesAgain{"attention.ring_keys_values", Purpose::kContextParallel, true};
constexpr Site kGradients{"attention.ring_gradients", Purpose::kContextParallel, true};

// The row of a micro-batch, seen from one rank of the ring.
struct RingRow {
  const Group& group;
  std::vector<int64_t> starts;
  int64_t num_tokens;
  AttentionOptions options;  // without the sinks: every query has its sink once

  TokenRanges share(int64_t rank) const {
    return TokenRanges::zigzag(num_tokens, group.size(), rank);
  }
  // Whose keys and values this rank has after `step` shifts.
  int64_t owner(int64_t step) const { return (group.rank() - step + group.size()) % group.size(); }
};

// Calls visit(place_of_queries, queries, place_of_keys, keys, spans) for every range of this rank's
// tokens and every range of `owner`'s that it sees something of; places are rows of the shares.
template <class Visit>
void for_each_pair(const RingRow& row, int64_t owner, Visit visit) {
  const TokenRanges own = row.share(row.group.rank());
  const TokenRanges theirs = row.share(owner);
  int64_t query_place = 0;
  for (const TokenRange& queries : own.ranges()) {
    int64_t key_place = 0;
    for (const TokenRange& keys : theirs.ranges()) {
      const auto spans = attention_spans(row.starts, queries, keys, row.options.window);
      if (!spans.empty()) {
        visit(query_place, queries.size(), key_place, keys.size(), spans);
      }
      key_place += keys.size();
    }
    query_place += queries.size();
  }
}

// Calls visit(step, keys_values) with what every rank holds, beginning with `own`
// [held, 2 kv_heads, head_dim]; the next keys and values travel meanwhile.
template <class Visit>
void go_around(const RingRow& row, const at::Tensor& own, const Site& site, Visit visit) {
  at::Tensor here = own;
  for (int64_t step = 0; step < row.group.size(); ++step) {
    at::Tensor next;
    PendingCollective shift;
    if (step + 1 < row.group.size()) {
      next = at::empty({row.share(row.owner(step + 1)).size(), own.size(1), own.size(2)},
                       own.options());
      shift = row.group.start_shift(here, next, site);
    }
    visit(step, here);
    shift.wait();
    here = next;
  }
}

at::Tensor keys_of(const at::Tensor& keys_values, int64_t place, int64_t count) {
  return keys_values.narrow(0, place, count).narrow(1, 0, keys_values.size(1) / 2);
}
at::Tensor values_of(const at::Tensor& keys_values, int64_t place, int64_t count) {
  const int64_t kv_heads = keys_values.size(1) / 2;
  return keys_values.narrow(0, place, count).narrow(1, kv_heads, kv_heads);
}

AttentionOutput ring_forward(const RingRow& row, const at::Tensor& q, const at::Tensor& keys_values,
                             const at::Tensor& sinks) {
  AttentionOptions of_sinks = row.options;
  of_sinks.sinks = sinks;
  AttentionOutput whole =
      attention_over(q, keys_of(keys_values, 0, 0), values_of(keys_values, 0, 0), {}, of_sinks);
  whole.out = whole.out.to(whole.log_sum_exp.scalar_type());
  go_around(row, keys_values, kKeysValues, [&](int64_t step, const at::Tensor& here) {
    for_each_pair(
        row, row.owner(step),
        [&](int64_t query, int64_t num_queries, int64_t key, int64_t num_keys, const auto& spans) {
          const AttentionOutput part =
              attention_over(q.narrow(0, query, num_queries), keys_of(here, key, num_keys),
                             values_of(here, key, num_keys), spans, row.options);
          const AttentionOutput so_far{whole.out.narrow(0, query, num_queries),
                                       whole.log_sum_exp.narrow(0, query, num_queries)};
          const AttentionOutput joined = join(so_far, part);
          so_far.out.copy_(joined.out);
          so_far.log_sum_exp.copy_(joined.log_sum_exp);
        });
  });
  whole.out = whole.out.to(q.scalar_type());
  return whole;
}

struct RingGradients {
  at::Tensor q;
  at::Tensor keys_values;
};

// The sums of the gradients of keys and values start on the rank after their owner and follow them,
// one shift behind; what the owner adds itself waits for them to come home.
RingGradients ring_backward(const RingRow& row, const at::Tensor& q, const at::Tensor& keys_values,
                            const AttentionOutput& whole, const at::Tensor& grad_out) {
  const auto wide = whole.log_sum_exp.scalar_type();
  RingGradients grads{at::zeros(q.sizes(), q.options().dtype(wide)), {}};
  at::Tensor travelling;  // the sums for the keys and values that this rank had a step ago
  const auto shift_sums = [&](int64_t owner) {
    at::Tensor received =
        at::empty({row.share(owner).size(), keys_values.size(1), q.size(2)}, travelling.options());
    row.group.start_shift(travelling, received, kGradients).wait();
    travelling = received;
  };
  go_around(row, keys_values, kKeysValuesAgain, [&](int64_t step, const at::Tensor& here) {
    if (step > 1) {
      shift_sums(row.owner(step));
    } else {
      travelling = at::zeros(here.sizes(), here.options().dtype(wide));
    }
    for_each_pair(
        row, row.owner(step),
        [&](int64_t query, int64_t num_queries, int64_t key, int64_t num_keys, const auto& spans) {
          const auto of_queries = [&](const at::Tensor& tensor) {
            return tensor.narrow(0, query, num_queries);
          };
          const AttentionGradients part = attention_gradients(
              of_queries(q), keys_of(here, key, num_keys), values_of(here, key, num_keys),
              {of_queries(whole.out), of_queries(whole.log_sum_exp)}, of_queries(grad_out), spans,
              row.options);
          of_queries(grads.q).add_(part.q);
          keys_of(travelling, key, num_keys).add_(part.k);
          values_of(travelling, key, num_keys).add_(part.v);
        });
    if (step == 0) {
      grads.keys_values = travelling;
    }
  });
  shift_sums(row.group.rank());
  grads.keys_values = (grads.keys_values + travelling).to(keys_values.scalar_type());
  grads.q = grads.q.to(q.scalar_type());
  return grads;
}

struct RingFunction : torch::autograd::Function<RingFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q,
                            const at::Tensor& keys_values,
                            const std::optional<at::Tensor>& given_sinks, const RingRow& row) {
    const at::Tensor sinks = given_sinks.value_or(at::Tensor());
    const AttentionOutput whole = ring_forward(row, q, keys_values, sinks);
    ctx->save_for_backward({q, keys_values, sinks, whole.out, whole.log_sum_exp});
    ctx->saved_data["group"] = reinterpret_cast<int64_t>(&row.group);
    ctx->saved_data["starts"] = row.starts;
    ctx->saved_data["num_tokens"] = row.num_tokens;
    ctx->saved_data["options"] = numbers_of(row.options);
    return whole.out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const RingRow row{*reinterpret_cast<const Group*>(ctx->saved_data["group"].toInt()),
                      ctx->saved_data["starts"].toIntVector(),
                      ctx->saved_data["num_tokens"].toInt(),
                      options_from(ctx->saved_data["options"].toDoubleVector())};
    const AttentionOutput whole{saved[3], saved[4]};
    const RingGradients grads = ring_backward(row, saved[0], saved[1], whole, gradients[0]);
    return {grads.q, grads.keys_values, sink_gradients(whole, gradients[0], saved[2]), {}};
  }
};

class RingAttention : public ContextAttention {
 public:
  explicit RingAttention(const Group& group) : group_(group) {}

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const SequenceTable& table, const AttentionOptions& options) const override {
    AttentionOptions without_sinks = options;
    without_sinks.sinks = at::Tensor();
    return RingFunction::apply(q, at::cat({k, v}, 1), optional_sinks(options),
                               RingRow{group_, table.starts, table.num_tokens, without_sinks});
  }

 private:
  const Group& group_;
};

}  // namespace

std::unique_ptr<ContextAttention> make_ring_attention(const Group& group) {
  return std::make_unique<RingAttention>(group);
}

}  // namespace switchyard

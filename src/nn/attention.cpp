#include "nn/attention.h"

#include <ATen/ATen.h>

#include "nn/init.h"
#include "ops/attention.h"
#include "ops/rope.h"

namespace switchyard {
namespace {

constexpr Site kInput{"attention.input", Purpose::kTensorParallel};
constexpr Site kOutput{"attention.output", Purpose::kTensorParallel};

ParameterSpec head_projection(const Scope& scope, const ModelConfig& model, const char* name,
                              int64_t num_heads) {
  return {.name = scope.name(name),
          .shape = {num_heads, model.head_size(), model.hidden_size},
          .init = Init::normal(model.init_std),
          .tensor = Placement::sharded(0, num_heads)};
}

}  // namespace

std::pair<at::Tensor, at::Tensor> KeyValueCache::append(const at::Tensor& new_keys,
                                                        const at::Tensor& new_values) {
  const int64_t needed = length + new_keys.size(0);
  if (!keys.defined() || keys.size(0) < needed) {
    constexpr int64_t kSmallestCapacity = 64;
    const int64_t capacity = std::max(kSmallestCapacity, 2 * needed);
    const auto grow = [&](const at::Tensor& old, const at::Tensor& like) {
      at::Tensor grown = at::empty({capacity, like.size(1), like.size(2)}, like.options());
      if (length > 0) {
        grown.narrow(0, 0, length).copy_(old.narrow(0, 0, length));
      }
      return grown;
    };
    keys = grow(keys, new_keys);
    values = grow(values, new_values);
  }
  keys.narrow(0, length, new_keys.size(0)).copy_(new_keys);
  values.narrow(0, length, new_values.size(0)).copy_(new_values);
  length = needed;
  return {keys.narrow(0, 0, length), values.narrow(0, 0, length)};
}

Attention::Attention(const Scope& scope, const ModelConfig& model)
    : num_heads_(model.num_attention_heads / scope.groups().tensor().size()),
      num_kv_heads_(model.query_groups() / scope.groups().tensor().size()),
      head_dim_(model.head_size()),
      qkv_(scope,
           {head_projection(scope, model, "q", model.num_attention_heads),
            head_projection(scope, model, "k", model.query_groups()),
            head_projection(scope, model, "v", model.query_groups())},
           model.hidden_size, kInput),
      output_(scope,
              {.name = scope.name("o"),
               .shape = {model.hidden_size, model.num_attention_heads, model.head_size()},
               .init = Init::normal(output_init_std(model)),
               .tensor = Placement::sharded(1, model.num_attention_heads)},
              kOutput) {}

Placed Attention::forward(const Placed& hidden, const ForwardContext& context,
                          KeyValueCache* cache) const {
  const at::Tensor qkv = qkv_.forward(hidden).view({-1, num_heads_ + 2 * num_kv_heads_, head_dim_});
  const at::Tensor& positions = context.table.positions;
  // [tokens, heads/tp, head_dim] and [tokens, kv_heads/tp, head_dim]
  const at::Tensor q = rotate(qkv.narrow(1, 0, num_heads_), positions, context.rotary);
  const at::Tensor k = rotate(qkv.narrow(1, num_heads_, num_kv_heads_), positions, context.rotary);
  const at::Tensor v = qkv.narrow(1, num_heads_ + num_kv_heads_, num_kv_heads_);
  at::Tensor attended;
  if (cache != nullptr) {
    const int64_t first_position = cache->length;
    const auto [keys, values] = cache->append(k, v);
    attended = attention_with_cache(q, keys, values, first_position);
  } else {
    attended = attention(q, k, v, context.table, {}).out;
  }
  return output_.forward(attended.reshape({-1, num_heads_ * head_dim_}), hidden.placement);
}

}  // namespace switchyard

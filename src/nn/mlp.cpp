#include "nn/mlp.h"

#include "nn/init.h"
#include "ops/swiglu.h"

namespace switchyard {
namespace {

constexpr Site kInput{"mlp.input", Purpose::kTensorParallel};
constexpr Site kOutput{"mlp.output", Purpose::kTensorParallel};

}  // namespace

Mlp::Mlp(const Scope& scope, const ModelConfig& model, int64_t ffn_hidden_size)
    : gate_up_(scope,
               {{.name = scope.name("gate_up"),
                 .shape = {2, ffn_hidden_size, model.hidden_size},
                 .init = Init::normal(model.init_std),
                 .tensor = Placement::sharded(1, ffn_hidden_size)}},
               model.hidden_size, kInput),
      down_(scope,
            {.name = scope.name("down"),
             .shape = {model.hidden_size, ffn_hidden_size},
             .init = Init::normal(output_init_std(model)),
             .tensor = Placement::sharded(1, ffn_hidden_size)},
            kOutput) {}

Placed Mlp::forward(const Placed& hidden) const {
  const at::Tensor gate_up = gate_up_.forward(hidden);                  // [tokens, 2 x ffn/tp]
  const at::Tensor activated = weighted_swiglu(gate_up, at::Tensor());  // [tokens, ffn/tp]
  return down_.forward(activated, hidden.placement);
}

}  // namespace switchyard

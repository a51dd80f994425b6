#include "moe/experts.h"

#include "ops/expert_mlp.h"

namespace switchyard {

GroupedExperts::GroupedExperts(const Scope& scope, const MoeConfig& config, int64_t hidden_size,
                               double init_std, double output_init_std) {
  const Mesh& mesh = scope.groups().mesh();
  const int64_t local_experts = config.num_experts / mesh.size(Axis::kExpert);
  const int64_t local_ffn = config.ffn_hidden_size / mesh.size(Axis::kExpertTensor);
  gate_up_ = scope.parameters.declare(
      {{.name = scope.name("gate_up"),
        .shape = {config.num_experts, 2, config.ffn_hidden_size, hidden_size},
        .init = Init::normal(init_std),
        .family = Family::kExpert,
        .tensor = Placement::sharded(2, config.ffn_hidden_size)}},
      {local_experts, 2 * local_ffn, hidden_size});
  down_ =
      scope.parameters.declare({{.name = scope.name("down"),
                                 .shape = {config.num_experts, hidden_size, config.ffn_hidden_size},
                                 .init = Init::normal(output_init_std),
                                 .family = Family::kExpert,
                                 .tensor = Placement::sharded(2, config.ffn_hidden_size)}},
                               {local_experts, hidden_size, local_ffn});
}

at::Tensor GroupedExperts::forward(const DispatchedTokens& dispatched) const {
  return expert_mlp(dispatched.rows, gate_up_, down_, dispatched.weights,
                    dispatched.rows_per_expert);
}

}  // namespace switchyard

// Each layer alone, in several layouts, against one rank, in fp64: outputs, input gradients and
// parameter gradients.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "moe/moe_layer.h"
#include "nn/attention.h"
#include "nn/embedding.h"
#include "nn/gated_delta_net.h"
#include "nn/latent_attention.h"
#include "nn/mamba1_mixer.h"
#include "nn/mamba2_mixer.h"
#include "nn/mlp.h"
#include "nn/norm.h"
#include "nn/output_head.h"
#include "optim/gradients.h"
#include "parallel/collectives.h"
#include "selfcheck/logical_tensors.h"
#include "support/small_model.h"

namespace switchyard {
namespace {

constexpr double kTolerance = 1e-9;

// One row of the global batch and this layer's values for it, the same on every rank that builds
// it.
struct Row {
  int64_t index;
  TokenBatch batch;
  at::Tensor hidden;     // [tokens, hidden]
  at::Tensor cotangent;  // [tokens, hidden] what the output is multiplied with to make a scalar
};

Row make_row(const Config& config, int64_t index) {
  const std::vector<std::vector<int64_t>> lengths = {{5, 4}, {2, 7}, {8}, {1, 3, 4}};
  Row row;
  row.index = index;
  row.batch = random_batch(config, lengths[static_cast<size_t>(index)], 1,
                           static_cast<uint64_t>(100 + index));
  const auto numbers = [&](double factor) {
    const int64_t count = row.batch.table.num_tokens * config.model.hidden_size;
    return at::sin(at::arange(count, at::kDouble) * factor + static_cast<double>(index))
        .view({-1, config.model.hidden_size});
  };
  row.hidden = numbers(1.37);
  row.cotangent = numbers(2.11);
  return row;
}

// What a layer makes of a row: an output like hidden states, or a scalar.
struct LayerResult {
  std::optional<Placed> output;
  at::Tensor objective;  // [] this rank's part, undefined for none
};
using Layer = std::function<LayerResult(const Row& row, const Placed& input)>;
using MakeLayer = std::function<Layer(const Scope& scope, const Config& config)>;

ForwardContext context_of(const Row& row, const Config& config) {
  const auto rotary = [&](double base) {
    return config.rotary_dim() == 0 || base == 0
               ? RotaryTable{}
               : make_rotary_table(16, config.rotary_dim(), base, at::kDouble);
  };
  ForwardContext context{row.batch.table, rotary(config.rope.base), 40};
  context.window_rotary = rotary(config.rope.window_base);
  context.is_training = true;
  context.first_token = 100 * row.index;
  return context;
}

// This rank's part of a tensor over tokens, as `placement` says, goes to its place in the whole.
void collect(LogicalTensors& result, const std::string& name, const at::Tensor& local,
             const Placement& placement, const Group& tensor_group) {
  if (placement.kind != PlacementKind::kSharded) {
    result.add_whole(name, local);
    return;
  }
  const ShardRange own = shard_range(placement.full, tensor_group.size(), tensor_group.rank());
  result.add(name, {placement.full, local.size(1)}, {own.begin, 0}, local);
}

at::Tensor own_part(const at::Tensor& whole, const Placement& placement,
                    const Group& tensor_group) {
  if (placement.kind != PlacementKind::kSharded) {
    return whole;
  }
  const ShardRange own = shard_range(placement.full, tensor_group.size(), tensor_group.rank());
  return whole.narrow(0, own.begin, own.size());
}

void run_layer(const Config& base, const Layout& layout, const MakeLayer& make_layer,
               LogicalTensors& result) {
  const Config config = layout.apply(base);
  run_ranks(layout.mesh(), [&](Groups& groups) {
    Parameters parameters(groups, Dtypes::fp64(), 9);
    const Layer layer = make_layer(Scope{parameters, "layer"}, config);
    randomize_constant_parameters(parameters);
    const Group& data = groups[GroupName::kDataContext];
    const ShardRange rows = shard_range(4, data.size(), data.rank());
    for (int64_t index = rows.begin; index < rows.end; ++index) {
      const Row row = make_row(config, index);
      const Placement placement = layout.sequence_parallel
                                      ? Placement::sharded(0, row.batch.table.num_tokens)
                                      : Placement::invariant();
      const at::Tensor input =
          own_part(row.hidden, placement, groups.tensor()).clone().requires_grad_(true);
      const LayerResult made = layer(row, {input, placement});
      at::Tensor objective = made.objective;
      if (made.output) {
        const at::Tensor product =
            (made.output->tensor * own_part(row.cotangent, made.output->placement, groups.tensor()))
                .sum();
        objective = objective.defined() ? objective + product : product;
        collect(result, fmt::format("output.{}", index), made.output->tensor.detach(),
                made.output->placement, groups.tensor());
      }
      objective.backward();
      if (input.grad().defined()) {
        collect(result, fmt::format("grad.input.{}", index), input.grad(), placement,
                groups.tensor());
      }
      absorb_gradients(parameters);
    }
    reduce_gradients(parameters);
    result.add_gradients(parameters);
  });
}

struct LayerCase {
  const char* name;
  MakeLayer make;
  Config config;
};

template <class Module>
Layer keep(std::shared_ptr<Module> module,
           const std::function<LayerResult(const Module&, const Row&, const Placed&)>& apply) {
  return
      [module, apply](const Row& row, const Placed& input) { return apply(*module, row, input); };
}

MakeLayer latent_attention_layer() {
  return [](const Scope& scope, const Config& config) {
    return keep<LatentAttention>(
        std::make_shared<LatentAttention>(scope, config, config.attention.window),
        [config](const LatentAttention& layer, const Row& row, const Placed& input) {
          return LayerResult{layer.forward(input, context_of(row, config), nullptr), {}};
        });
  };
}

MakeLayer attention_layer() {
  return [](const Scope& scope, const Config& config) {
    return keep<Attention>(
        std::make_shared<Attention>(scope, config, config.attention.window),
        [config](const Attention& layer, const Row& row, const Placed& input) {
          return LayerResult{layer.forward(input, context_of(row, config), nullptr), {}};
        });
  };
}

template <class Scan>
MakeLayer scan_layer() {
  return [](const Scope& scope, const Config& config) {
    return keep<Scan>(
        std::make_shared<Scan>(scope, config),
        [config](const Scan& layer, const Row& row, const Placed& input) {
          return LayerResult{layer.forward(input, context_of(row, config), nullptr), {}};
        });
  };
}

MakeLayer mlp_layer() {
  return [](const Scope& scope, const Config& config) {
    return keep<Mlp>(
        std::make_shared<Mlp>(
            scope, config, config.model.ffn_hidden_size, config.model.mlp_bias,
            Mlp::Multipliers{config.multipliers.mlp_gate, config.multipliers.mlp_output}),
        [](const Mlp& layer, const Row&, const Placed& input) {
          return LayerResult{layer.forward(input), {}};
        });
  };
}

MakeLayer norm_layer() {
  return [](const Scope& scope, const Config& config) {
    return keep<Norm>(
        std::make_shared<Norm>(scope, config.model, config.parallel.sequence_parallel),
        [](const Norm& layer, const Row&, const Placed& input) {
          return LayerResult{layer.forward(input), {}};
        });
  };
}

MakeLayer moe_layer() {
  return [](const Scope& scope, const Config& config) {
    return keep<MoeLayer>(std::make_shared<MoeLayer>(scope, config, config.moe),
                          [config](const MoeLayer& layer, const Row& row, const Placed& input) {
                            RoutingMemo memo;
                            const MoeOutput output =
                                layer.forward(input, context_of(row, config), memo);
                            return LayerResult{output.hidden, output.objective};
                          });
  };
}

MakeLayer embedding_layer() {
  return [](const Scope& scope, const Config& config) {
    return keep<Embedding>(
        std::make_shared<Embedding>(scope, config),
        [](const Embedding& layer, const Row& row, const Placed& input) {
          return LayerResult{layer.forward(row.batch.tokens, input.placement), {}};
        });
  };
}

MakeLayer head_layer() {
  return [](const Scope& scope, const Config& config) {
    const Embedding embedding(scope / "embedding", config);  // declared, and not used
    return keep<OutputHead>(
        std::make_shared<OutputHead>(scope, config, &embedding),
        [](const OutputHead& layer, const Row& row, const Placed& input) {
          return LayerResult{std::nullopt,
                             layer.loss(input, row.batch.labels, row.batch.weights).weighted_sum};
        });
  };
}

const std::vector<LayerCase>& cases() {
  static const std::vector<LayerCase> all = [] {
    Config gathered = small_config();
    gathered.moe.dispatcher = DispatcherKind::kAllGather;
    Config flex = small_config();
    flex.moe.dispatcher = DispatcherKind::kFlex;
    Config head_norm = small_config();
    head_norm.attention.qk_norm = QkNormKind::kHead;
    head_norm.attention.output_bias = true;
    head_norm.attention.window = 3;
    Config full_norm = small_config();
    full_norm.attention.qk_norm = QkNormKind::kFull;
    full_norm.attention.qkv_bias = true;
    full_norm.attention.qkv_clip = 1.2;
    Config mamba2 = small_config();
    mamba2.mamba.num_heads = 8;
    mamba2.mamba.head_dim = 3;
    mamba2.mamba.num_groups = 4;
    mamba2.mamba.state_size = 5;
    mamba2.mamba.chunk_size = 3;
    mamba2.mamba.input_bias = true;
    mamba2.mamba.output_bias = true;
    Config mamba2_shared = mamba2;  // fewer groups than ranks
    mamba2_shared.mamba.num_groups = 1;
    mamba2_shared.mamba.norm = MambaNorm::kNone;
    Config mamba2_both = mamba2_shared;  // with tp 4: each group on two ranks
    mamba2_both.mamba.num_groups = 2;
    Config mamba1 = small_config();
    mamba1.mamba.inner_size = 12;
    mamba1.mamba.state_size = 5;
    mamba1.mamba.dt_rank = 3;
    mamba1.mamba.input_bias = true;
    mamba1.mamba.output_bias = true;
    Config delta_net = small_config();
    delta_net.delta_net.num_key_heads = 4;
    delta_net.delta_net.num_value_heads = 8;
    delta_net.delta_net.key_head_dim = 5;
    delta_net.delta_net.value_head_dim = 3;
    delta_net.delta_net.chunk_size = 3;
    Config latent = small_config();
    latent.model.num_query_groups = 0;
    latent.mla = {.kv_lora_rank = 10,
                  .q_lora_rank = 12,
                  .qk_nope_head_dim = 8,
                  .qk_rope_head_dim = 4,
                  .v_head_dim = 6};
    latent.rope.interleaved = true;
    Config latent_plain = latent;
    latent_plain.mla.q_lora_rank = 0;
    latent_plain.mla.v_head_dim = 14;
    latent_plain.rope.interleaved = false;
    latent_plain.attention.window = 3;
    Config gated = small_config();
    gated.attention.output_gate = true;
    gated.attention.qkv_bias = true;
    gated.attention.scale = 0.9;
    gated.attention.softcap = 0.6;
    gated.rope.interleaved = true;
    Config sunk = small_config();
    sunk.attention.sinks = true;
    sunk.attention.window = 3;
    sunk.attention.qk_norm = QkNormKind::kHead;
    sunk.rope.window_base = 50;
    sunk.rope.partial_factor = 0.5;
    sunk.rope.interleaved = true;
    Config unrotated = sunk;
    unrotated.attention.softcap = 1.5;
    unrotated.attention.output_gate = true;
    unrotated.rope.partial_factor = 0;
    Config skewed = small_config();  // all tokens agree, so that most experts get none
    skewed.model.init_std = 1e-6;
    Config biased = small_config();
    biased.model.activation = Activation::kGeluTanh;
    biased.model.gated_mlp = false;
    biased.model.mlp_bias = true;
    biased.moe.linear_bias = true;
    biased.moe.router_bias = true;
    biased.moe.shared_expert_gate = true;
    Config biased_gathered = biased;
    biased_gathered.model.gated_mlp = true;
    biased_gathered.moe.dispatcher = DispatcherKind::kAllGather;
    biased_gathered.moe.score_function = ScoreFunction::kSqrtSoftplus;
    biased_gathered.moe.renormalize = true;
    biased_gathered.moe.num_groups = 2;
    biased_gathered.moe.top_k = 1;
    biased_gathered.moe.group_score = GroupScore::kMax;
    Config capacity = small_config();
    capacity.routing.capacity_factor = 0.75;
    Config padded = capacity;
    padded.routing.capacity_padding = true;
    padded.routing.capacity_drop = CapacityDrop::kPosition;
    padded.routing.method = RoutingMethod::kRandom;
    Config padded_gathered = padded;
    padded_gathered.moe.dispatcher = DispatcherKind::kAllGather;
    padded_gathered.moe.linear_bias = true;
    Config padded_flex = padded;
    padded_flex.moe.dispatcher = DispatcherKind::kFlex;
    padded_flex.moe.linear_bias = true;
    padded_flex.moe.num_experts = 8;
    padded_flex.moe.top_k = 5;
    Config skewed_flex = skewed;
    skewed_flex.moe.dispatcher = DispatcherKind::kFlex;
    Config sinkhorn = small_config();
    sinkhorn.moe.aux_loss_coeff = 0;
    sinkhorn.routing.method = RoutingMethod::kSinkhorn;
    sinkhorn.routing.input_jitter = 0.3;
    Config noisy = small_config();
    noisy.routing.logit_noise = 0.7;
    Config varied = small_varied_config();
    varied.model.activation = Activation::kQuickGelu;
    varied.moe.linear_bias = true;
    varied.attention.qk_norm = QkNormKind::kFull;
    Config latent_flex = varied;
    latent_flex.moe.dispatcher = DispatcherKind::kFlex;
    Config latent_gathered = varied;
    latent_gathered.moe.dispatcher = DispatcherKind::kAllGather;
    return std::vector<LayerCase>{
        {"attention", attention_layer(), small_config()},
        {"attention_head_norm", attention_layer(), head_norm},
        {"attention_full_norm", attention_layer(), full_norm},
        {"attention_gated", attention_layer(), gated},
        {"attention_sinks", attention_layer(), sunk},
        {"attention_unrotated", attention_layer(), unrotated},
        {"mamba2", scan_layer<Mamba2Mixer>(), mamba2},
        {"mamba2_one_group", scan_layer<Mamba2Mixer>(), mamba2_shared},
        {"mamba2_two_groups", scan_layer<Mamba2Mixer>(), mamba2_both},
        {"mamba1", scan_layer<Mamba1Mixer>(), mamba1},
        {"delta_net", scan_layer<GatedDeltaNet>(), delta_net},
        {"latent_attention", latent_attention_layer(), latent},
        {"latent_attention_plain", latent_attention_layer(), latent_plain},
        {"mlp", mlp_layer(), small_config()},
        {"mlp_biased", mlp_layer(), biased},
        {"mlp_gated_biased", mlp_layer(), biased_gathered},
        {"norm", norm_layer(), small_config()},
        {"moe_alltoall", moe_layer(), small_config()},
        {"moe_allgather", moe_layer(), gathered},
        {"moe_flex", moe_layer(), flex},
        {"moe_skewed", moe_layer(), skewed},
        {"moe_skewed_flex", moe_layer(), skewed_flex},
        {"moe_biased", moe_layer(), biased},
        {"moe_capacity", moe_layer(), capacity},
        {"moe_padded", moe_layer(), padded},
        {"moe_padded_gathered", moe_layer(), padded_gathered},
        {"moe_padded_flex", moe_layer(), padded_flex},
        {"moe_sinkhorn", moe_layer(), sinkhorn},
        {"moe_noisy", moe_layer(), noisy},
        {"moe_gated_biased_groups", moe_layer(), biased_gathered},
        {"attention_full_norm_plus_one", attention_layer(), varied},
        {"mlp_limited", mlp_layer(), varied},
        {"norm_layer", norm_layer(), varied},
        {"moe_latent", moe_layer(), varied},
        {"moe_latent_gathered", moe_layer(), latent_gathered},
        {"moe_latent_flex", moe_layer(), latent_flex},
        {"embedding_multiplied", embedding_layer(), varied},
        {"cross_entropy_bent", head_layer(), varied},
        {"embedding", embedding_layer(), small_config()},
        {"cross_entropy", head_layer(), small_config()}};
  }();
  return all;
}

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {.name = "tp2", .world_size = 2, .tensor = 2},
      {.name = "tp2_sp", .world_size = 2, .tensor = 2, .sequence_parallel = true},
      {.name = "ep2", .world_size = 2, .expert = 2},
      {.name = "etp2", .world_size = 2, .expert_tensor = 2},
      {.name = "dp2", .world_size = 2},
      {.name = "tp2_ep2_dp2", .world_size = 4, .tensor = 2, .expert = 2},
      {.name = "tp2_sp_ep2_etp2",
       .world_size = 4,
       .tensor = 2,
       .expert = 2,
       .expert_tensor = 2,
       .sequence_parallel = true},
      {.name = "ep4_nodes_of_2", .world_size = 4, .expert = 4, .ranks_per_node = 2},
      {.name = "ep2_etp2_nodes_of_3",
       .world_size = 4,
       .expert = 2,
       .expert_tensor = 2,
       .ranks_per_node = 3},
      {.name = "tp2_ep2_dp2_nodes_of_1",
       .world_size = 4,
       .tensor = 2,
       .expert = 2,
       .ranks_per_node = 1},
      {.name = "tp4", .world_size = 4, .tensor = 4},  // more ranks than key/value heads
      {.name = "tp4_sp", .world_size = 4, .tensor = 4, .sequence_parallel = true},
  };
  return all;
}

using Case = std::tuple<size_t, size_t>;
class LayerLayout : public testing::TestWithParam<Case> {};

TEST_P(LayerLayout, EqualsOneRank) {
  const LayerCase& layer = cases()[std::get<0>(GetParam())];
  const Layout& layout = layouts()[std::get<1>(GetParam())];
  LogicalTensors expected;
  LogicalTensors actual;
  run_layer(layer.config, {.name = "one"}, layer.make, expected);
  run_layer(layer.config, layout, layer.make, actual);
  for (const std::string& line : differences(expected, actual, kTolerance)) {
    ADD_FAILURE() << layout.name << ", " << layer.name << ": " << line;
  }
  EXPECT_GE(expected.values().size(), 5U);
}

INSTANTIATE_TEST_SUITE_P(All, LayerLayout,
                         testing::Combine(testing::Range(size_t{0}, cases().size()),
                                          testing::Range(size_t{0}, layouts().size())),
                         [](const testing::TestParamInfo<Case>& one) {
                           return fmt::format("{}_{}", cases()[std::get<0>(one.param)].name,
                                              layouts()[std::get<1>(one.param)].name);
                         });

}  // namespace
}  // namespace switchyard

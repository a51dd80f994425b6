#include "support/model_variants.h"

#include <algorithm>

namespace switchyard {

LayoutRunSites run_model(const Config& base, const Layout& layout, LogicalTensors& result,
                         const std::string& removed, std::chrono::milliseconds timeout) {
  return run_layout({.config = layout.apply(base),
                     .num_ranks = layout.world_size,
                     .removed_site = removed,
                     .timeout = timeout},
                    result);
}

const std::vector<Layout>& model_layouts() {
  static const std::vector<Layout> all = {
      {.name = "tp2", .world_size = 2, .tensor = 2},
      {.name = "tp2_sp", .world_size = 2, .tensor = 2, .sequence_parallel = true},
      {.name = "ep2", .world_size = 2, .expert = 2},
      {.name = "etp2", .world_size = 2, .expert_tensor = 2},
      {.name = "dp2", .world_size = 2},
      {.name = "dp4", .world_size = 4},
      {.name = "tp2_ep2", .world_size = 2, .tensor = 2, .expert = 2},
      {.name = "ep2_etp2", .world_size = 4, .expert = 2, .expert_tensor = 2},
      {.name = "tp2_etp2", .world_size = 2, .tensor = 2, .expert_tensor = 2},
      {.name = "tp2_ep2_dp2", .world_size = 4, .tensor = 2, .expert = 2},
      {.name = "tp2_sp_ep2_dp2",
       .world_size = 4,
       .tensor = 2,
       .expert = 2,
       .sequence_parallel = true},
      {.name = "tp2_sp_ep4_dp2",
       .world_size = 4,
       .tensor = 2,
       .expert = 4,
       .sequence_parallel = true},
      {.name = "tp4", .world_size = 4, .tensor = 4},  // more ranks than key/value heads
      {.name = "tp4_sp", .world_size = 4, .tensor = 4, .sequence_parallel = true},
      {.name = "pp2", .world_size = 2, .pipeline = 2},
      {.name = "pp4_alone", .world_size = 4, .pipeline = 4, .pipeline_layout = "E|t|t|L"},
      {.name = "pp2_vpp2",
       .world_size = 2,
       .pipeline = 2,
       .virtual_pipeline = 2,
       .pipeline_layout = "E|t|t|L"},
      {.name = "pp2_tp2_sp_ep2_dp2",
       .world_size = 8,
       .tensor = 2,
       .expert = 2,
       .sequence_parallel = true,
       .pipeline = 2},
      {.name = "cp2", .world_size = 2, .context = 2},
      {.name = "cp2_gather",
       .world_size = 2,
       .context = 2,
       .exchange = ContextExchange::kAllGather},
      {.name = "cp4_heads",  // more ranks than key/value heads
       .world_size = 4,
       .expert = 2,
       .context = 4,
       .exchange = ContextExchange::kAllToAll},
      {.name = "cp3", .world_size = 3, .context = 3},
      {.name = "tp2_sp_cp2_ep2",
       .world_size = 4,
       .tensor = 2,
       .expert = 2,
       .sequence_parallel = true,
       .context = 2},
      {.name = "tp2_cp2_heads_dp2",
       .world_size = 8,
       .tensor = 2,
       .context = 2,
       .exchange = ContextExchange::kAllToAll},
      {.name = "cp2_gather_etp2_dp2",
       .world_size = 4,
       .expert_tensor = 2,
       .context = 2,
       .exchange = ContextExchange::kAllGather},
      {.name = "pp2_cp2_ep2", .world_size = 4, .expert = 2, .pipeline = 2, .context = 2},
      {.name = "tp2_sp_ep4_nodes_of_2",
       .world_size = 4,
       .tensor = 2,
       .expert = 4,
       .sequence_parallel = true,
       .ranks_per_node = 2},
      {.name = "cp2_ep2_etp2_nodes_of_2",
       .world_size = 4,
       .expert = 2,
       .expert_tensor = 2,
       .context = 2,
       .ranks_per_node = 2},
  };
  return all;
}

const Layout& layout_named(const std::string& name) {
  return *std::find_if(model_layouts().begin(), model_layouts().end(),
                       [&](const Layout& layout) { return name == layout.name; });
}

const std::vector<Variant>& model_variants() {
  static const std::vector<Variant> all = [] {
    Config alltoall = small_config();
    Config allgather = small_config();
    allgather.moe.dispatcher = DispatcherKind::kAllGather;
    allgather.moe.first_dense_layers = 1;
    Config sigmoid = small_config();
    sigmoid.moe.score_function = ScoreFunction::kSigmoid;
    sigmoid.moe.renormalize = true;
    sigmoid.moe.scaling_factor = 1.5;
    sigmoid.moe.expert_bias = true;
    sigmoid.moe.bias_update_rate = 0.05;
    sigmoid.model.tie_embeddings = true;
    sigmoid.parallel.data_sharding = DataSharding::kOptimizer;
    Config recomputed = small_config();
    recomputed.parallel.data_sharding = DataSharding::kParameters;
    recomputed.model.tie_embeddings = true;
    recomputed.train.recompute = Recompute::kFull;
    recomputed.moe.pre_softmax = true;
    Config biased = small_config();
    biased.parallel.data_sharding = DataSharding::kGradients;
    biased.model.activation = Activation::kReluSquared;
    biased.model.gated_mlp = false;
    biased.model.mlp_bias = true;
    biased.moe.layers = {"1"};
    biased.moe.linear_bias = true;
    biased.moe.router_bias = true;
    biased.moe.shared_expert_gate = true;
    biased.moe.score_function = ScoreFunction::kSqrtSoftplus;
    biased.moe.renormalize = true;
    biased.moe.num_groups = 2;
    Config set_losses = small_config();
    set_losses.moe.step_aux_loss_coeff = 0.03;
    set_losses.moe.global_aux_loss_coeff = 0.07;
    set_losses.moe.overrides = {"1: num_experts=8 top_k=3 ffn_hidden_size=8"};
    set_losses.train.recompute = Recompute::kFull;
    Config capacity = small_config();
    capacity.routing.capacity_factor = 0.75;
    capacity.routing.capacity_padding = true;
    capacity.routing.input_jitter = 0.2;
    capacity.routing.logit_noise = 0.5;
    capacity.train.recompute = Recompute::kFull;
    Config sinkhorn = small_config();
    sinkhorn.moe.aux_loss_coeff = 0;
    sinkhorn.moe.top_k = 1;
    sinkhorn.routing.method = RoutingMethod::kSinkhorn;
    sinkhorn.routing.capacity_factor = 1;
    Config full_norm = small_config();
    full_norm.attention.qk_norm = QkNormKind::kFull;
    full_norm.attention.qkv_bias = true;
    full_norm.attention.output_bias = true;
    full_norm.attention.qkv_clip = 0.8;
    full_norm.rope.type = RopeType::kDynamic;
    full_norm.rope.factor = 2;
    full_norm.model.max_position = 4;  // some batches are longer, some are not
    Config windowed = small_config();
    windowed.attention.qk_norm = QkNormKind::kHead;
    windowed.attention.window = 3;
    windowed.attention.window_layers = {"1"};
    windowed.attention.output_bias = true;
    windowed.rope.type = RopeType::kYarn;
    windowed.rope.factor = 4;
    windowed.rope.original_max_position = 64;
    windowed.train.recompute = Recompute::kFull;
    Config pattern = small_config();
    pattern.model.layer_pattern = "* E";  // layers that lack a half
    pattern.train.recompute = Recompute::kModules;
    pattern.train.recompute_modules = {"core_attention", "norms"};
    Config varied = small_varied_config();
    varied.model.post_norms = true;
    varied.model.tie_embeddings = true;
    varied.moe.first_dense_layers = 1;
    varied.moe.bias_update_rate = 0.05;
    varied.train.recompute = Recompute::kModules;
    varied.train.recompute_modules = {"norms", "mlp", "moe"};
    varied.parallel.data_sharding = DataSharding::kOptimizer;
    Config flex = capacity;
    flex.routing.capacity_padding = false;  // its rows change no value: moe/token_dispatcher_test
    flex.parallel.data_sharding = DataSharding::kParameters;
    flex.moe.dispatcher = DispatcherKind::kFlex;
    flex.train.recompute = Recompute::kModules;
    flex.train.recompute_modules = {"moe"};
    Config hybrid = small_config();  // sizes that 2, 3 and 4 ranks divide
    hybrid.model.layer_pattern = "M*- SGE";
    hybrid.mamba.num_heads = 24;
    hybrid.mamba.num_groups = 12;
    hybrid.mamba.head_dim = 2;
    hybrid.mamba.state_size = 3;
    hybrid.mamba.chunk_size = 3;
    hybrid.delta_net.num_key_heads = 12;
    hybrid.delta_net.num_value_heads = 24;
    hybrid.delta_net.key_head_dim = 3;
    hybrid.delta_net.value_head_dim = 2;
    hybrid.delta_net.chunk_size = 3;
    hybrid.mamba.inner_size = 24;
    hybrid.mamba.dt_rank = 2;
    Config hybrid_recomputed = hybrid;
    hybrid_recomputed.model.layer_pattern = "GE M ";
    hybrid_recomputed.model.tie_embeddings = true;
    hybrid_recomputed.mamba.num_groups = 1;
    hybrid_recomputed.mamba.norm = MambaNorm::kNone;
    hybrid_recomputed.mamba.input_bias = true;
    hybrid_recomputed.mamba.output_bias = true;
    hybrid_recomputed.delta_net.num_value_heads = 12;
    hybrid_recomputed.parallel.data_sharding = DataSharding::kParameters;
    hybrid_recomputed.train.recompute = Recompute::kFull;
    Config bent = small_config();
    bent.attention.scale = 0.9;
    bent.attention.softcap = 0.6;
    bent.attention.sinks = true;
    bent.attention.output_gate = true;
    bent.attention.window = 3;
    bent.attention.window_layers = {"1"};
    bent.rope.window_base = 50;
    bent.rope.interleaved = true;
    bent.rope.type = RopeType::kLinear;
    bent.rope.factor = 2;
    bent.train.recompute = Recompute::kModules;
    bent.train.recompute_modules = {"core_attention"};
    Config sunk = small_config();
    sunk.attention.sinks = true;
    sunk.attention.qk_norm = QkNormKind::kFull;
    sunk.rope.partial_factor = 0.5;
    sunk.rope.interleaved = true;
    sunk.parallel.data_sharding = DataSharding::kParameters;
    sunk.train.recompute = Recompute::kFull;
    Config foretelling = small_config();
    foretelling.mtp.num_layers = 2;
    foretelling.mtp.loss_coeff = 0.7;
    foretelling.moe.score_function = ScoreFunction::kSigmoid;
    foretelling.moe.renormalize = true;
    foretelling.moe.expert_bias = true;
    foretelling.parallel.data_sharding = DataSharding::kParameters;
    foretelling.train.recompute = Recompute::kFull;
    return std::vector<Variant>{{"foretelling", foretelling},
                                {"alltoall", alltoall},
                                {"allgather", allgather},
                                {"sigmoid_bias_tied", sigmoid},
                                {"recompute", recomputed},
                                {"full_norm_dynamic", full_norm},
                                {"head_norm_window", windowed},
                                {"biased_groups", biased},
                                {"set_losses", set_losses},
                                {"capacity", capacity},
                                {"sinkhorn", sinkhorn},
                                {"pattern", pattern},
                                {"varied", varied},
                                {"flex", flex},
                                {"hybrid", hybrid},
                                {"hybrid_recompute", hybrid_recomputed},
                                {"bent_gated", bent},
                                {"sinks", sunk}};
  }();
  return all;
}

const Variant& variant_named(const std::string& name) {
  return *std::find_if(model_variants().begin(), model_variants().end(),
                       [&](const Variant& variant) { return name == variant.name; });
}

}  // namespace switchyard

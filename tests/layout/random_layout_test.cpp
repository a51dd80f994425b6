// Models and layouts drawn at random against one rank, in fp64, and their first step in fp32. The
// first 30 draws are the ones that `make test` runs; SWITCHYARD_LAYOUTS=200 (make layouts) goes on
// from there.
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "config/recompute_modules.h"
#include "config/rules.h"
#include "selfcheck/selfcheck.h"
#include "support/small_model.h"

namespace switchyard {
namespace {

constexpr double kTolerance = 1e-9;
constexpr int64_t kMostRanks = 8;
constexpr int kUsualDraws = 30;

int num_draws() {
  const char* text = std::getenv("SWITCHYARD_LAYOUTS");
  return text == nullptr ? kUsualDraws : std::atoi(text);
}

// Draws one after the other, and counts what was drawn.
class Draws {
 public:
  Draws(int number, std::map<std::string, int>& counts)
      : stream_(static_cast<uint64_t>(number), "random_layout"), counts_(counts) {}

  template <class T>
  T of(const std::string& name, const std::vector<std::pair<T, const char*>>& choices) {
    const auto& [value, word] = choices[stream_.below(next_++, choices.size())];
    drawn_.push_back(fmt::format("{} {}", name, word));
    return value;
  }
  bool flag(const std::string& name) { return of<bool>(name, {{false, "off"}, {true, "on"}}); }
  int64_t number(const std::string& name, const std::vector<int64_t>& choices) {
    const int64_t value = choices[stream_.below(next_++, choices.size())];
    drawn_.push_back(fmt::format("{} {}", name, value));
    return value;
  }
  void count() {
    for (const std::string& one : drawn_) {
      ++counts_[one];
    }
  }
  const std::vector<std::string>& drawn() const { return drawn_; }

 private:
  RandomStream stream_;
  std::map<std::string, int>& counts_;
  uint64_t next_ = 0;
  std::vector<std::string> drawn_;
};

// Even, or written out: the embedding alone in the first stage, or the loss alone in the last.
std::string draw_pipeline_layout(Draws& draws, const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t stages = parallel.pipeline_size * parallel.virtual_pipeline_size;
  const std::string which =
      stages > 1 ? draws.of<const char*>("pipeline layout",
                                         {{"", "even"}, {"E", "E alone"}, {"L", "L alone"}})
                 : "";
  if (which.empty()) {
    return "";
  }
  std::string layout = which == "E" ? "E|" : "E";
  for (int64_t stage = 0; stage + 1 < stages; ++stage) {
    const ShardRange layers = shard_range(config.model.num_layers, stages - 1, stage);
    layout += std::string(static_cast<size_t>(layers.size()), 't');
    layout += stage + 2 < stages || which == "L" ? "|" : "";
  }
  return layout + "L";
}

void draw_layout(Draws& draws, LayoutRun& run) {
  ParallelConfig& parallel = run.config.parallel;
  parallel.tensor_size = draws.number("tp", {1, 1, 2, 2, 4});
  parallel.context_size = draws.number("cp", {1, 1, 2, 2, 3, 4});
  parallel.context_exchange =
      draws.of<ContextExchange>("exchange", {{ContextExchange::kRing, "ring"},
                                             {ContextExchange::kAllGather, "all_gather"},
                                             {ContextExchange::kAllToAll, "all_to_all"}});
  parallel.expert_size = draws.number("ep", {1, 2, 2, 4});
  parallel.expert_tensor_size = draws.number("etp", {1, 1, 2});
  parallel.pipeline_size = draws.number("pp", {1, 1, 2, 2, 3});
  parallel.virtual_pipeline_size = parallel.pipeline_size > 1 ? draws.number("vpp", {1, 1, 2}) : 1;
  run.config.model.num_layers = draws.number("layers", {2, 2, 4, 5});
  parallel.pipeline_layout = draw_pipeline_layout(draws, run.config);
  if (parallel.pipeline_size > 1 && parallel.virtual_pipeline_size == 1) {
    parallel.pipeline_schedule =
        draws.of<PipelineSchedule>("schedule", {{PipelineSchedule::kOneForwardOneBackward, "1f1b"},
                                                {PipelineSchedule::kZeroBubble, "zero_bubble"}});
  }
  parallel.expert_overlap =
      parallel.pipeline_schedule != PipelineSchedule::kZeroBubble && draws.flag("overlap");
  parallel.sequence_parallel = parallel.tensor_size > 1 && draws.flag("sp");
  parallel.order = draws.of<const char*>("order", {{"tp-cp-ep-dp-pp", "tp-cp-ep-dp-pp"},
                                                   {"dp-tp-cp-ep-pp", "dp-tp-cp-ep-pp"},
                                                   {"ep-dp-cp-tp-pp", "ep-dp-cp-tp-pp"},
                                                   {"tp-cp-ep-pp-dp", "tp-cp-ep-pp-dp"}});
  parallel.data_sharding =
      draws.of<DataSharding>("sharding", {{DataSharding::kNone, "none"},
                                          {DataSharding::kOptimizer, "optimizer"},
                                          {DataSharding::kGradients, "gradients"},
                                          {DataSharding::kParameters, "parameters"}});
  parallel.prefetch_layers = parallel.data_sharding == DataSharding::kParameters
                                 ? draws.number("prefetch layers", {0, 1, 1, 2})
                                 : 1;
  const int64_t dense_ranks = parallel.tensor_size * parallel.context_size;
  const int64_t fewest = parallel.pipeline_size *
                         std::lcm(dense_ranks, parallel.expert_size * parallel.expert_tensor_size);
  run.num_ranks = fewest * draws.number("times", {1, 2, 3, 4});
  run.num_micro_batches = run.num_ranks / (dense_ranks * parallel.pipeline_size) *
                          draws.number("micro-batches per rank", {1, 2, 3, 5});
}

void draw_attention(Draws& draws, Config& config) {
  ModelConfig& model = config.model;
  model.num_attention_heads = 4 * draws.number("heads x4", {1, 2});
  model.num_query_groups = draws.number("key heads", {1, 2, 4});
  model.layer_pattern = draws.of<const char*>(
      "pattern", {{"", "none"}, {"", "none"}, {"* E", "* E"}, {"*- *E", "*- *E"}});
  model.tie_embeddings = draws.flag("tied");
  model.vocab_size = draws.number("vocabulary", {16, 17, 23});
  model.mlp_bias = draws.flag("mlp bias");
  model.norm = draws.of<NormKind>("norm", {{NormKind::kRms, "rms"}, {NormKind::kLayer, "layer"}});
  model.norm_plus_one = draws.flag("norm plus one");
  model.post_norms = draws.flag("post norms");
  model.logit_softcap = draws.flag("logit softcap") ? 2 : 0;
  model.activation_clamp = draws.flag("activation clamp") ? 0.5 : 0;
  AttentionConfig& attention = config.attention;
  attention.qkv_bias = draws.flag("qkv bias");
  attention.output_bias = draws.flag("output bias");
  attention.qk_norm = draws.of<QkNormKind>(
      "qk norm",
      {{QkNormKind::kNone, "none"}, {QkNormKind::kHead, "head"}, {QkNormKind::kFull, "full"}});
  attention.window = draws.number("window", {0, 0, 3});
  attention.scale =
      draws.of<double>("scale", {{0, "by head_dim"}, {0, "by head_dim"}, {0.9, "0.9"}});
  attention.softcap = draws.of<double>("soft cap", {{0, "none"}, {0, "none"}, {0.6, "0.6"}});
  attention.sinks = draws.flag("sinks");
  attention.output_gate = draws.flag("output gate");
  RopeConfig& rope = config.rope;
  rope.partial_factor =
      draws.of<double>("rotated share", {{1, "1"}, {1, "1"}, {0.5, "0.5"}, {0, "0"}});
  rope.interleaved = draws.flag("interleaved");
  rope.window_base = draws.of<double>("window base", {{0, "none"}, {50, "50"}});
}

void draw_experts(Draws& draws, Config& config) {
  MoeConfig& moe = config.moe;
  moe.num_experts = draws.number("experts", {4, 8, 12});
  moe.top_k = draws.number("top_k", {1, 2, 3});
  moe.ffn_hidden_size = draws.number("expert width", {8, 12});
  moe.first_dense_layers =
      config.model.layer_pattern.empty() ? draws.number("dense layers", {0, 1}) : 0;
  moe.shared_expert_ffn_hidden_size = draws.number("shared expert", {0, 8});
  moe.shared_expert_gate = moe.shared_expert_ffn_hidden_size > 0 && draws.flag("shared gate");
  moe.shared_expert_bias = moe.shared_expert_ffn_hidden_size > 0 && draws.flag("shared bias");
  moe.latent_size = draws.number("latent", {0, 0, 10});
  moe.linear_bias = draws.flag("expert linear bias");
  moe.router_bias = draws.flag("router bias");
  moe.score_function = draws.of<ScoreFunction>(
      "score", {{ScoreFunction::kSoftmax, "softmax"}, {ScoreFunction::kSigmoid, "sigmoid"}});
  const bool is_softmax = moe.score_function == ScoreFunction::kSoftmax;
  moe.pre_softmax = is_softmax && (moe.top_k == 1 || draws.flag("pre softmax"));
  moe.renormalize = moe.top_k > 1 && (moe.pre_softmax || !is_softmax) && draws.flag("renormalize");
  moe.expert_bias = !is_softmax && draws.flag("selection bias");
  moe.bias_update_rate = 0.05;
  moe.num_groups = draws.number("groups", {1, 1, 2});
  moe.group_score = GroupScore::kMax;
  moe.aux_loss_coeff = draws.flag("sequence balance") ? 0.05 : 0;
  moe.step_aux_loss_coeff = draws.flag("step balance") ? 0.03 : 0;
  moe.z_loss_coeff = draws.flag("z loss") ? 0.02 : 0;
  moe.dispatcher =
      draws.of<DispatcherKind>("dispatcher", {{DispatcherKind::kAllToAll, "alltoall"},
                                              {DispatcherKind::kAllGather, "allgather"},
                                              {DispatcherKind::kFlex, "flex"}});
  if (moe.dispatcher == DispatcherKind::kFlex) {
    config.parallel.ranks_per_node = draws.number("ranks per node", {0, 1, 2, 2, 3, 4});
  }
  config.routing.capacity_factor = draws.flag("capacity") ? 0.75 : 0;
  config.routing.capacity_padding = config.routing.capacity_factor > 0 && draws.flag("padding");
  config.routing.logit_noise = draws.flag("noise") ? 0.5 : 0;
  TrainConfig& train = config.train;
  train.recompute = draws.of<Recompute>(
      "recompute",
      {{Recompute::kNone, "none"}, {Recompute::kModules, "modules"}, {Recompute::kFull, "full"}});
  if (train.recompute == Recompute::kFull) {
    train.recompute_method = draws.of<RecomputeMethod>(
        "recompute method",
        {{RecomputeMethod::kUniform, "uniform"}, {RecomputeMethod::kBlock, "block"}});
    train.recompute_layers = draws.number("recompute layers", {1, 2});
  }
  if (train.recompute == Recompute::kModules) {
    for (const std::string_view module : RecomputeModules::kAll) {
      if (draws.flag(fmt::format("recompute {}", module))) {
        train.recompute_modules.emplace_back(module);
      }
    }
  }
}

// Layers of other kinds than attention with an MLP or experts.
void draw_pattern(Draws& draws, Config& config) {
  if (!draws.flag("pattern")) {
    return;
  }
  for (int64_t layer = 0; layer < config.model.num_layers; ++layer) {
    config.model.layer_pattern += draws.of<const char*>(
        "layer",
        {{"M ", "M"}, {"GE ", "GE"}, {"M*- ", "M*-"}, {"*E ", "*E"}, {"S ", "S"}, {"E ", "E"}});
  }
  MambaConfig& mamba = config.mamba;
  mamba.num_heads = draws.number("mamba heads", {8, 12, 24});
  mamba.num_groups = draws.number("mamba groups", {1, 2, 4, 12});
  mamba.inner_size = draws.number("mamba channels", {12, 24});
  mamba.head_dim = 2;
  mamba.state_size = 3;
  mamba.chunk_size = draws.number("mamba chunk", {2, 128});
  mamba.conv_bias = draws.flag("conv bias");
  mamba.norm = draws.of<MambaNorm>("mamba norm", {{MambaNorm::kNone, "none"},
                                                  {MambaNorm::kAfterGate, "after gate"},
                                                  {MambaNorm::kBeforeGate, "before gate"}});
  DeltaNetConfig& delta_net = config.delta_net;
  delta_net.num_key_heads = draws.number("delta net heads", {4, 8, 12});
  delta_net.num_value_heads = delta_net.num_key_heads * draws.number("values per key", {1, 2});
  delta_net.key_head_dim = 3;
  delta_net.value_head_dim = 2;
  delta_net.chunk_size = 3;
}

bool is_allowed(const LayoutRun& run) {
  Config config = run.config;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = run.num_micro_batches;
  config.data.sequence_length = 96;  // a multiple of every 2 x cp and cp x tp
  return run.num_ranks > 1 && run.num_ranks <= kMostRanks &&
         broken_rules(config, ConfigUse::kDescribe).empty() &&
         broken_rules_of_world(config, run.num_ranks).empty();
}

std::vector<std::string> differences_in_fp32(const LayoutRun& layout) {
  ExpertChoices choices;
  LogicalTensors expected;
  LogicalTensors actual;
  run_first_step_in_fp32(on_one_rank(layout), choices, expected);
  run_first_step_in_fp32(layout, choices, actual);
  return differences(expected, actual, fp32_tolerance(layout.config), kFp32LeastShare);
}

TEST(RandomLayouts, GiveTheOneRankResult) {
  std::map<std::string, int> counts;
  int done = 0;
  for (int number = 0; done < num_draws(); ++number) {
    ASSERT_LT(number, 100 * num_draws()) << "nearly every draw is refused";
    Draws draws(number, counts);
    LayoutRun layout;
    layout.config = small_config();
    draw_layout(draws, layout);
    draw_attention(draws, layout.config);
    draw_experts(draws, layout.config);
    draw_pattern(draws, layout.config);
    if (!is_allowed(layout)) {
      continue;
    }
    ++done;
    draws.count();
    LogicalTensors expected;
    LogicalTensors actual;
    run_layout(on_one_rank(layout), expected);
    run_layout(layout, actual);
    std::vector<std::string> lines = differences(expected, actual, kTolerance);
    for (const std::string& line : differences_in_fp32(layout)) {
      lines.push_back("in fp32: " + line);
    }
    for (const std::string& line : lines) {
      ADD_FAILURE() << "draw " << number << " (" << layout.num_ranks << " ranks, "
                    << fmt::format("{}", fmt::join(draws.drawn(), ", ")) << "): " << line;
    }
  }
  fmt::print("{} layouts; how often each choice was drawn:\n", done);
  for (const auto& [choice, count] : counts) {
    fmt::print("  {:<32}{:>4}\n", choice, count);
  }
}

}  // namespace
}  // namespace switchyard

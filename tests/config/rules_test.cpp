#include "config/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/example.h"
#include "config/warnings.h"

namespace switchyard {
namespace {

using Lines = std::vector<std::string>;

// An MoE model of two layers that breaks no rule.
Config good() {
  Config config;
  config.model.num_layers = 2;
  config.model.hidden_size = 64;
  config.model.num_attention_heads = 4;
  config.moe.num_experts = 8;
  config.moe.ffn_hidden_size = 96;
  config.data.sequence_length = 128;
  config.train.steps = 20;
  config.train.global_batch_size = 8;
  config.optimizer.lr = 1e-3;
  return config;
}

Config good_dense() {
  Config config = good();
  config.moe = MoeConfig{};
  config.model.ffn_hidden_size = 256;
  return config;
}

Lines broken(const Config& config) {
  return broken_rules(config, ConfigUse::kTrain);
}

// What breaks when `change` is applied to a good configuration.
template <class Change>
Lines broken_by(const Change& change) {
  Config config = good();
  change(config);
  return broken(config);
}

TEST(Rules, HoldForGoodConfigurations) {
  EXPECT_EQ(broken(good()), Lines{});
  EXPECT_EQ(broken(good_dense()), Lines{});
}

TEST(Rules, HeadsDivideHiddenSize) {
  EXPECT_EQ(broken_by([](Config& c) { c.model.num_attention_heads = 3; }),
            Lines{"model.hidden_size (64) must be a multiple of model.num_attention_heads (3), or "
                  "model.head_dim be given"});
  EXPECT_EQ(broken_by([](Config& c) {
              c.model.num_attention_heads = 3;
              c.model.head_dim = 16;
            }),
            Lines{});
}

TEST(Rules, HeadDimIsEven) {
  EXPECT_EQ(broken_by([](Config& c) { c.model.head_dim = 15; }),
            Lines{"model.head_dim (15) must be even: rotary positions turn pairs of features"});
  EXPECT_EQ(broken_by([](Config& c) { c.model.num_attention_heads = 64; }),
            Lines{"model.hidden_size / model.num_attention_heads (64 / 64 = 1) must be even: "
                  "rotary positions turn pairs of features"});
}

TEST(Rules, WindowLayersAreLayersOfTheModel) {
  const auto with_layers = [](const char* text) {
    return broken_by([=](Config& c) {
      c.attention.window = 8;
      c.attention.window_layers = {text};
    });
  };
  EXPECT_EQ(with_layers("0-1"), Lines{});
  EXPECT_EQ(with_layers("2"), Lines{"attention.window_layers holds \"2\": the layers of this model "
                                    "are 0 to 1 (model.num_layers is 2)"});
}

TEST(Rules, HeadsWithoutRotaryPositionsMayBeOdd) {
  EXPECT_EQ(broken_by([](Config& c) {
              c.model.head_dim = 7;
              c.rope.partial_factor = 0;
            }),
            Lines{});
}

TEST(Rules, RotaryDimIsEven) {
  const auto with_share = [](double share) {
    return broken_by([=](Config& c) { c.rope.partial_factor = share; });
  };
  EXPECT_EQ(with_share(0.25), Lines{});
  EXPECT_EQ(with_share(0.2), Lines{"rope.partial_factor (0.2) of the head dim (16) rotates 3 "
                                   "features of a head: an even number from 2 up is expected, or "
                                   "a factor of 0 for no positions"});
  EXPECT_EQ(with_share(0.1), Lines{"rope.partial_factor (0.1) of the head dim (16) rotates 1 "
                                   "features of a head: an even number from 2 up is expected, or "
                                   "a factor of 0 for no positions"});
  EXPECT_EQ(with_share(0), Lines{});
}

TEST(Rules, WindowBaseIsABase) {
  const auto with_base = [](double base) {
    return broken_by([=](Config& c) {
      c.attention.window = 8;
      c.rope.window_base = base;
    });
  };
  EXPECT_EQ(with_base(0), Lines{});
  EXPECT_EQ(with_base(1), Lines{});
  EXPECT_EQ(with_base(0.5), Lines{"rope.window_base (0.5) must be 1 or more, or 0 for none"});
}

TEST(Rules, DynamicRopeKnowsTheLengthAndHasMoreThanOneFrequency) {
  const auto dynamic = [](int64_t max_position, double share) {
    return broken_by([=](Config& c) {
      c.rope.type = RopeType::kDynamic;
      c.model.max_position = max_position;
      c.rope.partial_factor = share;
    });
  };
  EXPECT_EQ(dynamic(64, 1), Lines{});
  EXPECT_EQ(dynamic(0, 1), Lines{"model.max_position must be given: rope.type dynamic scales for "
                                 "longer sequences than that"});
  EXPECT_EQ(dynamic(64, 0.125),
            Lines{"rope.type dynamic needs more than 2 rotated features per head, got 2"});
}

TEST(Rules, ScaledRopeHasAnOrigin) {
  const auto scaled = [](RopeType type) {
    return broken_by([=](Config& c) { c.rope.type = type; });
  };
  EXPECT_EQ(scaled(RopeType::kLinear), Lines{});
  EXPECT_EQ(scaled(RopeType::kLlama3),
            Lines{"rope.original_max_position must be given: rope.type is llama3"});
  EXPECT_EQ(scaled(RopeType::kYarn),
            Lines{"rope.original_max_position must be given: rope.type is yarn"});
}

TEST(Rules, RangesOfScaledRopeAreInOrder) {
  const auto broken_with = [](RopeType type, void (*change)(RopeConfig&)) {
    return broken_by([=](Config& c) {
      c.rope.type = type;
      c.rope.original_max_position = 64;
      change(c.rope);
    });
  };
  EXPECT_EQ(broken_with(RopeType::kLlama3, [](RopeConfig& rope) { rope.high_freq_factor = 1; }),
            Lines{"rope.high_freq_factor (1) must exceed rope.low_freq_factor (1)"});
  EXPECT_EQ(broken_with(RopeType::kYarn, [](RopeConfig& rope) { rope.beta_fast = 0.5; }),
            Lines{"rope.beta_fast (0.5) must not be below rope.beta_slow (1)"});
  EXPECT_EQ(broken_with(RopeType::kYarn, [](RopeConfig& rope) { rope.base = 1; }),
            Lines{"rope.base (1) must be above 1 for rope.type yarn"});
}

TEST(Rules, QueryGroupsDivideHeads) {
  EXPECT_EQ(
      broken_by([](Config& c) { c.model.num_query_groups = 3; }),
      Lines{"model.num_attention_heads (4) must be a multiple of model.num_query_groups (3)"});
}

// With latent attention, of which nothing breaks a rule.
template <class Change>
Lines broken_with_latents(const Change& change) {
  return broken_by([&](Config& c) {
    c.mla.kv_lora_rank = 16;
    c.mla.qk_nope_head_dim = 8;
    c.mla.qk_rope_head_dim = 4;
    c.mla.v_head_dim = 6;
    change(c);
  });
}

TEST(Rules, LatentHeadsHaveWidths) {
  EXPECT_EQ(broken_with_latents([](Config& c) { c.model.num_attention_heads = 3; }), Lines{});
  EXPECT_EQ(broken_with_latents([](Config& c) { c.mla.v_head_dim = 0; }),
            Lines{"mla.v_head_dim must be given: mla.kv_lora_rank is 16"});
  EXPECT_EQ(
      broken_with_latents([](Config& c) { c.mla.qk_rope_head_dim = 5; }),
      Lines{"mla.qk_rope_head_dim (5) must be even: rotary positions turn pairs of features"});
}

TEST(Rules, LatentAttentionHasNoneOfTheOthersParts) {
  const std::string latent =
      " does not go with latent attention (mla.kv_lora_rank 16): it must be ";
  EXPECT_EQ(broken_with_latents([](Config& c) { c.attention.qkv_bias = true; }),
            Lines{"attention.qkv_bias (true)" + latent + "false"});
  EXPECT_EQ(broken_with_latents([](Config& c) { c.attention.output_bias = true; }),
            Lines{"attention.output_bias (true)" + latent + "false"});
  EXPECT_EQ(broken_with_latents([](Config& c) { c.attention.qk_norm = QkNormKind::kHead; }),
            Lines{"attention.qk_norm (head)" + latent + "none"});
  EXPECT_EQ(broken_with_latents([](Config& c) { c.attention.qkv_clip = 8; }),
            Lines{"attention.qkv_clip (8)" + latent + "0"});
  EXPECT_EQ(broken_with_latents([](Config& c) { c.model.num_query_groups = 2; }),
            Lines{"model.num_query_groups (2)" + latent +
                  "0, or model.num_attention_heads: every head has keys and values of its own"});
  EXPECT_EQ(broken_with_latents([](Config& c) { c.rope.partial_factor = 0.5; }),
            Lines{"rope.partial_factor (0.5)" + latent +
                  "1: mla.qk_rope_head_dim says how much is rotated"});
}

TEST(Rules, TensorRanksShareTheProjectionsOfMultiTokenPrediction) {
  EXPECT_EQ(broken_by([](Config& c) {
              c.model.hidden_size = 66;
              c.model.head_dim = 16;
              c.parallel.tensor_size = 4;
              c.mtp.num_layers = 1;
            }),
            Lines{"model.hidden_size (66) must be a multiple of parallel.tensor_size (4) for the "
                  "projections of multi-token prediction"});
}

TEST(Rules, LayersHaveAWidth) {
  EXPECT_EQ(broken_by([](Config& c) { c.moe.num_experts = 0; }),
            Lines{"model.ffn_hidden_size must be given: moe.num_experts is 0, so that every layer "
                  "is dense"});
  EXPECT_EQ(broken_by([](Config& c) { c.moe.first_dense_layers = 1; }),
            Lines{"model.ffn_hidden_size must be given: moe.first_dense_layers is 1"});
  EXPECT_EQ(broken_by([](Config& c) { c.moe.ffn_hidden_size = 0; }),
            Lines{"moe.ffn_hidden_size must be given: moe.num_experts is 8"});
}

TEST(Rules, ThereAreEnoughExperts) {
  EXPECT_EQ(broken_by([](Config& c) { c.moe.top_k = 9; }),
            Lines{"moe.top_k (9) must not exceed moe.num_experts (8)"});
}

TEST(Rules, DenseLayersFitIntoTheModel) {
  EXPECT_EQ(broken_by([](Config& c) {
              c.model.ffn_hidden_size = 256;
              c.moe.first_dense_layers = 3;
            }),
            Lines{"moe.first_dense_layers (3) must not exceed model.num_layers (2)"});
}

TEST(Rules, LayersWithExpertsAreLayers) {
  EXPECT_EQ(broken_by([](Config& c) { c.moe.layers = {"0-2"}; }),
            Lines{"moe.layers holds \"0-2\": the layers of this model are 0 to 1 "
                  "(model.num_layers is 2)"});
  EXPECT_EQ(broken_by([](Config& c) { c.moe.layers = {"1"}; }),
            Lines{"model.ffn_hidden_size must be given: moe.layers leaves layers dense"});
  EXPECT_EQ(broken_by([](Config& c) { c.moe.layers = {"0", "1"}; }), Lines{});
}

TEST(Rules, ExpertBiasNeedsTheScoresOfAllExperts) {
  EXPECT_EQ(broken_by([](Config& c) { c.moe.expert_bias = true; }),
            Lines{"moe.expert_bias (true) needs the scores of all experts: moe.score_function "
                  "sigmoid or sqrtsoftplus, or softmax with moe.pre_softmax"});
  EXPECT_EQ(broken_by([](Config& c) {
              c.moe.expert_bias = true;
              c.moe.pre_softmax = true;
            }),
            Lines{});
  for (const ScoreFunction function : {ScoreFunction::kSigmoid, ScoreFunction::kSqrtSoftplus}) {
    EXPECT_EQ(broken_by([&](Config& c) {
                c.moe.expert_bias = true;
                c.moe.score_function = function;
              }),
              Lines{});
  }
}

TEST(Rules, LimitsAreThoseOfAGate) {
  const auto lines = [](bool has_gate) {
    return broken_by([&](Config& c) {
      c.model.gated_mlp = has_gate;
      c.model.activation_clamp = 7;
    });
  };
  EXPECT_EQ(lines(true), Lines{});
  EXPECT_EQ(lines(false), Lines{"model.activation_clamp limits the gate of an MLP: "
                                "model.gated_mlp must be true"});
}

TEST(Rules, SinkhornBalancesAlone) {
  const auto broken_with = [](const auto& change) {
    return broken_by([&](Config& c) {
      c.routing.method = RoutingMethod::kSinkhorn;
      change(c);
    });
  };
  const std::string refusal = "routing.method sinkhorn balances the experts by itself: ";
  EXPECT_EQ(broken_with([](Config&) {}), Lines{});
  EXPECT_EQ(broken_with([](Config& c) { c.moe.top_k = 1; }), Lines{});  // weights are sigmoids
  EXPECT_EQ(broken_with([](Config& c) { c.moe.aux_loss_coeff = 0.1; }),
            Lines{refusal + "moe.aux_loss_coeff must be 0"});
  EXPECT_EQ(broken_with([](Config& c) { c.moe.step_aux_loss_coeff = 0.1; }),
            Lines{refusal + "moe.step_aux_loss_coeff must be 0"});
  EXPECT_EQ(broken_with([](Config& c) { c.moe.global_aux_loss_coeff = 0.1; }),
            Lines{refusal + "moe.global_aux_loss_coeff must be 0"});
  EXPECT_EQ(broken_with([](Config& c) {
              c.moe.score_function = ScoreFunction::kSigmoid;
              c.moe.expert_bias = true;
            }),
            Lines{refusal + "moe.expert_bias must be false"});
  EXPECT_EQ(broken_with([](Config& c) { c.moe.num_groups = 2; }),
            Lines{refusal + "moe.num_groups must be 1"});
}

TEST(Rules, GroupsOfExpertsCanBeChosenFrom) {
  const auto broken_with = [](int64_t num_groups, int64_t group_top_k, int64_t top_k,
                              GroupScore score = GroupScore::kMax) {
    return broken_by([&](Config& c) {
      c.moe.num_groups = num_groups;
      c.moe.group_top_k = group_top_k;
      c.moe.top_k = top_k;
      c.moe.group_score = score;
    });
  };
  EXPECT_EQ(broken_with(4, 2, 4), Lines{});
  EXPECT_EQ(broken_with(3, 2, 2),
            Lines{"moe.num_experts (8) must be a multiple of moe.num_groups (3)"});
  EXPECT_EQ(broken_with(4, 5, 2), Lines{"moe.group_top_k (5) must not exceed moe.num_groups (4)"});
  EXPECT_EQ(broken_with(4, 1, 3),
            Lines{"moe.top_k (3) must not exceed the 2 experts of moe.group_top_k (1) groups of "
                  "2: raise moe.group_top_k"});
  EXPECT_EQ(broken_with(8, 2, 2, GroupScore::kTop2Sum),
            Lines{"moe.group_score top2_sum adds up 2 scores, but moe.num_groups (8) leaves groups "
                  "of 1"});
  EXPECT_EQ(broken_with(4, 3, 2, GroupScore::kTopSum),
            Lines{"moe.group_top_k (3) must not exceed moe.top_k (2) for moe.group_score top_sum, "
                  "which adds up top_k / group_top_k scores"});
  // Without groups nothing is asked of their settings.
  EXPECT_EQ(broken_with(1, 5, 2), Lines{});
}

TEST(Rules, TheRouterGetsAGradient) {
  const auto top_1 = [](ScoreFunction score_function, bool pre_softmax, bool renormalize) {
    Config config = good();
    config.moe.top_k = 1;
    config.moe.score_function = score_function;
    config.moe.pre_softmax = pre_softmax;
    config.moe.renormalize = renormalize;
    return config;
  };
  const Lines renormalized = {
      "moe.top_k (1) with moe.renormalize (true) gives the router no gradient: the one weight is "
      "always 1; set moe.renormalize to false or moe.top_k to 2 or more"};
  const Lines post_softmax = {
      "moe.top_k (1) with moe.pre_softmax (false) gives the router no gradient: the one weight is "
      "always 1; set moe.pre_softmax to true or moe.top_k to 2 or more"};
  EXPECT_EQ(broken(top_1(ScoreFunction::kSoftmax, true, true)), renormalized);
  EXPECT_EQ(broken(top_1(ScoreFunction::kSigmoid, false, true)), renormalized);
  EXPECT_EQ(broken(top_1(ScoreFunction::kSoftmax, false, false)), post_softmax);
  EXPECT_EQ(broken(top_1(ScoreFunction::kSoftmax, true, false)), Lines{});
  EXPECT_EQ(broken(top_1(ScoreFunction::kSigmoid, false, false)), Lines{});
  // A published model may be made like that: only training it is refused.
  EXPECT_EQ(broken_rules(top_1(ScoreFunction::kSigmoid, false, true), ConfigUse::kDescribe),
            Lines{});
}

// Of a model whose layers are Mamba-2, gated delta net and experts.
template <class Change>
Lines broken_in_scans(const Change& change) {
  return broken_by([&](Config& c) {
    c.model.layer_pattern = "ME G";
    change(c);
  });
}

TEST(Rules, Mamba2HeadsAreSharedByGroupsAndRanks) {
  EXPECT_EQ(broken_in_scans([](Config& c) { c.mamba.num_groups = 2; }), Lines{});
  EXPECT_EQ(broken_in_scans([](Config& c) { c.mamba.head_dim = 256; }),
            Lines{"mamba.num_heads must be given: 2 x model.hidden_size / mamba.head_dim (128 / "
                  "256) is 0"});
  EXPECT_EQ(broken_in_scans([](Config& c) {
              c.mamba.num_heads = 6;
              c.mamba.num_groups = 4;
            }),
            Lines{"mamba.num_heads (6) must be a multiple of mamba.num_groups (4)"});
  EXPECT_EQ(broken_in_scans([](Config& c) {
              c.mamba.num_heads = 6;
              c.mamba.num_groups = 6;
              c.parallel.tensor_size = 2;
              c.parallel.context_size = 2;
            }),
            (Lines{"mamba.num_heads (6) must be a multiple of parallel.tensor_size x "
                   "parallel.context_size (2 x 2 = 4)",
                   "the Mamba groups of a tensor rank (6 / 2 = 3) must be a multiple of "
                   "parallel.context_size (2), or divide it: mamba.num_groups / "
                   "parallel.tensor_size, at least 1"}));
}

TEST(Rules, MambaGroupsAreNormalisedOnOneRank) {
  const auto with_one_group = [](MambaNorm norm, int64_t groups) {
    return broken_in_scans([=](Config& c) {
      c.mamba.num_heads = 12;
      c.mamba.num_groups = groups;
      c.mamba.norm = norm;
      c.parallel.tensor_size = 2;
    });
  };
  EXPECT_EQ(with_one_group(MambaNorm::kNone, 1), Lines{});
  EXPECT_EQ(with_one_group(MambaNorm::kAfterGate, 1),
            Lines{"mamba.num_groups (1) must be a multiple of parallel.tensor_size (2): the norm "
                  "is over whole groups, each on one rank (or mamba.norm none)"});
  EXPECT_EQ(with_one_group(MambaNorm::kNone, 3),
            Lines{"mamba.num_groups (3) must be a multiple or a divisor of parallel.tensor_size "
                  "(2)"});
}

TEST(Rules, TimeStepsHaveARange) {
  EXPECT_EQ(broken_in_scans([](Config& c) {
              c.mamba.num_groups = 2;
              c.mamba.min_dt = 0.2;
              c.mamba.max_dt = 0.1;
              c.mamba.init_min_dt = 0.2;
            }),
            (Lines{"mamba.max_dt (0.1) must not be below mamba.min_dt (0.2)",
                   "mamba.init_max_dt (0.1) must not be below mamba.init_min_dt (0.2)"}));
}

TEST(Rules, Mamba1ChannelsAreSharedByRanks) {
  EXPECT_EQ(broken_by([](Config& c) {
              c.model.layer_pattern = "SE";
              c.mamba.inner_size = 18;
              c.parallel.tensor_size = 2;
              c.parallel.context_size = 2;
            }),
            Lines{"mamba.inner_size (18) must be a multiple of parallel.tensor_size x "
                  "parallel.context_size (2 x 2 = 4)"});
}

TEST(Rules, DeltaNetHeadsAreSharedByRanks) {
  EXPECT_EQ(broken_in_scans([](Config& c) {
              c.mamba.num_groups = 2;
              c.delta_net.num_value_heads = 24;
            }),
            Lines{"delta_net.num_value_heads (24) must be a multiple of delta_net.num_key_heads "
                  "(16)"});
  EXPECT_EQ(broken_in_scans([](Config& c) {
              c.mamba.num_heads = 12;
              c.mamba.num_groups = 12;
              c.delta_net.num_key_heads = 6;
              c.delta_net.num_value_heads = 6;
              c.parallel.tensor_size = 4;
            }),
            Lines{"delta_net.num_key_heads (6) must be a multiple of parallel.tensor_size x "
                  "parallel.context_size (4 x 1 = 4)"});
}

TEST(Rules, MicroBatchesFillTheBatch) {
  EXPECT_EQ(broken_by([](Config& c) { c.train.micro_batch_size = 3; }),
            Lines{"train.global_batch_size (8) must be a multiple of train.micro_batch_size (3)"});
}

TEST(Rules, TrainingEnds) {
  EXPECT_EQ(broken_by([](Config& c) { c.train.steps = 0; }),
            Lines{"train.steps or train.minutes must be given: both are 0, the run would not end"});
  EXPECT_EQ(broken_by([](Config& c) {
              c.train.steps = 0;
              c.train.minutes = 0.5;
            }),
            Lines{});
}

TEST(Rules, TheLearningRateFalls) {
  EXPECT_EQ(broken_by([](Config& c) { c.optimizer.min_lr = 0.01; }),
            Lines{"optimizer.min_lr (0.01) must not exceed optimizer.lr (0.001)"});
}

TEST(Rules, TheWarmUpRises) {
  EXPECT_EQ(broken_by([](Config& c) { c.optimizer.initial_lr = 0.01; }),
            Lines{"optimizer.initial_lr (0.01) must not exceed optimizer.lr (0.001)"});
}

TEST(Rules, TheDecayFitsTheRun) {
  const auto change = [](Config& c) {
    c.optimizer.schedule = LrSchedule::kWsd;
    c.optimizer.warmup_steps = 15;
    c.optimizer.decay_steps = 6;
  };
  EXPECT_EQ(broken_by(change),
            Lines{"optimizer.warmup_steps + optimizer.decay_steps (15 + 6) must not exceed "
                  "train.steps (20)"});
  EXPECT_EQ(broken_by([&](Config& c) {
              change(c);
              c.train.steps = 21;
            }),
            Lines{});
  EXPECT_EQ(broken_by([&](Config& c) {  // shortened, once the number of steps is known
              change(c);
              c.train.steps = 0;
              c.train.minutes = 1;
            }),
            Lines{});
}

TEST(Rules, PipelineStagesHoldTheLayers) {
  EXPECT_EQ(broken_by([](Config& c) {
              c.model.num_layers = 4;
              c.parallel.pipeline_size = 2;
              c.parallel.virtual_pipeline_size = 2;
            }),
            Lines{});
  EXPECT_EQ(broken_by([](Config& c) {
              c.model.num_layers = 3;
              c.parallel.pipeline_size = 4;
            }),
            Lines{"model.num_layers (3) must be at least parallel.pipeline_size x "
                  "parallel.virtual_pipeline_size (4 x 1 = 4 stages); a stage without layers needs "
                  "parallel.pipeline_layout"});
  EXPECT_EQ(broken_by([](Config& c) {
              c.model.num_layers = 4;
              c.parallel.pipeline_size = 2;
              c.parallel.pipeline_layout = "Ettt|tt";
            }),
            Lines{"parallel.pipeline_layout (\"Ettt|tt\") must have one E, at its very beginning, "
                  "and one L, at its very end"});
}

TEST(Rules, TheOrderNamesEveryAxis) {
  for (const char* order : {"tp-cp-dp-pp", "tp-cp-ep-dp-pp-", "tp-tp-ep-dp-pp", "tp,cp,ep,dp,pp",
                            "", "TP-CP-EP-DP-PP"}) {
    EXPECT_EQ(broken_by([&](Config& c) { c.parallel.order = order; }),
              Lines{"parallel.order (\"" + std::string(order) +
                    "\") must name tp, cp, ep, dp and pp once each, joined by dashes, as in "
                    "tp-cp-ep-dp-pp"});
  }
  EXPECT_EQ(broken_by([](Config& c) { c.parallel.order = "pp-dp-ep-cp-tp"; }), Lines{});
}

TEST(Rules, TensorRanksShareHeads) {
  EXPECT_EQ(broken_by([](Config& c) { c.parallel.tensor_size = 8; }),
            Lines{"model.num_attention_heads (4) must be a multiple of parallel.tensor_size (8)"});
}

TEST(Rules, TensorRanksShareQueryGroups) {
  const auto with_groups = [](int64_t groups) {
    return broken_by([=](Config& c) {
      c.model.num_attention_heads = 12;
      c.model.head_dim = 16;
      c.model.num_query_groups = groups;
      c.parallel.tensor_size = 4;
    });
  };
  EXPECT_EQ(with_groups(4), Lines{});
  EXPECT_EQ(with_groups(2), Lines{});
  EXPECT_EQ(with_groups(1), Lines{});
  EXPECT_EQ(with_groups(3), Lines{"model.num_query_groups (3) must be a multiple or a divisor of "
                                  "parallel.tensor_size (4)"});
}

TEST(Rules, ExpertTensorRanksShareTheBias) {
  const auto with_ranks = [](bool has_bias) {
    return broken_by([&](Config& c) {
      c.model.head_dim = 16;
      c.model.hidden_size = 66;
      c.moe.linear_bias = has_bias;
      c.parallel.expert_tensor_size = 4;
    });
  };
  EXPECT_EQ(with_ranks(true), Lines{"model.hidden_size (66) must be a multiple of "
                                    "parallel.expert_tensor_size (4) for moe.linear_bias"});
  EXPECT_EQ(with_ranks(false), Lines{});
}

TEST(Rules, RecomputeNamesModules) {
  const auto lines = [](const std::vector<std::string>& modules) {
    return broken_by([&](Config& c) {
      c.train.recompute = Recompute::kModules;
      c.train.recompute_modules = modules;
    });
  };
  EXPECT_EQ(lines({}), Lines{"train.recompute is modules: train.recompute_modules must name at "
                             "least one of core_attention, norms, mlp, experts, shared_expert, "
                             "moe"});
  EXPECT_EQ(lines({"norms", "attention"}),
            Lines{"train.recompute_modules: there is no attention; the modules are "
                  "core_attention, norms, mlp, experts, shared_expert, moe"});
  EXPECT_EQ(lines({"moe", "experts"}),
            Lines{"train.recompute_modules: moe computes experts and shared_expert again already: "
                  "leave them out, or moe"});
  EXPECT_EQ(lines({"norms", "core_attention", "mlp", "moe"}), Lines{});
}

TEST(Rules, OffloadNamesModules) {
  EXPECT_EQ(broken_by([](Config& c) {
              c.train.offload_modules = {"experts", "norms"};
            }),
            Lines{"train.offload_modules: there is no norms; the modules are attention, mlp, "
                  "experts, shared_expert"});
  EXPECT_EQ(broken_by([](Config& c) {
              c.train.offload_modules = {"attention", "experts"};
            }),
            Lines{});
}

TEST(Rules, DividedGradientsComeAtOnce) {
  EXPECT_THAT(
      broken_by([](Config& c) {
        c.parallel.pipeline_schedule = PipelineSchedule::kZeroBubble;
        c.parallel.data_sharding = DataSharding::kParameters;
      }),
      testing::Contains("parallel.pipeline_schedule zero_bubble puts off the gradients of weights; "
                        "parallel.data_sharding parameters divides those of a layer as soon as its "
                        "backward pass has left it: take optimizer or none"));
  EXPECT_EQ(broken_by([](Config& c) { c.parallel.data_sharding = DataSharding::kParameters; }),
            Lines{});
}

TEST(Rules, TensorRanksShareWidths) {
  EXPECT_EQ(broken_by([](Config& c) {
              c.parallel.tensor_size = 4;
              c.model.vocab_size = 3;
              c.moe.shared_expert_ffn_hidden_size = 50;
              c.moe.first_dense_layers = 1;
              c.model.ffn_hidden_size = 30;
            }),
            (Lines{"model.vocab_size (3) must be at least parallel.tensor_size (4)",
                   "model.ffn_hidden_size (30) must be a multiple of parallel.tensor_size (4)",
                   "moe.shared_expert_ffn_hidden_size (50) must be a multiple of "
                   "parallel.tensor_size (4)"}));
  // The width of a layer that does not exist may be anything.
  EXPECT_EQ(broken_by([](Config& c) {
              c.parallel.tensor_size = 4;
              c.model.ffn_hidden_size = 30;
            }),
            Lines{});
}

TEST(Rules, ExpertRanksShareExperts) {
  EXPECT_EQ(broken_by([](Config& c) {
              c.moe.num_experts = 60;
              c.parallel.expert_size = 8;
            }),
            Lines{"moe.num_experts (60) must be a multiple of parallel.expert_size (8)"});
  EXPECT_EQ(
      broken_by([](Config& c) { c.parallel.expert_tensor_size = 5; }),
      Lines{"moe.ffn_hidden_size (96) must be a multiple of parallel.expert_tensor_size (5)"});
}

TEST(Rules, SequenceParallelDividesTokens) {
  const auto change = [](Config& c) {
    c.parallel.tensor_size = 2;
    c.parallel.sequence_parallel = true;
    c.data.sequence_length = 101;
  };
  EXPECT_EQ(
      broken_by(change),
      Lines{"train.micro_batch_size x data.sequence_length (1 x 101 = 101) must be a multiple "
            "of parallel.tensor_size (2) for parallel.sequence_parallel"});
}

TEST(Rules, ContextRanksDivideTokens) {
  const auto change = [](Config& c) {
    c.parallel.context_size = 4;
    c.data.sequence_length = 100;
  };
  EXPECT_EQ(broken_by(change),
            Lines{"train.micro_batch_size x data.sequence_length (1 x 100 = 100) must be a "
                  "multiple of 2 x parallel.context_size (2 x 4 = 8): each context rank takes a "
                  "chunk from the front and one from the end"});
  const auto both = [](Config& c) {
    c.parallel.context_size = 2;
    c.parallel.tensor_size = 4;
    c.parallel.sequence_parallel = true;
    c.data.sequence_length = 100;
  };
  EXPECT_EQ(broken_by(both),
            Lines{"train.micro_batch_size x data.sequence_length (1 x 100 = 100) must be a "
                  "multiple of parallel.context_size x parallel.tensor_size (2 x 4 = 8) for "
                  "parallel.sequence_parallel"});
}

TEST(Rules, ContextRanksShareHeads) {
  const auto with = [](int64_t heads, int64_t groups, int64_t tensor, int64_t context) {
    return [=](Config& c) {
      c.model.hidden_size = 48;
      c.model.head_dim = 4;
      c.model.num_attention_heads = heads;
      c.model.num_query_groups = groups;
      c.parallel.tensor_size = tensor;
      c.parallel.context_size = context;
      c.parallel.context_exchange = ContextExchange::kAllToAll;
      c.data.sequence_length = 96;
    };
  };
  EXPECT_EQ(broken_by(with(4, 4, 2, 4)),
            Lines{"model.num_attention_heads / parallel.tensor_size (4 / 2 = 2) must be a multiple "
                  "of parallel.context_size (4) for parallel.context_exchange all_to_all"});
  EXPECT_EQ(broken_by(with(12, 4, 2, 3)),
            Lines{"the key/value heads of a tensor rank (4 / 2 = 2) must be a multiple of "
                  "parallel.context_size (3), or divide it, for parallel.context_exchange "
                  "all_to_all: model.num_query_groups / parallel.tensor_size, at least 1"});
  EXPECT_EQ(broken_by(with(12, 1, 2, 3)), Lines{});
  EXPECT_EQ(broken_by(with(12, 12, 2, 3)), Lines{});
}

TEST(Rules, ZeroBubbleHasOneStagePerRankAndWholePassesOfItsOwn) {
  const auto zero_bubble = [](Config& c) {
    c.parallel.pipeline_size = 2;
    c.parallel.pipeline_schedule = PipelineSchedule::kZeroBubble;
  };
  EXPECT_EQ(broken_by(zero_bubble), Lines{});
  EXPECT_EQ(broken_by([&](Config& c) {
              zero_bubble(c);
              c.model.num_layers = 4;
              c.parallel.virtual_pipeline_size = 2;
            }),
            Lines{"parallel.pipeline_schedule zero_bubble is for one stage per rank: "
                  "parallel.virtual_pipeline_size (2) must be 1, or the schedule 1f1b"});
  EXPECT_EQ(broken_by([&](Config& c) {
              zero_bubble(c);
              c.parallel.expert_size = 2;
              c.parallel.expert_overlap = true;
            }),
            Lines{"parallel.pipeline_schedule zero_bubble and parallel.expert_overlap exclude each "
                  "other: one cuts backward passes in two, the other pairs whole ones with forward "
                  "passes"});
}

TEST(Rules, ASlowLinkIsDeclared) {
  EXPECT_EQ(broken_by([](Config& c) {
              c.parallel.slow_link = {"ep", "dp-cp"};
              c.parallel.link_latency_us = 50;
            }),
            Lines{});
  EXPECT_EQ(broken_by([](Config& c) { c.parallel.slow_link = {"ep"}; }),
            Lines{"parallel.slow_link slows nothing down: parallel.link_latency_us or "
                  "parallel.link_gb_per_s must be above 0"});
  EXPECT_EQ(broken_by([](Config& c) {
              c.parallel.slow_link = {"ep", "nodes"};
              c.parallel.link_gb_per_s = 10;
            }),
            Lines{"parallel.slow_link: there is no group nodes; the groups are world, tp, cp, dp, "
                  "dp-cp, dp-cp-tp, pp, etp, ep, ep-etp, edp"});
}

TEST(Rules, AreAllReportedAtOnceByAnException) {
  Config config = good();
  config.moe.top_k = 9;
  config.parallel.context_size = 2;
  config.data.sequence_length = 102;
  EXPECT_EQ(message_of<ConfigError>([&] { check_rules(config, ConfigUse::kTrain); }),
            "train.micro_batch_size x data.sequence_length (1 x 102 = 102) must be a multiple of "
            "2 x parallel.context_size (2 x 2 = 4): each context rank takes a chunk from the front "
            "and one from the end\n"
            "moe.top_k (9) must not exceed moe.num_experts (8)");
  EXPECT_NO_THROW(check_rules(good(), ConfigUse::kTrain));
}

TEST(Rules, RefuseZerosInsteadOfDividingByThem) {
  Config config;
  config.model.num_layers = 2;
  const Lines lines = broken_rules(config, ConfigUse::kDescribe);
  EXPECT_NE(std::find(lines.begin(), lines.end(),
                      "model.num_attention_heads (0) must be 1 or more: layers have attention"),
            lines.end());
}

TEST(WorldRules, DenseRanksFillTheWorld) {
  Config config = good();
  config.parallel.tensor_size = 4;
  EXPECT_EQ(broken_rules_of_world(config, 8), Lines{});
  EXPECT_EQ(broken_rules_of_world(config, 6),
            Lines{"the number of ranks (6) must be a multiple of parallel.tensor_size x "
                  "parallel.pipeline_size x parallel.context_size (4 x 1 x 1 = 4)"});
}

TEST(WorldRules, BothGridsHaveTheSameStages) {
  Config config = good();
  config.model.num_layers = 4;
  config.parallel.pipeline_size = 2;
  config.parallel.expert_size = 2;
  config.parallel.order = "tp-cp-ep-pp-dp";
  EXPECT_EQ(
      broken_rules_of_world(config, 8),
      Lines{"parallel.order (tp-cp-ep-pp-dp) puts neighbours in the pipeline 1 ranks apart for "
            "dense layers and 2 for experts, who would be on other stages: let it end in pp"});
  config.parallel.order = "tp-cp-ep-dp-pp";
  EXPECT_EQ(broken_rules_of_world(config, 8), Lines{});
}

TEST(WorldRules, ExpertRanksFillTheWorld) {
  Config config = good();
  config.parallel.expert_size = 4;
  config.parallel.expert_tensor_size = 2;
  EXPECT_EQ(broken_rules_of_world(config, 8), Lines{});
  EXPECT_EQ(broken_rules_of_world(config, 4),
            Lines{"the number of ranks (4) must be a multiple of parallel.expert_size x "
                  "parallel.expert_tensor_size x parallel.pipeline_size (4 x 2 x 1 = 8)"});
}

TEST(WorldRules, DataRanksShareTheBatch) {
  Config config = good();
  config.parallel.tensor_size = 2;
  config.train.micro_batch_size = 4;
  EXPECT_EQ(broken_rules_of_world(config, 4), Lines{});
  EXPECT_EQ(message_of<ConfigError>([&] { check_rules_of_world(config, 6); }),
            "train.global_batch_size (8) must be a multiple of train.micro_batch_size x "
            "data-parallel ranks (4 x 3 = 12); 6 ranks / (tensor 2 x pipeline 1 x context 1) leave "
            "3 data-parallel");
}

TEST(WorldRules, OverlapHasTwoMicroBatches) {
  Config config = good();
  config.parallel.expert_size = 2;
  config.parallel.expert_overlap = true;
  config.train.micro_batch_size = 2;
  EXPECT_EQ(broken_rules_of_world(config, 2), Lines{});
  config.train.micro_batch_size = 4;
  EXPECT_EQ(broken_rules_of_world(config, 2),
            Lines{"parallel.expert_overlap pairs one micro-batch with another: "
                  "train.global_batch_size (8) must be at least 2 x train.micro_batch_size x "
                  "data-parallel ranks (2 x 4 x 2 = 16)"});
}

// --- Warnings

// What is warned about when every setting has been given by hand.
Lines warned(const Config& config) {
  Origins origins;
  for (const Setting& setting : settings()) {
    origins.set(setting.name, "run.yaml:1");
  }
  return warnings_about(config, origins);
}

TEST(Warnings, AreNoneWhenEverythingHasAnEffect) {
  EXPECT_EQ(warned(good()), Lines{});
  EXPECT_EQ(warned(good_dense()), Lines{});
}

TEST(Warnings, NameMoeSettingsOfADenseModel) {
  Config config = good_dense();
  config.moe.top_k = 4;
  config.parallel.expert_size = 2;
  EXPECT_EQ(warned(config),
            (Lines{"moe.top_k (4) has no effect: moe.num_experts is 0 [run.yaml:1]",
                   "parallel.expert_size (2) has no effect: moe.num_experts is 0 [run.yaml:1]"}));
}

TEST(Warnings, SayNothingAboutDefaults) {
  Config config = good_dense();
  config.moe.top_k = 4;
  EXPECT_EQ(warnings_about(config, Origins{}), Lines{});
}

TEST(Warnings, NameSettingsThatAnotherOneSwitchesOff) {
  const auto warned_by = [](const auto& change) {
    Config config = good();
    change(config);
    return warned(config);
  };
  EXPECT_EQ(warned_by([](Config& c) { c.moe.renormalize = true; }),
            Lines{"moe.renormalize (true) has no effect: moe.pre_softmax is false: softmax over "
                  "the chosen experts sums to 1 already [run.yaml:1]"});
  EXPECT_EQ(warned_by([](Config& c) {
              c.moe.score_function = ScoreFunction::kSigmoid;
              c.moe.pre_softmax = true;
            }),
            Lines{"moe.pre_softmax (true) has no effect: moe.score_function is sigmoid "
                  "[run.yaml:1]"});
  EXPECT_EQ(warned_by([](Config& c) { c.moe.bias_update_rate = 0.01; }),
            Lines{"moe.bias_update_rate (0.01) has no effect: moe.expert_bias is false "
                  "[run.yaml:1]"});
  EXPECT_EQ(warned_by([](Config& c) { c.model.ffn_hidden_size = 256; }),
            Lines{"model.ffn_hidden_size (256) has no effect: no layer is dense: "
                  "moe.first_dense_layers is 0 [run.yaml:1]"});
  EXPECT_EQ(warned_by([](Config& c) { c.moe.first_dense_layers = 2; }),
            Lines{"moe.num_experts (8) has no effect: moe.first_dense_layers makes every layer "
                  "dense [run.yaml:1]"});
  EXPECT_EQ(warned_by([](Config& c) { c.parallel.sequence_parallel = true; }),
            Lines{"parallel.sequence_parallel (true) has no effect: parallel.tensor_size is 1 "
                  "[run.yaml:1]"});
  EXPECT_EQ(
      warned_by([](Config& c) { c.parallel.pipeline_schedule = PipelineSchedule::kZeroBubble; }),
      Lines{"parallel.pipeline_schedule (zero_bubble) has no effect: parallel.pipeline_size "
            "is 1 [run.yaml:1]"});
  EXPECT_EQ(warned_by([](Config& c) { c.parallel.expert_overlap = true; }),
            Lines{"parallel.expert_overlap (true) has no effect: parallel.expert_size and "
                  "expert_tensor_size are 1: no token travels [run.yaml:1]"});
  EXPECT_EQ(warned_by([](Config& c) { c.parallel.link_latency_us = 5; }),
            Lines{"parallel.link_latency_us (5) has no effect: parallel.slow_link names no group "
                  "[run.yaml:1]"});
  EXPECT_EQ(warned_by([](Config& c) {
              c.optimizer.schedule = LrSchedule::kConstant;
              c.optimizer.min_lr = 1e-4;
            }),
            Lines{"optimizer.min_lr (0.0001) has no effect: optimizer.schedule is constant "
                  "[run.yaml:1]"});
  EXPECT_EQ(warned_by([](Config& c) { c.optimizer.decay_steps = 5; }),
            Lines{"optimizer.decay_steps (5) has no effect: optimizer.schedule is not wsd "
                  "[run.yaml:1]"});
  EXPECT_EQ(warned_by([](Config& c) { c.optimizer.initial_lr = 1e-4; }),
            Lines{"optimizer.initial_lr (0.0001) has no effect: optimizer.warmup_steps is 0 "
                  "[run.yaml:1]"});
  EXPECT_EQ(warned_by([](Config& c) { c.optimizer.final_weight_decay = 0.2; }),
            Lines{"optimizer.final_weight_decay (0.2) has no effect: "
                  "optimizer.weight_decay_schedule is constant [run.yaml:1]"});
  EXPECT_EQ(warned_by([](Config& c) {
              c.data.documents = Documents::kPacked;
              c.data.mask_end_of_document = true;
            }),
            Lines{"data.mask_end_of_document (true) has no effect: data.documents is packed: no "
                  "document foretells the next [run.yaml:1]"});
  EXPECT_EQ(warned_by([](Config& c) { c.train.eval_every = 5; }),
            Lines{"train.eval_every (5) has no effect: data.eval is empty [run.yaml:1]"});
}

TEST(Warnings, NameWhatTheTypeOfRotaryPositionsLeavesUnused) {
  const auto warned_by = [](RopeType type, void (*change)(Config&)) {
    Config config = good();
    config.rope.type = type;
    change(config);
    return warned(config);
  };
  EXPECT_EQ(warned_by(RopeType::kDefault,
                      [](Config& c) {
                        c.rope.factor = 2;
                        c.rope.original_max_position = 64;
                        c.rope.low_freq_factor = 2;
                        c.rope.truncate = false;
                      }),
            (Lines{"rope.factor (2) has no effect: rope.type is default [run.yaml:1]",
                   "rope.original_max_position (64) has no effect: rope.type is default "
                   "[run.yaml:1]",
                   "rope.low_freq_factor (2) has no effect: rope.type is default [run.yaml:1]",
                   "rope.truncate (false) has no effect: rope.type is default [run.yaml:1]"}));
  EXPECT_EQ(warned_by(RopeType::kLinear, [](Config& c) { c.rope.beta_fast = 16; }),
            Lines{"rope.beta_fast (16) has no effect: rope.type is linear [run.yaml:1]"});
  EXPECT_EQ(warned_by(RopeType::kYarn,
                      [](Config& c) {
                        c.rope.attention_factor = 1.5;
                        c.rope.mscale = 1;
                      }),
            Lines{"rope.mscale (1) has no effect: rope.attention_factor is given [run.yaml:1]"});
  EXPECT_EQ(warned_by(RopeType::kYarn, [](Config& c) { c.rope.mscale = 1; }),
            Lines{"rope.mscale (1) has no effect: rope.mscale_all_dim is not given [run.yaml:1]"});
  EXPECT_EQ(warned_by(RopeType::kYarn, [](Config& c) { c.rope.mscale_all_dim = 1; }),
            Lines{"rope.mscale_all_dim (1) has no effect: rope.mscale is not given [run.yaml:1]"});
}

TEST(Warnings, NameWindowLayersWithoutAWindow) {
  Config config = good();
  config.attention.window_layers = {"1"};
  EXPECT_EQ(warned(config), Lines{"attention.window_layers ([\"1\"]) has no effect: "
                                  "attention.window is 0 [run.yaml:1]"});
}

TEST(Warnings, NameSequencesLongerThanTheModelIsMadeFor) {
  Config config = good();
  config.model.max_position = 100;
  EXPECT_EQ(warned(config), Lines{"data.sequence_length (128) exceeds model.max_position (100): "
                                  "the model is made for shorter sequences"});
  config.rope.type = RopeType::kDynamic;
  EXPECT_EQ(warned(config), Lines{});
}

TEST(Warnings, NameMoeSettingsThatAnotherOneSwitchesOff) {
  const auto warned_by = [](const auto& change) {
    Config config = good();
    change(config);
    return warned(config);
  };
  EXPECT_EQ(warned_by([](Config& c) {
              c.moe.score_function = ScoreFunction::kSqrtSoftplus;
              c.moe.pre_softmax = true;
            }),
            Lines{"moe.pre_softmax (true) has no effect: moe.score_function is sqrtsoftplus "
                  "[run.yaml:1]"});
  EXPECT_EQ(warned_by([](Config& c) {
              c.moe.group_top_k = 2;
              c.moe.group_score = GroupScore::kMax;
            }),
            (Lines{"moe.group_top_k (2) has no effect: moe.num_groups is 1 [run.yaml:1]",
                   "moe.group_score (max) has no effect: moe.num_groups is 1 [run.yaml:1]"}));
  EXPECT_EQ(warned_by([](Config& c) {
              c.moe.num_groups = 4;
              c.moe.group_top_k = 4;
            }),
            Lines{"moe.num_groups (4) has no effect: moe.group_top_k allows every group "
                  "[run.yaml:1]"});
  EXPECT_EQ(warned_by([](Config& c) {
              c.routing.method = RoutingMethod::kSinkhorn;
              c.moe.pre_softmax = true;
            }),
            Lines{"moe.pre_softmax (true) has no effect: routing.method is sinkhorn [run.yaml:1]"});
  EXPECT_EQ(warned_by([](Config& c) {
              c.routing.method = RoutingMethod::kRandom;
              c.routing.logit_noise = 1;
            }),
            Lines{"routing.logit_noise (1) has no effect: routing.method is random [run.yaml:1]"});
  EXPECT_EQ(warned_by([](Config& c) {
              c.routing.capacity_drop = CapacityDrop::kPosition;
              c.routing.capacity_padding = true;
            }),
            (Lines{"routing.capacity_drop (position) has no effect: routing.capacity_factor is 0 "
                   "[run.yaml:1]",
                   "routing.capacity_padding (true) has no effect: routing.capacity_factor is 0 "
                   "[run.yaml:1]"}));
  EXPECT_EQ(warned_by([](Config& c) { c.moe.shared_expert_gate = true; }),
            Lines{"moe.shared_expert_gate (true) has no effect: moe.shared_expert_ffn_hidden_size "
                  "is 0 [run.yaml:1]"});
  EXPECT_EQ(warned_by([](Config& c) {
              c.train.precision = Precision::kFp64;
              c.moe.router_dtype = RouterDtype::kFp64;
            }),
            Lines{"moe.router_dtype (fp64) has no effect: train.precision is fp64 [run.yaml:1]"});
  EXPECT_EQ(warned_by([](Config& c) {
              c.moe.layers = {"0-1"};
              c.model.mlp_bias = true;
            }),
            Lines{"model.mlp_bias (true) has no effect: no layer is dense: moe.layers holds every "
                  "layer [run.yaml:1]"});
  EXPECT_EQ(warned_by([](Config& c) {
              c.model.ffn_hidden_size = 64;
              c.moe.layers = {"0"};
              c.moe.first_dense_layers = 1;
            }),
            Lines{"moe.num_experts (8) has no effect: moe.first_dense_layers makes every layer of "
                  "moe.layers dense [run.yaml:1]"});
}

TEST(Warnings, NameAWarmUpLongerThanTheRun) {
  Config config = good();
  config.optimizer.warmup_steps = 100;
  EXPECT_EQ(warned(config), Lines{"optimizer.lr (0.001) is never reached: optimizer.warmup_steps "
                                  "(100) exceeds train.steps (20)"});
}

}  // namespace
}  // namespace switchyard

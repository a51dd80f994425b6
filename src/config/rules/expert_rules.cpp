#include "config/rules/expert_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/rules/lines.h"
#include "config/rules/questions.h"
#include "config/values.h"

namespace switchyard {
namespace {

std::string experts_have_a_width(const Config& config) {
  return unless(!has_experts(config) || config.moe.ffn_hidden_size > 0,
                "moe.ffn_hidden_size must be given: moe.num_experts is {}", config.moe.num_experts);
}

std::string enough_experts_to_choose(const Config& config) {
  return unless(!has_experts(config) || config.moe.top_k <= config.moe.num_experts,
                "moe.top_k ({}) must not exceed moe.num_experts ({})", config.moe.top_k,
                config.moe.num_experts);
}

// With one expert per token and weights that sum to 1, the weight is 1 whatever the router says.
std::string router_gets_a_gradient(const Config& config) {
  const MoeConfig& moe = config.moe;
  const bool is_sinkhorn =
      config.routing.method == RoutingMethod::kSinkhorn;  // sigmoid for top_k 1
  if (!has_experts(config) || moe.top_k > 1 || is_sinkhorn || !weights_sum_to_one(moe)) {
    return "";
  }
  return moe.renormalize
             ? "moe.top_k (1) with moe.renormalize (true) gives the router no gradient: the one "
               "weight is always 1; set moe.renormalize to false or moe.top_k to 2 or more"
             : "moe.top_k (1) with moe.pre_softmax (false) gives the router no gradient: the one "
               "weight is always 1; set moe.pre_softmax to true or moe.top_k to 2 or more";
}

// It is added to scores between 0 and 1.
std::string expert_bias_has_scores(const Config& config) {
  const MoeConfig& moe = config.moe;
  return unless(!has_experts(config) || !moe.expert_bias || moe.pre_softmax ||
                    moe.score_function != ScoreFunction::kSoftmax,
                "moe.expert_bias (true) needs the scores of all experts: moe.score_function "
                "sigmoid or sqrtsoftplus, or softmax with moe.pre_softmax");
}

std::string limits_have_a_gate(const Config& config) {
  const ModelConfig& model = config.model;
  return unless(model.gated_mlp || !model.mlp_function().has_limits(),
                "{} limits the gate of an MLP: model.gated_mlp must be true",
                model.activation_clamp > 0 ? "model.activation_clamp" : "model.activation_offset");
}

std::string sinkhorn_balances_alone(const Config& config) {
  const MoeConfig& moe = config.moe;
  if (!has_experts(config) || config.routing.method != RoutingMethod::kSinkhorn) {
    return "";
  }
  const auto refused = [](std::string_view name, const std::string& needed) {
    return fmt::format("routing.method sinkhorn balances the experts by itself: {} must be {}",
                       name, needed);
  };
  if (moe.aux_loss_coeff > 0 || moe.step_aux_loss_coeff > 0 || moe.global_aux_loss_coeff > 0) {
    return refused(moe.aux_loss_coeff > 0        ? "moe.aux_loss_coeff"
                   : moe.step_aux_loss_coeff > 0 ? "moe.step_aux_loss_coeff"
                                                 : "moe.global_aux_loss_coeff",
                   "0");
  }
  if (moe.expert_bias) {
    return refused("moe.expert_bias", "false");
  }
  return moe.has_groups() ? refused("moe.num_groups", "1") : "";
}

std::string groups_are_equal(const Config& config) {
  return has_groups(config) ? multiple_of("moe.num_experts", config.moe.num_experts,
                                          "moe.num_groups", config.moe.num_groups)
                            : "";
}

std::string enough_groups_to_choose(const Config& config) {
  const MoeConfig& moe = config.moe;
  return unless(!has_groups(config) || moe.group_top_k <= moe.num_groups,
                "moe.group_top_k ({}) must not exceed moe.num_groups ({})", moe.group_top_k,
                moe.num_groups);
}

std::string enough_experts_in_the_chosen_groups(const Config& config) {
  const MoeConfig& moe = config.moe;
  if (!has_groups(config) || !groups_are_equal(config).empty()) {
    return "";
  }
  const int64_t group_size = moe.num_experts / moe.num_groups;
  return unless(moe.top_k <= moe.group_top_k * group_size,
                "moe.top_k ({}) must not exceed the {} experts of moe.group_top_k ({}) groups of "
                "{}: raise moe.group_top_k",
                moe.top_k, moe.group_top_k * group_size, moe.group_top_k, group_size);
}

std::string groups_can_be_scored(const Config& config) {
  const MoeConfig& moe = config.moe;
  if (!has_groups(config) || !groups_are_equal(config).empty()) {
    return "";
  }
  const int64_t group_size = moe.num_experts / moe.num_groups;
  if (moe.group_score == GroupScore::kTopSum && moe.top_k < moe.group_top_k) {
    return fmt::format(
        "moe.group_top_k ({}) must not exceed moe.top_k ({}) for moe.group_score "
        "top_sum, which adds up top_k / group_top_k scores",
        moe.group_top_k, moe.top_k);
  }
  return unless(moe.scores_per_group() <= group_size,
                "moe.group_score {} adds up {} scores, but moe.num_groups ({}) leaves groups of {}",
                word_of(kGroupScoreWords, moe.group_score), moe.scores_per_group(), moe.num_groups,
                group_size);
}

std::string tensor_ranks_share_the_shared_expert(const Config& config) {
  if (!has_experts(config)) {
    return "";
  }
  return multiple_of("moe.shared_expert_ffn_hidden_size", config.moe.shared_expert_ffn_hidden_size,
                     "parallel.tensor_size", config.parallel.tensor_size);
}

std::string tensor_ranks_share_each_expert(const Config& config) {
  if (!has_experts(config)) {
    return "";
  }
  return multiple_of("moe.ffn_hidden_size", config.moe.ffn_hidden_size,
                     "parallel.expert_tensor_size", config.parallel.expert_tensor_size);
}

// The bias of the second product is cut by hidden features, so that each element is added once.
std::string expert_tensor_ranks_share_the_bias(const Config& config) {
  if (!has_experts(config) || !config.moe.linear_bias) {
    return "";
  }
  const bool has_latent = config.moe.latent_size > 0;
  return multiple_of(has_latent ? "moe.latent_size" : "model.hidden_size",
                     has_latent ? config.moe.latent_size : config.model.hidden_size,
                     "parallel.expert_tensor_size", config.parallel.expert_tensor_size,
                     " for moe.linear_bias");
}

std::string expert_ranks_share_experts(const Config& config) {
  return multiple_of("moe.num_experts", config.moe.num_experts, "parallel.expert_size",
                     config.parallel.expert_size);
}

}  // namespace

std::vector<std::string> expert_rules(const Config& config, ConfigUse use) {
  return broken_lines({
      experts_have_a_width(config),
      enough_experts_to_choose(config),
      expert_bias_has_scores(config),
      limits_have_a_gate(config),
      sinkhorn_balances_alone(config),
      groups_are_equal(config),
      enough_groups_to_choose(config),
      enough_experts_in_the_chosen_groups(config),
      groups_can_be_scored(config),
      tensor_ranks_share_the_shared_expert(config),
      tensor_ranks_share_each_expert(config),
      expert_tensor_ranks_share_the_bias(config),
      expert_ranks_share_experts(config),
      use == ConfigUse::kTrain ? router_gets_a_gradient(config) : "",
  });
}

}  // namespace switchyard

// MoE layers against the MoE blocks of transformers' families, in fp64: tests/golden/moe_blocks.
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "checkpoint/safetensors.h"
#include "moe/moe_layer.h"

namespace switchyard {
namespace {

constexpr int64_t kHidden = 12;

Config softmax_config(bool renormalize) {
  Config config;
  config.model.hidden_size = kHidden;
  config.train.precision = Precision::kFp64;
  config.moe.num_experts = 8;
  config.moe.top_k = 3;
  config.moe.ffn_hidden_size = 5;
  config.moe.pre_softmax = true;
  config.moe.renormalize = renormalize;
  return config;
}

Config qwen2_config(bool renormalize) {
  Config config = softmax_config(renormalize);
  config.moe.shared_expert_ffn_hidden_size = 7;
  config.moe.shared_expert_gate = true;
  return config;
}

Config deepseek_config(GroupScore group_score) {
  Config config = softmax_config(false);
  config.moe.shared_expert_ffn_hidden_size = 10;
  config.moe.scaling_factor = 2.5;
  config.moe.num_groups = 4;
  config.moe.group_top_k = 2;
  config.moe.group_score = group_score;
  return config;
}

Config deepseek_v3_config(int64_t top_k) {
  Config config = deepseek_config(GroupScore::kTop2Sum);
  config.moe.top_k = top_k;
  config.moe.score_function = ScoreFunction::kSigmoid;
  config.moe.expert_bias = true;
  config.moe.renormalize = true;
  return config;
}

struct GoldenCase {
  const char* name;
  Config config;
};

const std::vector<GoldenCase>& cases() {
  static const std::vector<GoldenCase> all = [] {
    Config mixtral = softmax_config(false);
    mixtral.moe.pre_softmax = false;
    Config top1 = softmax_config(true);
    top1.moe.top_k = 1;
    Config gelu = softmax_config(true);
    gelu.model.activation = Activation::kGeluTanh;
    Config greedy = deepseek_config(GroupScore::kMax);
    greedy.moe.num_groups = 1;
    return std::vector<GoldenCase>{{"mixtral", mixtral},
                                   {"qwen2_moe", qwen2_config(false)},
                                   {"qwen2_moe_norm", qwen2_config(true)},
                                   {"qwen3_moe", softmax_config(true)},
                                   {"qwen3_moe_top1_norm", top1},
                                   {"qwen3_moe_gelu", gelu},
                                   {"olmoe", softmax_config(false)},
                                   {"deepseek_v2", deepseek_config(GroupScore::kMax)},
                                   {"deepseek_v2_greedy", greedy},
                                   {"deepseek_v3", deepseek_v3_config(3)},
                                   {"deepseek_v3_top1_norm", deepseek_v3_config(1)}};
  }();
  return all;
}

class MoeBlockGolden : public testing::TestWithParam<size_t> {
 protected:
  at::Tensor golden(const std::string& name) const {
    return file_.tensor(fmt::format("{}.{}", cases()[GetParam()].name, name));
  }
  void fill(const std::string& name, at::Tensor values) const {
    values.copy_(golden("weight." + name).view(values.sizes()));
  }

 private:
  SafetensorsFile file_{SWITCHYARD_SOURCE_DIR "/tests/golden/moe_blocks/expected.safetensors"};
};

double relative(const at::Tensor& actual, const at::Tensor& expected, double least_norm = 0) {
  const double norm = std::max(expected.norm().item<double>(), least_norm);
  return (actual - expected.view(actual.sizes())).norm().item<double>() / norm;
}

// transformers takes the router's scores in fp32: the difference is their rounding. A wrong formula
// shows at 1e-3 and above.
constexpr double kTolerance = 2e-6;

TEST_P(MoeBlockGolden, GivesTheSameOutputAndGradients) {
  const Config& config = cases()[GetParam()].config;
  const std::unique_ptr<Groups> groups = Groups::single();
  Parameters parameters(*groups, Dtypes::fp64(), 1);
  const MoeLayer layer(Scope{parameters, ""}, config, config.moe);
  {
    const at::NoGradGuard no_grad;
    for (const auto& storage : parameters.storages()) {
      ASSERT_EQ(storage->pieces.size(), 1U);
      fill(storage->pieces[0].name(), storage->piece(storage->master, 0));
    }
    for (const Buffer& buffer : parameters.buffers()) {
      fill(buffer.name, buffer.tensor);
    }
  }
  const at::Tensor tokens = golden("tokens").clone().requires_grad_();
  ForwardContext context;
  context.table = SequenceTable::from_lengths({tokens.size(0)});
  RoutingMemo memo;
  const MoeOutput output = layer.forward({tokens, Placement::invariant()}, context, memo);
  EXPECT_LT(relative(output.hidden.tensor.detach(), golden("output")), kTolerance);
  (output.hidden.tensor * golden("cotangent")).sum().backward();
  EXPECT_LT(relative(tokens.grad(), golden("grad.tokens")), kTolerance);
  // A gradient that is 0 in truth, of a router whose one weight is always 1, is rounding noise.
  const double least_norm = golden("grad.tokens").norm().item<double>() / 10;
  for (const auto& storage : parameters.storages()) {
    const std::string& name = storage->pieces[0].name();
    EXPECT_LT(relative(storage->leaf.grad(), golden("grad." + name), least_norm), kTolerance)
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, MoeBlockGolden, testing::Range(size_t{0}, cases().size()),
                         [](const testing::TestParamInfo<size_t>& one) {
                           return cases()[one.param].name;
                         });

}  // namespace
}  // namespace switchyard

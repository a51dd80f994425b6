// The model against transformers' MixtralForCausalLM, in fp64: tests/golden/mixtral.
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "checkpoint/safetensors.h"
#include "model/language_model.h"
#include "optim/gradients.h"
#include "train/train_step.h"

namespace switchyard {
namespace {

Config mixtral_config() {
  Config config;
  config.model.num_layers = 2;
  config.model.hidden_size = 32;
  config.model.num_attention_heads = 4;
  config.model.num_query_groups = 2;
  config.model.head_dim = 8;
  config.model.vocab_size = 64;
  config.model.norm_epsilon = 1e-5;
  config.moe.num_experts = 4;
  config.moe.top_k = 2;
  config.moe.ffn_hidden_size = 24;
  config.train.precision = Precision::kFp64;
  return config;
}

// transformers' name of one of our parameters.
std::string hf_name(std::string name) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    const size_t at = name.find(from);
    if (at != std::string::npos) {
      name.replace(at, from.size(), to);
    }
  };
  replace("embedding.weight", "model.embed_tokens.weight");
  replace("final_norm.", "model.norm.");
  replace("head.weight", "lm_head.weight");
  if (name.starts_with("layers.")) {
    name = "model." + name;
  }
  replace(".attention_norm.", ".input_layernorm.");
  replace(".mlp_norm.", ".post_attention_layernorm.");
  for (const char* head : {"q", "k", "v", "o"}) {
    if (name.ends_with(std::string(".attention.") + head)) {
      name = name.substr(0, name.size() - std::string("attention.q").size()) + "self_attn." + head +
             "_proj.weight";
    }
  }
  replace(".moe.router.weight", ".mlp.gate.weight");
  replace(".moe.experts.gate_up", ".mlp.experts.gate_up_proj");
  replace(".moe.experts.down", ".mlp.experts.down_proj");
  return name;
}

class MixtralGolden : public testing::Test {
 protected:
  MixtralGolden()
      : golden_(SWITCHYARD_SOURCE_DIR "/tests/golden/mixtral/expected.safetensors"),
        groups_(Groups::single()),
        config_(mixtral_config()),
        parameters_(*groups_, Dtypes::fp64(), 1),
        model_(parameters_, config_) {
    const at::NoGradGuard no_grad;
    for_each_piece([&](const std::string& name, ParameterStorage& storage, size_t i) {
      at::Tensor piece = storage.piece(storage.master, i);
      piece.copy_(golden_.tensor("weight." + name).view(piece.sizes()));
    });
    const at::Tensor lengths = golden_.tensor("lengths");
    batch_.tokens = golden_.tensor("tokens").clone();
    batch_.labels = golden_.tensor("labels").clone();
    batch_.weights = at::ones({batch_.tokens.size(0)});
    batch_.table =
        SequenceTable::from_lengths({lengths[0].item<int64_t>(), lengths[1].item<int64_t>()});
  }

  void for_each_piece(
      const std::function<void(const std::string&, ParameterStorage&, size_t)>& visit) {
    for (const auto& storage : parameters_.storages()) {
      for (size_t i = 0; i < storage->pieces.size(); ++i) {
        visit(hf_name(storage->pieces[i].name()), *storage, i);
      }
    }
  }

  static double relative(const at::Tensor& actual, const at::Tensor& expected) {
    return ((actual - expected.view(actual.sizes())).norm() / expected.norm()).item<double>();
  }

  SafetensorsFile golden_;
  std::unique_ptr<Groups> groups_;
  Config config_;
  Parameters parameters_;
  LanguageModel model_;
  TokenBatch batch_;
};

// transformers takes norms, rotary angles, attention's softmax and the router in fp32 even in an
// fp64 model: the difference is their rounding. A wrong formula shows at 1e-3 and above.
constexpr double kTolerance = 2e-6;

TEST_F(MixtralGolden, GivesTheSameLogits) {
  EXPECT_LT(relative(model_.logits(batch_), golden_.tensor("logits")), kTolerance);
}

TEST_F(MixtralGolden, GivesTheSameLossAndGradients) {
  const StepOutcome outcome = compute_gradients(model_, parameters_, {batch_});
  EXPECT_NEAR(outcome.loss(), golden_.tensor("loss").item<double>(), kTolerance);
  size_t num_compared = 0;
  for_each_piece([&](const std::string& name, ParameterStorage& storage, size_t i) {
    EXPECT_LT(relative(storage.piece(storage.gradient, i), golden_.tensor("grad." + name)),
              kTolerance)
        << name;
    ++num_compared;
  });
  EXPECT_EQ(num_compared, 2U * 9 + 3);
}

TEST_F(MixtralGolden, DecodesTokenByTokenToTheSameLogits) {
  const at::Tensor expected = golden_.tensor("logits").narrow(0, 0, batch_.table.length(0));
  std::vector<KeyValueCache> caches(2);
  // The first four tokens at once, then one by one.
  EXPECT_LT(relative(model_.next_logits(batch_.tokens.narrow(0, 0, 4), caches), expected[3]),
            kTolerance);
  for (int64_t i = 4; i < batch_.table.length(0); ++i) {
    EXPECT_LT(relative(model_.next_logits(batch_.tokens.narrow(0, i, 1), caches), expected[i]),
              kTolerance)
        << "token " << i;
  }
}

}  // namespace
}  // namespace switchyard

// The model against transformers' families, in fp64: tests/golden/FAMILY, made by
// tools/oracle/families.py. A family is one entry of families().
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "checkpoint/safetensors.h"
#include "model/language_model.h"
#include "model/rotary.h"
#include "optim/gradients.h"
#include "train/train_step.h"

namespace switchyard {
namespace {

struct Family {
  std::string name;
  Config config;
};

Config base_config() {
  Config config;
  config.model.num_layers = 2;
  config.model.hidden_size = 16;
  config.model.ffn_hidden_size = 20;
  config.model.num_attention_heads = 4;
  config.model.num_query_groups = 2;
  config.model.head_dim = 8;
  config.model.vocab_size = 48;
  config.model.norm_epsilon = 1e-5;
  config.model.max_position = 64;
  return config;
}

void use_experts(Config& config) {
  config.moe.num_experts = 4;
  config.moe.top_k = 2;
  config.moe.ffn_hidden_size = 20;
}

Family family(const std::string& name, const std::function<void(Config&)>& change) {
  Family family{name, base_config()};
  change(family.config);
  return family;
}

Family llama(const std::string& name, RopeType type, double base,
             const std::function<void(Config&)>& change) {
  return family("llama_" + name, [&](Config& config) {
    config.model.head_dim = 16;
    config.rope.type = type;
    config.rope.base = base;
    change(config);
  });
}

Family deepseek(const std::string& name, const std::function<void(Config&)>& change) {
  return family(name, [&](Config& config) {
    config.model.num_query_groups = 4;
    config.mla = {
        .kv_lora_rank = 10, .qk_nope_head_dim = 8, .qk_rope_head_dim = 4, .v_head_dim = 6};
    config.rope = {.type = RopeType::kYarn,
                   .base = 1000,
                   .interleaved = true,
                   .factor = 6,
                   .original_max_position = 200,
                   .mscale = 0.8,
                   .mscale_all_dim = 0.5};
    config.moe.num_experts = 8;
    config.moe.top_k = 3;
    config.moe.ffn_hidden_size = 12;
    config.moe.first_dense_layers = 1;
    config.moe.shared_expert_ffn_hidden_size = 24;
    config.moe.num_groups = 4;
    config.moe.group_top_k = 2;
    change(config);
  });
}

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      family("mixtral", use_experts),
      family("mistral", [](Config& c) { c.attention.window = 4; }),
      family("qwen2",
             [](Config& c) {
               c.model.num_layers = 3;
               c.attention.qkv_bias = true;
               c.attention.window = 3;
               c.attention.window_layers = {"1"};
             }),
      family("qwen3", [](Config& c) { c.attention.qk_norm = QkNormKind::kHead; }),
      family("olmoe",
             [](Config& c) {
               use_experts(c);
               c.model.head_dim = 4;
               c.moe.pre_softmax = true;
               c.attention.qk_norm = QkNormKind::kFull;
               c.attention.qkv_clip = 0.6;
             }),
      family("llama_bias",
             [](Config& c) {
               c.model.num_query_groups = 1;
               c.attention.qkv_bias = true;
               c.attention.output_bias = true;
             }),
      deepseek("deepseek_v2",
               [](Config& c) {
                 c.mla.q_lora_rank = 12;
                 c.moe.pre_softmax = true;
                 c.moe.group_score = GroupScore::kMax;
                 c.moe.scaling_factor = 1.5;
               }),
      deepseek("deepseek_v3",
               [](Config& c) {
                 c.moe.score_function = ScoreFunction::kSigmoid;
                 c.moe.expert_bias = true;
                 c.moe.renormalize = true;
                 c.moe.scaling_factor = 2.5;
               }),
      deepseek("deepseek_v3_mtp",
               [](Config& c) {
                 c.rope = {.base = 10000, .interleaved = true};
                 c.mla.q_lora_rank = 12;
                 c.moe.score_function = ScoreFunction::kSigmoid;
                 c.moe.expert_bias = true;
                 c.moe.renormalize = true;
                 c.moe.scaling_factor = 2.5;
                 c.moe.num_groups = 1;
                 c.moe.shared_expert_ffn_hidden_size = 12;
                 c.mtp.num_layers = 2;
                 c.mtp.loss_coeff = 0.3;
               }),
      llama("linear", RopeType::kLinear, 500,
            [](Config& c) {
              c.model.head_dim = 8;
              c.rope.factor = 2.5;
            }),
      llama("dynamic", RopeType::kDynamic, 10000,
            [](Config& c) {
              c.model.max_position = 7;
              c.rope.factor = 3;
            }),
      llama("dynamic_short", RopeType::kDynamic, 10000,
            [](Config& c) {
              c.model.max_position = 16;
              c.rope.factor = 3;
            }),
      llama("llama3", RopeType::kLlama3, 1000,
            [](Config& c) {
              c.rope.factor = 8;
              c.rope.original_max_position = 256;
            }),
      llama("yarn", RopeType::kYarn, 1000,
            [](Config& c) {
              c.rope.factor = 4;
              c.rope.original_max_position = 128;
            }),
      llama("yarn_mscale", RopeType::kYarn, 1000,
            [](Config& c) {
              c.rope.factor = 6;
              c.rope.original_max_position = 200;
              c.rope.mscale = 0.8;
              c.rope.mscale_all_dim = 0.5;
              c.rope.beta_fast = 24;
              c.rope.beta_slow = 2;
              c.rope.truncate = false;
            }),
      llama("yarn_factor", RopeType::kYarn, 1000,
            [](Config& c) {
              c.rope.factor = 4;
              c.rope.original_max_position = 128;
              c.rope.attention_factor = 1.7;
            }),
      llama("partial", RopeType::kLinear, 1000, [](Config& c) { c.rope.partial_factor = 0.5; }),
  };
  return all;
}

// The same of latent attention, whose norms have the names of other norms.
const std::vector<std::pair<std::string, std::string>> kLatentNames = {
    {".attention.q_down", ".self_attn.q_a_proj.weight"},
    {".attention.q_norm", ".self_attn.q_a_layernorm.weight"},
    {".attention.q_up", ".self_attn.q_b_proj.weight"},
    {".attention.kv_down", ".self_attn.kv_a_proj_with_mqa.weight"},
    {".attention.kv_norm", ".self_attn.kv_a_layernorm.weight"},
    {".attention.kv_up", ".self_attn.kv_b_proj.weight"},
};

// transformers' name of one of our parameters or buffers.
std::string hf_name(std::string name, const Config& config) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    const size_t at = name.find(from);
    if (at != std::string::npos) {
      name.replace(at, from.size(), to);
    }
  };
  replace("embedding.weight", "model.embed_tokens.weight");
  if (name == "final_norm.weight") {
    name = "model.norm.weight";
  }
  if (name == "head.weight") {
    name = "lm_head.weight";
  }
  if (name.starts_with("layers.")) {
    name = "model." + name;
  }
  if (name.starts_with("mtp.")) {
    const int64_t module = name[4] - '0';
    const std::string layer = fmt::format("model.layers.{}.", config.model.num_layers + module);
    name.replace(0, 6, layer);
    replace(layer + "layer.", layer);
    replace(".embedding_norm.", ".enorm.");
    replace(".hidden_norm.", ".hnorm.");
    replace(".projection", ".eh_proj.weight");
    replace(layer + "final_norm.", layer + "shared_head.norm.");
  }
  if (config.mla.is_used()) {
    for (const auto& [ours, theirs] : kLatentNames) {
      replace(ours, theirs);
    }
  }
  replace(".mixer_norm.", ".input_layernorm.");
  replace(".mlp_norm.", ".post_attention_layernorm.");
  replace(".attention.", ".self_attn.");
  for (const std::string piece : {"q", "k", "v", "o"}) {
    if (name.ends_with(".self_attn." + piece)) {
      name += "_proj.weight";
    }
    replace(".self_attn." + piece + "_bias", ".self_attn." + piece + "_proj.bias");
    if (name.ends_with("." + piece + "_norm")) {
      name += ".weight";
    }
  }
  replace(".moe.shared_expert.", ".mlp.shared_experts.");
  if (name.ends_with(".mlp.down") || name.ends_with(".shared_experts.down")) {
    name += "_proj.weight";
  }
  replace(".moe.router.expert_bias", ".mlp.gate.e_score_correction_bias");
  replace(".moe.router.weight", ".mlp.gate.weight");
  replace(".moe.experts.gate_up", ".mlp.experts.gate_up_proj");
  replace(".moe.experts.down", ".mlp.experts.down_proj");
  return name;
}

// A tensor of the golden file; transformers' dense MLP has gate and up apart, we have them
// together.
at::Tensor golden_tensor(const SafetensorsFile& golden, const std::string& kind,
                         const std::string& our_name, const Config& config) {
  const std::string name = hf_name(our_name, config);
  if (name.ends_with(".gate_up")) {
    const std::string stem = kind + name.substr(0, name.size() - std::string("gate_up").size());
    return at::stack(
        {golden.tensor(stem + "gate_proj.weight"), golden.tensor(stem + "up_proj.weight")});
  }
  return golden.tensor(kind + name);
}

double relative(const at::Tensor& actual, const at::Tensor& expected) {
  const at::Tensor reference = expected.to(at::kDouble);
  return ((actual.to(at::kDouble) - reference.view(actual.sizes())).norm() / reference.norm())
      .item<double>();
}

struct LoadedModel {
  LoadedModel(const Family& family, Dtypes dtypes)
      : golden(SWITCHYARD_SOURCE_DIR "/tests/golden/" + family.name + "/expected.safetensors"),
        groups(Groups::single()),
        parameters(*groups, dtypes, 1),
        model(parameters, family.config) {
    const at::NoGradGuard no_grad;
    for_each_piece([&](const std::string& name, ParameterStorage& storage, size_t i) {
      at::Tensor piece = storage.piece(storage.master, i);
      piece.copy_(golden_tensor(golden, "weight.", name, family.config).view(piece.sizes()));
    });
    for (const Buffer& buffer : parameters.buffers()) {
      buffer.tensor.copy_(golden_tensor(golden, "weight.", buffer.name, family.config));
    }
    const at::Tensor golden_lengths = golden.tensor("lengths");
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < golden_lengths.size(0); ++i) {
      lengths.push_back(golden_lengths[i].item<int64_t>());
    }
    batch.tokens = golden.tensor("tokens").clone();
    batch.labels = golden.tensor("labels").clone();
    batch.weights = at::ones({batch.tokens.size(0)});
    batch.table = SequenceTable::from_lengths(lengths);
    batch.look_further(family.config.mtp.num_layers);
  }

  void for_each_piece(
      const std::function<void(const std::string&, ParameterStorage&, size_t)>& visit) {
    for (const auto& storage : parameters.storages()) {
      for (size_t i = 0; i < storage->pieces.size(); ++i) {
        visit(storage->pieces[i].name(), *storage, i);
      }
    }
  }

  // The logits that follow one sequence: [vocab]
  at::Tensor next_logits(const at::Tensor& tokens, std::vector<DecodingCache>& caches) const {
    const auto* first = tokens.const_data_ptr<int64_t>();
    return model.next_logits({std::vector<int64_t>(first, first + tokens.numel())}, caches)[0];
  }

  SafetensorsFile golden;
  std::unique_ptr<Groups> groups;
  Parameters parameters;
  LanguageModel model;
  TokenBatch batch;
};

class FamilyGolden : public testing::TestWithParam<size_t> {
 protected:
  const Family& family() const { return families()[GetParam()]; }
};

// The golden files are fp64 throughout: what is left is the order of sums.
constexpr double kTolerance = 1e-11;

TEST_P(FamilyGolden, GivesTheSameLogitsLossAndGradients) {
  LoadedModel loaded(family(), Dtypes::fp64());
  EXPECT_LT(relative(loaded.model.logits(loaded.batch), loaded.golden.tensor("logits")),
            kTolerance);
  const StepOutcome outcome = compute_gradients(loaded.model, loaded.parameters, {loaded.batch});
  EXPECT_NEAR(outcome.loss(), loaded.golden.tensor("loss").item<double>(), kTolerance);
  for (size_t i = 0; i < outcome.further.size(); ++i) {
    const at::Tensor expected = loaded.golden.tensor("further_losses")[static_cast<int64_t>(i)];
    EXPECT_NEAR(outcome.further[i].loss_sum / outcome.further[i].loss_weight,
                expected.item<double>(), kTolerance);
  }
  EXPECT_EQ(std::ssize(outcome.further), family().config.mtp.num_layers);
  std::set<std::string> compared;
  loaded.for_each_piece([&](const std::string& name, ParameterStorage& storage, size_t i) {
    EXPECT_LT(relative(storage.piece(storage.gradient, i),
                       golden_tensor(loaded.golden, "grad.", name, family().config)),
              kTolerance)
        << name;
    compared.insert(hf_name(name, family().config));
  });
  // Each parameter of transformers' model; its gate and up are one of ours.
  size_t num_theirs = 0;
  for (const SafetensorsEntry& entry : loaded.golden.entries()) {
    num_theirs += entry.name.starts_with("grad.") && !entry.name.ends_with(".up_proj.weight");
  }
  EXPECT_EQ(compared.size(), num_theirs);
}

TEST_P(FamilyGolden, GivesTheSameLogitsInFp32) {
  LoadedModel loaded(family(), Dtypes::fp32());
  const at::Tensor expected = loaded.golden.tensor("logits");
  const at::Tensor difference = loaded.model.logits(loaded.batch).to(at::kDouble) - expected;
  EXPECT_LT((difference.abs().max() / expected.abs().max()).item<double>(), 1e-5);
}

TEST_P(FamilyGolden, ContinuesGreedilyWithTheSameTokensFromItsCache) {
  LoadedModel loaded(family(), Dtypes::fp64());
  const at::Tensor expected = loaded.golden.tensor("greedy");
  constexpr int64_t kPrompt = 4;
  std::vector<DecodingCache> caches;
  caches.push_back(loaded.model.new_cache());
  at::Tensor unseen = expected.narrow(0, 0, kPrompt);
  for (int64_t i = kPrompt; i < expected.size(0); ++i) {
    const at::Tensor next = loaded.next_logits(unseen, caches).argmax().view({1});
    EXPECT_EQ(next.item<int64_t>(), expected[i].item<int64_t>()) << "token " << i;
    unseen = expected.narrow(0, i, 1);
  }
}

// A dynamic model past its length has rotated the keys in its cache with earlier frequencies: there
// decoding is another function than the forward pass over the whole text.
TEST_P(FamilyGolden, DecodesTokenByTokenToTheSameLogits) {
  LoadedModel loaded(family(), Dtypes::fp64());
  const Config& config = family().config;
  const bool is_stretched = config.rope.type == RopeType::kDynamic;
  const int64_t length = is_stretched
                             ? std::min(loaded.batch.table.length(0), config.model.max_position)
                             : loaded.batch.table.length(0);
  at::Tensor expected = loaded.golden.tensor("logits");
  if (is_stretched) {
    TokenBatch start = loaded.batch;
    start.table = SequenceTable::from_lengths({length});
    start.tokens = start.tokens.narrow(0, 0, length);
    expected = loaded.model.logits(start);
  }
  std::vector<DecodingCache> caches;
  caches.push_back(loaded.model.new_cache());
  // The first four tokens at once, then one by one.
  for (int64_t i = 3; i < length; ++i) {
    const at::Tensor unseen =
        i == 3 ? loaded.batch.tokens.narrow(0, 0, 4) : loaded.batch.tokens.narrow(0, i, 1);
    EXPECT_LT(relative(loaded.next_logits(unseen, caches), expected[i]), kTolerance)
        << "token " << i;
  }
}

// In fp32 the frequencies are rounded where transformers rounds them.
TEST_P(FamilyGolden, HasTheSameRotaryFrequencies) {
  const SafetensorsFile golden(SWITCHYARD_SOURCE_DIR "/tests/golden/" + family().name +
                               "/expected.safetensors");
  const int64_t longest = golden.tensor("lengths").max().item<int64_t>();
  const RotaryFrequencies ours = rotary_frequencies(family().config, longest, at::kFloat);
  EXPECT_TRUE(at::equal(ours.inverse, golden.tensor("inverse_frequencies")))
      << ours.inverse << golden.tensor("inverse_frequencies");
  EXPECT_EQ(ours.attention_factor, golden.tensor("attention_factor").item<double>());
}

INSTANTIATE_TEST_SUITE_P(All, FamilyGolden, testing::Range(size_t{0}, families().size()),
                         [](const testing::TestParamInfo<size_t>& one) {
                           return families()[one.param].name;
                         });

}  // namespace
}  // namespace switchyard

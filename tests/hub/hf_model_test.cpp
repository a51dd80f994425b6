#include "hub/hf_model.h"

#include <set>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/error.h"
#include "hub/describe_hf.h"
#include "hub/hub_tests.h"

namespace switchyard {
namespace {

std::string refusal(const DirectoryCopy& copy) {
  return message_of<Error>([&] { open_hf_model(copy.path()); });
}

TEST(HfModel, AccountsForEveryTensorOfEveryFamily) {
  for (const std::string& family : kGoldenFamilies) {
    const HfModel model = open_hf_model(golden_directory(family));
    EXPECT_EQ(model.family->model_type,
              read_json(golden_directory(family) / "config.json").at("model_type"));
    std::set<std::string> tensors;  // each holds one or several logical ones
    for (const FileIndex& file : model.index.files) {
      for (const IndexEntry& entry : file.entries) {
        tensors.insert(entry.key);
      }
    }
    EXPECT_EQ(tensors.size(), model.tensors.size()) << family;
  }
}

TEST(HfModel, NamesWhatIsMissingAndWhatIsLeftOver) {
  const DirectoryCopy copy("llama");
  copy.change_tensors(
      [](auto& tensors) { tensors.erase("model.layers.1.self_attn.k_proj.weight"); });
  EXPECT_EQ(refusal(copy), copy.path().string() +
                               ": has no tensor \"model.layers.1.self_attn.k_proj.weight\", which "
                               "config.json asks for");
  const DirectoryCopy more("llama");
  more.change_tensors([](auto& tensors) {
    tensors["model.layers.0.self_attn.sinks"] = at::zeros({4});
    tensors["model.layers.9.self_attn.k_proj.weight"] = at::zeros({4});
  });
  EXPECT_EQ(refusal(more), more.path().string() +
                               ": holds tensor \"model.layers.0.self_attn.sinks\" (and 1 more), "
                               "which a model of type llama with this config.json does not have");
}

TEST(HfModel, RefusesAnotherShapeOrDtype) {
  const DirectoryCopy copy("llama");
  copy.change_tensors([](auto& tensors) {
    tensors["model.layers.0.self_attn.k_proj.weight"] = at::zeros({16, 15}, at::kHalf);
  });
  EXPECT_EQ(
      refusal(copy),
      (copy / "model.safetensors").string() +
          ": tensor \"model.layers.0.self_attn.k_proj.weight\" is [16, 15], config.json makes "
          "it [16, 16] (layers.0.attention.k)");
  const DirectoryCopy bytes("llama");
  bytes.change_tensors([](auto& tensors) {
    at::Tensor& norm = tensors["model.norm.weight"];
    norm = norm.to(at::kInt);
  });
  EXPECT_EQ(refusal(bytes),
            (bytes / "model.safetensors").string() +
                ": tensor \"model.norm.weight\" is I32: only F64, F32, F16 and BF16 "
                "are supported");
}

TEST(HfModel, TakesFusedExpertsInPlaceOfSingleOnes) {
  const DirectoryCopy copy("olmoe");
  const HfModel before = open_hf_model(copy.path());
  copy.change_tensors([](auto& tensors) {
    for (const char* layer : {"0", "1"}) {
      const std::string experts = std::string("model.layers.") + layer + ".mlp.experts.";
      std::vector<at::Tensor> gate_up;
      std::vector<at::Tensor> down;
      for (const char* expert : {"0.", "1.", "2.", "3."}) {
        gate_up.push_back(at::cat({tensors.at(experts + expert + "gate_proj.weight"),
                                   tensors.at(experts + expert + "up_proj.weight")}));
        down.push_back(tensors.at(experts + expert + "down_proj.weight"));
        for (const char* name : {"gate_proj.weight", "up_proj.weight", "down_proj.weight"}) {
          tensors.erase(experts + expert + name);
        }
      }
      tensors[experts + "gate_up_proj"] = at::stack(gate_up);
      tensors[experts + "down_proj"] = at::stack(down);
    }
  });
  const HfModel after = open_hf_model(copy.path());
  EXPECT_EQ(after.index.tensors.size(), before.index.tensors.size());
  EXPECT_LT(after.tensors.size(), before.tensors.size());
}

TEST(HfModel, RefusesAnExpertThatIsThereTwice) {
  const DirectoryCopy copy("olmoe");
  copy.change_tensors([](auto& tensors) {
    tensors["model.layers.0.mlp.experts.down_proj"] = at::zeros({4, 16, 20});
  });
  EXPECT_NE(refusal(copy).find("\"layers.0.moe.experts.down\" [4, 16, 20] is there twice"),
            std::string::npos)
      << refusal(copy);
}

TEST(HfModel, DropsACopyOfTheEmbeddingAndNothingElse) {
  const DirectoryCopy copy("qwen2");
  copy.change_tensors(
      [](auto& tensors) { tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight"); });
  const HfModel model = open_hf_model(copy.path());
  EXPECT_EQ(model.tensors.front().dropped, DroppedTensor::Reason::kTiedHead);
  copy.change_tensors([](auto& tensors) { tensors["lm_head.weight"][0][0] += 1; });
  EXPECT_EQ(refusal(copy), (copy / "model.safetensors").string() +
                               ": tensor \"lm_head.weight\" differs from "
                               "\"model.embed_tokens.weight\", but config.json ties them "
                               "(tie_word_embeddings)");
}

TEST(HfModel, DropsTheRotaryFrequenciesThatItComputesItself) {
  const DirectoryCopy single("olmoe");  // base 10000, heads of 4: 1 and 1/100
  const std::string name = "model.layers.0.self_attn.rotary_emb.inv_freq";
  single.change_tensors([&](auto& tensors) { tensors[name] = at::tensor({1.0F, 0.01F}); });
  EXPECT_EQ(open_hf_model(single.path()).tensors.size(),
            open_hf_model(golden_directory("olmoe")).tensors.size() + 1);
  single.change_tensors([&](auto& tensors) { tensors[name] = at::tensor({1.0F, 0.02F}); });
  EXPECT_EQ(refusal(single), (single / "model.safetensors").string() + ": tensor \"" + name +
                                 "\" holds other rotary frequencies than config.json describes: "
                                 "this program computes them from the configuration");
}

TEST(HfModel, IsNoOtherFolder) {
  const TemporaryFolder folder;
  EXPECT_EQ(message_of<FileError>([&] { open_hf_model(folder.path()); }),
            folder.path().string() + " is no Hugging Face directory: it has no config.json");
}

TEST(DescribeHfModel, ShowsFamilySettingsAndTensors) {
  const std::string text = describe_hf_model(golden_directory("mixtral"));
  for (const char* part :
       {"MixtralForCausalLM", "moe.num_experts", "carried over unchanged: generation_config.json",
        "model.layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight",
        "layers.{layer}.moe.experts.gate_up"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

}  // namespace
}  // namespace switchyard

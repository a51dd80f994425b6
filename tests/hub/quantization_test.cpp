#include "hub/quantization.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/part_reader.h"
#include "hub/export.h"
#include "hub/hub_tests.h"
#include "hub/import.h"
#include "hub/weight_files.h"
#include "model/language_model.h"
#include "parallel/groups.h"

namespace switchyard {
namespace {

using Json = nlohmann::json;

const std::string kQuery = "model.layers.0.self_attn.q_a_proj.weight";
const ReportProgress kSilent = [](const ConversionProgress&) {};

std::string refusal(const std::function<void(DirectoryCopy&)>& change) {
  DirectoryCopy copy("deepseek_v3_fp8");
  change(copy);
  std::string message = message_of<Error>([&] { open_hf_model(copy.path()); });
  const size_t at = message.find(copy.path().string());
  return at == std::string::npos ? message : message.erase(at, copy.path().string().size() + 1);
}

at::Tensor read_whole(const std::filesystem::path& folder, const CheckpointIndex& index,
                      const std::string& name, at::ScalarType dtype) {
  const StoredTensor& stored = index.tensors.at(name);
  const TensorPart part{name, stored.global_shape,
                        std::vector<int64_t>(stored.global_shape.size(), 0),
                        at::empty(stored.global_shape, dtype)};
  PartReader(folder, index).read(part);
  return part.values;
}

// Each element times the scale of its block.
at::Tensor decoded(const std::filesystem::path& file, const std::string& name, int64_t block) {
  const SafetensorsFile weights(file);
  const at::Tensor payload = weights.tensor(name).to(at::kFloat);
  const at::Tensor scales = weights.tensor(name + "_scale_inv");
  return payload * scales.repeat_interleave(block, 0)
                       .repeat_interleave(block, 1)
                       .narrow(0, 0, payload.size(0))
                       .narrow(1, 0, payload.size(1));
}

TEST(Quantization, DecodesEachBlockByItsScale) {
  const std::filesystem::path path = golden_directory("deepseek_v3_fp8");
  const HfModel model = open_hf_model(path);
  const at::Tensor expected = decoded(path / "model.safetensors", kQuery, 2);
  EXPECT_GT(expected.abs().max().item<float>(), 0.1);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor values = read_whole(path, model.index, "layers.0.attention.q_down", dtype);
    EXPECT_TRUE(at::equal(values, expected.to(dtype))) << dtype;
  }
  // A slice that starts within a block, of one expert.
  const std::string up = "model.layers.1.mlp.experts.2.up_proj.weight";
  const TensorPart part{
      "layers.1.moe.experts.gate_up", {4, 2, 6, 16}, {2, 1, 3, 5}, at::empty({1, 1, 3, 11})};
  PartReader(path, model.index).read(part);
  const at::Tensor slice = decoded(path / "model.safetensors", up, 2).slice(0, 3).slice(1, 5);
  EXPECT_TRUE(at::equal(part.values[0][0], slice));
}

// Blocks of 5 x 7 leave smaller ones at the ends of rows and columns.
TEST(Quantization, KnowsSmallerBlocksAtTheEnds) {
  const DirectoryCopy copy("deepseek_v3_fp8");
  copy.change_config([](Json& fields) {
    fields["quantization_config"]["weight_block_size"] = {5, 7};
  });
  copy.change_tensors([](auto& tensors) {
    at::manual_seed(3);
    for (auto& [name, tensor] : tensors) {
      const auto weight = tensors.find(weight_of_scales(name));
      if (weight != tensors.end()) {
        tensor = at::rand({(weight->second.size(0) + 4) / 5, (weight->second.size(1) + 6) / 7});
      }
    }
  });
  const HfModel model = open_hf_model(copy.path());
  const at::Tensor values =
      read_whole(copy.path(), model.index, "layers.0.attention.q_down", at::kFloat);
  const SafetensorsFile weights(copy / "model.safetensors");
  const at::Tensor payload = weights.tensor(kQuery).to(at::kFloat);
  const at::Tensor scales = weights.tensor(kQuery + "_scale_inv");
  ASSERT_EQ(scales.sizes(), (std::vector<int64_t>{3, 3}));
  for (int64_t row = 0; row < 12; ++row) {
    for (int64_t column = 0; column < 16; ++column) {
      EXPECT_EQ(values[row][column].item<float>(),
                payload[row][column].item<float>() * scales[row / 5][column / 7].item<float>());
    }
  }
}

TEST(Quantization, ComesBackByteForByte) {
  const TemporaryFolder folder;
  const std::filesystem::path source = golden_directory("deepseek_v3_fp8");
  import_model(open_hf_model(source), folder / "checkpoint", kSilent);
  export_model(folder / "checkpoint", folder / "out", {}, kSilent);
  const WeightFiles before = open_weight_files(source);
  const WeightFiles after = open_weight_files(folder / "out");
  ASSERT_EQ(after.tensors.size(), before.tensors.size());
  for (const auto& [name, place] : before.tensors) {
    const at::Tensor expected = before.files[0]->tensor(name).view(at::kByte);
    EXPECT_TRUE(at::equal(after.files[0]->tensor(name).view(at::kByte), expected)) << name;
  }
  EXPECT_EQ(read_json(folder / "out/config.json"), read_json(source / "config.json"));
}

TEST(Quantization, LeavesAsTheDtypeAskedFor) {
  const TemporaryFolder folder;
  const std::filesystem::path source = golden_directory("deepseek_v3_fp8");
  import_model(open_hf_model(source), folder / "checkpoint", kSilent);
  const OpenedCheckpoint opened = open_checkpoint(folder / "checkpoint");
  EXPECT_TRUE(at::equal(
      read_whole(folder / "checkpoint", opened.index, "layers.0.attention.q_down", at::kFloat),
      decoded(source / "model.safetensors", kQuery, 2)));
  const ExportReport report = export_model(folder / "checkpoint", folder / "out",
                                           {.model_type = "", .dtype = at::kBFloat16}, kSilent);
  EXPECT_TRUE(report.is_rounded);
  const WeightFiles files = open_weight_files(folder / "out");
  EXPECT_FALSE(files.tensors.contains(kQuery + "_scale_inv"));
  EXPECT_TRUE(at::equal(files.files[0]->tensor(kQuery),
                        decoded(source / "model.safetensors", kQuery, 2).to(at::kBFloat16)));
  EXPECT_FALSE(read_json(folder / "out/config.json").contains("quantization_config"));
}

// A checkpoint of training has other values: no payload is left to hand back.
TEST(Quantization, LeavesAsBf16AfterTraining) {
  const TemporaryFolder folder;
  const HfModel source = open_hf_model(golden_directory("deepseek_v3_fp8"));
  import_model(source, folder / "imported", kSilent);
  const CheckpointRecord record = open_checkpoint(folder / "imported").record;
  const std::unique_ptr<Groups> groups = Groups::single();
  const Group& world = (*groups)[GroupName::kWorld];
  Parameters parameters(*groups, Dtypes::fp32(), 0, FirstValues::kUnset);
  const LanguageModel model(parameters, source.config);
  load_parts(source.path, source.index, model_parts(parameters), world, {}, "");
  write_checkpoint(folder / "trained", record, model_parts(parameters), world);
  export_model(folder / "trained", folder / "out", {}, kSilent);
  const WeightFiles files = open_weight_files(folder / "out");
  EXPECT_TRUE(at::equal(files.files[0]->tensor(kQuery),
                        decoded(source.path / "model.safetensors", kQuery, 2).to(at::kBFloat16)));
  EXPECT_FALSE(files.tensors.contains(kQuery + "_scale_inv"));
  EXPECT_FALSE(read_json(folder / "out/config.json").contains("quantization_config"));
}

TEST(Quantization, RefusesBlocksThatDoNotFit) {
  EXPECT_EQ(refusal([](DirectoryCopy& copy) {
              copy.change_tensors([](auto& tensors) {
                tensors[kQuery + "_scale_inv"] = at::ones({6, 9});
              });
            }),
            "model.safetensors: tensor \"" + kQuery +
                "\": its scales are [6, 9], blocks of [2, 2] in [12, 16] make them [6, 8]");
  EXPECT_EQ(refusal([](DirectoryCopy& copy) {
              copy.change_tensors([](auto& tensors) { tensors.erase(kQuery + "_scale_inv"); });
            }),
            "model.safetensors: tensor \"" + kQuery + "\" is F8_E4M3, and there is no \"" + kQuery +
                "_scale_inv\"");
  EXPECT_EQ(refusal([](DirectoryCopy& copy) {
              copy.change_tensors([](auto& tensors) {
                at::Tensor& scales = tensors[kQuery + "_scale_inv"];
                scales = scales.to(at::kHalf);
              });
            }),
            "model.safetensors: tensor \"" + kQuery +
                "\": its scales are F16: only F32 and BF16 are supported");
}

TEST(Quantization, RefusesScalesOfNoPayload) {
  EXPECT_NE(refusal([](DirectoryCopy& copy) {
              copy.change_tensors([](auto& tensors) {
                tensors["model.norm.weight_scale_inv"] = at::ones({1, 1});
              });
            }).find("holds tensor \"model.norm.weight_scale_inv\""),
            std::string::npos);
  EXPECT_NE(
      refusal([](DirectoryCopy& copy) {
        copy.change_config([](Json& fields) { fields.erase("quantization_config"); });
      })
          .find("is F8_E4M3, and config.json has no quantization_config that says how to decode "
                "it"),
      std::string::npos);
}

TEST(Quantization, RefusesOtherMethods) {
  const auto with = [](const char* name, const Json& value) {
    return refusal([&](DirectoryCopy& copy) {
      copy.change_config([&](Json& fields) { fields["quantization_config"][name] = value; });
    });
  };
  EXPECT_EQ(with("quant_method", "awq"),
            "config.json: quant_method of quantization_config is \"awq\", only \"fp8\" is "
            "supported: save the model in bf16");
  EXPECT_EQ(with("fmt", "e5m2"),
            "config.json: fmt of quantization_config is \"e5m2\", only \"e4m3\" is supported");
  EXPECT_EQ(with("weight_block_size", nullptr),
            "config.json: weight_block_size of quantization_config is null: expected the rows and "
            "columns of a block, as [128, 128]");
}

}  // namespace
}  // namespace switchyard

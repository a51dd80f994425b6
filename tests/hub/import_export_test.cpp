#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/part_reader.h"
#include "hub/export.h"
#include "hub/hub_tests.h"
#include "hub/import.h"
#include "hub/weight_files.h"

namespace switchyard {
namespace {

const ReportProgress kSilent = [](const ConversionProgress&) {};

// Names, dtypes, shapes, files and bytes of all tensors are equal.
void expect_same_weights(const std::filesystem::path& before, const std::filesystem::path& after) {
  const WeightFiles expected = open_weight_files(before);
  const WeightFiles actual = open_weight_files(after);
  ASSERT_EQ(actual.tensors.size(), expected.tensors.size());
  for (const auto& [name, place] : expected.tensors) {
    ASSERT_TRUE(actual.tensors.contains(name)) << name;
    const auto& other = actual.tensors.at(name);
    EXPECT_EQ(actual.files[other.file]->path().filename(),
              expected.files[place.file]->path().filename());
    const at::Tensor a = expected.files[place.file]->tensor(name);
    const at::Tensor b = actual.files[other.file]->tensor(name);
    ASSERT_EQ(a.scalar_type(), b.scalar_type()) << name;
    ASSERT_EQ(a.sizes(), b.sizes()) << name;
    EXPECT_EQ(std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()), 0) << name;
  }
}

class ImportExport : public testing::Test {
 protected:
  void import(const std::filesystem::path& directory) {
    import_model(open_hf_model(directory), folder_ / "checkpoint", kSilent);
  }
  ExportReport export_again(const ExportOptions& options = {}) {
    return export_model(folder_ / "checkpoint", folder_ / "out", options, kSilent);
  }
  std::string refusal(const ExportOptions& options) {
    return message_of<Error>([&] { export_again(options); });
  }

  TemporaryFolder folder_;
};

TEST_F(ImportExport, GivesBackEveryByteOfEveryFamily) {
  for (const std::string& family : kGoldenFamilies) {
    const std::filesystem::path source = golden_directory(family);
    import(source);
    const ExportReport report = export_again();
    EXPECT_FALSE(report.is_rounded);
    expect_same_weights(source, folder_ / "out");
    EXPECT_EQ(read_json(folder_ / "out" / "config.json"), read_json(source / "config.json"));
    EXPECT_EQ(file_bytes(folder_ / "out" / "generation_config.json"),
              file_bytes(source / "generation_config.json"));
    if (std::filesystem::exists(source / "model.safetensors.index.json")) {
      EXPECT_EQ(read_json(folder_ / "out" / "model.safetensors.index.json")["weight_map"],
                read_json(source / "model.safetensors.index.json")["weight_map"]);
    }
    std::filesystem::remove_all(folder_ / "checkpoint");
    std::filesystem::remove_all(folder_ / "out");
  }
}

TEST_F(ImportExport, CarriesDroppedTensorsAndOtherFilesAlong) {
  const DirectoryCopy copy("qwen2");
  copy.change_tensors(
      [](auto& tensors) { tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight"); });
  const DirectoryCopy rotary("olmoe");
  rotary.change_tensors([](auto& tensors) {
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = at::tensor({1.0F, 0.01F});
  });
  write_bytes(copy / "tokenizer.json", "{}");
  write_bytes(copy / "chat_template.jinja", "{{ x }}");
  import(copy.path());
  EXPECT_EQ(export_again().num_carried, 3);
  expect_same_weights(copy.path(), folder_ / "out");
  EXPECT_EQ(file_bytes(folder_ / "out" / "chat_template.jinja"), "{{ x }}");
  std::filesystem::remove_all(folder_ / "checkpoint");
  std::filesystem::remove_all(folder_ / "out");
  import(rotary.path());
  export_again();
  expect_same_weights(rotary.path(), folder_ / "out");
}

TEST_F(ImportExport, GivesBackModulesOfMultiTokenPrediction) {
  const DirectoryCopy copy("deepseek_v3");
  copy.change_tensors([](auto& tensors) { add_predictions(tensors, 2); });
  copy.change_config([](auto& fields) { fields["num_nextn_predict_layers"] = 1; });
  const HfModel model = open_hf_model(copy.path());
  EXPECT_EQ(model.config.mtp.num_layers, 1);
  EXPECT_EQ(model.index.tensors.at("mtp.0.projection").global_shape,
            (std::vector<int64_t>{16, 2, 16}));
  EXPECT_TRUE(model.index.tensors.contains("mtp.0.layer.moe.experts.gate_up"));
  import(copy.path());
  export_again();
  expect_same_weights(copy.path(), folder_ / "out");
}

// As transformers writes it.
TEST_F(ImportExport, ReadsModelsWithoutTheModulesThatTheyName) {
  const DirectoryCopy copy("deepseek_v3");
  copy.change_config([](auto& fields) { fields["num_nextn_predict_layers"] = 1; });
  EXPECT_EQ(open_hf_model(copy.path()).config.mtp.num_layers, 0);
  import(copy.path());
  export_again();
  expect_same_weights(copy.path(), folder_ / "out");
  EXPECT_EQ(read_json(folder_ / "out" / "config.json"), read_json(copy / "config.json"));
}

TEST_F(ImportExport, ComparesWhatModulesShareWithTheModel) {
  const auto refusal_with =
      [](const std::function<void(std::map<std::string, at::Tensor>&)>& edit) {
        const DirectoryCopy copy("deepseek_v3");
        copy.change_tensors([&](auto& tensors) {
          add_predictions(tensors, 2);
          edit(tensors);
        });
        copy.change_config([](auto& fields) { fields["num_nextn_predict_layers"] = 1; });
        return message_of<FileError>([&] { open_hf_model(copy.path()); });
      };
  EXPECT_NE(
      refusal_with([](auto& tensors) { tensors["model.layers.2.shared_head.head.weight"].add_(1); })
          .find("differs from \"lm_head.weight\", but a module of multi-token prediction "
                "shares it with the model"),
      std::string::npos);
  EXPECT_NE(refusal_with([](auto& tensors) {
              tensors["model.layers.2.embed_tokens.weight"].add_(1);
            }).find("differs from \"model.embed_tokens.weight\""),
            std::string::npos);
  EXPECT_NE(refusal_with([](auto& tensors) {
              tensors.erase("model.layers.2.enorm.weight");
            }).find("has no tensor \"model.layers.2.enorm.weight\""),
            std::string::npos);
}

// The values of a logical tensor, read out of both.
TEST_F(ImportExport, StoresTheValuesThatTheDirectoryHolds) {
  const HfModel model = open_hf_model(golden_directory("mixtral"));
  import_model(model, folder_ / "checkpoint", kSilent);
  const OpenedCheckpoint opened = open_checkpoint(folder_ / "checkpoint");
  PartReader from_directory(model.path, model.index);
  PartReader from_checkpoint(folder_ / "checkpoint", opened.index);
  for (const auto& [name, tensor] : model.index.tensors) {
    const std::vector<int64_t> start(tensor.global_shape.size(), 0);
    const TensorPart a{name, tensor.global_shape, start, at::empty(tensor.global_shape)};
    const TensorPart b{name, tensor.global_shape, start, at::empty(tensor.global_shape)};
    from_directory.read(a);
    from_checkpoint.read(b);
    EXPECT_TRUE(at::equal(a.values, b.values)) << name;
  }
  // gpt-oss has gate and up of an expert in turn, and inputs before outputs.
  const HfModel turned = open_hf_model(golden_directory("gpt_oss"));
  PartReader of_turned(turned.path, turned.index);
  const at::Tensor gate_up = SafetensorsFile(turned.path / "model.safetensors")
                                 .tensor("model.layers.1.mlp.experts.gate_up_proj");
  const TensorPart slice{"layers.1.moe.experts.gate_up",
                         {4, 2, 20, 16},
                         {1, 1, 3, 2},
                         at::empty({2, 1, 9, 11}, at::kBFloat16)};
  of_turned.read(slice);
  const at::Tensor expected = gate_up.narrow(0, 1, 2).narrow(1, 2, 11).slice(2, 7, 25, 2);
  EXPECT_TRUE(at::equal(slice.values.squeeze(1), expected.transpose(1, 2)));
  const std::string name = "model.layers.0.block_sparse_moe.experts.2.w3.weight";
  const WeightFiles files = open_weight_files(golden_directory("mixtral"));
  const at::Tensor w3 = files.files[files.tensors.at(name).file]->tensor(name);
  const TensorPart up{
      "layers.0.moe.experts.gate_up", {4, 2, 20, 16}, {2, 1, 0, 0}, at::empty({1, 1, 20, 16})};
  from_checkpoint.read(up);
  EXPECT_TRUE(at::equal(up.values[0][0], w3));
}

// Ling keeps queries, keys and values as one tensor, and a module's norms by other names.
TEST_F(ImportExport, FindsTheTensorsOfLing) {
  const HfModel model = open_hf_model(golden_directory("bailing_moe_v2"));
  const WeightFiles files = open_weight_files(model.path);
  const auto in_file = [&](const std::string& name) {
    return files.files[files.tensors.at(name).file]->tensor(name);
  };
  PartReader reader(model.path, model.index);
  const auto ours = [&](const std::string& name) {
    const std::vector<int64_t>& shape = model.index.tensors.at(name).global_shape;
    const TensorPart part{name, shape, std::vector<int64_t>(shape.size(), 0),
                          at::empty(shape, at::kBFloat16)};
    reader.read(part);
    return part.values;
  };
  const at::Tensor fused = in_file("model.layers.1.attention.query_key_value.weight");
  EXPECT_TRUE(at::equal(ours("layers.1.attention.q").view({32, 16}), fused.narrow(0, 0, 32)));
  EXPECT_TRUE(at::equal(ours("layers.1.attention.k").view({16, 16}), fused.narrow(0, 32, 16)));
  EXPECT_TRUE(at::equal(ours("layers.1.attention.v").view({16, 16}), fused.narrow(0, 48, 16)));
  const at::Tensor projection = ours("mtp.0.projection");  // [hidden, 2, hidden]
  EXPECT_TRUE(at::equal(projection.view({16, 32}), in_file("model.layers.2.eh_proj.weight")));
  const std::pair<const char*, const char*> norms[] = {
      {"mtp.0.embedding_norm.weight", "enorm.weight"},
      {"mtp.0.hidden_norm.weight", "hnorm.weight"},
      {"mtp.0.final_norm.weight", "final_layernorm.weight"},
      {"mtp.0.layer.mixer_norm.weight", "input_layernorm.weight"},
      {"mtp.0.layer.mlp_norm.weight", "post_attention_layernorm.weight"}};
  for (const auto& [logical, name] : norms) {
    EXPECT_TRUE(at::equal(ours(logical), in_file(std::string("model.layers.2.") + name))) << name;
  }
}

TEST_F(ImportExport, RoundsToTheDtypeAskedFor) {
  import(golden_directory("qwen3"));
  EXPECT_TRUE(export_again({.model_type = "", .dtype = at::kBFloat16}).is_rounded);
  const at::Tensor before = SafetensorsFile(golden_directory("qwen3") / "model.safetensors")
                                .tensor("model.layers.0.mlp.up_proj.weight");
  const at::Tensor after = SafetensorsFile(folder_ / "out" / "model.safetensors")
                               .tensor("model.layers.0.mlp.up_proj.weight");
  EXPECT_TRUE(at::equal(after, before.to(at::kBFloat16)));
  EXPECT_EQ(read_json(folder_ / "out" / "config.json")["dtype"], "bfloat16");
}

TEST_F(ImportExport, RefusesToWriteOverACheckpoint) {
  import(golden_directory("qwen3"));
  EXPECT_EQ(message_of<FileError>([&] { import(golden_directory("qwen3")); }),
            (folder_ / "checkpoint").string() +
                " is there already: choose another folder, or remove it first");
}

TEST_F(ImportExport, RefusesValuesThatTheDtypeCannotHold) {
  const DirectoryCopy copy("qwen3");
  copy.change_tensors([](auto& tensors) {
    at::Tensor& norm = tensors.at("model.norm.weight");
    norm = at::full_like(norm, 1e6);
  });
  import(copy.path());
  EXPECT_EQ(refusal({.model_type = "", .dtype = at::kHalf}),
            "model.norm.weight: its largest value, 1e+06, does not fit into fp16, which ends at "
            "65504: export as bf16 or fp32 (--dtype)");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

TEST_F(ImportExport, LeavesNothingBehindWhenItRefuses) {
  import(golden_directory("qwen3"));
  EXPECT_EQ(refusal({.model_type = "gpt5", .dtype = {}}).substr(0, 37),
            "there is no family \"gpt5\"; known are:");
  EXPECT_EQ(refusal({.model_type = "llama", .dtype = {}}),
            "the family llama has no such model: attention.qk_norm is none in this family, head "
            "here");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out.partial"));
  std::filesystem::create_directory(folder_ / "out");
  write_bytes(folder_ / "out" / "mine.txt", "x");
  EXPECT_EQ(refusal({}), (folder_ / "out").string() +
                             " is there already: choose another folder, or remove it first");
  EXPECT_EQ(
      message_of<FileError>([&] {
        import_model(open_hf_model(golden_directory("qwen3")), folder_ / "out", kSilent);
      }),
      (folder_ / "out").string() + " is there already: choose another folder, or remove it first");
}

TEST_F(ImportExport, DealsTensorsOutOverFilesOfTheLargestSize) {
  import(golden_directory("qwen3"));
  const ExportReport report =
      export_again({.model_type = "qwen3", .dtype = {}, .max_shard_bytes = 10'000});
  EXPECT_GT(report.num_files, 2);
  const WeightFiles files = open_weight_files(folder_ / "out");  // checks index against headers
  EXPECT_EQ(files.tensors.size(), open_weight_files(golden_directory("qwen3")).tensors.size());
  for (const auto& file : files.files) {
    EXPECT_LT(std::filesystem::file_size(file->path()), 14'000U);
  }
}

// transformers would take the ids of a family's first model where config.json says nothing.
TEST_F(ImportExport, WritesTheIdsOfItsTokenizerOrNone) {
  import(golden_directory("qwen3"));
  export_again({.model_type = "qwen3", .dtype = {}, .more_files = {{"a.txt", "more"}}});
  const auto carried = read_json(golden_directory("qwen3") / "generation_config.json");
  const auto fields = read_json(folder_ / "out" / "config.json");
  for (const char* name : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    ASSERT_TRUE(fields.contains(name)) << name;
    EXPECT_EQ(fields[name], carried.contains(name) ? carried[name] : nlohmann::json()) << name;
  }
  EXPECT_EQ(file_bytes(folder_ / "out" / "a.txt"), "more");
}

TEST_F(ImportExport, NamesATensorThatIsNotFinite) {
  const DirectoryCopy copy("qwen3");
  copy.change_tensors([](auto& tensors) {
    at::Tensor& norm = tensors.at("model.norm.weight");
    norm = at::full_like(norm, std::numeric_limits<float>::quiet_NaN());
  });
  testing::internal::CaptureStderr();
  import(copy.path());
  EXPECT_NE(testing::internal::GetCapturedStderr().find("tensor \"model.norm.weight\" holds NaN"),
            std::string::npos);
  export_again();
  expect_same_weights(copy.path(), folder_ / "out");
}

TEST_F(ImportExport, NoticesAnAlteredAsset) {
  import(golden_directory("qwen3"));
  write_bytes(folder_ / "checkpoint" / "assets" / "generation_config.json", "{}");
  EXPECT_EQ(refusal({}), (folder_ / "checkpoint" / "assets").string() +
                             ": the files are not those that were saved: one was altered, added or "
                             "removed");
}

}  // namespace
}  // namespace switchyard

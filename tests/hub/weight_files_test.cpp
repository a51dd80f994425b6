#include "hub/weight_files.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "hub/hub_tests.h"

namespace switchyard {
namespace {

using Json = nlohmann::json;

constexpr const char* kIndex = "model.safetensors.index.json";

std::string refusal(const DirectoryCopy& copy) {
  return message_of<FileError>([&] { open_weight_files(copy.path()); });
}

TEST(WeightFiles, FindEveryTensorOfShardsAndOfOneFile) {
  const Json index = read_json(golden_directory("mixtral") / kIndex);
  const WeightFiles shards = open_weight_files(golden_directory("mixtral"));
  EXPECT_EQ(shards.files.size(), 3U);
  EXPECT_EQ(shards.tensors.size(), index["weight_map"].size());
  EXPECT_EQ(open_weight_files(golden_directory("llama")).files.size(), 1U);
}

TEST(WeightFiles, RefusePickles) {
  const DirectoryCopy copy("llama");
  std::filesystem::rename(copy / "model.safetensors", copy / "pytorch_model.bin");
  EXPECT_EQ(refusal(copy),
            (copy / "pytorch_model.bin").string() +
                ": pickled weights can run any code and are not read: save the model "
                "as safetensors (save_pretrained does)");
  std::filesystem::remove(copy / "pytorch_model.bin");
  EXPECT_EQ(refusal(copy), copy.path().string() +
                               " holds no weights: expected model.safetensors or "
                               "model.safetensors.index.json");
}

TEST(WeightFiles, RefuseAMissingOrShortShard) {
  const DirectoryCopy copy("mixtral");
  const auto shard = copy / "model-00002-of-00003.safetensors";
  const std::string bytes = file_bytes(shard);
  write_bytes(shard, bytes.substr(0, bytes.size() - 4));
  EXPECT_NE(refusal(copy).find(shard.string()), std::string::npos) << refusal(copy);
  std::filesystem::remove(shard);
  EXPECT_EQ(refusal(copy), shard.string() + " is missing: model.safetensors.index.json lists it");
}

TEST(WeightFiles, RefuseAnIndexThatDisagreesWithItsShards) {
  const DirectoryCopy copy("mixtral");
  const Json index = read_json(copy / kIndex);
  Json ghost = index;
  ghost["weight_map"]["model.ghost"] = "model-00001-of-00003.safetensors";
  write_bytes(copy / kIndex, ghost.dump());
  EXPECT_EQ(refusal(copy), (copy / kIndex).string() +
                               ": lists tensor \"model.ghost\" in "
                               "model-00001-of-00003.safetensors, which does not hold it");
  Json without = index;
  without["weight_map"].erase("model.norm.weight");
  write_bytes(copy / kIndex, without.dump());
  EXPECT_EQ(refusal(copy),
            (copy / kIndex).string() + ": does not list tensor \"model.norm.weight\", which " +
                index["weight_map"]["model.norm.weight"].get<std::string>() + " holds");
  write_bytes(copy / kIndex, "{\"weight_map\": {");
  EXPECT_EQ(refusal(copy), (copy / kIndex).string() +
                               ": has no weight_map from tensors to files; is it cut short?");
  Json elsewhere = index;
  elsewhere["weight_map"]["model.norm.weight"] = "../model.safetensors";
  write_bytes(copy / kIndex, elsewhere.dump());
  EXPECT_EQ(refusal(copy), (copy / kIndex).string() +
                               ": the file of tensor \"model.norm.weight\" is "
                               "\"../model.safetensors\": expected the name of a file");
}

TEST(WeightFiles, RefuseAShardThatIsNotListedAndWarnOfAWrongSize) {
  const DirectoryCopy copy("mixtral");
  Json index = read_json(copy / kIndex);
  index["metadata"]["total_size"] = 7;
  write_bytes(copy / kIndex, index.dump());
  write_bytes(copy / "consolidated.safetensors", "other weights");  // as Mistral's directories have
  testing::internal::CaptureStderr();
  open_weight_files(copy.path());
  EXPECT_NE(testing::internal::GetCapturedStderr().find("total_size is 7, the tensors have"),
            std::string::npos);
  const auto extra = copy / "model-00004-of-00003.safetensors";
  std::filesystem::copy(copy / "model-00001-of-00003.safetensors", extra);
  EXPECT_EQ(refusal(copy), extra.string() +
                               " is a shard that model.safetensors.index.json does not list: list "
                               "its tensors, or remove it");
}

TEST(WeightFiles, RefuseTwoSetsOfWeights) {
  const DirectoryCopy copy("mixtral");
  std::filesystem::copy(golden_directory("llama") / "model.safetensors",
                        copy / "model.safetensors");
  EXPECT_EQ(refusal(copy), copy.path().string() +
                               " holds both model.safetensors and model.safetensors.index.json: "
                               "keep the one that is meant");
}

}  // namespace
}  // namespace switchyard

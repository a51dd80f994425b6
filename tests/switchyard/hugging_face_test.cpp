#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/exit_code.h"
#include "checkpoint/checkpoint_tests.h"
#include "checkpoint/safetensors.h"
#include "switchyard/run_program.h"

// The commands that take and make Hugging Face directories, as a user types them.
namespace switchyard {
namespace {

std::string golden(const std::string& family) {
  return SWITCHYARD_SOURCE_DIR "/tests/golden/hf/" + family;
}

class HuggingFaceCommands : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  void expect_success(const std::string& words, const std::string& part) const {
    const ProgramResult result = run_program(words);
    EXPECT_EQ(result.exit_code, 0) << words << "\n" << result.output;
    EXPECT_NE(result.output.find(part), std::string::npos) << words << "\n" << result.output;
  }
  void expect_refusal(const std::string& words, ExitCode code, const std::string& line) const {
    const ProgramResult result = run_program(words);
    EXPECT_EQ(result.exit_code, static_cast<int>(code)) << words;
    EXPECT_EQ(result.output, "error: " + line + "\n") << words;
  }

  TemporaryFolder folder_;
};

TEST_F(HuggingFaceCommands, GoThereAndBack) {
  expect_success("import " + golden("mixtral") + " " + path("checkpoint"),
                 "MixtralForCausalLM, 41 tensors, each used once");
  expect_success("inspect " + path("checkpoint") + " --verify", "every byte matches its checksum");
  expect_success("export " + path("checkpoint") + " " + path("out"),
                 "MixtralForCausalLM, 41 tensors in 3 files, 1 other files carried over");
  expect_success("inspect " + path("out"), "MixtralForCausalLM");
  for (const char* shard :
       {"model-00001-of-00003", "model-00002-of-00003", "model-00003-of-00003"}) {
    const std::string name = std::string("/") + shard + ".safetensors";
    const SafetensorsFile before(golden("mixtral") + name);
    const SafetensorsFile after(path("out") + name);
    for (const SafetensorsEntry& entry : before.entries()) {
      EXPECT_TRUE(at::equal(before.tensor(entry.name), after.tensor(entry.name))) << entry.name;
    }
  }
}

TEST_F(HuggingFaceCommands, ForwardWritesLogitsLossAndGradients) {
  const std::string tokens = golden("qwen3_moe") + "/expected.safetensors";
  expect_success(
      "forward " + golden("qwen3_moe") + " --tokens " + tokens + " --out " + path("o") + " --grads",
      "logits, loss and gradients");
  const SafetensorsFile expected(tokens);
  const SafetensorsFile actual(path("o"));
  EXPECT_TRUE(at::allclose(actual.tensor("logits"), expected.tensor("logits"), 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(actual.tensor("loss"), expected.tensor("loss"), 1e-6));
  EXPECT_EQ(actual.entries().size(), expected.entries().size() - 2);
}

TEST_F(HuggingFaceCommands, ForwardDecodesFp8) {
  const std::string tokens = golden("deepseek_v3_fp8") + "/expected.safetensors";
  expect_success("forward " + golden("deepseek_v3_fp8") + " --tokens " + tokens + " --out " +
                     path("o") + " --grads",
                 "logits, loss and gradients");
  const SafetensorsFile expected(tokens);
  const SafetensorsFile actual(path("o"));
  EXPECT_TRUE(at::allclose(actual.tensor("logits"), expected.tensor("logits"), 1e-4, 1e-5));
  for (const SafetensorsEntry& entry : actual.entries()) {
    EXPECT_TRUE(at::allclose(actual.tensor(entry.name), expected.tensor(entry.name), 1e-3, 1e-6))
        << entry.name;
  }
  EXPECT_EQ(actual.entries().size(), expected.entries().size() - 2);
}

// From scratch to a directory, on from there, and back: the same model but for its weights.
TEST_F(HuggingFaceCommands, TrainFromADirectoryAndHandItBack) {
  write_bytes(folder_ / "text.txt", std::string(2000, 'x') + "to be or not to be");
  expect_success("tokenize " + path("text.txt") + " --out " + path("data"), "1 documents");
  const std::string rest = "data: {train: " + path("data") +
                           ", sequence_length: 16}\noptimizer: {lr: 0.01}\n"
                           "train: {steps: 3, global_batch_size: 2, threads: 1}\n";
  write_bytes(folder_ / "first.yaml",
              "run: {dir: " + path("first") +
                  "}\nmodel: {num_layers: 2, hidden_size: 16, num_attention_heads: 2}\n"
                  "moe: {num_experts: 4, ffn_hidden_size: 8, aux_loss_coeff: 0.03}\n" +
                  rest);
  expect_success("train " + path("first.yaml"), "");
  expect_success("export " + path("first") + " " + path("hf"), "MixtralForCausalLM");
  write_bytes(folder_ / "second.yaml",
              "run: {dir: " + path("second") + "}\nmodel: {from: " + path("hf") + "}\n" + rest);
  expect_success("train " + path("second.yaml"), "starting from " + path("hf"));
  // A balance loss goes on with the model, from a run as from a directory.
  write_bytes(folder_ / "third.yaml",
              "run: {dir: " + path("third") + "}\nmodel: {from: " + path("first") + "}\n" + rest);
  expect_success("train " + path("third.yaml"), "starting from " + path("first"));
  for (const char* run : {"/second", "/third"}) {
    EXPECT_NE(
        file_bytes(folder_.path().string() + run + "/config.yaml").find("aux_loss_coeff: 0.03"),
        std::string::npos)
        << run;
  }
  expect_success("export " + path("second") + " " + path("again"), "MixtralForCausalLM");
  EXPECT_EQ(file_bytes(path("again") + "/config.json"), file_bytes(path("hf") + "/config.json"));
  const SafetensorsFile before(path("hf") + "/model.safetensors");
  const SafetensorsFile after(path("again") + "/model.safetensors");
  ASSERT_EQ(after.entries().size(), before.entries().size());
  for (const SafetensorsEntry& entry : before.entries()) {
    const at::Tensor moved = after.tensor(entry.name) - before.tensor(entry.name);
    const double largest = moved.abs().max().item<double>();
    EXPECT_GT(largest, 0) << entry.name;
    EXPECT_LT(largest, 0.2) << entry.name;  // three steps of Adam at 0.01
  }
}

TEST_F(HuggingFaceCommands, TrainRefusesATokenizerThatIsNotTheModels) {
  write_bytes(folder_ / "text.txt", "to be or not to be, to be or not to be");
  expect_success("tokenize " + path("text.txt") + " --out " + path("data"), "1 documents");
  write_bytes(folder_ / "run.yaml",
              "run: {dir: " + path("run") + "}\nmodel: {from: " + golden("mixtral") +
                  "}\ndata: {train: " + path("data") +
                  ", sequence_length: 16, tokenizer: bytes}\n" +
                  "train: {steps: 3, global_batch_size: 2}\noptimizer: {lr: 0.001}\n");
  const ProgramResult small = run_program("train " + path("run.yaml"));
  EXPECT_EQ(small.exit_code, static_cast<int>(ExitCode::kRefusedConfig));
  EXPECT_NE(small.output.find("model.vocab_size (48) is smaller than the 257 tokens"),
            std::string::npos)
      << small.output;
}

TEST_F(HuggingFaceCommands, TrainRefusesAnotherModelThanItStartsFrom) {
  write_bytes(folder_ / "run.yaml",
              "run: {dir: " + path("run") + "}\nmodel: {from: " + golden("mixtral") +
                  ", hidden_size: 32}\ndata: {train: x, sequence_length: 16}\n" +
                  "train: {steps: 3, global_batch_size: 2}\noptimizer: {lr: 0.001}\n");
  const ProgramResult result = run_program("train " + path("run.yaml"));
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kRefusedConfig));
  EXPECT_NE(result.output.find("model.hidden_size is 32 [" + path("run.yaml") +
                               ":2], in the model to start from it is 16 [" + golden("mixtral") +
                               "/config.json]: remove the setting, or start from another model"),
            std::string::npos)
      << result.output;
}

// A run needs itself and its data, not what it started from; a checkpoint needs nothing.
TEST_F(HuggingFaceCommands, TrainGoesOnWithoutWhatItStartedFrom) {
  write_bytes(folder_ / "text.txt", std::string(2000, 'x') + "to be or not to be");
  expect_success("tokenize " + path("text.txt") + " --out " + path("bytes"), "1 documents");
  const std::string rest =
      "optimizer: {lr: 0.01}\ntrain: {steps: 2, global_batch_size: 2, threads: 1}\n";
  const std::string model =
      "model: {num_layers: 2, hidden_size: 16, num_attention_heads: 2}\n"
      "moe: {num_experts: 4, ffn_hidden_size: 8}\n";
  write_bytes(folder_ / "first.yaml", "run: {dir: " + path("first") + "}\n" + model +
                                          "data: {train: " + path("bytes") +
                                          ", sequence_length: 16}\n" + rest);
  expect_success("train " + path("first.yaml"), "");
  expect_success("export " + path("first") + " " + path("hf"), "3 other files carried over");
  // Another name: what was written for bytes, but no longer those bytes.
  const std::string tokenizer = file_bytes(path("hf") + "/tokenizer.json") + "\n";
  std::filesystem::create_directory(path("tok"));
  write_bytes(path("tok") + "/tokenizer.json", tokenizer);
  write_bytes(path("tok") + "/config.json", "{\"eos_token_id\": 256}");
  write_bytes(path("hf") + "/tokenizer.json", tokenizer);
  expect_success(
      "tokenize " + path("text.txt") + " --tokenizer " + path("tok") + " --out " + path("data"),
      "1 documents");
  write_bytes(folder_ / "second.yaml",
              "run: {dir: " + path("second") + "}\nmodel: {from: " + path("hf") +
                  "}\ndata: {train: " + path("data") + ", sequence_length: 16}\n" + rest);
  write_bytes(folder_ / "third.yaml",
              "run: {dir: " + path("third") + "}\n" + model + "data: {train: " + path("data") +
                  ", tokenizer: " + path("tok") + ", sequence_length: 16}\n" + rest);
  for (const char* name : {"second", "third"}) {
    expect_success("train " + path(name) + ".yaml", "");
  }
  std::filesystem::remove_all(path("hf"));
  std::filesystem::remove_all(path("tok"));
  for (const char* name : {"second", "third"}) {
    expect_success("train " + path(name) + ".yaml train.steps=4", "resuming " + path(name));
    const std::string alone = path(std::string(name) + "_alone");
    std::filesystem::rename(path(name) + "/checkpoints/step_4", alone);
    std::filesystem::remove_all(path(name));
    expect_success("generate " + alone + " --prompt to --max-tokens 3 --temperature 0", "to");
    expect_success("inspect " + alone, "256 ends a document");
    expect_success("export " + alone + " " + alone + "_hf --family mixtral", "MixtralForCausalLM");
    EXPECT_NE(file_bytes(alone + "_hf/config.json").find("\"eos_token_id\": 256"),
              std::string::npos);
    EXPECT_NE(file_bytes(alone + "_hf/generation_config.json").find("\"eos_token_id\": 256"),
              std::string::npos);
    expect_success("generate " + alone + "_hf --prompt to --max-tokens 3", "to");
  }
}

TEST_F(HuggingFaceCommands, NameWeightsThatAreNotFinite) {
  const std::string broken = path("broken");
  std::filesystem::copy(golden("qwen3"), broken);
  std::map<std::string, at::Tensor> tensors;
  {
    const SafetensorsFile file(broken + "/model.safetensors");
    for (const SafetensorsEntry& entry : file.entries()) {
      tensors[entry.name] = file.tensor(entry.name).clone();
    }
  }
  tensors.at("model.layers.1.mlp.up_proj.weight")[0][0] = std::nan("");
  std::vector<SafetensorsDeclaration> declarations;
  for (const auto& [name, tensor] : tensors) {
    declarations.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  }
  SafetensorsWriter writer(broken + "/model.safetensors", declarations);
  for (const auto& [name, tensor] : tensors) {
    writer.write(tensor);
  }
  writer.finish();
  expect_refusal(
      "forward " + broken + " --tokens " + golden("qwen3") + "/expected.safetensors --out " +
          path("o"),
      ExitCode::kBadFile,
      broken +
          ": the weights model.layers.1.mlp.up_proj.weight are not finite: they hold NaN "
          "or infinity, and so would all results");
}

TEST_F(HuggingFaceCommands, ForwardRefusesABadTokensFile) {
  const auto refuse = [&](const std::map<std::string, at::Tensor>& tensors,
                          const std::string& line) {
    std::vector<SafetensorsDeclaration> declarations;
    for (const auto& [name, tensor] : tensors) {
      declarations.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
    }
    {
      SafetensorsWriter writer(path("tokens"), declarations);
      for (const auto& [name, tensor] : tensors) {
        writer.write(tensor);
      }
      writer.finish();
    }
    expect_refusal(
        "forward " + golden("llama") + " --tokens " + path("tokens") + " --out " + path("o"),
        ExitCode::kBadFile, path("tokens") + ": " + line);
  };
  const at::Tensor tokens = at::zeros({2, 3}, at::kLong);
  refuse({{"tokens", at::zeros({3}, at::kLong)}},
         "\"tokens\" is I64 [3]: expected I64 [batch, sequence], none of them 0");
  refuse({{"tokens", at::zeros({0, 3}, at::kLong)}},
         "\"tokens\" is I64 [0, 3]: expected I64 [batch, sequence], none of them 0");
  refuse({{"tokens", at::full({1, 1}, 48, at::kLong)}},
         "\"tokens\" holds 48: the model's vocabulary is from 0 to 47");
  refuse({{"tokens", tokens}, {"labels", at::zeros({2, 2}, at::kLong)}},
         "\"labels\" is [2, 2], \"tokens\" is [2, 3]: each token has a label");
  refuse({{"tokens", tokens}, {"labels", at::full({2, 3}, -1, at::kLong)}},
         "\"labels\" holds -1: the model's vocabulary is from 0 to 47");
  refuse({{"tokens", tokens}, {"labels", at::full({2, 3}, -100, at::kLong)}},
         "every one of \"labels\" is -100, which is no label: there is no loss");
}

TEST_F(HuggingFaceCommands, RefuseInOneLine) {
  expect_refusal("import " + path("none") + " " + path("out"), ExitCode::kBadFile,
                 path("none") + " is no Hugging Face directory: it has no config.json");
  expect_refusal("export " + path("none") + " " + path("out"), ExitCode::kBadFile,
                 path("none") +
                     " holds no checkpoint: give a run directory, its checkpoints folder "
                     "or one step_N of it");
  expect_refusal("forward " + golden("llama") + " --tokens " + golden("llama") +
                     "/model.safetensors --out " + path("o"),
                 ExitCode::kBadFile,
                 golden("llama") + "/model.safetensors: has no tensor \"tokens\" among its 35");
  EXPECT_FALSE(std::filesystem::exists(path("out")));
  EXPECT_FALSE(std::filesystem::exists(path("o")));
}

}  // namespace
}  // namespace switchyard

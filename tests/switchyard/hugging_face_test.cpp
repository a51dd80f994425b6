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

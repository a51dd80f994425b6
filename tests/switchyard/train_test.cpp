// Runs of the built program: train, stop, resume, evaluate, generate, and what it refuses.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/exit_code.h"
#include "switchyard/training_folder.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;

class TrainCommand : public TrainingFolder {
 protected:
  // The output of both, then "codes" and the exit code of each.
  std::string train_on_two_ranks(const std::string& run, const std::string& settings) const {
    const int port = 20000 + getpid() % 20000;
    const std::string line = fmt::format(
        "{0} & first=$!; RANK=1 WORLD_SIZE=2 MASTER_PORT={2} {1} {0}; second=$?; wait $first; "
        "echo codes $? $second",
        command(run, settings + " train.threads=1"), program_path(), port);
    return run_program_with("RANK=0 WORLD_SIZE=2 MASTER_PORT=" + std::to_string(port), line).output;
  }

  // Of two runs in fp64: losses and gradient norms, also of evaluations.
  void expect_same_losses(const std::string& run, const std::string& other, int num_steps) const {
    std::ifstream one(folder_ / run / "metrics.jsonl");
    std::ifstream two(folder_ / other / "metrics.jsonl");
    const auto value = [](const std::string& text, const char* key) {
      const size_t at = text.find(key);
      return at == std::string::npos ? -1 : std::stod(text.substr(text.find(':', at) + 1));
    };
    int num_lines = 0;
    for (std::string a, b; std::getline(one, a) && std::getline(two, b); ++num_lines) {
      for (const char* key : {"\"loss\"", "\"grad_norm\"", "\"eval_loss\""}) {
        EXPECT_NEAR(value(a, key), value(b, key), 1e-9) << key;
      }
    }
    EXPECT_EQ(num_lines, num_steps);
  }

  // Starts a run, waits until `file` is there, then sends `signal`. Returns its exit code, 128 +
  // signal when it was killed.
  int train_until(const std::string& run, const std::string& settings, const std::string& file,
                  const std::string& signal) const {
    const std::string line = fmt::format(
        "{} >/dev/null 2>&1 & pid=$!; n=0; while [ ! -e {} ] && [ $n -lt 3000 ]; do "
        "sleep 0.01; n=$((n+1)); done; kill -{} $pid; wait $pid; echo code $?",
        command(run, settings), path(file), signal);
    const std::string output = run_program(line).output;
    const size_t at = output.rfind("code ");
    return at == std::string::npos ? -1 : std::stoi(output.substr(at + 5));
  }
};

TEST_F(TrainCommand, ResumesAKilledRunToTheSameBytes) {
  for (const char* precision : {"fp32", "bf16", "fp64"}) {
    const std::string settings = fmt::format("train.precision={} checkpoint.every=8", precision);
    const std::string whole = fmt::format("whole_{}", precision);
    const std::string killed = fmt::format("killed_{}", precision);
    ASSERT_EQ(train(whole, settings).exit_code, 0);
    // Killed some steps after the checkpoint of step 8; slowed by evaluations, so that it is not
    // done first.
    EXPECT_EQ(train_until(killed, settings, killed + "/checkpoints/step_8/record.json", "KILL"),
              128 + 9);
    ASSERT_FALSE(fs::exists(folder_ / killed / "checkpoints/step_20"));
    const ProgramResult resumed = train(killed, settings);
    EXPECT_EQ(resumed.exit_code, 0);
    EXPECT_NE(resumed.output.find("resuming"), std::string::npos) << resumed.output;
    expect_equal_runs(folder_ / whole, folder_ / killed, 20);
  }
}

TEST_F(TrainCommand, SavesTheSameBytesInTheBackground) {
  const std::string every = "checkpoint.every=3 ";
  const std::string settings = every + "checkpoint.asynchronous=true";
  ASSERT_EQ(train("whole", every).exit_code, 0);
  ASSERT_EQ(train("asynchronous", settings).exit_code, 0);
  for (const int64_t step : {3, 12, 18}) {
    const std::string name = fmt::format("checkpoints/step_{}/rank_00000.safetensors", step);
    EXPECT_TRUE(read(folder_ / "whole" / name) == read(folder_ / "asynchronous" / name)) << step;
  }
  expect_equal_runs(folder_ / "whole", folder_ / "asynchronous", 20);
  EXPECT_EQ(train_until("killed", settings, "killed/checkpoints/step_6/record.json", "KILL"),
            128 + 9);
  EXPECT_EQ(train("killed", settings).exit_code, 0);
  expect_equal_runs(folder_ / "whole", folder_ / "killed", 20);
}

TEST_F(TrainCommand, SavesAfterTheStepWhenAskedToStopAndGoesOnLater) {
  ASSERT_EQ(train("whole").exit_code, 0);
  EXPECT_EQ(train_until("stopped", "", "stopped/metrics.jsonl", "TERM"),
            code(ExitCode::kStoppedSaved));
  EXPECT_TRUE(fs::exists(folder_ / "stopped/checkpoints/latest"));
  EXPECT_EQ(train("stopped").exit_code, 0);
  expect_equal_runs(folder_ / "whole", folder_ / "stopped", 20);
}

TEST_F(TrainCommand, GivesTheSameBytesWhenRunAgain) {
  ASSERT_EQ(train("one").exit_code, 0);
  ASSERT_EQ(train("two").exit_code, 0);
  expect_equal_runs(folder_ / "one", folder_ / "two", 20);
}

TEST_F(TrainCommand, RecomputingGivesTheSameBytes) {
  ASSERT_EQ(train("kept").exit_code, 0);
  ASSERT_EQ(train("recomputed", "train.recompute=full").exit_code, 0);
  expect_equal_runs(folder_ / "kept", folder_ / "recomputed", 20);
}

TEST_F(TrainCommand, HasNothingToDoForAFinishedRun) {
  ASSERT_EQ(train("run").exit_code, 0);
  const std::string before = read(folder_ / "run/metrics.jsonl");
  const ProgramResult again = train("run");
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_NE(again.output.find("nothing to do: all 20 steps of " + path("run") +
                              " are done; raise train.steps to go on"),
            std::string::npos)
      << again.output;
  EXPECT_EQ(read(folder_ / "run/metrics.jsonl"), before);
}

TEST_F(TrainCommand, FallsBackToTheCheckpointBeforeADamagedOne) {
  ASSERT_EQ(train("run", "checkpoint.every=8").exit_code, 0);
  const std::string whole = timeless_metrics(folder_ / "run");
  const fs::path damaged = folder_ / "run/checkpoints/step_20/rank_00000.safetensors";
  std::string bytes = read(damaged);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write(damaged, bytes);
  const ProgramResult resumed = train("run", "checkpoint.every=8");
  EXPECT_EQ(resumed.exit_code, 0);
  EXPECT_NE(resumed.output.find("step_20"), std::string::npos) << resumed.output;
  EXPECT_NE(resumed.output.find("at step 16"), std::string::npos) << resumed.output;
  EXPECT_EQ(timeless_metrics(folder_ / "run"), whole);
}

TEST_F(TrainCommand, RefusesTheDirectoryOfAnotherRun) {
  ASSERT_EQ(train("run").exit_code, 0);
  const ProgramResult refused = train("run", "optimizer.lr=2e-2");
  EXPECT_EQ(refused.exit_code, code(ExitCode::kRefusedConfig));
  EXPECT_NE(
      refused.output.find("holds another run: optimizer.lr: 0.01 in the checkpoint, 0.02 now"),
      std::string::npos)
      << refused.output;
  EXPECT_EQ(train("run", "optimizer.lr=2e-2 --accept-changes").exit_code, 0);
}

TEST_F(TrainCommand, NoticesOtherData) {
  ASSERT_EQ(train("run").exit_code, 0);
  // The same tokens elsewhere are the same data.
  for (const char* suffix : {".bin", ".idx", ".json"}) {
    fs::copy(path("set") + suffix, path("moved") + suffix);
  }
  const ProgramResult moved = train("run", "data.train=[" + path("moved") + "]");
  EXPECT_EQ(moved.exit_code, 0) << moved.output;
  EXPECT_NE(moved.output.find("nothing to do: all 20 steps of"), std::string::npos) << moved.output;
  write(folder_ / "text.txt", read(folder_ / "text.txt") + "one line more\n");
  ASSERT_EQ(
      run_program(fmt::format("tokenize {0}/text.txt --out {0}/set --force", folder_.string()))
          .exit_code,
      0);
  const ProgramResult refused = train("run", "train.steps=22");
  EXPECT_EQ(refused.exit_code, code(ExitCode::kRefusedConfig));
  EXPECT_NE(refused.output.find(
                fmt::format("holds another run: data.train {}: 1 documents, ", path("set"))),
            std::string::npos)
      << refused.output;
  const ProgramResult accepted = train("run", "train.steps=22 --accept-changes");
  EXPECT_EQ(accepted.exit_code, 0);
  EXPECT_NE(accepted.output.find("accepted: data.train " + path("set")), std::string::npos)
      << accepted.output;
  EXPECT_EQ(train("run", "train.steps=22").exit_code, 0) << "they are the run's data now";
}

TEST_F(TrainCommand, NoticesAnotherSizeOfAccumulationStepWhereALossDependsOnIt) {
  ASSERT_EQ(train("free").exit_code, 0);
  EXPECT_EQ(train("free", "train.micro_batch_size=1").exit_code, 0);
  const std::string balanced = "moe.step_aux_loss_coeff=0.01 ";
  ASSERT_EQ(train("run", balanced).exit_code, 0);
  const ProgramResult refused = train("run", balanced + "train.micro_batch_size=1");
  EXPECT_EQ(refused.exit_code, code(ExitCode::kRefusedConfig));
  EXPECT_NE(
      refused.output.find("sequences of an accumulation step (train.micro_batch_size x "
                          "data-parallel ranks), which balance losses over a step depend on: 2 "
                          "in the checkpoint, 1 now"),
      std::string::npos)
      << refused.output;
}

TEST_F(TrainCommand, SavesWhenItsTerminalIsClosed) {
  EXPECT_EQ(train_until("stopped", "train.steps=5000", "stopped/metrics.jsonl", "HUP"),
            code(ExitCode::kStoppedSaved));
  EXPECT_TRUE(fs::exists(folder_ / "stopped/checkpoints/latest"));
}

TEST_F(TrainCommand, ShowsEachEvaluation) {
  const ProgramResult result = train("run", "train.eval_every=8");
  EXPECT_EQ(result.exit_code, 0);
  for (const char* line : {"evaluation after step 8: loss ", "evaluation after step 16: loss ",
                           "evaluation after step 20: loss "}) {
    EXPECT_NE(result.output.find(line), std::string::npos) << line << result.output;
  }
}

TEST_F(TrainCommand, SaysThatMemoryIsNotEnough) {
  const ProgramResult model = run_program_with(
      "ulimit -v 20000000;", command("run", "model.hidden_size=524288 moe.ffn_hidden_size=524288"));
  EXPECT_EQ(model.exit_code, code(ExitCode::kOutOfMemory)) << model.output;
  EXPECT_TRUE(
      model.output.starts_with("error: out of memory for the weights and the optimizer's "
                               "moments ("))
      << model.output;
  EXPECT_NE(model.output.find(" GB at once); make the model smaller, or divide it over ranks"),
            std::string::npos)
      << model.output;
  EXPECT_EQ(std::count(model.output.begin(), model.output.end(), '\n'), 1) << model.output;
}

TEST_F(TrainCommand, EvaluatesWithSequencesLongerThanTheData) {
  ASSERT_EQ(train("run").exit_code, 0);
  const auto evaluate = [&](const std::string& words) {
    const ProgramResult result =
        run_program_with("ulimit -v 20000000;",
                         fmt::format("eval {} --data {} {}", path("run"), path("set"), words));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return result.output.substr(0, result.output.find("in sequences"));
  };
  EXPECT_EQ(evaluate("--sequence-length 2000000000 --precision fp64"),
            evaluate("--sequence-length 20000 --precision fp64 --batch-size 1000000"));
}

TEST_F(TrainCommand, RefusesADirectoryInUse) {
  const std::string both = fmt::format(
      "{0} >/dev/null 2>&1 & pid=$!; n=0; while [ ! -e {1} ] && [ $n -lt 3000 ]; do sleep 0.01; "
      "n=$((n+1)); done; {2} {0}; echo code $?; kill -KILL $pid",
      command("run", "train.steps=100000"), path("run/metrics.jsonl"), program_path());
  const std::string output = run_program(both).output;
  EXPECT_NE(output.find("in use"), std::string::npos) << output;
  EXPECT_NE(output.find("code 3"), std::string::npos) << output;
}

TEST_F(TrainCommand, NamesWhatIsWrongWithTheData) {
  write(folder_ / "tiny.txt", "too short");
  ASSERT_EQ(
      run_program(fmt::format("tokenize {0}/tiny.txt --out {0}/tiny", folder_.string())).exit_code,
      0);
  const ProgramResult tiny = train("run", "data.train=[" + path("tiny") + "]");
  EXPECT_EQ(tiny.exit_code, code(ExitCode::kBadFile));
  EXPECT_NE(tiny.output.find(path("tiny")), std::string::npos) << tiny.output;
  const ProgramResult missing = train("run", "data.train=[" + path("nothing") + "]");
  EXPECT_EQ(missing.exit_code, code(ExitCode::kBadFile));
  EXPECT_NE(missing.output.find(path("nothing")), std::string::npos) << missing.output;
  EXPECT_FALSE(fs::exists(folder_ / "run")) << "nothing may be written for a refused run";
}

TEST_F(TrainCommand, NamesEveryWrongSettingAndWritesNothing) {
  const ProgramResult refused = train("run", "moe.top_k=5 model.hiden_size=4 train.steps=many");
  EXPECT_EQ(refused.exit_code, code(ExitCode::kRefusedConfig));
  EXPECT_NE(refused.output.find("model.hidden_size"), std::string::npos) << refused.output;
  EXPECT_NE(refused.output.find("train.steps"), std::string::npos) << refused.output;
  const ProgramResult rule = train("run", "moe.top_k=5");
  EXPECT_NE(rule.output.find("moe.top_k (5) must not exceed moe.num_experts (4)"),
            std::string::npos)
      << rule.output;
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(TrainCommand, RefusesALayoutThatCannotBeWithItsArithmetic) {
  const ProgramResult refused = train("run", "parallel.tensor_size=2");
  EXPECT_EQ(refused.exit_code, code(ExitCode::kRefusedConfig));
  EXPECT_NE(refused.output.find("parallel.tensor_size"), std::string::npos) << refused.output;
  EXPECT_NE(refused.output.find("1"), std::string::npos) << refused.output;
}

TEST_F(TrainCommand, SaysThatItCannotWriteWhereTheRunShallLie) {
  const ProgramResult refused =
      run_program(fmt::format("train {} run.dir=/proc/nowhere", path("run.yaml")));
  EXPECT_EQ(refused.exit_code, code(ExitCode::kBadFile));
  EXPECT_NE(refused.output.find("/proc/nowhere"), std::string::npos) << refused.output;
}

// Weights that decay by a hundred times themselves overflow within a few steps.
TEST_F(TrainCommand, SkipsStepsThatAreNotFiniteAndStopsAfterSomeInARow) {
  const std::string settings =
      "optimizer.lr=100 optimizer.weight_decay=100 optimizer.warmup_steps=0 data.eval=[] "
      "optimizer.schedule=constant train.steps=400 train.max_skipped_steps=3 checkpoint.every=1";
  const ProgramResult diverged = train("run", settings);
  EXPECT_EQ(diverged.exit_code, code(ExitCode::kDiverged)) << diverged.output;
  EXPECT_NE(diverged.output.find("the run has diverged: 3 steps in a row were skipped "
                                 "(train.max_skipped_steps). Step "),
            std::string::npos)
      << diverged.output;
  EXPECT_NE(diverged.output.find("gradients are not finite, nearest to the output that of layers."),
            std::string::npos)
      << diverged.output;
  std::ifstream metrics(folder_ / "run/metrics.jsonl");
  int64_t num_made = 0;
  int64_t num_skipped = 0;
  for (std::string line; std::getline(metrics, line);) {
    const bool is_skipped = line.find("\"skipped\":true") != std::string::npos;
    num_made += is_skipped ? 0 : 1;
    num_skipped += is_skipped ? 1 : 0;
    EXPECT_NE(line.find(fmt::format("\"skipped_steps\":{},", num_skipped)), std::string::npos);
  }
  EXPECT_EQ(num_skipped, 3);
  EXPECT_GT(num_made, 3);
  // The checkpoint of the last step that was made is there, whole and the newest.
  const std::string kept = fmt::format("run/checkpoints/step_{}", num_made);
  EXPECT_TRUE(fs::exists(folder_ / kept)) << kept;
  EXPECT_FALSE(fs::exists(folder_ / fmt::format("run/checkpoints/step_{}", num_made + 1)));
  EXPECT_NE(diverged.output.find(fmt::format("The newest checkpoint is of step {};", num_made)),
            std::string::npos)
      << diverged.output;
  // The schedule, the data and the optimizer's count go on from it to the same end.
  const ProgramResult again = train("run", settings);
  EXPECT_EQ(again.exit_code, code(ExitCode::kDiverged)) << again.output;
}

TEST_F(TrainCommand, RunsOverSeveralRanksToTheSameLosses) {
  ASSERT_EQ(train("one", "train.precision=fp64").exit_code, 0);
  const std::string output = train_on_two_ranks(
      "two", "train.precision=fp64 parallel.tensor_size=2 parallel.expert_size=2");
  EXPECT_NE(output.find("codes 0 0"), std::string::npos) << output;
  expect_same_losses("one", "two", 20);
  // What two ranks saved is evaluated, and goes on, on one.
  const ProgramResult evaluated =
      run_program(fmt::format("eval {} --data {}", path("two"), path("set")));
  EXPECT_EQ(evaluated.exit_code, 0) << evaluated.output;
}

TEST_F(TrainCommand, RunsThroughAPipelineAndGoesOnWithout) {
  const std::string same =
      "train.precision=fp64 model.num_layers=3 model.tie_embeddings=true "
      "train.eval_every=5 train.micro_batch_size=1 ";
  ASSERT_EQ(train("one", same).exit_code, 0);
  const std::string output =
      train_on_two_ranks("two", same +
                                    "parallel.pipeline_size=2 parallel.virtual_pipeline_size=2 "
                                    "parallel.pipeline_layout='E|t|tt|L'");
  EXPECT_NE(output.find("codes 0 0"), std::string::npos) << output;
  expect_same_losses("one", "two", 20);
  for (const char* run : {"one", "two"}) {
    const ProgramResult more = train(run, same + "train.steps=25");
    EXPECT_EQ(more.exit_code, 0) << more.output;
  }
  expect_same_losses("one", "two", 25);
  const ProgramResult generated =
      run_program(fmt::format("generate {} --prompt \"line\" --max-tokens 4", path("two")));
  EXPECT_EQ(generated.exit_code, 0) << generated.output;
}

TEST_F(TrainCommand, EvaluatesAndGeneratesFromTheRun) {
  ASSERT_EQ(train("run", "train.eval_batches=0").exit_code, 0);
  const ProgramResult evaluated =
      run_program(fmt::format("eval {} --data {} --batch-size 3", path("run"), path("set")));
  EXPECT_EQ(evaluated.exit_code, 0) << evaluated.output;
  EXPECT_NE(evaluated.output.find("nats per token"), std::string::npos);
  const std::string words = fmt::format(
      "generate {} --prompt \"line 7\" --max-tokens 40 --temperature 0.8 --seed 5", path("run"));
  const ProgramResult first = run_program(words);
  EXPECT_EQ(first.exit_code, 0) << first.output;
  EXPECT_EQ(first.output.substr(0, 6), "line 7");
  EXPECT_GT(first.output.size(), 20U);
  EXPECT_EQ(run_program(words).output, first.output);
  const ProgramResult nothing = run_program(fmt::format("generate {} --prompt \"\"", path("run")));
  EXPECT_EQ(nothing.exit_code, code(ExitCode::kRefusedConfig));
  EXPECT_EQ(nothing.output, "error: the prompt is empty: give at least one character\n");
  const ProgramResult no_model = run_program("generate /nowhere --prompt x");
  EXPECT_EQ(no_model.exit_code, code(ExitCode::kBadFile)) << no_model.output;
}

}  // namespace
}  // namespace switchyard

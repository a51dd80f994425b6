#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/exit_code.h"
#include "checkpoint/checkpoint_saver.h"
#include "checkpoint/run_lock.h"
#include "config/load.h"
#include "data/evaluation_data.h"
#include "data/training_data.h"
#include "train/metrics.h"
#include "train/progress.h"
#include "train/run_identity.h"
#include "train/step_budget.h"
#include "train/stop_signal.h"
#include "train/tensorboard.h"
#include "train/train_step.h"
#include "train/trainable_model.h"

namespace switchyard {

struct TrainOptions {
  // Resume even though settings changed that make it another run.
  bool accept_changes = false;
};

// A training run in its directory: opens or resumes it, trains, evaluates, saves. Resumes by itself
// when run.dir holds a checkpoint. Every rank makes one; rank 0 writes and speaks.
class TrainingRun {
 public:
  // Throws ConfigError, before anything is written, for settings that cannot be and for a run
  // directory that holds another run; FileError for data, checkpoints and directories. Collective
  // over the world.
  TrainingRun(const LoadedConfig& loaded, const TrainOptions& options, const Groups& groups);

  // Trains to the end: kFinished; or until SIGTERM, SIGINT or SIGHUP, after the step and a
  // checkpoint: kStoppedSaved. Throws DivergedError after train.max_skipped_steps in a row, without
  // saving: the newest checkpoint is the last one of a step that was made. Collective over the
  // world.
  ExitCode run();

 private:
  void open_run_directory();
  bool resume(const TrainOptions& options);  // whether there was something to resume from
  void check_is_same_run(const CheckpointRecord& saved, const TrainOptions& options) const;
  void restore_assets(const CheckpointRecord& saved);
  void begin();  // a run that has nothing to resume from
  void write_settings() const;
  void train_one_step();
  void count_skipped(const StepOutcome& outcome);
  void stop_if_diverged(const StepOutcome& outcome) const;
  std::string last_checkpoint() const;
  bool is_checkpoint_due() const;
  void fix_total_steps(double step_s);
  void report(const StepOutcome& outcome, double learning_rate, double step_s,
              const std::optional<EvalOutcome>& evaluation);
  MicroBatches next_batches();
  std::optional<EvalOutcome> evaluate_when_due();
  double peak_tflops();  // of this rank; measured when it is first asked for
  void save();
  // Lets a save in the background come to its end, if it can without waiting or `to_the_end`.
  void continue_saving(bool to_the_end);
  bool should_stop();
  bool is_first_rank() const { return groups_.rank() == 0; }
  bool is_finished() const { return total_steps_ > 0 && step_ >= total_steps_; }
  CheckpointRecord record() const;

  Config config_;
  Origins origins_;
  const Groups& groups_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<TrainingData> data_;
  RunContents contents_;
  std::unique_ptr<EvaluationData> eval_data_;  // null without data.eval
  std::unique_ptr<RunLock> lock_;              // rank 0
  std::unique_ptr<TrainableModel> trained_;
  std::unique_ptr<MetricsFile> metrics_;            // rank 0
  std::unique_ptr<TensorBoardWriter> tensorboard_;  // rank 0, when asked for
  std::unique_ptr<ProgressLine> progress_;          // rank 0
  std::unique_ptr<StepBudget> budget_;              // until total_steps_ is fixed
  StopSignal stop_signal_;
  std::unique_ptr<CheckpointSaver> saver_;

  int64_t step_ = 0;         // optimizer steps done
  int64_t total_steps_ = 0;  // 0: not fixed yet
  int64_t samples_consumed_ = 0;
  int64_t tokens_seen_ = 0;
  int64_t saved_step_ = -1;    // of the newest checkpoint
  int64_t begun_step_ = -1;    // of the newest save, which may still be under way
  int64_t skipped_steps_ = 0;  // of step_: those that changed nothing
  int64_t skipped_in_a_row_ = 0;
  double seconds_trained_ = 0;
  double peak_tflops_ = 0;      // 0: not measured yet
  ExpertWork expert_work_;      // of the last step
  double attended_length_ = 0;  // of the sequences of the last step, as their tokens see it
  nlohmann::json origin_ = nlohmann::json::object();  // see CheckpointRecord
  std::optional<EvalOutcome> last_evaluation_;
  int64_t last_evaluation_step_ = -1;
};

}  // namespace switchyard

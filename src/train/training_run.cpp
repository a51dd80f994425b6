#include "train/training_run.h"

#include <cmath>
#include <fstream>

#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/error.h"
#include "base/log.h"
#include "base/out_of_memory.h"
#include "checkpoint/agree.h"
#include "checkpoint/assets.h"
#include "config/manual.h"
#include "model/flops.h"
#include "ops/peak_speed.h"
#include "optim/schedule.h"
#include "train/evaluate.h"
#include "train/model_assets.h"
#include "train/model_source.h"
#include "train/non_finite.h"
#include "train/run_settings.h"
#include "train/step_metrics.h"

namespace switchyard {
namespace {

constexpr Site kStopFlag{"train.stop_flag", Purpose::kControl};
constexpr Site kTotalSteps{"train.total_steps", Purpose::kControl};
constexpr Site kNumParameters{"train.num_parameters", Purpose::kControl};

using Clock = std::chrono::steady_clock;

double seconds_of(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

double now_s() {
  return seconds_of(Clock::now().time_since_epoch());
}

double wall_time_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Of the whole model, each logical parameter once. Collective over the pipeline.
int64_t count_parameters(const Parameters& parameters) {
  const at::Tensor count = at::full({1}, parameters.logical_numel(), at::kLong);
  parameters.groups()[GroupName::kPipeline].all_reduce(count, kNumParameters);
  return count.item<int64_t>();
}

// Nothing for a model that comes without one, or with one that this program cannot read.
std::optional<uint64_t> fingerprint_of(const std::string& tokenizer) {
  try {
    return tokenizer.empty() ? std::nullopt
                             : std::optional(make_tokenizer(tokenizer)->fingerprint());
  } catch (const Error&) {
    return std::nullopt;
  }
}

// A model that is trained with another tokenizer ends its texts with that one's id.
void replace_special_ids(nlohmann::json& origin, const Tokenizer& tokenizer) {
  if (origin.contains("config")) {
    origin["config"]["bos_token_id"] = nullptr;
    origin["config"]["eos_token_id"] = tokenizer.end_of_document();
    origin["config"]["pad_token_id"] = nullptr;
  }
}

// The length that attention sees: each token's mean number of keys is half of it.
double attended_length(const MicroBatches& batches) {
  double sum = 0;
  double squares = 0;
  for (int64_t index = 0; index < batches.size(); ++index) {
    const TokenBatch& batch = batches[index];
    for (int64_t i = 0; i < batch.table.num_sequences(); ++i) {
      const auto length = static_cast<double>(batch.table.length(i));
      sum += length;
      squares += length * length;
    }
  }
  return sum > 0 ? squares / sum : 0;
}

}  // namespace

TrainingRun::TrainingRun(const LoadedConfig& loaded, const TrainOptions& options,
                         const Groups& groups)
    : origins_(loaded.origins), groups_(groups) {
  tokenizer_ = open_tokenizer(loaded.config);
  config_ = resolve(loaded.config, *tokenizer_, groups.mesh().world_size());
  if (is_first_rank()) {
    for (const std::string& warning : loaded.warnings) {
      log_warning(warning);
    }
  }
  saver_ = std::make_unique<CheckpointSaver>(std::filesystem::path(config_.run.dir) / "checkpoints",
                                             groups[GroupName::kWorld], config_.checkpoint.keep,
                                             config_.checkpoint.asynchronous);
  if (config_.train.threads > 0) {
    at::set_num_threads(static_cast<int>(config_.train.threads));
  }
  const DatasetOptions data_options{.documents = document_options(config_.data),
                                    .vocab_size = config_.model.vocab_size,
                                    .is_tokenizer_stated = origins_.is_set("data.tokenizer") ||
                                                           origins_.is_set("model.vocab_size")};
  data_ =
      std::make_unique<TrainingData>(config_.data.train, *tokenizer_, config_.data.sequence_length,
                                     static_cast<uint64_t>(config_.run.seed), data_options);
  contents_ = RunContents::of(config_, *tokenizer_, *data_, groups[GroupName::kData].size());
  if (!config_.data.eval.empty()) {
    eval_data_ = std::make_unique<EvaluationData>("data.eval", config_.data.eval, *tokenizer_,
                                                  config_.data.sequence_length, data_options);
  }
  const bool starts_from_model = !config_.model.from.empty();
  trained_ = with_memory_for("the weights and the optimizer's moments",
                             "make the model smaller, or divide it over ranks (parallel.*)", [&] {
                               return std::make_unique<TrainableModel>(
                                   config_, groups,
                                   starts_from_model ? FirstValues::kUnset : FirstValues::kInitial);
                             });
  total_steps_ = config_.train.steps;
  open_run_directory();
  if (!resume(options)) {
    begin();
  }
  if (total_steps_ == 0) {
    budget_ = std::make_unique<StepBudget>(config_.train.minutes);
  }
}

void TrainingRun::open_run_directory() {
  run_on_first_rank(groups_[GroupName::kWorld],
                    [&] { lock_ = std::make_unique<RunLock>(config_.run.dir); });
}

void TrainingRun::begin() {
  std::vector<std::filesystem::path> model_assets;
  std::optional<uint64_t> model_tokenizer;
  std::string started_from;
  if (!config_.model.from.empty()) {
    ModelSource source = open_model_source(config_.model.from);
    started_from = load_weights(source, trained_->parameters, groups_).string();
    model_assets = source.record.assets;
    model_tokenizer = fingerprint_of(source.tokenizer);
    origin_ = source.record.origin;
    if (model_tokenizer != tokenizer_->fingerprint()) {
      replace_special_ids(origin_, *tokenizer_);
    }
  }
  run_on_first_rank(groups_[GroupName::kWorld], [&] {
    write_assets(config_.run.dir, *tokenizer_, model_assets, model_tokenizer);
    if (!started_from.empty()) {
      log_info("starting from {}", started_from);
    }
  });
}

void TrainingRun::check_is_same_run(const CheckpointRecord& saved,
                                    const TrainOptions& options) const {
  const std::vector<std::string> changes =
      changes_since(saved, config_.run.dir, config_, contents_);
  check<ConfigError>(changes.empty() || options.accept_changes,
                     "run.dir {} holds another run: {}. Choose another run.dir, or say "
                     "--accept-changes to go on with what is given now",
                     config_.run.dir, fmt::join(changes, "; "));
  for (const std::string& change : changes) {
    if (is_first_rank()) {
      log_warn("accepted: {}", change);
    }
  }
}

bool TrainingRun::resume(const TrainOptions& options) {
  const auto parts = trained_->parts();
  const std::filesystem::path folder = std::filesystem::path(config_.run.dir) / "checkpoints";
  const LoadOptions load_options{
      .ignored_prefixes = {},
      .check_record = [&](const CheckpointRecord& saved) { check_is_same_run(saved, options); }};
  const auto loaded =
      load_latest_checkpoint(folder, parts, groups_[GroupName::kWorld], load_options);
  if (!loaded) {
    return false;
  }
  const CheckpointRecord& saved = loaded->record;
  skipped_steps_ = saved.extra.value("skipped_steps", int64_t{0});
  trained_->after_load(saved.step - skipped_steps_);
  step_ = saved.step;
  saved_step_ = saved.step;
  begun_step_ = saved.step;
  samples_consumed_ = saved.samples_consumed;
  tokens_seen_ = saved.tokens_seen;
  seconds_trained_ = saved.extra.value("seconds_trained", 0.0);
  origin_ = saved.origin;
  restore_assets(saved);
  if (config_.train.steps == 0) {
    total_steps_ = saved.total_steps;
  } else if (saved.total_steps != config_.train.steps && is_first_rank()) {
    log_warn("the run had {} steps and now has {}: its learning rates differ from here on",
             saved.total_steps, config_.train.steps);
  }
  if (is_first_rank()) {
    log_info("resuming {} at step {}", config_.run.dir, step_);
    const std::string reason = why_not_bit_identical(saved, record());
    if (!reason.empty()) {
      log_warn("{}", reason);
    }
  }
  return true;
}

// The folder may have been left behind, and the tokenizer may be another one that was accepted.
void TrainingRun::restore_assets(const CheckpointRecord& saved) {
  const auto before = tokenizer_hash_of(saved, config_.run.dir);
  const bool is_another = before && before != contents_.tokenizer_hash;
  if (is_another) {
    replace_special_ids(origin_, *tokenizer_);
  }
  run_on_first_rank(groups_[GroupName::kWorld], [&] {
    if (is_another || saved.assets.empty()) {
      write_assets(config_.run.dir, *tokenizer_, saved.assets, std::nullopt);
    } else if (assets_of(config_.run.dir).empty()) {
      copy_assets(saved.assets, config_.run.dir);
    }
  });
}

CheckpointRecord TrainingRun::record() const {
  CheckpointRecord record;
  record.step = step_;
  record.samples_consumed = samples_consumed_;
  record.tokens_seen = tokens_seen_;
  record.total_steps = total_steps_;
  record.configuration = resolved_yaml(config_, origins_);
  record.fingerprint = run_fingerprint(config_);
  record.seed = static_cast<uint64_t>(config_.run.seed);
  record.layout = describe_layout(config_, groups_);
  record.extra["seconds_trained"] = seconds_trained_;
  record.extra["skipped_steps"] = skipped_steps_;
  record.extra[kRunContents] = to_json(contents_);
  record.describe_machine();
  record.origin = origin_;
  record.assets = assets_of(config_.run.dir);
  return record;
}

void TrainingRun::write_settings() const {
  const std::string path = config_.run.dir + "/config.yaml";
  std::ofstream file(path + ".partial");
  file << resolved_yaml(config_, origins_);
  file.close();
  check<FileError>(file.good(), "cannot write {}: is the disk full or read-only?", path);
  std::filesystem::rename(path + ".partial", path);
}

ExitCode TrainingRun::run() {
  const int64_t num_parameters = count_parameters(trained_->parameters);
  run_on_first_rank(groups_[GroupName::kWorld], [&] {
    write_settings();
    metrics_ = std::make_unique<MetricsFile>(config_.run.dir + "/metrics.jsonl", step_);
    if (config_.metrics.tensorboard) {
      tensorboard_ = std::make_unique<TensorBoardWriter>(config_.run.dir + "/tensorboard",
                                                         wall_time_s(), host_name(), step_);
    }
    log_info("training {:.2f} M parameters on {} samples of {} tokens in {}",
             static_cast<double>(num_parameters) / 1e6, data_->num_samples(),
             data_->sequence_length(), config_.run.dir);
    progress_ = std::make_unique<ProgressLine>(
        ProgressScreen::standard_error(),
        ProgressLine::Limits{
            .total_steps = total_steps_,
            .time_limit_s = config_.train.steps > 0 ? 0 : config_.train.minutes * 60,
            .time_spent_s = seconds_trained_,
            .log_every = config_.train.log_every},
        now_s());
  });
  if (is_finished() && is_first_rank()) {
    log_info("nothing to do: all {} steps of {} are done; raise train.steps to go on", total_steps_,
             config_.run.dir);
  }
  bool is_stopped = false;
  while (!is_finished() && !is_stopped) {
    with_memory_for(fmt::format("step {}", step_ + 1),
                    "lower train.micro_batch_size or data.sequence_length, recompute more "
                    "(train.recompute), or divide the model over ranks (docs/memory.md)",
                    [&] { train_one_step(); });
    continue_saving(/*to_the_end=*/false);
    is_stopped = should_stop() && !is_finished();
    if (is_stopped || is_finished() || is_checkpoint_due()) {
      save();
    }
  }
  if (begun_step_ != step_) {
    save();
  }
  continue_saving(/*to_the_end=*/true);
  if (progress_ != nullptr) {
    progress_->finish();
  }
  if (is_stopped) {
    if (is_first_rank()) {
      log_info("stopped by a signal after step {}, saved in {}/checkpoints", step_,
               config_.run.dir);
    }
    return ExitCode::kStoppedSaved;
  }
  if (is_first_rank() && last_evaluation_) {
    fmt::print("evaluation after step {}: loss {:.4f} nats per token over {:.0f} tokens\n",
               last_evaluation_step_, last_evaluation_->loss_sum / last_evaluation_->loss_weight,
               last_evaluation_->loss_weight);
  }
  return ExitCode::kFinished;
}

// While steps are skipped there is nothing new to save, and older checkpoints, which may be needed,
// would be deleted for it.
bool TrainingRun::is_checkpoint_due() const {
  const int64_t every = config_.checkpoint.every;
  return every > 0 && step_ / every > std::max<int64_t>(begun_step_, 0) / every &&
         skipped_in_a_row_ == 0;
}

void TrainingRun::train_one_step() {
  const auto start = Clock::now();
  const int64_t total = total_steps_ > 0 ? total_steps_ : kNoLimit;
  const StepRates rates{.learning_rate = learning_rate(config_.optimizer, step_, total),
                        .clip_grad_norm = config_.optimizer.clip_grad_norm,
                        .weight_decay = weight_decay(config_.optimizer, step_, total)};
  groups_.ledger().clear();
  groups_.ledger().position().step = step_ + 1;
  const MicroBatches batches = next_batches();
  attended_length_ = attended_length(batches);
  trained_->model.take_expert_work();  // of an evaluation
  const StepOutcome outcome = train_step(trained_->model, trained_->parameters, trained_->optimizer,
                                         batches, rates, training_schedule(config_.parallel));
  expert_work_ = trained_->model.take_expert_work();
  ++step_;
  count_skipped(outcome);
  samples_consumed_ += config_.train.global_batch_size;
  tokens_seen_ += outcome.num_tokens;
  const double step_s = seconds_of(Clock::now() - start);
  seconds_trained_ += step_s;
  if (total_steps_ == 0) {
    fix_total_steps(step_s);
  }
  report(outcome, rates.learning_rate, step_s, evaluate_when_due());
  stop_if_diverged(outcome);
}

void TrainingRun::count_skipped(const StepOutcome& outcome) {
  if (outcome.skipped.empty()) {
    skipped_in_a_row_ = 0;
    return;
  }
  ++skipped_steps_;
  ++skipped_in_a_row_;
  if (is_first_rank()) {
    log_warn("step {} (samples {} to {}) is skipped: {}", step_, samples_consumed_,
             samples_consumed_ + config_.train.global_batch_size - 1, outcome.skipped);
  }
}

void TrainingRun::stop_if_diverged(const StepOutcome& outcome) const {
  if (skipped_in_a_row_ < config_.train.max_skipped_steps) {
    return;
  }
  if (metrics_ != nullptr) {
    metrics_->sync();
  }
  throw DivergedError(fmt::format(
      "the run has diverged: {} steps in a row were skipped (train.max_skipped_steps). Step {}, "
      "samples {} to {} of the training order: {}. {}; lower optimizer.lr, lengthen "
      "optimizer.warmup_steps or look at these samples",
      skipped_in_a_row_, step_, samples_consumed_ - config_.train.global_batch_size,
      samples_consumed_ - 1, outcome.skipped, last_checkpoint()));
}

std::string TrainingRun::last_checkpoint() const {
  return saved_step_ < 0 ? "There is no checkpoint of this run yet"
                         : fmt::format("The newest checkpoint is of step {}", saved_step_);
}

void TrainingRun::fix_total_steps(double step_s) {
  const auto decided = budget_->add_step(step_s);
  const at::Tensor total = at::full({1}, decided.value_or(0), at::kLong);
  groups_[GroupName::kWorld].broadcast(total, 0, kTotalSteps);
  total_steps_ = total.item<int64_t>();
  if (progress_ != nullptr) {
    progress_->set_total_steps(total_steps_);
  }
}

MicroBatches TrainingRun::next_batches() {
  // The global batch is cut first into accumulation steps, then over dp, then each row over cp.
  const Group& data_group = groups_[GroupName::kData];
  const Group& context_group = groups_[GroupName::kContext];
  const int64_t micro = config_.train.micro_batch_size;
  const int64_t per_step = micro * data_group.size();
  const int64_t first = samples_consumed_ + micro * data_group.rank();
  return {config_.train.global_batch_size / per_step,
          [this, &context_group, micro, per_step, first](int64_t index) {
            TokenBatch batch = data_->batch(first + index * per_step, micro);
            batch.look_further(trained_->model.num_predictions());
            return batch.share(context_group.size(), context_group.rank());
          }};
}

std::optional<EvalOutcome> TrainingRun::evaluate_when_due() {
  const int64_t every = config_.train.eval_every;
  const bool is_due = is_finished() || (every > 0 && step_ % every == 0);
  if (eval_data_ == nullptr || !is_due) {
    return std::nullopt;
  }
  last_evaluation_ =
      evaluate(trained_->model, *eval_data_, config_.train.micro_batch_size,
               config_.train.eval_batches * config_.train.global_batch_size, groups_);
  last_evaluation_step_ = step_;
  return last_evaluation_;
}

double TrainingRun::peak_tflops() {
  if (peak_tflops_ == 0) {
    peak_tflops_ = config_.metrics.peak_tflops > 0
                       ? config_.metrics.peak_tflops
                       : measure_peak_tflops(Dtypes::of(config_.train.precision).compute);
  }
  return peak_tflops_;
}

void TrainingRun::report(const StepOutcome& outcome, double learning_rate, double step_s,
                         const std::optional<EvalOutcome>& evaluation) {
  StepMetrics metrics = measured_by(outcome, config_);
  metrics.step = step_;
  metrics.skipped_steps = skipped_steps_;
  metrics.lr = learning_rate;
  if (evaluation) {
    metrics.eval_loss = Ratio{evaluation->loss_sum, evaluation->loss_weight};
  }
  metrics.step_time_s = step_s;
  metrics.flops_per_rank =
      training_flops(config_, static_cast<double>(outcome.num_tokens), attended_length_) /
      static_cast<double>(groups_.mesh().world_size());
  if (!metrics.expert_load.empty()) {
    const auto time_of = [&ledger = groups_.ledger()](Purpose purpose) {
      return TransferTime{ledger.seconds(purpose), ledger.hidden_seconds(purpose)};
    };
    metrics.dispatch = time_of(Purpose::kDispatch);
    metrics.combine = time_of(Purpose::kCombine);
    metrics.expert_matmul = {expert_work_.seconds, expert_work_.flops, peak_tflops()};
  }
  // All ranks hear of a full disk, rather than wait for the one that met it.
  run_on_first_rank(groups_[GroupName::kWorld], [&] {
    metrics_->write(metrics);
    if (tensorboard_ != nullptr) {
      tensorboard_->write(step_, wall_time_s(), to_scalars(metrics));
    }
    progress_->update(metrics, now_s());
  });
}

void TrainingRun::save() {
  // An update by finite gradients can overflow. A checkpoint of that would take the place of a good
  // one.
  if (const auto broken = first_non_finite_weight(trained_->parameters)) {
    throw DivergedError(
        fmt::format("the run has diverged: the weights {} are not finite after step {}, which is "
                    "not saved; {}; "
                    "lower optimizer.lr or optimizer.weight_decay",
                    *broken, step_, last_checkpoint()));
  }
  if (metrics_ != nullptr) {
    metrics_->sync();
  }
  saver_->save(record(), trained_->parts());
  begun_step_ = step_;
  saved_step_ = saver_->saved_step().value_or(saved_step_);
}

void TrainingRun::continue_saving(bool to_the_end) {
  to_the_end ? saver_->finish() : saver_->poll();
  saved_step_ = saver_->saved_step().value_or(saved_step_);
}

bool TrainingRun::should_stop() {
  const at::Tensor flag = at::full({1}, stop_signal_.is_set() ? 1 : 0, at::kLong);
  groups_[GroupName::kWorld].all_reduce(flag, kStopFlag, ReduceOp::kMax);
  return flag.item<int64_t>() != 0;
}

}  // namespace switchyard

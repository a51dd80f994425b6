#include "train/training_run.h"

#include <cmath>
#include <fstream>

#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/agree.h"
#include "checkpoint/assets.h"
#include "config/manual.h"
#include "config/moe_layers.h"
#include "model/flops.h"
#include "optim/schedule.h"
#include "train/evaluate.h"
#include "train/model_source.h"
#include "train/non_finite.h"
#include "train/run_identity.h"

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

// "4 4": how many ranks in a row are on one machine, then on the next.
std::string describe_nodes(const std::vector<int64_t>& nodes) {
  std::vector<int64_t> runs;
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    if (rank == 0 || nodes[rank] != nodes[rank - 1]) {
      runs.push_back(0);
    }
    ++runs.back();
  }
  return fmt::format("{}", fmt::join(runs, " "));
}

// What the order of sums depends on.
std::string describe_layout(const Config& config, const Groups& groups) {
  const ParallelConfig& parallel = config.parallel;
  const std::string context =
      parallel.context_size > 1
          ? fmt::format(" cp {} {}", parallel.context_size,
                        word_of(kContextExchangeWords, parallel.context_exchange))
          : "";
  const bool has_nodes =
      config.moe.num_experts > 0 && config.moe.dispatcher == DispatcherKind::kFlex;
  const std::string nodes =
      has_nodes ? fmt::format(" nodes of {}", describe_nodes(groups.nodes())) : "";
  const bool sums_over_ranks_first = parallel.data_sharding >= DataSharding::kGradients;
  return fmt::format("world {}: tp {}{} pp {} ep {} etp {}{}{}{}", groups.mesh().world_size(),
                     parallel.tensor_size, context, parallel.pipeline_size, parallel.expert_size,
                     parallel.expert_tensor_size, nodes,
                     parallel.sequence_parallel ? " sequence parallel" : "",
                     sums_over_ranks_first ? " gradients sharded" : "");
}

// Of the whole model, each logical parameter once. Collective over the pipeline.
int64_t count_parameters(const Parameters& parameters) {
  const at::Tensor count = at::full({1}, parameters.logical_numel(), at::kLong);
  parameters.groups()[GroupName::kPipeline].all_reduce(count, kNumParameters);
  return count.item<int64_t>();
}

std::vector<int64_t> numbers_of_moe_layers(const Config& config) {
  std::vector<int64_t> numbers;
  const std::vector<bool> layers = moe_layers(config);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i]) {
      numbers.push_back(static_cast<int64_t>(i));
    }
  }
  return numbers;
}

// The settings with what the tokenizer decides filled in, and checked again.
Config resolve(Config config, const Tokenizer& tokenizer, int64_t world_size) {
  if (config.model.vocab_size == 0) {
    // Rounded up so that any usual tensor size divides it; the extra tokens never occur.
    constexpr int64_t kVocabularyMultiple = 64;
    config.model.vocab_size = (tokenizer.vocab_size() + kVocabularyMultiple - 1) /
                              kVocabularyMultiple * kVocabularyMultiple;
  }
  check<ConfigError>(
      config.model.vocab_size >= tokenizer.vocab_size(),
      "model.vocab_size ({}) is smaller than the {} tokens of data.tokenizer {}: raise "
      "it, or set 0 to take the tokenizer's",
      config.model.vocab_size, tokenizer.vocab_size(), config.data.tokenizer);
  check_rules(config, ConfigUse::kTrain);
  check_rules_of_world(config, world_size);
  return config;
}

// The length that attention sees: each token's mean number of keys is half of it.
double attended_length(const std::vector<TokenBatch>& batches) {
  double sum = 0;
  double squares = 0;
  for (const TokenBatch& batch : batches) {
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
  tokenizer_ = make_tokenizer(loaded.config.data.tokenizer);
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
  if (!config_.data.eval.empty()) {
    eval_data_ = std::make_unique<EvaluationData>("data.eval", config_.data.eval, *tokenizer_,
                                                  config_.data.sequence_length, data_options);
  }
  const bool starts_from_model = !config_.model.from.empty();
  trained_ = std::make_unique<TrainableModel>(
      config_, groups, starts_from_model ? FirstValues::kUnset : FirstValues::kInitial);
  total_steps_ = config_.train.steps;
  open_run_directory();
  if (!resume(options) && starts_from_model) {
    start_from_model();
  }
  if (total_steps_ == 0) {
    budget_ = std::make_unique<StepBudget>(config_.train.minutes);
  }
}

void TrainingRun::open_run_directory() {
  run_on_first_rank(groups_[GroupName::kWorld],
                    [&] { lock_ = std::make_unique<RunLock>(config_.run.dir); });
}

void TrainingRun::start_from_model() {
  ModelSource source = open_model_source(config_.model.from);
  const std::filesystem::path path = load_weights(source, trained_->parameters, groups_);
  origin_ = source.record.origin;
  run_on_first_rank(groups_[GroupName::kWorld], [&] {
    copy_assets(source.record.assets, config_.run.dir);
    log_info("starting from {}", path.string());
  });
}

bool TrainingRun::resume(const TrainOptions& options) {
  const auto parts = trained_->parts();
  const std::filesystem::path folder = std::filesystem::path(config_.run.dir) / "checkpoints";
  const LoadOptions load_options{
      .ignored_prefixes = {}, .check_record = [&](const CheckpointRecord& saved) {
        if (saved.fingerprint == run_fingerprint(config_) || options.accept_changes) {
          return;
        }
        const Config before =
            load_config_text(saved.configuration, folder.string(), ConfigUse::kDescribe).config;
        throw ConfigError(fmt::format(
            "run.dir {} holds another run: {}. Choose another run.dir, or say --accept-changes to "
            "go on with the new settings",
            config_.run.dir, fmt::join(identity_changes(before, config_), "; ")));
      }};
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
  bool is_stopped = false;
  while (!is_finished() && !is_stopped) {
    train_one_step();
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
  const std::vector<TokenBatch> batches = next_batches();
  attended_length_ = attended_length(batches);
  const StepOutcome outcome =
      train_step(trained_->model, trained_->parameters, trained_->optimizer, batches, rates);
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

std::vector<TokenBatch> TrainingRun::next_batches() {
  // The global batch is cut first into accumulation steps, then over dp, then each row over cp.
  const Group& data_group = groups_[GroupName::kData];
  const Group& context_group = groups_[GroupName::kContext];
  const int64_t micro = config_.train.micro_batch_size;
  const int64_t per_step = micro * data_group.size();
  std::vector<TokenBatch> batches;
  for (int64_t start = 0; start < config_.train.global_batch_size; start += per_step) {
    const int64_t first = samples_consumed_ + start + micro * data_group.rank();
    batches.push_back(data_->batch(first, micro).share(context_group.size(), context_group.rank()));
  }
  return batches;
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

void TrainingRun::report(const StepOutcome& outcome, double learning_rate, double step_s,
                         const std::optional<EvalOutcome>& evaluation) {
  StepMetrics metrics;
  metrics.step = step_;
  metrics.loss = {outcome.loss_sum, outcome.loss_weight};
  const auto put_term = [&](const char* name, const std::optional<double>& value) {
    if (value) {
      metrics.auxiliary.emplace_back(name, *value);
    }
  };
  put_term("balance", outcome.balance_loss);
  put_term("step_balance", outcome.step_balance_loss);
  put_term("global_balance", outcome.global_balance_loss);
  put_term("z", outcome.z_loss);
  metrics.skipped = !outcome.skipped.empty();
  metrics.skipped_steps = skipped_steps_;
  metrics.lr = learning_rate;
  metrics.grad_norm = outcome.grad_norm;
  metrics.tokens = outcome.num_tokens;
  const std::vector<int64_t> layers = numbers_of_moe_layers(config_);
  int64_t routed_copies = 0;
  for (size_t i = 0; i < outcome.tokens_per_expert.size(); ++i) {
    const at::Tensor& counts = outcome.tokens_per_expert[i];
    const auto* first = counts.const_data_ptr<int64_t>();
    metrics.expert_load.push_back(
        ExpertLoad::from_counts(layers[i], std::vector<int64_t>(first, first + counts.numel())));
    routed_copies += metrics.expert_load.back().copies;
  }
  if (outcome.dropped_copies) {
    metrics.dropped =
        Ratio{static_cast<double>(*outcome.dropped_copies), static_cast<double>(routed_copies)};
  }
  if (evaluation) {
    metrics.eval_loss = Ratio{evaluation->loss_sum, evaluation->loss_weight};
  }
  metrics.step_time_s = step_s;
  metrics.flops_per_rank =
      training_flops(config_, static_cast<double>(outcome.num_tokens), attended_length_) /
      static_cast<double>(groups_.mesh().world_size());
  if (!metrics.expert_load.empty()) {
    metrics.dispatch_time_s = groups_.ledger().seconds(Purpose::kDispatch);
    metrics.combine_time_s = groups_.ledger().seconds(Purpose::kCombine);
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

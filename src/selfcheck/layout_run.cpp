#include "selfcheck/layout_run.h"

#include <functional>
#include <memory>
#include <mutex>
#include <set>

#include <fmt/format.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/random.h"
#include "model/language_model.h"
#include "optim/adamw.h"
#include "optim/clip.h"
#include "optim/gradients.h"
#include "optim/partition.h"
#include "optim/publish.h"
#include "parallel/launch.h"
#include "pipeline/schedule.h"
#include "train/train_step.h"

namespace switchyard {
namespace {

constexpr int64_t kTokensPerStep = 10000;  // more than any: numbers of tokens do not repeat

// Each micro-batch has another number of sequences and of tokens, and some have padding, so that a
// mean of means would show.
TokenBatch micro_batch(const Config& config, int64_t step, int64_t index) {
  constexpr int64_t kMostSequences = 3;
  constexpr int64_t kLongest = 8;
  constexpr int64_t kMostPadding = 3;
  const RandomStream stream(static_cast<uint64_t>(step), fmt::format("micro_batch.{}", index));
  const auto draw = [&](uint64_t which, int64_t below) {
    return static_cast<int64_t>(stream.below(which, static_cast<uint64_t>(below)));
  };
  std::vector<int64_t> lengths;
  const int64_t num_sequences = 1 + draw(0, kMostSequences);
  for (int64_t i = 0; i < num_sequences; ++i) {
    lengths.push_back(1 + draw(static_cast<uint64_t>(i) + 2, kLongest));
  }
  TokenBatch batch = random_batch(config, lengths, draw(1, kMostPadding),
                                  static_cast<uint64_t>(1000 * step + index));
  batch.first_token = kTokensPerStep * step + 100 * index;
  return batch;
}

std::vector<TokenBatch> micro_batches(const LayoutRun& run, int64_t step, const ShardRange& own) {
  std::vector<TokenBatch> batches;
  for (int64_t i = own.begin; i < own.end; ++i) {
    batches.push_back(micro_batch(run.config, step, i));
  }
  return batches;
}

// The same sequences as one micro-batch, with the padding at its end.
TokenBatch merged(const std::vector<TokenBatch>& batches) {
  std::vector<int64_t> lengths;
  int64_t num_tokens = 0;
  std::vector<at::Tensor> tokens;
  std::vector<at::Tensor> labels;
  std::vector<at::Tensor> weights;
  const auto append = [&](const TokenBatch& batch, int64_t begin, int64_t end) {
    tokens.push_back(batch.tokens.slice(0, begin, end));
    labels.push_back(batch.labels.slice(0, begin, end));
    weights.push_back(batch.weights.slice(0, begin, end));
  };
  for (const TokenBatch& batch : batches) {
    for (int64_t i = 0; i < batch.table.num_sequences(); ++i) {
      lengths.push_back(batch.table.length(i));
    }
    num_tokens += batch.table.num_tokens;
    append(batch, 0, batch.table.num_real_tokens());
  }
  for (const TokenBatch& batch : batches) {
    append(batch, batch.table.num_real_tokens(), batch.table.num_tokens);
  }
  TokenBatch whole;
  whole.tokens = at::cat(tokens);
  whole.labels = at::cat(labels);
  whole.weights = at::cat(weights);
  whole.table = SequenceTable::from_lengths(lengths, num_tokens);
  return whole;
}

// This rank's micro-batches as one. Its tokens are numbered as they are when all ranks' are one.
TokenBatch merged_micro_batches(const LayoutRun& run, int64_t step, const ShardRange& own) {
  TokenBatch batch = merged(micro_batches(run, step, own));
  batch.first_token = kTokensPerStep * step;
  for (const TokenBatch& before : micro_batches(run, step, {0, own.begin})) {
    batch.first_token += before.table.num_real_tokens();
  }
  return batch;
}

// A balance loss over accumulation steps depends on their number, which is then two in every
// layout: one for the global batch, one for another one.
std::vector<TokenBatch> batches_of(const LayoutRun& run, int64_t step, const ShardRange& own) {
  const MoeConfig& moe = run.config.moe;
  if (moe.step_aux_loss_coeff == 0 && moe.global_aux_loss_coeff == 0) {
    return micro_batches(run, step, own);
  }
  return {merged_micro_batches(run, step, own),
          merged_micro_batches(run, step + kLayoutRunSteps, own)};
}

std::vector<TokenBatch> own_batches(const LayoutRun& run, int64_t step, const Groups& groups) {
  const Group& data = groups[GroupName::kData];
  const Group& context = groups[GroupName::kContext];
  std::vector<TokenBatch> batches =
      batches_of(run, step, shard_range(run.num_micro_batches, data.size(), data.rank()));
  for (TokenBatch& batch : batches) {
    const MtpConfig& mtp = run.config.mtp;
    batch.look_further(mtp.loss_coeff > 0 ? mtp.num_layers : 0);
    batch = batch.share(context.size(), context.rank());
  }
  return batches;
}

void add_outcome(const StepOutcome& outcome, int64_t step, LogicalTensors& result) {
  const auto add = [&](std::string_view name, double value) {
    result.add_whole(fmt::format("{}.{}", name, step), at::full({1}, value, at::kDouble));
  };
  add("loss", outcome.loss());
  for (size_t i = 0; i < outcome.further.size(); ++i) {
    add(fmt::format("further_{}", i), outcome.further[i].loss_sum / outcome.further[i].loss_weight);
  }
  add("grad_norm", outcome.grad_norm);
  add("balance", outcome.balance_loss.value_or(0));
  add("step_balance", outcome.step_balance_loss.value_or(0));
  add("global_balance", outcome.global_balance_loss.value_or(0));
  add("z", outcome.z_loss.value_or(0));
  add("dropped", static_cast<double>(outcome.dropped_copies.value_or(0)));
  for (size_t i = 0; i < outcome.tokens_per_expert.size(); ++i) {
    result.add_whole(fmt::format("load.{}.{}", step, i), outcome.tokens_per_expert[i]);
  }
}

// Names that ranks, as threads, add to.
class SiteNames {
 public:
  void add(const Ledger& ledger) {
    const std::lock_guard lock(mutex_);
    for (const LedgerEntry& entry : ledger.entries()) {
      collectives_.insert(entry.site);
    }
    for (const auto& [name, calls] : ledger.scale_sites()) {
      scales_.insert(name);
    }
  }
  LayoutRunSites sites() const {
    return {{collectives_.begin(), collectives_.end()}, {scales_.begin(), scales_.end()}};
  }

 private:
  std::mutex mutex_;
  std::set<std::string> collectives_;
  std::set<std::string> scales_;
};

// The model of a run on one rank.
struct RankModel {
  RankModel(const Config& config, const Groups& groups)
      : parameters(groups, Dtypes::of(config.train.precision),
                   static_cast<uint64_t>(config.run.seed), FirstValues::kInitial,
                   config.parallel.data_sharding),
        model(parameters, config),
        partition(make_partition(parameters, config.parallel)) {
    randomize_constant_parameters(parameters);
  }

  Parameters parameters;
  LanguageModel model;
  std::unique_ptr<Partition> partition;
};

// New memos for each batch, as compute_gradients() makes them.
std::vector<RoutingMemos> memos_of(const std::vector<TokenBatch>& batches,
                                   const LanguageModel& model) {
  std::vector<RoutingMemos> memos;
  for (size_t i = 0; i < batches.size(); ++i) {
    memos.push_back(model.new_memos(memos.empty() ? RoutingMemos{} : memos.back()));
  }
  return memos;
}

void run_first_step(const LayoutRun& run, const Groups& groups, ExpertChoices& choices,
                    bool count_flips, LogicalTensors& result) {
  RankModel rank(run.config, groups);
  const MakeSchedule schedule = training_schedule(run.config.parallel);
  const auto batches = own_batches(run, 0, groups);
  const auto for_each_batch = [&](const std::vector<RoutingMemos>& memos, const auto& act) {
    for (size_t i = 0; i < batches.size(); ++i) {
      act(batches[i], memos[i], groups);
    }
  };
  if (count_flips) {
    const auto free = memos_of(batches, rank.model);
    (void)compute_gradients(rank.model, rank.parameters, batches, free, schedule);
    clear_gradients(rank.parameters);
    for_each_batch(free, std::bind_front(&ExpertChoices::count_flips, &choices));
  }
  const bool records = run.num_ranks == 1;
  const auto memos = memos_of(batches, rank.model);
  if (!records) {
    for_each_batch(memos, std::bind_front(&ExpertChoices::replay, &choices));
  }
  const StepOutcome outcome =
      compute_gradients(rank.model, rank.parameters, batches, memos, schedule);
  if (records) {
    for_each_batch(memos, std::bind_front(&ExpertChoices::record, &choices));
  }
  result.add_gradients(rank.parameters);
  result.add_whole("loss.first", at::full({1}, outcome.loss(), at::kDouble));
  result.add_whole("grad_norm.first", at::full({1}, gradient_norm(rank.parameters), at::kDouble));
}

void run_rank(const LayoutRun& run, const Groups& groups, LogicalTensors& result) {
  const Config& config = run.config;
  RankModel rank(config, groups);
  Parameters& parameters = rank.parameters;
  LanguageModel& model = rank.model;
  AdamW optimizer(parameters, config.optimizer);
  const MakeSchedule schedule = training_schedule(config.parallel);
  for (int64_t step = 0; step < kLayoutRunSteps; ++step) {
    const auto batches = own_batches(run, step, groups);
    if (step == 0) {
      const StepOutcome first = compute_gradients(model, parameters, batches, schedule);
      result.add_gradients(parameters);
      result.add_whole("loss.first", at::full({1}, first.loss(), at::kDouble));
      clear_gradients(parameters);
    }
    add_outcome(
        train_step(model, parameters, optimizer, batches,
                   {config.optimizer.lr, config.optimizer.clip_grad_norm, std::nullopt}, schedule),
        step, result);
  }
  const auto add_weights = [&] { result.add_weights(parameters); };
  rank.partition == nullptr ? add_weights() : rank.partition->with_all_present(add_weights);
}

}  // namespace

LayoutRun on_one_rank(LayoutRun run) {
  run.config.parallel = ParallelConfig{};
  run.num_ranks = 1;
  return run;
}

void run_first_step_in_fp32(LayoutRun run, ExpertChoices& choices, LogicalTensors& result,
                            bool count_flips) {
  run.config.train.precision = Precision::kFp32;
  run_ranks(
      mesh_shape(run.config.parallel, run.num_ranks),
      [&](Groups& groups) { run_first_step(run, groups, choices, count_flips, result); },
      run.timeout, run.config.parallel.verify_calls);
}

LayoutRunSites run_layout(const LayoutRun& run, LogicalTensors& result) {
  SiteNames names;
  run_ranks(
      mesh_shape(run.config.parallel, run.num_ranks),
      [&](Groups& groups) {
        groups.ledger().remove_site_for_test(run.removed_site);
        run_rank(run, groups, result);
        names.add(groups.ledger());
      },
      run.timeout, run.config.parallel.verify_calls, slow_groups(run.config.parallel));
  return names.sites();
}

TokenBatch random_batch(const Config& config, const std::vector<int64_t>& lengths, int64_t padding,
                        uint64_t seed) {
  int64_t num_real = 0;
  for (const int64_t length : lengths) {
    num_real += length;
  }
  const int64_t num_tokens = num_real + padding;
  TokenBatch batch;
  batch.table = SequenceTable::from_lengths(lengths, num_tokens);
  batch.tokens = at::zeros({num_tokens}, at::kLong);
  batch.labels = at::full({num_tokens}, kIgnoredLabel, at::kLong);
  batch.weights = at::zeros({num_tokens}, at::kFloat);
  const RandomStream stream(seed, "random_batch");
  const auto vocab = static_cast<uint64_t>(config.model.vocab_size);
  for (int64_t i = 0; i < num_real; ++i) {
    const auto index = static_cast<uint64_t>(3 * i);
    batch.tokens[i] = static_cast<int64_t>(stream.below(index, vocab));
    const bool is_ignored = stream.below(index + 1, 8) == 0;
    if (!is_ignored) {
      batch.labels[i] = static_cast<int64_t>(stream.below(index + 2, vocab));
      batch.weights[i] = i % 3 == 0 ? 0.5 : 1.0;
    }
  }
  return batch;
}

void randomize_constant_parameters(Parameters& parameters) {
  constexpr uint64_t kSeed = 11;
  const at::NoGradGuard no_grad;
  for (const auto& storage : parameters.storages()) {
    for (const PieceRange& range : storage->owned) {
      ParameterSpec spec = storage->pieces[range.piece].spec();
      if (spec.init.kind != Init::Kind::kZeros && spec.init.kind != Init::Kind::kOnes) {
        continue;
      }
      const bool is_ones = spec.init.kind == Init::Kind::kOnes;
      spec.init = Init::normal(is_ones ? 0.2 : 0.5);
      const at::Tensor values =
          Parameter(spec, parameters.groups()).initial_values(kSeed, storage->master.scalar_type());
      storage->owned_of(storage->master, range)
          .add_(values.view({-1}).slice(0, range.elements.begin, range.elements.end));
    }
  }
  publish_parameters(parameters);
}

}  // namespace switchyard

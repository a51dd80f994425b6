#include "train/evaluate.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace switchyard {
namespace {

constexpr Site kTotals{"eval.totals", Purpose::kStatistics};

}  // namespace

EvalOutcome evaluate(const LanguageModel& model, const EvaluationData& data,
                     int64_t micro_batch_size, int64_t max_sequences, const Groups& groups) {
  const Group& data_group = groups[GroupName::kData];
  const Group& context_group = groups[GroupName::kContext];
  const int64_t all = data.num_sequences();
  const int64_t end = max_sequences > 0 ? std::min(all, max_sequences) : all;
  const int64_t stride = micro_batch_size * data_group.size();
  // Every rank makes as many passes, those past the end with an empty batch: layers communicate.
  const auto read = [&](int64_t index) {
    const int64_t first = index * stride + micro_batch_size * data_group.rank();
    const int64_t count = std::clamp(end - first, int64_t{0}, micro_batch_size);
    const TokenBatch batch =
        count > 0 ? data.batch(first, count) : data.batch(all, micro_batch_size);
    return batch.share(context_group.size(), context_group.rank());
  };
  const MicroBatches batches((end + stride - 1) / stride, read);
  const EvalOutcome outcome = evaluate_batches(model, batches);
  const at::Tensor totals = at::tensor({outcome.loss_sum, outcome.loss_weight}, at::kDouble);
  groups[GroupName::kDataContext].all_reduce(totals, kTotals);
  return {totals[0].item<double>(), totals[1].item<double>()};
}

}  // namespace switchyard

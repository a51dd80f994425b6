#include "data/training_data.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>

#include "base/error.h"
#include "data/permutation.h"

namespace switchyard {
namespace {

std::vector<IndexedDataset> open_all(const std::vector<WeightedPrefix>& entries,
                                     const Tokenizer& tokenizer, const DatasetOptions& options) {
  std::vector<IndexedDataset> sets;
  for (const WeightedPrefix& entry : entries) {
    sets.push_back(open_dataset(entry.prefix, tokenizer, options));
  }
  return sets;
}

std::vector<int64_t> count_samples(const std::vector<IndexedDataset>& sets,
                                   int64_t sequence_length) {
  std::vector<int64_t> counts;
  for (const IndexedDataset& set : sets) {
    check<FileError>(set.num_tokens() > sequence_length,
                     "{} holds {} tokens, one sample needs {} (data.sequence_length {} and the "
                     "label of the last token); add text or lower data.sequence_length",
                     set.prefix(), set.num_tokens(), sequence_length + 1, sequence_length);
    counts.push_back((set.num_tokens() - 1) / sequence_length);
  }
  return counts;
}

std::vector<int64_t> shares_of(const std::vector<WeightedPrefix>& entries,
                               const std::vector<int64_t>& num_samples) {
  if (!entries.front().weight) {
    return num_samples;
  }
  std::vector<double> weights;
  weights.reserve(entries.size());
  for (const WeightedPrefix& entry : entries) {
    weights.push_back(*entry.weight);
  }
  return shares_of_weights(weights);
}

}  // namespace

TrainingData::TrainingData(const std::vector<std::string>& entries, const Tokenizer& tokenizer,
                           int64_t sequence_length, uint64_t seed, const DatasetOptions& options)
    : TrainingData(parse_weighted_prefixes("data.train", entries), tokenizer, sequence_length, seed,
                   options) {}

TrainingData::TrainingData(const std::vector<WeightedPrefix>& entries, const Tokenizer& tokenizer,
                           int64_t sequence_length, uint64_t seed, const DatasetOptions& options)
    : sequence_length_(sequence_length),
      seed_(seed),
      sets_(open_all(entries, tokenizer, options)),
      num_samples_(count_samples(sets_, sequence_length)),
      order_(shares_of(entries, num_samples_)),
      documents_(options.documents) {}

int64_t TrainingData::num_samples() const {
  return std::accumulate(num_samples_.begin(), num_samples_.end(), int64_t{0});
}

SamplePlace TrainingData::place(int64_t position) {
  const BlendDraw draw = order_.at(position);
  const int64_t size = num_samples(draw.set);
  const int64_t epoch = draw.count / size;
  const Permutation shuffle(size, seed_,
                            fmt::format("data.train set {} epoch {}", draw.set, epoch));
  return {draw.set, epoch, shuffle.at(draw.count % size)};
}

TokenBatch TrainingData::batch(int64_t first_sample, int64_t count) {
  const int64_t num_tokens = count * sequence_length_;
  TokenBatch batch;
  batch.tokens = at::empty({num_tokens}, at::kLong);
  batch.labels = at::empty({num_tokens}, at::kLong);
  batch.weights = at::empty({num_tokens}, at::kFloat);
  batch.first_token = first_sample * sequence_length_;
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i) {
    const SamplePlace from = place(first_sample + i);
    const int64_t offset = i * sequence_length_;
    read_window(set(from.set), from.sample * sequence_length_, sequence_length_, documents_,
                {batch.tokens.mutable_data_ptr<int64_t>() + offset,
                 batch.labels.mutable_data_ptr<int64_t>() + offset,
                 batch.weights.mutable_data_ptr<float>() + offset},
                lengths);
  }
  batch.table = SequenceTable::from_lengths(lengths, num_tokens);
  return batch;
}

}  // namespace switchyard

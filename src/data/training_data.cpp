#include "data/training_data.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>

#include "base/error.h"
#include "data/permutation.h"

namespace switchyard {
namespace {

std::vector<IndexedDataset> open_all(const std::vector<WeightedPrefix>& entries,
                                     const Tokenizer& tokenizer) {
  std::vector<IndexedDataset> sets;
  for (const WeightedPrefix& entry : entries) {
    sets.emplace_back(entry.prefix);
    sets.back().check_tokenizer(tokenizer);
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
                           int64_t sequence_length, uint64_t seed)
    : TrainingData(parse_weighted_prefixes("data.train", entries), tokenizer, sequence_length,
                   seed) {}

TrainingData::TrainingData(const std::vector<WeightedPrefix>& entries, const Tokenizer& tokenizer,
                           int64_t sequence_length, uint64_t seed)
    : sequence_length_(sequence_length),
      seed_(seed),
      sets_(open_all(entries, tokenizer)),
      num_samples_(count_samples(sets_, sequence_length)),
      order_(shares_of(entries, num_samples_)),
      window_(static_cast<size_t>(sequence_length) + 1) {}

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

void TrainingData::fill(const SamplePlace& place, int64_t* tokens, int64_t* labels) {
  set(place.set).read(place.sample * sequence_length_, window_);
  std::copy_n(window_.begin(), sequence_length_, tokens);
  std::copy_n(window_.begin() + 1, sequence_length_, labels);
}

Sample TrainingData::sample(int64_t position) {
  Sample sample{at::empty({sequence_length_}, at::kLong), at::empty({sequence_length_}, at::kLong)};
  fill(place(position), sample.tokens.mutable_data_ptr<int64_t>(),
       sample.labels.mutable_data_ptr<int64_t>());
  return sample;
}

TokenBatch TrainingData::batch(int64_t first_sample, int64_t count) {
  const int64_t num_tokens = count * sequence_length_;
  TokenBatch batch;
  batch.tokens = at::empty({num_tokens}, at::kLong);
  batch.labels = at::empty({num_tokens}, at::kLong);
  batch.weights = at::ones({num_tokens}, at::kFloat);
  batch.table = SequenceTable::from_lengths(
      std::vector<int64_t>(static_cast<size_t>(count), sequence_length_));
  auto* tokens = batch.tokens.mutable_data_ptr<int64_t>();
  auto* labels = batch.labels.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    fill(place(first_sample + i), tokens + i * sequence_length_, labels + i * sequence_length_);
  }
  return batch;
}

}  // namespace switchyard

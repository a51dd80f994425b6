#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/token_batch.h"
#include "data/blend_order.h"
#include "data/indexed_dataset.h"
#include "data/sample_window.h"
#include "data/tokenizer.h"
#include "data/weighted_prefix.h"

namespace switchyard {

// Where in the data a position of training lies.
struct SamplePlace {
  int64_t set = 0;     // index into the entries of data.train
  int64_t epoch = 0;   // of this set: how often all of it was drawn before
  int64_t sample = 0;  // of this set: holds its tokens from sample x sequence_length on
};

// The endless, ordered list of training samples. The documents of a data set, joined in order, are
// cut into samples of sequence_length tokens and the label of the last; what remains at the end is
// left out. In each epoch of a set every sample comes once, in an order keyed by (seed, set,
// epoch). Several sets are drawn from in proportion to their weights, or to their sizes when they
// have none (BlendOrder).
//
// All of this is computed from the position: the number of samples consumed is the whole state of
// the data, and resuming needs nothing else. Layout, threads and accumulation do not enter.
class TrainingData {
 public:
  // `entries` are those of data.train: PREFIX or WEIGHT:PREFIX. Throws ConfigError for entries that
  // cannot be, and FileError, naming the prefix, for files that are damaged, were made by another
  // tokenizer, or hold less than one sample.
  TrainingData(const std::vector<std::string>& entries, const Tokenizer& tokenizer,
               int64_t sequence_length, uint64_t seed, const DatasetOptions& options = {});

  // Samples first_sample to first_sample + count - 1, joined in one row of count x sequence_length
  // tokens: the slice of a global batch that a data-parallel rank takes. Each is one sequence of
  // the table, or one per document where these are packed. Not for several threads at once.
  TokenBatch batch(int64_t first_sample, int64_t count);

  SamplePlace place(int64_t position);

  int64_t sequence_length() const { return sequence_length_; }
  int64_t num_sets() const { return std::ssize(sets_); }
  const IndexedDataset& set(int64_t index) const { return sets_[static_cast<size_t>(index)]; }
  int64_t num_samples(int64_t set) const { return num_samples_[static_cast<size_t>(set)]; }
  int64_t num_samples() const;  // of all sets, each once

 private:
  TrainingData(const std::vector<WeightedPrefix>& entries, const Tokenizer& tokenizer,
               int64_t sequence_length, uint64_t seed, const DatasetOptions& options);

  int64_t sequence_length_;
  uint64_t seed_;
  std::vector<IndexedDataset> sets_;
  std::vector<int64_t> num_samples_;  // [sets]
  BlendOrder order_;
  DocumentOptions documents_;
};

}  // namespace switchyard

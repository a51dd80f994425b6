#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/token_batch.h"
#include "data/indexed_dataset.h"
#include "data/tokenizer.h"

namespace switchyard {

// Held-out data, every token of it once and in order: the documents of a set, joined, are cut into
// sequences of sequence_length tokens; the last of each set may be shorter. Each token but the
// first of a set, which nothing precedes, is a label exactly once.
class EvaluationData {
 public:
  // `prefixes` are those of data.eval. Throws ConfigError for a weight, which would mean nothing
  // here, and for the other mistakes of parse_weighted_prefixes; FileError, naming the prefix, for
  // files that are damaged, were made by another tokenizer or hold no two tokens.
  EvaluationData(const std::vector<std::string>& prefixes, const Tokenizer& tokenizer,
                 int64_t sequence_length);

  int64_t num_sequences() const { return first_sequence_.back(); }
  int64_t num_labels() const;  // over all sequences: the weight that a whole evaluation has

  // Sequences first to first + count - 1 in a row of count x sequence_length tokens, which ends in
  // padding where sequences are short or past the last: every rank gets the same shape, and past
  // the end a batch without sequences. May be called from several threads.
  TokenBatch batch(int64_t first, int64_t count) const;

 private:
  int64_t sequence_length_;
  std::vector<IndexedDataset> sets_;
  std::vector<int64_t> first_sequence_;  // [sets + 1]
};

}  // namespace switchyard

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/token_batch.h"
#include "data/indexed_dataset.h"
#include "data/sample_window.h"
#include "data/tokenizer.h"

namespace switchyard {

// Held-out data, every token of it once and in order: the documents of a set, joined, are cut into
// sequences of sequence_length tokens; the last of each set may be shorter. Each token but the
// first of a set, which nothing precedes, is a label exactly once. Where documents are packed, each
// is a sequence of its own (cut where it does not fit), and its first token is no label.
class EvaluationData {
 public:
  // `source` names where `prefixes` were given, as in data.eval. Throws ConfigError for a weight,
  // which would mean nothing here, and for the other mistakes of parse_weighted_prefixes;
  // FileError, naming the prefix, for files that are damaged, were made by another tokenizer or
  // hold no token that another foretells.
  EvaluationData(const std::string& source, const std::vector<std::string>& prefixes,
                 const Tokenizer& tokenizer, int64_t sequence_length,
                 const DatasetOptions& options = {});

  // For data shorter than sequence_length: batches without the padding that none of them needs.
  void drop_needless_padding();

  int64_t sequence_length() const { return sequence_length_; }
  int64_t num_sequences() const { return first_sequence_.back(); }
  int64_t num_labels() const { return num_labels_; }  // the weight that a whole evaluation has

  // Bytes of the decoded text of all labels: what bits per byte are counted over. Ends of documents
  // have no text. Reads all of the data.
  int64_t count_label_bytes(const Tokenizer& tokenizer) const;

  // Stretches first to first + count - 1 in a row of count x sequence_length tokens, which ends in
  // padding where they are short or past the last: every rank gets the same shape, and past
  // the end a batch without sequences. May be called from several threads.
  TokenBatch batch(int64_t first, int64_t count) const;

 private:
  int64_t sequence_length_;
  std::vector<IndexedDataset> sets_;
  std::vector<int64_t> first_sequence_;  // [sets + 1], counted in stretches of sequence_length
  DocumentOptions documents_;
  int64_t num_labels_ = 0;
};

}  // namespace switchyard

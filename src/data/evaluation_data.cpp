#include "data/evaluation_data.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "base/error.h"
#include "data/weighted_prefix.h"

namespace switchyard {
namespace {

// Tokens of a set that are labels with a weight.
int64_t count_labels(const IndexedDataset& set, const DocumentOptions& options) {
  if (options.documents == Documents::kJoined && !options.mask_end_of_document) {
    return set.num_tokens() - 1;
  }
  int64_t labels = set.num_tokens();
  for (int64_t i = 0; i < set.num_documents(); ++i) {
    labels -= set.document_start(i + 1) > set.document_start(i) ? 1 : 0;  // its first token
  }
  return labels;
}

// Bytes of the text of tokens begin to end - 1, read a piece at a time: a document may be large.
int64_t count_bytes(const IndexedDataset& set, int64_t begin, int64_t end,
                    const Tokenizer& tokenizer) {
  constexpr int64_t kPiece = 1 << 16;
  const auto decoder = tokenizer.stream_decoder();
  std::string text;
  int64_t bytes = 0;
  for (int64_t start = begin; start < end; start += kPiece) {
    std::vector<int64_t> tokens(static_cast<size_t>(std::min(kPiece, end - start)));
    set.read(start, tokens);
    for (const int64_t token : tokens) {
      decoder->push(static_cast<int32_t>(token), text);
    }
    bytes += std::ssize(text);
    text.clear();
  }
  decoder->finish(text);
  return bytes + std::ssize(text);
}

}  // namespace

EvaluationData::EvaluationData(const std::string& source, const std::vector<std::string>& prefixes,
                               const Tokenizer& tokenizer, int64_t sequence_length,
                               const DatasetOptions& options)
    : sequence_length_(sequence_length), first_sequence_{0}, documents_(options.documents) {
  for (const WeightedPrefix& entry : parse_weighted_prefixes(source, prefixes)) {
    check<ConfigError>(!entry.weight,
                       "{}: {} has a weight, which means nothing here: evaluation takes every "
                       "token once; leave the weight out",
                       source, entry.prefix);
    sets_.push_back(open_dataset(entry.prefix, tokenizer, options));
    const int64_t num_steps = sets_.back().num_tokens() - 1;
    check<FileError>(num_steps >= 1,
                     "{} holds {} tokens, evaluation needs at least 2 (a token and the one that "
                     "follows it); add text",
                     entry.prefix, sets_.back().num_tokens());
    num_labels_ += count_labels(sets_.back(), documents_);
    first_sequence_.push_back(first_sequence_.back() +
                              (num_steps + sequence_length - 1) / sequence_length);
  }
  check<FileError>(num_labels_ > 0,
                   "{} holds no token to predict: every document has one token, and none foretells "
                   "the next (data.documents, data.mask_end_of_document)",
                   source);
}

void EvaluationData::drop_needless_padding() {
  int64_t longest = 1;
  for (const IndexedDataset& set : sets_) {
    longest = std::max(longest, set.num_tokens() - 1);
  }
  // Each set then is one stretch, as it was.
  sequence_length_ = std::min(sequence_length_, longest);
}

int64_t EvaluationData::count_label_bytes(const Tokenizer& tokenizer) const {
  const bool is_joined =
      documents_.documents == Documents::kJoined && !documents_.mask_end_of_document;
  int64_t bytes = 0;
  for (const IndexedDataset& set : sets_) {
    bool is_first = true;
    for (int64_t i = 0; i < set.num_documents(); ++i) {
      const int64_t begin = set.document_start(i);
      const int64_t end = set.document_start(i + 1);
      if (begin == end) {
        continue;
      }
      bytes += count_bytes(set, begin, end, tokenizer);
      // The first token of a document, or only of the first, is no label.
      if (!is_joined || is_first) {
        bytes -= count_bytes(set, begin, begin + 1, tokenizer);
      }
      is_first = false;
    }
  }
  return bytes;
}

TokenBatch EvaluationData::batch(int64_t first, int64_t count) const {
  const int64_t row = count * sequence_length_;
  TokenBatch batch;
  batch.tokens = at::zeros({row}, at::kLong);
  batch.labels = at::full({row}, -100, at::kLong);
  batch.weights = at::zeros({row}, at::kFloat);
  std::vector<int64_t> lengths;
  int64_t filled = 0;
  for (int64_t i = first; i < std::min(first + count, num_sequences()); ++i) {
    const auto after = std::upper_bound(first_sequence_.begin(), first_sequence_.end(), i);
    const IndexedDataset& set = sets_[static_cast<size_t>(after - first_sequence_.begin() - 1)];
    const int64_t start = (i - *(after - 1)) * sequence_length_;
    const int64_t length = std::min(sequence_length_, set.num_tokens() - 1 - start);
    read_window(set, start, length, documents_,
                {batch.tokens.mutable_data_ptr<int64_t>() + filled,
                 batch.labels.mutable_data_ptr<int64_t>() + filled,
                 batch.weights.mutable_data_ptr<float>() + filled},
                lengths);
    filled += length;
  }
  batch.table = SequenceTable::from_lengths(lengths, row);
  return batch;
}

}  // namespace switchyard

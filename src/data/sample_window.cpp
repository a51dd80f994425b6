#include "data/sample_window.h"

#include <algorithm>

#include "base/log.h"

namespace switchyard {

DocumentOptions document_options(const DataConfig& data) {
  return {data.documents, data.mask_end_of_document};
}

IndexedDataset open_dataset(const std::string& prefix, const Tokenizer& tokenizer,
                            const DatasetOptions& options) {
  IndexedDataset set(prefix);
  const int64_t vocab_size = options.vocab_size > 0 ? options.vocab_size : tokenizer.vocab_size();
  const auto line = set.check_tokenizer(tokenizer, vocab_size, options.is_tokenizer_stated);
  if (line) {
    log_warn("{}", *line);
  }
  return set;
}

void read_window(const IndexedDataset& set, int64_t first, int64_t num_tokens,
                 const DocumentOptions& options, const WindowRows& rows,
                 std::vector<int64_t>& lengths) {
  std::vector<int64_t> window(static_cast<size_t>(num_tokens) + 1);
  set.read(first, window);
  std::copy_n(window.begin(), num_tokens, rows.tokens);
  std::copy_n(window.begin() + 1, num_tokens, rows.labels);
  std::fill_n(rows.weights, num_tokens, 1.0F);
  const bool is_packed = options.documents == Documents::kPacked;
  int64_t begin = 0;  // of the sequence, within the window
  if (is_packed || options.mask_end_of_document) {
    // Every document that begins after the first token, up to the label of the last.
    int64_t document = set.document_of(first) + 1;
    for (; document < set.num_documents(); ++document) {
      const int64_t start = set.document_start(document) - first;
      if (start > num_tokens) {
        break;
      }
      if (start == begin) {
        continue;  // an empty document came before
      }
      rows.weights[start - 1] = 0;
      if (is_packed) {
        rows.labels[start - 1] = -100;
        lengths.push_back(start - begin);
        begin = start;
      }
    }
  }
  if (begin < num_tokens) {
    lengths.push_back(num_tokens - begin);
  }
}

}  // namespace switchyard

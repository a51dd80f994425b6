#include "train/generator.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/random.h"

namespace switchyard {

int64_t sample_token(const at::Tensor& logits, int64_t vocab_size, const SamplingOptions& options,
                     int64_t position) {
  const at::Tensor values = logits.narrow(0, 0, vocab_size).to(at::kDouble).contiguous();
  const auto* value = values.const_data_ptr<double>();
  std::vector<int64_t> order(static_cast<size_t>(vocab_size));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return value[a] > value[b]; });
  if (options.temperature == 0) {
    return order[0];
  }
  if (options.top_k > 0 && options.top_k < vocab_size) {
    order.resize(static_cast<size_t>(options.top_k));
  }
  std::vector<double> weights;
  double total = 0;
  for (const int64_t id : order) {
    weights.push_back(std::exp((value[id] - value[order[0]]) / options.temperature));
    total += weights.back();
  }
  // The shortest head of the list whose probability reaches top_p.
  double kept = 0;
  size_t count = 0;
  while (count < weights.size() && (count == 0 || kept < options.top_p * total)) {
    kept += weights[count++];
  }
  double threshold =
      RandomStream(options.seed, "generate").uniform(static_cast<uint64_t>(position)) * kept;
  for (size_t i = 0; i + 1 < count; ++i) {
    threshold -= weights[i];
    if (threshold < 0) {
      return order[i];
    }
  }
  return order[count - 1];
}

void generate(const LanguageModel& model, const Tokenizer& tokenizer, const std::string& prompt,
              const SamplingOptions& options,
              const std::function<void(const std::string&)>& write) {
  const auto prompt_ids = tokenizer.encode(prompt);
  check<ConfigError>(!prompt_ids.empty(), "the prompt is empty: give at least one character");
  std::vector<int64_t> text(prompt_ids.begin(), prompt_ids.end());
  int64_t dropped = 0;  // tokens before the context
  std::vector<KeyValueCache> caches(static_cast<size_t>(model.num_layers()));
  for (int64_t i = 0; i < options.max_tokens; ++i) {
    const auto length = std::ssize(text);
    int64_t seen = caches[0].length + dropped;
    if (options.context_length > 0 && length - dropped > options.context_length) {
      caches.assign(caches.size(), KeyValueCache());
      dropped = length - std::max(int64_t{1}, options.context_length / 2);
      seen = dropped;
    }
    const std::vector<int64_t> unseen(text.begin() + seen, text.end());
    const at::Tensor logits = model.next_logits(at::tensor(unseen, at::kLong), caches);
    const auto id =
        static_cast<int32_t>(sample_token(logits, tokenizer.vocab_size(), options, length));
    if (id == tokenizer.end_of_document()) {
      return;
    }
    write(tokenizer.decode({&id, 1}));
    text.push_back(id);
  }
}

}  // namespace switchyard

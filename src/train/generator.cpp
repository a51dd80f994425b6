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

namespace {

// A text under way.
struct Text {
  size_t index = 0;  // of its prompt
  std::vector<int64_t> ids;
  int64_t dropped = 0;  // tokens before the context
  int64_t seen = 0;     // tokens that the caches have met, dropped ones included
};

// The tokens that its caches have not met; empties these when the context is full.
std::vector<int64_t> unseen_tokens(Text& text, int64_t context_length, size_t place,
                                   DecodingCaches& caches) {
  const auto length = std::ssize(text.ids);
  if (context_length > 0 && length - text.dropped > context_length) {
    for (auto& layer : caches) {
      layer[place] = KeyValueCache();
    }
    text.dropped = length - std::max(int64_t{1}, context_length / 2);
    text.seen = text.dropped;
  }
  std::vector<int64_t> unseen(text.ids.begin() + text.seen, text.ids.end());
  text.seen = length;
  return unseen;
}

std::vector<Text> encode_prompts(const Tokenizer& tokenizer,
                                 const std::vector<std::string>& prompts) {
  std::vector<Text> texts;
  for (const std::string& prompt : prompts) {
    const auto ids = tokenizer.encode(prompt);
    check<ConfigError>(!ids.empty(), "the prompt is empty: give at least one character");
    texts.push_back({.index = texts.size(), .ids = {ids.begin(), ids.end()}});
  }
  return texts;
}

}  // namespace

std::vector<Generated> generate(const LanguageModel& model, const Tokenizer& tokenizer,
                                const std::vector<std::string>& prompts,
                                const SamplingOptions& options,
                                const std::function<void(size_t, const std::string&)>& write) {
  std::vector<Text> texts = encode_prompts(tokenizer, prompts);
  std::vector<Generated> generated(prompts.size());
  DecodingCaches caches = model.new_caches(std::ssize(texts));
  for (int64_t i = 0; i < options.max_tokens && !texts.empty(); ++i) {
    std::vector<std::vector<int64_t>> unseen;
    for (size_t place = 0; place < texts.size(); ++place) {
      unseen.push_back(unseen_tokens(texts[place], options.context_length, place, caches));
    }
    const at::Tensor logits = model.next_logits(unseen, caches);  // [texts, vocab]
    for (size_t place = texts.size(); place-- > 0;) {
      Text& text = texts[place];
      Generated& result = generated[text.index];
      const auto id =
          static_cast<int32_t>(sample_token(logits[static_cast<int64_t>(place)],
                                            tokenizer.vocab_size(), options, std::ssize(text.ids)));
      if (id == tokenizer.end_of_document() && !options.ignore_end) {
        result.is_ended = true;
        texts.erase(texts.begin() + static_cast<int64_t>(place));
        for (auto& layer : caches) {
          layer.erase(layer.begin() + static_cast<int64_t>(place));
        }
        continue;
      }
      const std::string piece = tokenizer.decode({&id, 1});
      result.ids.push_back(id);
      result.text += piece;
      text.ids.push_back(id);
      write(text.index, piece);
    }
  }
  return generated;
}

}  // namespace switchyard

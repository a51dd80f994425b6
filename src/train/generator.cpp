#include "train/generator.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
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

bool ends_text(int64_t id, const Tokenizer& tokenizer, const SamplingOptions& options) {
  return id == tokenizer.end_of_document() ||
         std::find(options.end_ids.begin(), options.end_ids.end(), id) != options.end_ids.end();
}

// Shows the text of tokens that follow a prompt, as it becomes certain.
class Continuation {
 public:
  Continuation(const Tokenizer& tokenizer, const std::vector<int32_t>& prompt_ids,
               std::function<void(const std::string&)> write)
      : decoder_(tokenizer.stream_decoder()), write_(std::move(write)) {
    // The prompt goes first, because the first token of a text may be read in another way.
    std::string prompt;
    for (const int32_t id : prompt_ids) {
      decoder_->push(id, prompt);
    }
    const size_t size = tokenizer.decode(prompt_ids).size();
    held_back_ = size - std::min(size, prompt.size());
  }

  void push(int32_t id) {
    std::string text;
    decoder_->push(id, text);
    show(std::move(text));
  }

  void finish() {
    std::string text;
    decoder_->finish(text);
    show(std::move(text));
  }

 private:
  void show(std::string text) {
    const size_t of_prompt = std::min(held_back_, text.size());
    held_back_ -= of_prompt;
    text.erase(0, of_prompt);
    if (!text.empty()) {
      write_(text);
    }
  }

  std::unique_ptr<StreamDecoder> decoder_;
  std::function<void(const std::string&)> write_;
  size_t held_back_ = 0;  // bytes at the end of the prompt that the decoder has not given yet
};

// A text under way.
struct Text {
  size_t index = 0;  // of its prompt
  std::vector<int64_t> ids;
  std::unique_ptr<Continuation> continuation;
  int64_t dropped = 0;  // tokens before the context
  int64_t seen = 0;     // tokens that its cache has met, dropped ones included
};

// The tokens that its cache has not met; empties it when the context is full.
std::vector<int64_t> unseen_tokens(const LanguageModel& model, Text& text, int64_t context_length,
                                   DecodingCache& cache) {
  const auto length = std::ssize(text.ids);
  if (context_length > 0 && length - text.dropped > context_length) {
    cache = model.new_cache();
    text.dropped = length - std::max(int64_t{1}, context_length / 2);
    text.seen = text.dropped;
  }
  std::vector<int64_t> unseen(text.ids.begin() + text.seen, text.ids.end());
  text.seen = length;
  return unseen;
}

std::vector<Text> encode_prompts(const Tokenizer& tokenizer,
                                 const std::vector<std::string>& prompts,
                                 const std::function<void(size_t, const std::string&)>& write) {
  std::vector<Text> texts;
  for (const std::string& prompt : prompts) {
    const auto ids = tokenizer.encode(prompt);
    check<ConfigError>(!ids.empty(), "the prompt is empty: give at least one character");
    const size_t index = texts.size();
    texts.push_back(
        {.index = index,
         .ids = {ids.begin(), ids.end()},
         .continuation = std::make_unique<Continuation>(
             tokenizer, ids, [index, &write](const std::string& piece) { write(index, piece); })});
  }
  return texts;
}

}  // namespace

std::vector<Generated> generate(const LanguageModel& model, const Tokenizer& tokenizer,
                                const std::vector<std::string>& prompts,
                                const SamplingOptions& options,
                                const std::function<void(size_t, const std::string&)>& write) {
  std::vector<Generated> generated(prompts.size());
  const std::function<void(size_t, const std::string&)> show = [&](size_t index,
                                                                   const std::string& piece) {
    generated[index].text += piece;
    write(index, piece);
  };
  std::vector<Text> texts = encode_prompts(tokenizer, prompts, show);
  std::vector<DecodingCache> caches;
  for (size_t place = 0; place < texts.size(); ++place) {
    caches.push_back(model.new_cache());
  }
  for (int64_t i = 0; i < options.max_tokens && !texts.empty(); ++i) {
    std::vector<std::vector<int64_t>> unseen;
    for (size_t place = 0; place < texts.size(); ++place) {
      unseen.push_back(unseen_tokens(model, texts[place], options.context_length, caches[place]));
    }
    const at::Tensor logits = model.next_logits(unseen, caches);  // [texts, vocab]
    for (size_t place = texts.size(); place-- > 0;) {
      Text& text = texts[place];
      Generated& result = generated[text.index];
      const auto id =
          static_cast<int32_t>(sample_token(logits[static_cast<int64_t>(place)],
                                            tokenizer.vocab_size(), options, std::ssize(text.ids)));
      if (!options.ignore_end && ends_text(id, tokenizer, options)) {
        result.is_ended = true;
        text.continuation->finish();
        texts.erase(texts.begin() + static_cast<int64_t>(place));
        caches.erase(caches.begin() + static_cast<int64_t>(place));
        continue;
      }
      result.ids.push_back(id);
      text.ids.push_back(id);
      text.continuation->push(id);
    }
  }
  for (Text& text : texts) {
    text.continuation->finish();
  }
  return generated;
}

}  // namespace switchyard

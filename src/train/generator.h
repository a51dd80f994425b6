#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "model/language_model.h"

namespace switchyard {

struct SamplingOptions {
  int64_t max_tokens = 200;
  double temperature = 1.0;  // 0: greedy
  int64_t top_k = 0;         // only the k likeliest tokens; 0: all
  double top_p = 1.0;        // the likeliest tokens that together reach this probability
  uint64_t seed = 1;
  // Ids that end a text, besides the tokenizer's end of document.
  std::vector<int64_t> end_ids = {};
  bool ignore_end = false;  // go on after them
  // Longest sequence the model was trained on, 0 for no limit. Positions beyond it mean nothing to
  // a model, so a longer text is continued from its last half of that length.
  int64_t context_length = 0;
};

// Chooses the next token: argmax when temperature is 0, else a draw from softmax(logits /
// temperature) cut by top_k and top_p, with the random number of (seed, position). Ids from
// `vocab_size` on (padding of the vocabulary) are never chosen. logits [vocab]. Ties to the lowest
// id.
int64_t sample_token(const at::Tensor& logits, int64_t vocab_size, const SamplingOptions& options,
                     int64_t position);

struct Generated {
  std::vector<int32_t> ids;  // new tokens, without the end of document that ended them
  std::string text;          // of these
  bool is_ended = false;     // by an end of document; else max_tokens was reached
};

// Continues each of `prompts` until the end of document or max_tokens, all at once: each step
// computes one token of every text that goes on. A text depends on its own prompt only, as if it
// were generated alone. `write` is called with the index of a prompt and each new piece of its
// text.
//
// Every token is computed once, against a cache of keys and values, but for those seen again when
// the context is full. Throws ConfigError for an empty prompt. Collective as the model is, with the
// same arguments on all ranks.
std::vector<Generated> generate(const LanguageModel& model, const Tokenizer& tokenizer,
                                const std::vector<std::string>& prompts,
                                const SamplingOptions& options,
                                const std::function<void(size_t, const std::string&)>& write);

}  // namespace switchyard

#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/regex.h"
#include "data/tokenizers/utf8.h"

namespace switchyard {

// One step from the texts of tokens to text, as in tokenizer.json's `decoder`. Tokens pass through
// the steps one by one, so that generated text can be shown as it comes; a step holds back only
// what a later token may still change. Everything is equal to the tokenizers package, which decodes
// lists of tokens as a whole.
class DecoderStep {
 public:
  virtual ~DecoderStep() = default;

  // Appends the tokens that come out to `out`.
  virtual void push(std::string_view token, std::vector<std::string>& out) = 0;
  // After the last token.
  virtual void finish(std::vector<std::string>& /*out*/) {}
};

// Makes the steps for one text; the steps of different texts know nothing of each other.
using DecoderSteps = std::vector<std::unique_ptr<DecoderStep>>;

// Byte alphabet to bytes, over token boundaries; broken UTF-8 becomes U+FFFD.
class ByteLevelStep : public DecoderStep {
 public:
  void push(std::string_view token, std::vector<std::string>& out) override;
  void finish(std::vector<std::string>& out) override;

 private:
  Utf8Repair repair_;
};

// Tokens are bytes; broken UTF-8 becomes U+FFFD.
class BytesStep : public DecoderStep {
 public:
  void push(std::string_view token, std::vector<std::string>& out) override;
  void finish(std::vector<std::string>& out) override;

 private:
  Utf8Repair repair_;
};

// A run of tokens <0x00> to <0xFF> becomes its bytes; one U+FFFD each if they are not UTF-8.
class ByteFallbackStep : public DecoderStep {
 public:
  void push(std::string_view token, std::vector<std::string>& out) override;
  void finish(std::vector<std::string>& out) override;

 private:
  std::string bytes_;
};

// Joins all tokens to one.
class FuseStep : public DecoderStep {
 public:
  // Whether the parts may go on as they come, because no later step minds.
  explicit FuseStep(bool passes_on) : passes_on_(passes_on) {}
  void push(std::string_view token, std::vector<std::string>& out) override;
  void finish(std::vector<std::string>& out) override;

 private:
  bool passes_on_;
  std::string text_;
};

// Removes up to `start` times `content` (one character) from the beginning of each token, and up to
// `stop` times from its end; or from the beginning of the text, if tokens are parts of one.
class StripStep : public DecoderStep {
 public:
  StripStep(std::string content, size_t start, size_t stop, bool is_fused);
  void push(std::string_view token, std::vector<std::string>& out) override;

 private:
  std::string content_;
  size_t start_;
  size_t stop_;
  bool is_fused_;
  size_t left_;  // to be removed from the text
};

class ReplaceTextStep : public DecoderStep {
 public:
  ReplaceTextStep(std::string pattern, std::string content);
  void push(std::string_view token, std::vector<std::string>& out) override;

 private:
  std::string pattern_;
  std::string content_;
};

class ReplaceRegexStep : public DecoderStep {
 public:
  ReplaceRegexStep(Regex regex, std::string content);
  void push(std::string_view token, std::vector<std::string>& out) override;

 private:
  Regex regex_;
  std::string content_;
};

// `replacement` (one character) becomes a space; in the first token it is left out.
class MetaspaceStep : public DecoderStep {
 public:
  MetaspaceStep(std::string replacement, bool drops_first);
  void push(std::string_view token, std::vector<std::string>& out) override;

 private:
  std::string replacement_;
  bool drops_first_;
  bool is_first_ = true;
};

// Where there is no decoder: tokens with spaces between.
class SpaceBetweenStep : public DecoderStep {
 public:
  void push(std::string_view token, std::vector<std::string>& out) override;

 private:
  bool is_first_ = true;
};

}  // namespace switchyard

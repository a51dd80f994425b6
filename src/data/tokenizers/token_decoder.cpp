#include "data/tokenizers/token_decoder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "data/tokenizers/byte_alphabet.h"

namespace switchyard {
namespace {

constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";

std::string replace_all(std::string_view text, std::string_view pattern, std::string_view by) {
  std::string out;
  size_t copied = 0;
  for (size_t found = text.find(pattern); found != std::string_view::npos;
       found = text.find(pattern, copied)) {
    out += text.substr(copied, found - copied);
    out += by;
    copied = found + pattern.size();
  }
  return out += text.substr(copied);
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  if (c >= 'a' && c <= 'f') {
    return c - 'a' + 10;
  }
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// The byte that a token like <0x0A> stands for. Rust reads "+A" as a number too.
std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') {
    return std::nullopt;
  }
  const int high = token[3] == '+' ? 0 : hex_digit(token[3]);
  const int low = hex_digit(token[4]);
  if (high < 0 || low < 0) {
    return std::nullopt;
  }
  return static_cast<char>(high * 16 + low);
}

}  // namespace

void ByteLevelStep::push(std::string_view token, std::vector<std::string>& out) {
  const auto bytes = from_byte_alphabet(token);
  out.emplace_back();
  repair_.push(bytes ? std::string_view(*bytes) : token, out.back());
}

void ByteLevelStep::finish(std::vector<std::string>& out) {
  out.emplace_back();
  repair_.finish(out.back());
}

void BytesStep::push(std::string_view token, std::vector<std::string>& out) {
  out.emplace_back();
  repair_.push(token, out.back());
}

void BytesStep::finish(std::vector<std::string>& out) {
  out.emplace_back();
  repair_.finish(out.back());
}

void ByteFallbackStep::push(std::string_view token, std::vector<std::string>& out) {
  if (const auto byte = byte_of(token)) {
    bytes_.push_back(*byte);
    return;
  }
  finish(out);
  out.emplace_back(token);
}

void ByteFallbackStep::finish(std::vector<std::string>& out) {
  if (bytes_.empty()) {
    return;
  }
  if (valid_utf8_prefix(bytes_) == bytes_.size()) {
    out.push_back(bytes_);
  } else {
    out.insert(out.end(), bytes_.size(), std::string(kReplacementCharacter));
  }
  bytes_.clear();
}

void FuseStep::push(std::string_view token, std::vector<std::string>& out) {
  if (passes_on_) {
    out.emplace_back(token);
  } else {
    text_ += token;
  }
}

void FuseStep::finish(std::vector<std::string>& out) {
  if (!passes_on_) {
    out.push_back(text_);
  }
}

StripStep::StripStep(std::string content, size_t start, size_t stop, bool is_fused)
    : content_(std::move(content)), start_(start), stop_(stop), is_fused_(is_fused), left_(start) {}

void StripStep::push(std::string_view token, std::vector<std::string>& out) {
  if (!is_fused_) {
    left_ = start_;
  }
  while (left_ > 0 && token.starts_with(content_)) {
    token.remove_prefix(content_.size());
    --left_;
  }
  if (!token.empty()) {
    left_ = 0;
  }
  for (size_t i = 0; i < stop_ && token.ends_with(content_); ++i) {
    token.remove_suffix(content_.size());
  }
  out.emplace_back(token);
}

ReplaceTextStep::ReplaceTextStep(std::string pattern, std::string content)
    : pattern_(std::move(pattern)), content_(std::move(content)) {}

void ReplaceTextStep::push(std::string_view token, std::vector<std::string>& out) {
  out.push_back(pattern_.empty() ? std::string(token) : replace_all(token, pattern_, content_));
}

ReplaceRegexStep::ReplaceRegexStep(Regex regex, std::string content)
    : regex_(std::move(regex)), content_(std::move(content)) {}

void ReplaceRegexStep::push(std::string_view token, std::vector<std::string>& out) {
  std::string text;
  regex_.for_each_part(token, [&](size_t begin, size_t end, bool is_match) {
    text += is_match ? std::string_view(content_) : token.substr(begin, end - begin);
  });
  out.push_back(std::move(text));
}

MetaspaceStep::MetaspaceStep(std::string replacement, bool drops_first)
    : replacement_(std::move(replacement)), drops_first_(drops_first) {}

void MetaspaceStep::push(std::string_view token, std::vector<std::string>& out) {
  out.push_back(replace_all(token, replacement_, is_first_ && drops_first_ ? "" : " "));
  is_first_ = false;
}

void SpaceBetweenStep::push(std::string_view token, std::vector<std::string>& out) {
  out.push_back(is_first_ ? std::string(token) : " " + std::string(token));
  is_first_ = false;
}

}  // namespace switchyard

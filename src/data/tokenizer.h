#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace switchyard {

enum class SpecialTokens { kSkip, kKeep };  // what decoding does with them

// Tokens to text, one by one, so that generated text can be shown as it comes. What a later token
// may still change (the rest of a character, say) is held back.
class StreamDecoder {
 public:
  virtual ~StreamDecoder() = default;

  // Appends what has become certain to `text`. Throws ConfigError for an id outside the vocabulary.
  virtual void push(int32_t id, std::string& text) = 0;
  // Appends the rest, after the last token.
  virtual void finish(std::string& text) = 0;
};

// Text to token ids and back. Const members may be called from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string name() const = 0;         // as in data.tokenizer
  virtual int64_t vocab_size() const = 0;       // ids are 0 to vocab_size - 1; never padded here
  virtual int32_t end_of_document() const = 0;  // the id that ends each document
  // Equal for tokenizers that are made of the same parts, and so give the same ids for every text.
  // Stored beside the data.
  virtual uint64_t fingerprint() const = 0;

  // The ids of `text`, without an end of document or anything else around it. Any bytes are text:
  // broken UTF-8 is read as U+FFFD, but by the tokenizer `bytes`, which takes it as it is.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;

  // The last place up to `end` where `text` may be cut so that the ids of both parts are those of
  // the whole; 0 where none is known. For documents too long to be encoded at once.
  virtual size_t cut_before(std::string_view /*text*/, size_t /*end*/) const { return 0; }

  // The same with what the tokenizer's own files put around a text, such as a beginning of text.
  virtual std::vector<int32_t> encode_with_special_tokens(std::string_view text) const {
    return encode(text);
  }

  // A decoder for one text, which refers to this tokenizer.
  virtual std::unique_ptr<StreamDecoder> stream_decoder(
      SpecialTokens special = SpecialTokens::kSkip) const = 0;

  // The text of `ids`, which is the joined output of a StreamDecoder.
  // Throws ConfigError for an id outside the vocabulary.
  std::string decode(std::span<const int32_t> ids,
                     SpecialTokens special = SpecialTokens::kSkip) const;
};

// `name` is `bytes`, or the path of a tokenizer file or of a folder that holds one; which kinds are
// read, and what wins, is in docs/tokenizers.md. Throws ConfigError for any other name, and
// FileError for a file that is damaged or needs a component that is not implemented.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

}  // namespace switchyard

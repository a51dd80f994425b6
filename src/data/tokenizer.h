#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace switchyard {

// Text to token ids and back. Const members may be called from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string name() const = 0;         // as in data.tokenizer
  virtual int64_t vocab_size() const = 0;       // ids are 0 to vocab_size - 1; never padded here
  virtual int32_t end_of_document() const = 0;  // the id that ends each document
  // Equal for tokenizers that give the same ids for every text. Stored beside the data.
  virtual uint64_t fingerprint() const = 0;

  // The ids of `text`, without an end of document.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;

  // The last place up to `end` where `text` may be cut so that the ids of both parts are those of
  // the whole; 0 where none is known. For documents too long to be encoded at once.
  virtual size_t cut_before(std::string_view /*text*/, size_t /*end*/) const { return 0; }

  // The text of `ids`; the end of document has none. Joining the texts of consecutive pieces gives
  // the text of the whole, so that generated tokens can be printed one by one.
  // Throws ConfigError for an id outside the vocabulary.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
};

// Throws ConfigError, listing the tokenizers there are, for any other name.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

}  // namespace switchyard

#include "data/byte_tokenizer.h"

#include "base/error.h"
#include "base/random.h"

namespace switchyard {

uint64_t ByteTokenizer::fingerprint() const {
  return hash_name("bytes: ids 0 to 255 are the bytes, 256 ends a document");
}

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    ids[i] = static_cast<unsigned char>(text[i]);
  }
  return ids;
}

std::string ByteTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const int32_t id : ids) {
    check<ConfigError>(id >= 0 && id < vocab_size(),
                       "token id {} is outside the vocabulary of the tokenizer \"{}\" (0 to {})",
                       id, name(), vocab_size() - 1);
    if (id != end_of_document()) {
      text.push_back(static_cast<char>(id));
    }
  }
  return text;
}

}  // namespace switchyard

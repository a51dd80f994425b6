#include "data/byte_tokenizer.h"

#include "base/error.h"
#include "base/random.h"

namespace switchyard {
namespace {

class ByteStreamDecoder : public StreamDecoder {
 public:
  void push(int32_t id, std::string& text) override {
    const ByteTokenizer tokenizer;
    check<ConfigError>(id >= 0 && id < tokenizer.vocab_size(),
                       "token id {} is outside the vocabulary of the tokenizer \"{}\" (0 to {})",
                       id, tokenizer.name(), tokenizer.vocab_size() - 1);
    if (id != tokenizer.end_of_document()) {
      text.push_back(static_cast<char>(id));
    }
  }
  void finish(std::string& /*text*/) override {}
};

}  // namespace

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

std::unique_ptr<StreamDecoder> ByteTokenizer::stream_decoder(SpecialTokens /*special*/) const {
  return std::make_unique<ByteStreamDecoder>();
}

}  // namespace switchyard

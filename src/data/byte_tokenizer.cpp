#include "data/byte_tokenizer.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/random.h"
#include "data/tokenizers/byte_alphabet.h"

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

std::map<std::string, std::string> byte_tokenizer_files() {
  using Json = nlohmann::ordered_json;
  constexpr const char* kEnd = "<|end_of_document|>";
  Json vocabulary = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[to_byte_alphabet(std::string(1, static_cast<char>(byte)))] = byte;
  }
  const Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", false},
                      {"use_regex", false}};
  const Json end = {{"id", 256},       {"content", kEnd}, {"single_word", false},
                    {"lstrip", false}, {"rstrip", false}, {"normalized", false},
                    {"special", true}};
  const Json tokenizer = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", Json::array({end})},
      {"normalizer", nullptr},
      {"pre_tokenizer", bytes},
      {"post_processor", nullptr},
      {"decoder", bytes},
      {"model", {{"type", "BPE"}, {"vocab", std::move(vocabulary)}, {"merges", Json::array()}}}};
  const Json about = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                      {"clean_up_tokenization_spaces", false},
                      {"eos_token", kEnd}};
  return {{"tokenizer.json", tokenizer.dump(1) + "\n"},
          {"tokenizer_config.json", about.dump(2) + "\n"}};
}

}  // namespace switchyard

#include "data/tokenizer.h"

#include <filesystem>

#include "base/error.h"
#include "data/byte_tokenizer.h"
#include "data/tokenizers/tokenizer_files.h"

namespace switchyard {

std::string Tokenizer::decode(std::span<const int32_t> ids, SpecialTokens special) const {
  const auto decoder = stream_decoder(special);
  std::string text;
  for (const int32_t id : ids) {
    decoder->push(id, text);
  }
  decoder->finish(text);
  return text;
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  if (name == "bytes") {
    return std::make_unique<ByteTokenizer>();
  }
  check<ConfigError>(std::filesystem::exists(name),
                     "unknown tokenizer \"{}\": it is neither \"bytes\" nor the path of a file or "
                     "folder that is there",
                     name);
  return read_tokenizer(name);
}

}  // namespace switchyard

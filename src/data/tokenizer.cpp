#include "data/tokenizer.h"

#include "base/error.h"
#include "data/byte_tokenizer.h"

namespace switchyard {

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  check<ConfigError>(name == "bytes", "unknown tokenizer \"{}\"; known are: bytes", name);
  return std::make_unique<ByteTokenizer>();
}

}  // namespace switchyard

#pragma once

#include <map>
#include <string>

#include "data/tokenizer.h"

namespace switchyard {

// Ids 0 to 255 are the bytes of the text, 256 ends a document. Any bytes are text to it, and decode
// gives the same bytes back. The end of a document has no text.
class ByteTokenizer : public Tokenizer {
 public:
  std::string name() const override { return "bytes"; }
  int64_t vocab_size() const override { return 257; }
  int32_t end_of_document() const override { return 256; }
  uint64_t fingerprint() const override;
  std::vector<int32_t> encode(std::string_view text) const override;
  size_t cut_before(std::string_view /*text*/, size_t end) const override { return end; }
  std::unique_ptr<StreamDecoder> stream_decoder(
      SpecialTokens special = SpecialTokens::kSkip) const override;
};

// The same tokenizer as files that transformers reads, by name; make_tokenizer() reads them as
// `bytes` again. In transformers it cannot be given bytes that are
// not UTF-8, and the text "<|end_of_document|>" becomes the end of a document.
std::map<std::string, std::string> byte_tokenizer_files();

}  // namespace switchyard

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "data/tokenizers/added_tokens.h"
#include "data/tokenizers/normalizer.h"
#include "data/tokenizers/piece_model.h"
#include "data/tokenizers/pre_tokenizer.h"
#include "data/tokenizers/token_decoder.h"
#include "data/tokenizers/vocabulary.h"

namespace switchyard {

// What a tokenizer of stages is made of. Which files become which parts is for the readers of
// files.
struct TokenizerParts {
  std::string name;
  Vocabulary model_vocabulary;  // what the model refers to
  // By id, what decoding starts from; empty for a hole.
  std::vector<std::string> token_texts;
  std::vector<bool> is_special;

  AddedTokenMatcher added_tokens;               // looked for in the text as it comes
  std::unique_ptr<Normalizer> normalizer;       // none: text stays as it is
  AddedTokenMatcher normalized_added_tokens;    // looked for in the normalized text
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // none: the text is one piece
  std::unique_ptr<PieceModel> model;
  std::vector<std::function<std::unique_ptr<DecoderStep>()>> decoder;

  std::vector<int32_t> ids_before;  // special tokens around a text
  std::vector<int32_t> ids_after;
  int32_t end_of_document = 0;
  uint64_t fingerprint = 0;
};

// Text goes through these stages: added tokens are found and cut out; each part in between is
// normalized, searched for the rest of the added tokens, and cut into pieces, which the model turns
// into ids.
class PipelineTokenizer : public Tokenizer {
 public:
  explicit PipelineTokenizer(std::unique_ptr<TokenizerParts> parts);

  std::string name() const override { return parts_->name; }
  int64_t vocab_size() const override { return std::ssize(parts_->token_texts); }
  int32_t end_of_document() const override { return parts_->end_of_document; }
  uint64_t fingerprint() const override { return parts_->fingerprint; }
  std::vector<int32_t> encode(std::string_view text) const override;
  std::vector<int32_t> encode_with_special_tokens(std::string_view text) const override;
  std::unique_ptr<StreamDecoder> stream_decoder(
      SpecialTokens special = SpecialTokens::kSkip) const override;

 private:
  void encode_part(std::string_view part, bool at_start, std::vector<int32_t>& ids) const;
  void encode_normalized(std::string_view part, bool at_start, std::vector<int32_t>& ids) const;

  std::unique_ptr<const TokenizerParts> parts_;
};

}  // namespace switchyard

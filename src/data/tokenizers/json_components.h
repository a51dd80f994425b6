#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "data/tokenizers/json_object.h"
#include "data/tokenizers/normalizer.h"
#include "data/tokenizers/pre_tokenizer.h"
#include "data/tokenizers/token_decoder.h"

namespace switchyard {

// The components of a tokenizer.json. All throw FileError, which names file, place and kind, for a
// component that is not implemented or has a field that is missing or of another type.

std::unique_ptr<Normalizer> read_normalizer(const JsonObject& json);

struct PreTokenizerRead {
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  // Its last step is ByteLevel, whose alphabet was left out: pieces are the bytes of the text.
  bool keeps_bytes = false;
};
// `may_keep_bytes`: whether the model can take bytes instead of their alphabet.
PreTokenizerRead read_pre_tokenizer(const JsonObject& json, bool may_keep_bytes);

using MakeDecoderStep = std::function<std::unique_ptr<DecoderStep>()>;
std::vector<MakeDecoderStep> read_decoder(const JsonObject& json);

// Ids around a single text.
struct SurroundingIds {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};
SurroundingIds read_post_processor(const JsonObject& json);

}  // namespace switchyard

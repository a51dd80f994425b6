#pragma once

#include <memory>
#include <string>

#include "data/tokenizer.h"

namespace switchyard {

// Reads a file of ranks as tiktoken has them: a line for each token, its bytes in base64 and its
// id. Such a file lacks the pattern that cuts text and the special tokens. They come from FILE.json
// beside it, an object with "pattern", "special_tokens" (texts and ids), "end_of_document" (one of
// those) and optionally "normalization": "NFC"; else from the file's name and number of tokens, for
// those that are known: r50k_base, p50k_base, cl100k_base, o200k_base, qwen, qwen3_6. The name is
// that before .tiktoken; a tokenizer_config.json beside it whose tokenizer_class is QWenTokenizer
// means qwen.
//
// Throws FileError for a file that is damaged or of which pattern and special tokens are not known.
std::unique_ptr<Tokenizer> read_tiktoken(const std::string& path, const std::string& name);

// Reads a tekken.json of Mistral, which has all in it. Special tokens cannot come out of encoding.
// Ids and texts are equal to those of mistral-common.
std::unique_ptr<Tokenizer> read_tekken(const std::string& path, const std::string& name);

}  // namespace switchyard

#pragma once

#include <memory>
#include <string>

#include "data/tokenizer.h"

namespace switchyard {

// Reads a tokenizer.json as the tokenizers package writes it: models BPE and Unigram, with the
// components of json_components.h. Ids and texts are equal to the package's (0.23). Truncation and
// padding are not applied: they belong to a batch, not to the text. The end of a document is said
// by the files beside it (end_of_document.h).
//
// `name` becomes the tokenizer's. Throws FileError for a file that is damaged, contradicts itself,
// or needs what is not implemented.
std::unique_ptr<Tokenizer> read_tokenizer_json(const std::string& path, const std::string& name);

}  // namespace switchyard

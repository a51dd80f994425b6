#pragma once

#include <memory>
#include <string>

#include "data/tokenizer.h"

namespace switchyard {

// Reads a SentencePiece .model of type BPE or unigram. Ids and texts are equal to those of the
// sentencepiece package (0.2.3). Control pieces cannot come out of encoding and have no text. The
// end of a document is what the files beside it say (end_of_document.h), else the model's own end
// piece; a tokenizer_config.json with add_bos_token puts the beginning in front of a text with
// special tokens. Throws FileError for a file that is damaged or of a kind that is not implemented.
std::unique_ptr<Tokenizer> read_sentencepiece(const std::string& path, const std::string& name);

}  // namespace switchyard

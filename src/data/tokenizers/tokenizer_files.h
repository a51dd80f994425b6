#pragma once

#include <memory>
#include <string>

#include "data/tokenizer.h"

namespace switchyard {

// Reads the tokenizer in a file or folder; which kinds are known is said in
// docs/tokenizers.md. `path` also
// becomes its name. Throws FileError for a file that is of no known kind, or is damaged.
std::unique_ptr<Tokenizer> read_tokenizer(const std::string& path);

}  // namespace switchyard

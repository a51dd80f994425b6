#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace switchyard {

// The id that ends a document, as the files beside a tokenizer say: eos_token of
// tokenizer_config.json, else eos_token_id of generation_config.json, else of config.json (of a
// list, the first), else `otherwise`. `file` is the tokenizer's own file; `find` gives the id of a
// token, or -1. Throws FileError when no file says it, or the tokenizer lacks what it says.
int32_t find_end_of_document(const std::string& file, int64_t vocab_size,
                             const std::function<int32_t(std::string_view)>& find,
                             std::optional<int32_t> otherwise = std::nullopt);

}  // namespace switchyard

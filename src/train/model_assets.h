#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace switchyard {

// The folder of a run whose files go along with the model into every checkpoint, and from there
// into an exported directory: its tokenizer, and generation_config.json with the ids of its special
// tokens. A run that goes on needs no other tokenizer.

// Fills RUN/assets for a run that begins. `model_assets` are those of the model that it starts
// from, whose tokenizer has the fingerprint `model_tokenizer`; both are empty for a model made from
// scratch. A model that trains with another tokenizer than its own gets that one, and loses what
// spoke of the old. Throws FileError.
void write_assets(const std::filesystem::path& run, const Tokenizer& tokenizer,
                  const std::vector<std::filesystem::path>& model_assets,
                  std::optional<uint64_t> model_tokenizer);

// RUN/assets when a tokenizer is in it.
std::optional<std::string> kept_tokenizer(const std::filesystem::path& run);

}  // namespace switchyard

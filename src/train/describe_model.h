#pragma once

#include <filesystem>
#include <string>

namespace switchyard {

// What a checkpoint, or the latest of a folder of them, is as a model, in lines for a person: the
// Hugging Face family that it came from or would be exported as, its tokenizer, and the settings
// that differ from their defaults. Throws FileError and ConfigError as open_model_source() does.
std::string describe_model(const std::filesystem::path& checkpoint);

}  // namespace switchyard

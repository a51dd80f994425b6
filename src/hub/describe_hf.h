#pragma once

#include <filesystem>
#include <string>

namespace switchyard {

// A Hugging Face directory in words and tables: what family it is, the settings that its
// config.json means, its tensors and the logical tensors they make, the files that go with it.
// Throws as open_hf_model() does.
std::string describe_hf_model(const std::filesystem::path& path);

}  // namespace switchyard

#pragma once

#include <string>
#include <vector>

namespace switchyard {

// The texts of a file: one per line that is not empty, or the string under `key` of each line of a
// .jsonl file; also as .gz or .zst. Throws FileError, naming file and line.
std::vector<std::string> read_prompts(const std::string& path, const std::string& key);

}  // namespace switchyard

#include "data/prompt_file.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "data/json_line.h"
#include "data/text_source.h"

namespace switchyard {
namespace {

std::string read_all(const std::string& path) {
  const auto source = open_text(path);
  constexpr size_t kStep = size_t{1} << 16;
  std::string text;
  size_t got = kStep;
  while (got == kStep) {
    const size_t before = text.size();
    text.resize(before + kStep);
    got = source->read(text.data() + before, kStep);
    text.resize(before + got);
  }
  return text;
}

}  // namespace

std::vector<std::string> read_prompts(const std::string& path, const std::string& key) {
  const bool is_json = uncompressed_name(path).ends_with(".jsonl");
  const std::string text = read_all(path);
  std::vector<std::string> prompts;
  int64_t number = 1;
  for (size_t start = 0; start < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', start), text.size());
    std::string_view line = std::string_view(text).substr(start, end - start);
    start = end + 1;
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (line.find_first_not_of(" \t") == std::string_view::npos) {
      continue;
    }
    if (!is_json) {
      prompts.emplace_back(line);
      continue;
    }
    const JsonLine read = text_of_json_line(line, key);
    check<FileError>(read.mistake.empty(), "{}:{}: the line {}; mend it or name another --key",
                     path, number, read.mistake);
    prompts.push_back(read.text);
  }
  check<FileError>(!prompts.empty(), "{} holds no text to continue", path);
  return prompts;
}

}  // namespace switchyard

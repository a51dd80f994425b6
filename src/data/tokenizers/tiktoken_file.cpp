#include "data/tokenizers/tiktoken_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/mapped_file.h"
#include "data/tokenizers/byte_bpe.h"
#include "data/tokenizers/json_object.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<std::pair<std::string, int32_t>>;
constexpr int32_t kMaxId = (1 << 28) - 1;  // far above any vocabulary

// Patterns as in tiktoken's openai_public.py and in Qwen's tokenization_qwen.py.
constexpr const char* kR50k =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)";
constexpr const char* kCl100k =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+)"
    R"(|\s++$|\s*[\r\n]|\s+(?!\S)|\s)";
constexpr const char* kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen36 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What a file of ranks lacks.
struct Scheme {
  size_t num_tokens = 0;  // of the file; 0: any
  std::string pattern;
  Tokens special_tokens;
  std::string end_of_document;
  bool normalizes = false;
};

Tokens numbered(const std::vector<std::string>& texts, int32_t first) {
  Tokens tokens;
  for (const std::string& text : texts) {
    tokens.emplace_back(text, first++);
  }
  return tokens;
}

Scheme qwen() {
  std::vector<std::string> special = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  for (int i = 0; i < 205; ++i) {
    special.push_back(fmt::format("<|extra_{}|>", i));
  }
  return {151643, kQwen, numbered(special, 151643), "<|endoftext|>", true};
}

Scheme qwen36() {
  const std::vector<std::string> special = {"<|endoftext|>",
                                            "<|im_start|>",
                                            "<|im_end|>",
                                            "<|object_ref_start|>",
                                            "<|object_ref_end|>",
                                            "<|box_start|>",
                                            "<|box_end|>",
                                            "<|quad_start|>",
                                            "<|quad_end|>",
                                            "<|vision_start|>",
                                            "<|vision_end|>",
                                            "<|vision_pad|>",
                                            "<|image_pad|>",
                                            "<|video_pad|>",
                                            "<tool_call>",
                                            "</tool_call>",
                                            "<|fim_prefix|>",
                                            "<|fim_middle|>",
                                            "<|fim_suffix|>",
                                            "<|fim_pad|>",
                                            "<|repo_name|>",
                                            "<|file_sep|>",
                                            "<tool_response>",
                                            "</tool_response>",
                                            "<think>",
                                            "</think>",
                                            "<|audio_start|>",
                                            "<|audio_end|>",
                                            "<tts_pad>",
                                            "<tts_text_bos>",
                                            "<tts_text_eod>",
                                            "<tts_text_bos_single>",
                                            "<|audio_pad|>"};
  return {248044, kQwen36, numbered(special, 248044), "<|endoftext|>", true};
}

std::optional<Scheme> known_scheme(const std::string& name) {
  const std::string end = "<|endoftext|>";
  if (name == "r50k_base" || name == "p50k_base") {
    return Scheme{name == "r50k_base" ? size_t{50256} : size_t{50280}, kR50k, {{end, 50256}}, end};
  }
  if (name == "cl100k_base") {
    return Scheme{100256,
                  kCl100k,
                  {{end, 100257},
                   {"<|fim_prefix|>", 100258},
                   {"<|fim_middle|>", 100259},
                   {"<|fim_suffix|>", 100260},
                   {"<|endofprompt|>", 100276}},
                  end};
  }
  if (name == "o200k_base") {
    return Scheme{199998, kO200k, {{end, 199999}, {"<|endofprompt|>", 200018}}, end};
  }
  if (name == "qwen") {
    return qwen();
  }
  return name == "qwen3_6" ? std::optional(qwen36()) : std::nullopt;
}

Scheme read_scheme(const std::string& path) {
  const nlohmann::json json = read_json_file(path);
  const JsonObject file(json, path);
  Scheme scheme;
  scheme.pattern = file.text("pattern");
  const JsonObject special = file.object("special_tokens");
  for (const auto& [text, id] : special.raw().items()) {
    check<FileError>(!text.empty() && id.is_number_integer() && id.get<int64_t>() >= 0 &&
                         id.get<int64_t>() <= kMaxId,
                     "{}: the id of \"{}\" is {}, expected 0 to {}", special.where(), text,
                     id.dump(), kMaxId);
    scheme.special_tokens.emplace_back(text, id.get<int32_t>());
  }
  scheme.end_of_document = file.text("end_of_document");
  scheme.normalizes = file.has("normalization");
  check<FileError>(!scheme.normalizes || file.text("normalization") == "NFC",
                   "{}: \"normalization\" is {}, expected \"NFC\"", path,
                   scheme.normalizes ? file.value("normalization").dump() : "");
  return scheme;
}

bool has_qwen_config(const fs::path& folder) {
  const std::string path = folder / "tokenizer_config.json";
  if (!fs::exists(path)) {
    return false;
  }
  const nlohmann::json json = read_json_file(path);
  return JsonObject(json, path).optional_text("tokenizer_class") == "QWenTokenizer";
}

Scheme find_scheme(const fs::path& path) {
  const std::string described = path.string() + ".json";
  if (fs::exists(described)) {
    return read_scheme(described);
  }
  auto scheme = known_scheme(path.stem());
  if (!scheme && has_qwen_config(path.parent_path())) {
    scheme = qwen();
  }
  check<FileError>(scheme.has_value(),
                   "{} holds tokens with their ranks, but not the pattern that cuts text nor the "
                   "special tokens, and its name is not that of a known one (r50k_base, p50k_base, "
                   "cl100k_base, o200k_base, qwen, qwen3_6): write {} with \"pattern\", "
                   "\"special_tokens\" and \"end_of_document\"",
                   path.string(), described);
  return *scheme;
}

Tokens read_ranks(const std::string& path) {
  const MappedFile file(path);
  std::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  Tokens tokens;
  for (size_t line_number = 1; !rest.empty(); ++line_number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (line.empty()) {
      continue;
    }
    const std::string where = fmt::format("{}, line {}", path, line_number);
    const size_t space = std::min(line.find(' '), line.size());
    int32_t id = -1;
    const char* last = line.data() + line.size();
    const auto read = std::from_chars(line.data() + std::min(space + 1, line.size()), last, id);
    check<FileError>(
        space > 0 && read.ec == std::errc() && read.ptr == last && id >= 0 && id <= kMaxId,
        "{}: expected a token in base64, a space and its id", where);
    tokens.emplace_back(decode_base64(line.substr(0, space), where), id);
    check<FileError>(!tokens.back().first.empty(), "{}: the token is empty", where);
  }
  check<FileError>(!tokens.empty(), "{} holds no tokens", path);
  return tokens;
}

int32_t id_of(const Tokens& tokens, const std::string& text, const std::string& where) {
  for (const auto& [token, id] : tokens) {
    if (token == text) {
      return id;
    }
  }
  throw FileError(fmt::format("{}: the end of a document is \"{}\", which is not a special token",
                              where, text));
}

// The special tokens of files from before version 8, which do not list theirs.
const std::vector<std::string> kOldTekken = {"<unk>",
                                             "<s>",
                                             "</s>",
                                             "[INST]",
                                             "[/INST]",
                                             "[AVAILABLE_TOOLS]",
                                             "[/AVAILABLE_TOOLS]",
                                             "[TOOL_RESULTS]",
                                             "[/TOOL_RESULTS]",
                                             "[TOOL_CALLS]",
                                             "[IMG]",
                                             "<pad>",
                                             "[IMG_BREAK]",
                                             "[IMG_END]",
                                             "[PREFIX]",
                                             "[MIDDLE]",
                                             "[SUFFIX]",
                                             "[SYSTEM_PROMPT]",
                                             "[/SYSTEM_PROMPT]",
                                             "[TOOL_CONTENT]"};

Tokens tekken_special_tokens(const JsonObject& file, int64_t count) {
  Tokens tokens;
  if (file.has("special_tokens")) {
    for (const JsonObject& token : file.objects("special_tokens")) {
      check<FileError>(token.integer("rank") == std::ssize(tokens),
                       "{}: \"rank\" is {}, expected {}: special tokens follow each other",
                       token.where(), token.integer("rank"), tokens.size());
      tokens.emplace_back(token.text("token_str"), static_cast<int32_t>(tokens.size()));
    }
  } else {
    tokens = numbered(kOldTekken, 0);
  }
  check<FileError>(std::ssize(tokens) <= count, "{}: {} special tokens, more than the {} of config",
                   file.where(), tokens.size(), count);
  while (std::ssize(tokens) < count) {
    tokens.emplace_back(fmt::format("<SPECIAL_{}>", tokens.size()),
                        static_cast<int32_t>(tokens.size()));
  }
  return tokens;
}

}  // namespace

std::unique_ptr<Tokenizer> read_tiktoken(const std::string& path, const std::string& name) {
  Tokens tokens = read_ranks(path);
  Scheme scheme = find_scheme(path);
  check<FileError>(scheme.num_tokens == 0 || scheme.num_tokens == tokens.size(),
                   "{} holds {} tokens, but its name is that of a tokenizer of {}: it is cut off, "
                   "or another one, which needs {}.json beside it",
                   path, tokens.size(), scheme.num_tokens, path);
  ByteBpe description;
  description.name = name;
  description.file = path;
  description.tokens = std::move(tokens);
  description.end_of_document = id_of(scheme.special_tokens, scheme.end_of_document, path);
  description.special_tokens = std::move(scheme.special_tokens);
  description.normalizes = scheme.normalizes;
  description.pattern = std::move(scheme.pattern);
  return make_byte_bpe(std::move(description));
}

std::unique_ptr<Tokenizer> read_tekken(const std::string& path, const std::string& name) {
  const nlohmann::json json = read_json_file(path);
  const JsonObject file(json, path);
  const JsonObject config = file.object("config");
  const int64_t num_special = config.integer("default_num_special_tokens");
  const int64_t size = config.integer("default_vocab_size");
  check<FileError>(num_special > 0 && num_special < size && size <= kMaxId,
                   "{}: {} special tokens of {} tokens", config.where(), num_special, size);
  ByteBpe description;
  description.name = name;
  description.file = path;
  description.special_tokens = tekken_special_tokens(file, num_special);
  description.end_of_document = id_of(description.special_tokens, "</s>", path);
  description.finds_special_tokens = false;
  description.pattern = config.text("pattern");
  for (const JsonObject& token : file.objects("vocab")) {
    const auto rank = std::ssize(description.tokens);
    if (rank == size - num_special) {
      break;  // the rest belongs to larger vocabularies
    }
    check<FileError>(token.integer("rank") == rank,
                     "{}: \"rank\" is {}, expected {}: tokens follow each other", token.where(),
                     token.integer("rank"), rank);
    description.tokens.emplace_back(decode_base64(token.text("token_bytes"), token.where()),
                                    static_cast<int32_t>(rank + num_special));
  }
  check<FileError>(std::ssize(description.tokens) == size - num_special,
                   "{}: {} tokens, but config says {} and {} special ones", path,
                   description.tokens.size(), size - num_special, num_special);
  return make_byte_bpe(std::move(description));
}

}  // namespace switchyard

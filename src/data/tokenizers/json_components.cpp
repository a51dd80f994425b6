#include "data/tokenizers/json_components.h"

#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/tokenizers/characters.h"
#include "data/tokenizers/utf8.h"

namespace switchyard {
namespace {

// Deeper than any real file, and far from the end of the stack.
constexpr int kMaxDepth = 16;

void check_depth(const JsonObject& json, int depth) {
  check<FileError>(depth < kMaxDepth, "{}: sequences inside sequences, more than {} deep",
                   json.where(), kMaxDepth);
}

[[noreturn]] void refuse(const JsonObject& json, const char* kind, const char* known) {
  throw FileError(fmt::format("{}: the {} \"{}\" is not implemented; known are: {}", json.where(),
                              kind, json.type(), known));
}

// A pattern is {"String": ...} or {"Regex": ...}.
struct Pattern {
  std::string text;
  bool is_regex = false;
};

Pattern read_pattern(const JsonObject& json) {
  const JsonObject pattern = json.object("pattern");
  if (pattern.has("Regex")) {
    return {pattern.text("Regex"), true};
  }
  check<FileError>(pattern.has("String"), "{} has neither \"String\" nor \"Regex\"",
                   pattern.where());
  return {pattern.text("String"), false};
}

Regex compile(const Pattern& pattern, const JsonObject& json) {
  return {pattern.is_regex ? pattern.text : escape_regex(pattern.text), RegexSyntax::kOniguruma,
          json.where()};
}

std::string read_character(const JsonObject& json, const char* key) {
  std::string text = json.text(key);
  check<FileError>(!text.empty() && text.size() == character_length(text[0]),
                   "{}: \"{}\" is \"{}\", expected one character", json.where(), key, text);
  return text;
}

size_t read_count(const JsonObject& json, const char* key) {
  const int64_t count = json.integer(key);
  check<FileError>(count >= 0, "{}: \"{}\" is {}, below 0", json.where(), key, count);
  return static_cast<size_t>(count);
}

SplitBehavior read_behavior(const JsonObject& json) {
  return static_cast<SplitBehavior>(json.word(
      "behavior", {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}));
}

// The old spelling is add_prefix_space, the new one prepend_scheme.
PrependScheme read_prepend_scheme(const JsonObject& json) {
  auto scheme = PrependScheme::kAlways;
  if (json.has("prepend_scheme")) {
    scheme = static_cast<PrependScheme>(json.word("prepend_scheme", {"always", "never", "first"}));
  }
  if (!json.flag("add_prefix_space", true)) {
    check<FileError>(scheme == PrependScheme::kNever || !json.has("prepend_scheme"),
                     "{}: \"add_prefix_space\" is false, but \"prepend_scheme\" is \"{}\"",
                     json.where(), json.optional_text("prepend_scheme").value_or(""));
    scheme = PrependScheme::kNever;
  }
  return scheme;
}

std::unique_ptr<Normalizer> normalizer_of(const JsonObject& json, int depth) {
  check_depth(json, depth);
  const std::string type = json.type();
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Normalizer>> steps;
    for (const JsonObject& step : json.objects("normalizers")) {
      steps.push_back(normalizer_of(step, depth + 1));
    }
    return std::make_unique<NormalizerSequence>(std::move(steps));
  }
  const std::pair<const char*, NormalForm> forms[] = {{"NFC", NormalForm::kNfc},
                                                      {"NFD", NormalForm::kNfd},
                                                      {"NFKC", NormalForm::kNfkc},
                                                      {"NFKD", NormalForm::kNfkd}};
  for (const auto& [name, form] : forms) {
    if (type == name) {
      return std::make_unique<NormalFormNormalizer>(form);
    }
  }
  if (type == "Lowercase") {
    return std::make_unique<LowercaseNormalizer>();
  }
  if (type == "StripAccents") {
    return std::make_unique<StripAccentsNormalizer>();
  }
  if (type == "Strip") {
    return std::make_unique<StripNormalizer>(json.flag("strip_left"), json.flag("strip_right"));
  }
  if (type == "Prepend") {
    return std::make_unique<PrependNormalizer>(json.text("prepend"));
  }
  if (type == "Replace") {
    Pattern pattern = read_pattern(json);
    if (pattern.is_regex) {
      return std::make_unique<ReplaceRegexNormalizer>(compile(pattern, json), json.text("content"));
    }
    return std::make_unique<ReplaceTextNormalizer>(std::move(pattern.text), json.text("content"));
  }
  if (type == "ByteLevel") {
    return std::make_unique<ByteLevelNormalizer>();
  }
  refuse(json, "normalizer",
         "ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence, Strip, "
         "StripAccents");
}

PreTokenizerRead pre_tokenizer_of(const JsonObject& json, bool may_keep_bytes, int depth);

PreTokenizerRead pre_tokenizer_sequence(const JsonObject& json, bool may_keep_bytes, int depth) {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  bool keeps_bytes = false;
  const std::vector<JsonObject> parts = json.objects("pretokenizers");
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool is_last = i + 1 == parts.size();
    auto read = pre_tokenizer_of(parts[i], may_keep_bytes && is_last, depth + 1);
    keeps_bytes = read.keeps_bytes;
    steps.push_back(std::move(read.pre_tokenizer));
  }
  return {std::make_unique<PreTokenizerSequence>(std::move(steps)), keeps_bytes};
}

PreTokenizerRead pre_tokenizer_of(const JsonObject& json, bool may_keep_bytes, int depth) {
  check_depth(json, depth);
  const std::string type = json.type();
  if (type == "Sequence") {
    return pre_tokenizer_sequence(json, may_keep_bytes, depth);
  }
  if (type == "ByteLevel") {
    return {std::make_unique<ByteLevelSplit>(json.flag("add_prefix_space"),
                                             json.flag("use_regex", true), may_keep_bytes),
            may_keep_bytes};
  }
  if (type == "Split") {
    const SplitBehavior behavior = read_behavior(json);
    const Pattern pattern = read_pattern(json);
    return {std::make_unique<RegexSplit>(compile(pattern, json), behavior, json.flag("invert"))};
  }
  if (type == "Metaspace") {
    std::string replacement = read_character(json, "replacement");
    return {std::make_unique<MetaspaceSplit>(std::move(replacement), read_prepend_scheme(json),
                                             json.flag("split", true))};
  }
  if (type == "Digits") {
    return {std::make_unique<CharacterSplit>(&is_number, json.flag("individual_digits")
                                                             ? SplitBehavior::kIsolated
                                                             : SplitBehavior::kContiguous)};
  }
  if (type == "Punctuation") {
    return {std::make_unique<CharacterSplit>(
        &is_punctuation, json.has("behavior") ? read_behavior(json) : SplitBehavior::kIsolated)};
  }
  if (type == "Whitespace") {
    return {std::make_unique<RegexSplit>(Regex("\\w+|[^\\w\\s]+", RegexSyntax::kRust, json.where()),
                                         SplitBehavior::kRemoved, /*is_inverted=*/true)};
  }
  if (type == "WhitespaceSplit") {
    return {std::make_unique<CharacterSplit>(&is_white_space, SplitBehavior::kRemoved)};
  }
  refuse(json, "pre_tokenizer",
         "ByteLevel, Digits, Metaspace, Punctuation, Sequence, Split, Whitespace, "
         "WhitespaceSplit");
}

// All decoders of a file in one list, for a sequence is but the list of its parts.
void collect_decoders(const JsonObject& json, int depth, std::vector<JsonObject>& all) {
  check_depth(json, depth);
  if (json.type() != "Sequence") {
    all.push_back(json);
    return;
  }
  for (const JsonObject& part : json.objects("decoders")) {
    collect_decoders(part, depth + 1, all);
  }
}

// Whether `json` changes a text in parts as it would change it whole.
bool works_on_parts(const JsonObject& json) {
  return json.type() == "Fuse" ||
         (json.type() == "Strip" && json.integer("stop") == 0 && json.integer("start") >= 0);
}

MakeDecoderStep decoder_of(const JsonObject& json, bool is_fused, bool passes_on) {
  const std::string type = json.type();
  if (type == "ByteLevel") {
    return [] { return std::make_unique<ByteLevelStep>(); };
  }
  if (type == "ByteFallback") {
    return [] { return std::make_unique<ByteFallbackStep>(); };
  }
  if (type == "Fuse") {
    return [=] { return std::make_unique<FuseStep>(passes_on); };
  }
  if (type == "Strip") {
    const std::string content = read_character(json, "content");
    const size_t start = read_count(json, "start");
    const size_t stop = read_count(json, "stop");
    return [=] { return std::make_unique<StripStep>(content, start, stop, is_fused); };
  }
  if (type == "Replace") {
    const Pattern pattern = read_pattern(json);
    const std::string content = json.text("content");
    if (!pattern.is_regex) {
      return [=] { return std::make_unique<ReplaceTextStep>(pattern.text, content); };
    }
    const Regex regex = compile(pattern, json);
    return [=] { return std::make_unique<ReplaceRegexStep>(regex, content); };
  }
  if (type == "Metaspace") {
    const std::string replacement = read_character(json, "replacement");
    const bool drops_first = read_prepend_scheme(json) != PrependScheme::kNever;
    return [=] { return std::make_unique<MetaspaceStep>(replacement, drops_first); };
  }
  refuse(json, "decoder", "ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip");
}

int32_t read_id(const nlohmann::json& value, const JsonObject& json) {
  check<FileError>(
      value.is_number_integer() && value.get<int64_t>() >= 0 && value.get<int64_t>() <= INT32_MAX,
      "{}: {} is not a token id", json.where(), value.dump());
  return value.get<int32_t>();
}

// A special token of BertProcessing and RobertaProcessing: [text, id].
int32_t read_pair_id(const JsonObject& json, const char* key) {
  const nlohmann::json& pair = json.array(key);
  check<FileError>(pair.size() == 2, "{}: \"{}\" is not a text and an id", json.where(), key);
  return read_id(pair[1], json);
}

SurroundingIds read_template(const JsonObject& json) {
  SurroundingIds ids;
  int num_sequences = 0;
  for (const JsonObject& part : json.objects("single")) {
    if (part.has("Sequence")) {
      check<FileError>(part.object("Sequence").text("id") == "A" && ++num_sequences == 1,
                       "{}: only templates with one sequence, A, are implemented", part.where());
      continue;
    }
    const std::string name = part.object("SpecialToken").text("id");
    const JsonObject token = json.object("special_tokens").object(name.c_str());
    for (const nlohmann::json& id : token.array("ids")) {
      (num_sequences == 0 ? ids.before : ids.after).push_back(read_id(id, token));
    }
  }
  check<FileError>(num_sequences == 1, "{}: the template \"single\" has no sequence", json.where());
  return ids;
}

SurroundingIds post_processor_of(const JsonObject& json, int depth) {
  check_depth(json, depth);
  const std::string type = json.type();
  if (type == "ByteLevel") {
    return {};  // changes offsets only
  }
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    return {{read_pair_id(json, "cls")}, {read_pair_id(json, "sep")}};
  }
  if (type == "TemplateProcessing") {
    return read_template(json);
  }
  if (type == "Sequence") {
    SurroundingIds ids;
    for (const JsonObject& part : json.objects("processors")) {
      const SurroundingIds outer = post_processor_of(part, depth + 1);
      ids.before.insert(ids.before.begin(), outer.before.begin(), outer.before.end());
      ids.after.insert(ids.after.end(), outer.after.begin(), outer.after.end());
    }
    return ids;
  }
  refuse(json, "post_processor",
         "BertProcessing, ByteLevel, RobertaProcessing, Sequence, TemplateProcessing");
}

}  // namespace

std::unique_ptr<Normalizer> read_normalizer(const JsonObject& json) {
  return normalizer_of(json, 0);
}

PreTokenizerRead read_pre_tokenizer(const JsonObject& json, bool may_keep_bytes) {
  return pre_tokenizer_of(json, may_keep_bytes, 0);
}

std::vector<MakeDecoderStep> read_decoder(const JsonObject& json) {
  std::vector<JsonObject> parts;
  collect_decoders(json, 0, parts);
  size_t first_on_parts = parts.size();
  while (first_on_parts > 0 && works_on_parts(parts[first_on_parts - 1])) {
    --first_on_parts;
  }
  std::vector<MakeDecoderStep> steps;
  bool is_fused = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool passes_on = i >= first_on_parts;
    steps.push_back(decoder_of(parts[i], is_fused && passes_on, passes_on));
    is_fused = is_fused || parts[i].type() == "Fuse";
  }
  return steps;
}

SurroundingIds read_post_processor(const JsonObject& json) {
  return post_processor_of(json, 0);
}

}  // namespace switchyard

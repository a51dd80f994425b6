#include "data/tokenizers/byte_bpe.h"

#include <algorithm>

#include "base/error.h"
#include "data/tokenizers/bpe.h"
#include "data/tokenizers/fingerprint.h"
#include "data/tokenizers/pipeline_tokenizer.h"

namespace switchyard {
namespace {

constexpr auto kNone = Vocabulary::kNone;

// Each way to cut a token into two tokens is a merge.
std::vector<BpeMerge> merges_of(const Vocabulary& vocabulary) {
  std::vector<BpeMerge> merges;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view text = vocabulary.text(id);
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const int32_t left = vocabulary.find(text.substr(0, cut));
      const int32_t right = left == kNone ? kNone : vocabulary.find(text.substr(cut));
      if (right != kNone) {
        merges.push_back({left, right, id, static_cast<uint32_t>(id)});
      }
    }
  }
  return merges;
}

void check_bytes(const Vocabulary& vocabulary, const std::string& file) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    check<FileError>(vocabulary.find({&text, 1}) != kNone,
                     "{}: no token is the byte 0x{:02x}, so that some texts cannot be written",
                     file, byte);
  }
}

uint64_t fingerprint_of(const ByteBpe& description) {
  Fingerprint fingerprint;
  fingerprint.add(description.pattern);
  fingerprint.add(description.normalizes ? 1 : 0);
  fingerprint.add(description.finds_special_tokens ? 1 : 0);
  fingerprint.add(description.end_of_document);
  for (const auto* tokens : {&description.tokens, &description.special_tokens}) {
    for (const auto& [text, id] : *tokens) {
      fingerprint.add(id);
      fingerprint.add(text);
    }
  }
  return fingerprint.value();
}

}  // namespace

std::unique_ptr<Tokenizer> make_byte_bpe(ByteBpe description) {
  auto parts = std::make_unique<TokenizerParts>();
  parts->name = description.name;
  parts->fingerprint = fingerprint_of(description);
  parts->end_of_document = description.end_of_document;
  const auto put_text = [&](int32_t id, const std::string& text) {
    const auto index = static_cast<size_t>(id);
    parts->token_texts.resize(std::max(parts->token_texts.size(), index + 1));
    check<FileError>(parts->token_texts[index].empty(), "{}: two tokens have the id {}",
                     description.file, id);
    parts->token_texts[index] = text;
  };
  for (const auto& [text, id] : description.tokens) {
    put_text(id, text);
  }
  for (const auto& [text, id] : description.special_tokens) {
    put_text(id, text);
    // Special tokens are looked for in normalized text, as Qwen's own code does.
    const AddedToken token{.id = id, .content = text, .is_special = true};
    if (description.finds_special_tokens) {
      parts->normalized_added_tokens.add(token, text);
    }
  }
  parts->is_special.resize(parts->token_texts.size());
  for (const auto& [text, id] : description.special_tokens) {
    parts->is_special[static_cast<size_t>(id)] = true;
  }
  const auto num_tokens = description.tokens.size();
  parts->model_vocabulary = Vocabulary(std::move(description.tokens));
  check<FileError>(static_cast<size_t>(parts->model_vocabulary.num_tokens()) == num_tokens,
                   "{}: a token is there twice", description.file);
  check_bytes(parts->model_vocabulary, description.file);
  if (description.normalizes) {
    parts->normalizer =
        std::make_unique<NormalFormNormalizer>(NormalForm::kNfc, NormalTables::kCurrent);
  }
  parts->pre_tokenizer = std::make_unique<RegexSplit>(
      Regex(description.pattern, RegexSyntax::kRust, description.file), SplitBehavior::kRemoved,
      /*is_inverted=*/true);
  BpeOptions options;
  options.uses_bytes = true;
  options.ignores_merges = true;
  parts->model = std::make_unique<Bpe>(parts->model_vocabulary, merges_of(parts->model_vocabulary),
                                       std::move(options));
  parts->decoder.push_back([] { return std::make_unique<BytesStep>(); });
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

std::string decode_base64(std::string_view text, const std::string& where) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::string_view digits = text.substr(0, text.find('='));
  check<FileError>(text.size() % 4 == 0 && text.size() - digits.size() <= 2,
                   "{}: \"{}\" is not base64", where, text);
  std::string out;
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char digit : digits) {
    const size_t value = kDigits.find(digit);
    check<FileError>(value != std::string_view::npos, "{}: \"{}\" is not base64", where, text);
    bits = bits << 6 | static_cast<uint32_t>(value);
    num_bits += 6;
    if (num_bits >= 8) {
      num_bits -= 8;
      out.push_back(static_cast<char>(bits >> num_bits & 255U));
    }
  }
  return out;
}

}  // namespace switchyard

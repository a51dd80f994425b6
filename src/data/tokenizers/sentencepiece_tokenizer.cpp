#include "data/tokenizers/sentencepiece_tokenizer.h"

#include <algorithm>
#include <cfloat>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/mapped_file.h"
#include "data/tokenizers/bpe.h"
#include "data/tokenizers/byte_trie.h"
#include "data/tokenizers/end_of_document.h"
#include "data/tokenizers/fingerprint.h"
#include "data/tokenizers/json_object.h"
#include "data/tokenizers/sentencepiece_model.h"
#include "data/tokenizers/sentencepiece_normalizer.h"
#include "data/tokenizers/unigram.h"
#include "data/tokenizers/utf8.h"

namespace switchyard {
namespace {

using PieceType = SentencePieceModel::PieceType;
constexpr auto kNone = Vocabulary::kNone;
constexpr std::string_view kSpaceMark = "\xe2\x96\x81";
constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";

bool is_found_in_text(PieceType type) {
  return type == PieceType::kNormal || type == PieceType::kUserDefined;
}

Vocabulary vocabulary_of(const SentencePieceModel& model) {
  std::vector<std::pair<std::string, int32_t>> tokens;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (is_found_in_text(model.pieces[id].type)) {
      tokens.emplace_back(model.pieces[id].text, static_cast<int32_t>(id));
    }
  }
  return Vocabulary(std::move(tokens));
}

// Two pieces that make a piece are merged, those of the highest score first.
std::vector<BpeMerge> merges_of(const SentencePieceModel& model, const Vocabulary& vocabulary,
                                const std::string& path) {
  std::vector<float> scores;
  for (const auto& piece : model.pieces) {
    scores.push_back(piece.score);
  }
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  std::vector<BpeMerge> merges;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view text = vocabulary.text(id);
    const auto& piece = model.pieces[static_cast<size_t>(id)];
    if (text.empty() || piece.type != PieceType::kNormal) {
      continue;
    }
    const auto rank = static_cast<uint32_t>(
        std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>()) -
        scores.begin());
    for (size_t begin = 0; begin < text.size();) {
      const size_t cut = begin + character_length(text[begin]);
      check<FileError>(vocabulary.find(text.substr(begin, cut - begin)) != kNone,
                       "{}: the piece \"{}\" has a character that is not a piece, which is not "
                       "implemented",
                       path, text);
      const int32_t left = vocabulary.find(text.substr(0, cut));
      const int32_t right = cut < text.size() ? vocabulary.find(text.substr(cut)) : kNone;
      if (left != kNone && right != kNone) {
        merges.push_back({left, right, id, rank});
      }
      begin = cut;
    }
  }
  return merges;
}

// What the tokenizer and its decoders share.
struct Parts {
  SentencePieceModel model;
  Vocabulary vocabulary;
  ByteTrie user_defined;
  std::optional<int32_t> unknown;
  std::vector<int> byte_values;  // by id; -1 for a piece that is no byte
};

int byte_value(const std::string& text, const std::string& path) {
  for (int byte = 0; byte < 256; ++byte) {
    if (text == fmt::format("<0x{:02X}>", byte)) {
      return byte;
    }
  }
  throw FileError(fmt::format("{}: the byte piece \"{}\" is not <0x00> to <0xFF>", path, text));
}

std::vector<int32_t> byte_ids(const Parts& parts, const std::string& path) {
  if (!parts.model.byte_fallback) {
    return {};
  }
  std::vector<int32_t> ids(256, kNone);
  for (size_t id = 0; id < parts.byte_values.size(); ++id) {
    if (parts.byte_values[id] >= 0) {
      ids[static_cast<size_t>(parts.byte_values[id])] = static_cast<int32_t>(id);
    }
  }
  check<FileError>(std::find(ids.begin(), ids.end(), kNone) == ids.end(),
                   "{}: byte_fallback is on, but not all 256 byte pieces are there", path);
  return ids;
}

void read_piece(int32_t id, const std::string& path, Parts& parts) {
  const auto& piece = parts.model.pieces[static_cast<size_t>(id)];
  check<FileError>(!piece.text.empty() && valid_utf8_prefix(piece.text) == piece.text.size(),
                   "{}: the piece {} is empty or not UTF-8", path, id);
  parts.byte_values.push_back(piece.type == PieceType::kByte ? byte_value(piece.text, path) : -1);
  switch (piece.type) {
    case PieceType::kUnused:
      throw FileError(fmt::format(
          "{}: the piece \"{}\" is of type UNUSED, which is not implemented", path, piece.text));
    case PieceType::kUnknown:
      check<FileError>(!parts.unknown, "{}: two pieces are of type UNKNOWN", path);
      parts.unknown = id;
      break;
    case PieceType::kUserDefined:
      parts.user_defined.insert(piece.text, id);
      break;
    default:
      break;
  }
}

Parts read_parts(SentencePieceModel model, const std::string& path) {
  Parts parts;
  parts.model = std::move(model);
  for (size_t id = 0; id < parts.model.pieces.size(); ++id) {
    read_piece(static_cast<int32_t>(id), path, parts);
  }
  check<FileError>(parts.unknown.has_value(), "{}: no piece is of type UNKNOWN", path);
  check<FileError>(!parts.model.has_denormalizer, "{}: a denormalizer is not implemented", path);
  parts.vocabulary = vocabulary_of(parts.model);
  return parts;
}

std::unique_ptr<PieceModel> make_model(const Parts& parts, const std::string& path) {
  std::vector<int32_t> fallback = byte_ids(parts, path);
  if (parts.model.kind == SentencePieceModel::Kind::kBpe) {
    BpeOptions options;
    options.byte_fallback = std::move(fallback);
    options.unknown = parts.unknown;
    options.fuses_unknown = true;
    return std::make_unique<Bpe>(parts.vocabulary, merges_of(parts.model, parts.vocabulary, path),
                                 std::move(options));
  }
  check<FileError>(parts.model.kind == SentencePieceModel::Kind::kUnigram,
                   "{}: the model type {} is not implemented; known are: UNIGRAM, BPE", path,
                   parts.model.kind == SentencePieceModel::Kind::kWord ? "WORD" : "CHAR");
  float lowest = FLT_MAX;
  std::vector<double> scores;
  for (const auto& piece : parts.model.pieces) {
    if (piece.type == PieceType::kNormal) {
      lowest = std::min(lowest, piece.score);
    }
    // A user-defined piece wins over all ways to cut it.
    const auto bonus = static_cast<float>(0.1 * (static_cast<double>(piece.text.size()) - 1));
    scores.push_back(double{piece.type == PieceType::kUserDefined ? bonus : piece.score});
  }
  UnigramOptions options;
  options.scores = std::move(scores);
  options.unknown = parts.unknown;
  options.unknown_score = double{lowest - 10.0F};
  options.byte_fallback = std::move(fallback);
  options.is_sentencepiece = true;
  return std::make_unique<Unigram>(parts.vocabulary, std::move(options));
}

// Text of pieces, as sentencepiece's Decode gives it.
class SentencePieceStreamDecoder : public StreamDecoder {
 public:
  SentencePieceStreamDecoder(const Parts& parts, const std::string& name)
      : parts_(parts), name_(name) {}

  void push(int32_t id, std::string& text) override {
    const auto size = std::ssize(parts_.model.pieces);
    check<ConfigError>(id >= 0 && id < size,
                       "token id {} is outside the vocabulary of the tokenizer \"{}\" (0 to {})",
                       id, name_, size - 1);
    const int byte = parts_.byte_values[static_cast<size_t>(id)];
    if (byte >= 0) {
      bytes_.push_back(static_cast<char>(byte));
      put_bytes(/*is_end=*/false, text);
      return;
    }
    put_bytes(/*is_end=*/true, text);
    at_beginning_ = at_beginning_ && !dropped_space_ && is_empty_;
    dropped_space_ = false;
    put(surface(parts_.model.pieces[static_cast<size_t>(id)]), text);
  }

  void finish(std::string& text) override { put_bytes(/*is_end=*/true, text); }

 private:
  void put(std::string_view surface, std::string& text) {
    text += surface;
    is_empty_ = is_empty_ && surface.empty();
  }

  // Whole characters among the bytes so far; a byte that can belong to none becomes U+FFFD.
  void put_bytes(bool is_end, std::string& text) {
    while (!bytes_.empty()) {
      size_t length = 0;
      const Utf8Scan scan = scan_utf8(bytes_, length);
      if (scan == Utf8Scan::kUnfinished && !is_end) {
        return;
      }
      if (scan == Utf8Scan::kCharacter) {
        put(std::string_view(bytes_).substr(0, length), text);
        bytes_.erase(0, length);
      } else {
        put(kReplacementCharacter, text);
        bytes_.erase(0, 1);
      }
    }
  }

  std::string surface(const SentencePieceModel::Piece& piece) {
    if (piece.type == PieceType::kControl) {
      return "";
    }
    if (piece.type == PieceType::kUnknown) {
      return parts_.model.unknown_surface;
    }
    std::string_view rest = piece.text;
    if (at_beginning_ && (parts_.model.add_dummy_prefix || parts_.model.remove_extra_whitespaces)) {
      const bool has_space = rest.starts_with(kSpaceMark);
      rest.remove_prefix(has_space ? kSpaceMark.size() : 0);
      dropped_space_ = has_space && !parts_.model.remove_extra_whitespaces;
    }
    std::string out;
    while (!rest.empty()) {
      const size_t mark = std::min(rest.find(kSpaceMark), rest.size());
      out += rest.substr(0, mark);
      rest.remove_prefix(mark);
      if (!rest.empty()) {
        out += ' ';
        rest.remove_prefix(kSpaceMark.size());
      }
    }
    return out;
  }

  const Parts& parts_;
  const std::string& name_;
  std::string bytes_;
  bool is_empty_ = true;      // no text has come out yet
  bool at_beginning_ = true;  // a space mark would be the one put in front
  bool dropped_space_ = false;
};

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(SentencePieceModel model, const std::string& path, std::string name)
      : name_(std::move(name)),
        parts_(read_parts(std::move(model), path)),
        normalizer_(parts_.model, parts_.user_defined, path),
        model_(make_model(parts_, path)) {
    const int32_t end = find_piece(parts_.model.end_piece);
    end_of_document_ = find_end_of_document(
        path, vocab_size(), [&](std::string_view token) { return find_piece(token); },
        end == kNone ? std::nullopt : std::optional(end));
    read_beginning(path);
  }

  void set_fingerprint(std::string_view file) {
    Fingerprint fingerprint;
    fingerprint.add(file);
    fingerprint.add(end_of_document_);
    fingerprint_ = fingerprint.value();
  }

  std::string name() const override { return name_; }
  int64_t vocab_size() const override { return std::ssize(parts_.model.pieces); }
  int32_t end_of_document() const override { return end_of_document_; }
  uint64_t fingerprint() const override { return fingerprint_; }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::string repaired;
    if (valid_utf8_prefix(text) != text.size()) {
      repaired = repair_utf8(text);
      text = repaired;
    }
    const std::string normalized = normalizer_.apply(text);
    std::vector<int32_t> ids;
    ids.reserve(normalized.size() / 3 + 1);
    if (parts_.model.kind == SentencePieceModel::Kind::kUnigram) {
      model_->encode(normalized, ids);
    } else {
      encode_between_user_defined(normalized, ids);
    }
    return ids;
  }

  std::vector<int32_t> encode_with_special_tokens(std::string_view text) const override {
    std::vector<int32_t> ids = encode(text);
    if (beginning_) {
      ids.insert(ids.begin(), *beginning_);
    }
    return ids;
  }

  std::unique_ptr<StreamDecoder> stream_decoder(SpecialTokens /*special*/) const override {
    return std::make_unique<SentencePieceStreamDecoder>(parts_, name_);
  }

 private:
  int32_t find_piece(std::string_view text) const {
    for (size_t id = 0; id < parts_.model.pieces.size(); ++id) {
      if (parts_.model.pieces[id].text == text) {
        return static_cast<int32_t>(id);
      }
    }
    return kNone;
  }

  void read_beginning(const std::string& path) {
    const std::string config = std::filesystem::path(path).parent_path() / "tokenizer_config.json";
    if (!std::filesystem::exists(config)) {
      return;
    }
    const nlohmann::json json = read_json_file(config);
    const int32_t id = find_piece(parts_.model.beginning_piece);
    if (JsonObject(json, config).flag("add_bos_token", false) && id != kNone) {
      beginning_ = id;
    }
  }

  // A user-defined piece is never merged with anything.
  void encode_between_user_defined(std::string_view text, std::vector<int32_t>& ids) const {
    size_t begin = 0;
    for (size_t position = 0; position < text.size();) {
      const ByteTrie::Match match = parts_.user_defined.longest_prefix(text.substr(position));
      if (match.length == 0) {
        position += character_length(text[position]);
        continue;
      }
      if (begin < position) {
        model_->encode(text.substr(begin, position - begin), ids);
      }
      ids.push_back(match.value);
      position += match.length;
      begin = position;
    }
    if (begin < text.size()) {
      model_->encode(text.substr(begin), ids);
    }
  }

  std::string name_;
  Parts parts_;
  SentencePieceNormalizer normalizer_;
  std::unique_ptr<PieceModel> model_;
  int32_t end_of_document_ = 0;
  std::optional<int32_t> beginning_;
  uint64_t fingerprint_ = 0;
};

}  // namespace

std::unique_ptr<Tokenizer> read_sentencepiece(const std::string& path, const std::string& name) {
  const MappedFile file(path);
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()),
                               file.bytes().size());
  auto tokenizer =
      std::make_unique<SentencePieceTokenizer>(parse_sentencepiece_model(bytes, path), path, name);
  tokenizer->set_fingerprint(bytes);
  return tokenizer;
}

}  // namespace switchyard

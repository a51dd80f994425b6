#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace switchyard {

// What a SentencePiece .model file holds, as far as encoding and decoding need it. The format is a
// protocol buffer, sentencepiece_model.proto of the sentencepiece project.
struct SentencePieceModel {
  enum class PieceType {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6,
  };
  struct Piece {
    std::string text;
    float score = 0;
    PieceType type = PieceType::kNormal;
  };
  enum class Kind { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };

  std::vector<Piece> pieces;  // by id
  Kind kind = Kind::kUnigram;
  bool byte_fallback = false;
  bool space_as_suffix = false;
  std::string unknown_surface = " \xe2\x81\x87 ";  // U+2047
  std::string beginning_piece = "<s>";
  std::string end_piece = "</s>";

  std::string character_map;  // compiled rules; empty: text stays as it is
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  bool has_denormalizer = false;
};

// Throws FileError, which names `path`, for bytes that are no such file or are cut off.
SentencePieceModel parse_sentencepiece_model(std::string_view bytes, const std::string& path);

}  // namespace switchyard

#include "data/tokenizers/sentencepiece_model.h"

#include <cstring>

#include "base/error.h"

namespace switchyard {
namespace {

// Reads the fields of one message of a protocol buffer.
class MessageReader {
 public:
  MessageReader(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  // Moves to the next field; false at the end.
  bool next() {
    if (bytes_.empty()) {
      return false;
    }
    const uint64_t tag = take_varint();
    field_ = tag >> 3;
    type_ = tag & 7U;
    number_ = 0;
    content_ = {};
    switch (type_) {
      case kVarint:
        number_ = take_varint();
        break;
      case kFixed64:
        take(8);
        break;
      case kFixed32:
        content_ = take(4);
        break;
      case kBytes:
        content_ = take(take_varint());
        break;
      default:
        fail();
    }
    return true;
  }

  uint64_t field() const { return field_; }

  uint64_t number() const {
    expect(kVarint);
    return number_;
  }
  std::string_view bytes() const {
    expect(kBytes);
    return content_;
  }
  float real() const {
    expect(kFixed32);
    float value = 0;
    std::memcpy(&value, content_.data(), sizeof(value));
    return value;
  }

 private:
  static constexpr uint64_t kVarint = 0;
  static constexpr uint64_t kFixed64 = 1;
  static constexpr uint64_t kBytes = 2;
  static constexpr uint64_t kFixed32 = 5;

  [[noreturn]] void fail() const {
    throw FileError(
        fmt::format("{} is not a SentencePiece model, or is damaged or cut off", path_));
  }
  void expect(uint64_t type) const {
    if (type_ != type) {
      fail();
    }
  }

  std::string_view take(uint64_t size) {
    if (size > bytes_.size()) {
      fail();
    }
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }

  uint64_t take_varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= uint64_t{byte & 127U} << shift;
      if (byte < 128) {
        return value;
      }
    }
    fail();
  }

  std::string_view bytes_;
  const std::string& path_;
  uint64_t field_ = 0;
  uint64_t type_ = 0;
  uint64_t number_ = 0;
  std::string_view content_;
};

SentencePieceModel::Piece read_piece(std::string_view bytes, const std::string& path) {
  SentencePieceModel::Piece piece;
  MessageReader reader(bytes, path);
  while (reader.next()) {
    if (reader.field() == 1) {
      piece.text = reader.bytes();
    } else if (reader.field() == 2) {
      piece.score = reader.real();
    } else if (reader.field() == 3) {
      check<FileError>(reader.number() >= 1 && reader.number() <= 6,
                       "{}: the piece \"{}\" is of type {}, expected 1 to 6", path, piece.text,
                       reader.number());
      piece.type = static_cast<SentencePieceModel::PieceType>(reader.number());
    }
  }
  return piece;
}

void read_trainer(std::string_view bytes, const std::string& path, SentencePieceModel& model) {
  MessageReader reader(bytes, path);
  while (reader.next()) {
    switch (reader.field()) {
      case 3:
        check<FileError>(reader.number() >= 1 && reader.number() <= 4,
                         "{}: the model is of type {}, expected 1 to 4", path, reader.number());
        model.kind = static_cast<SentencePieceModel::Kind>(reader.number());
        break;
      case 24:
        model.space_as_suffix = reader.number() != 0;
        break;
      case 35:
        model.byte_fallback = reader.number() != 0;
        break;
      case 44:
        model.unknown_surface = reader.bytes();
        break;
      case 46:
        model.beginning_piece = reader.bytes();
        break;
      case 47:
        model.end_piece = reader.bytes();
        break;
      default:
        break;
    }
  }
}

void read_normalizer(std::string_view bytes, const std::string& path, SentencePieceModel& model) {
  MessageReader reader(bytes, path);
  while (reader.next()) {
    switch (reader.field()) {
      case 2:
        model.character_map = reader.bytes();
        break;
      case 3:
        model.add_dummy_prefix = reader.number() != 0;
        break;
      case 4:
        model.remove_extra_whitespaces = reader.number() != 0;
        break;
      case 5:
        model.escape_whitespaces = reader.number() != 0;
        break;
      default:
        break;
    }
  }
}

bool has_character_map(std::string_view normalizer, const std::string& path) {
  SentencePieceModel model;
  read_normalizer(normalizer, path, model);
  return !model.character_map.empty();
}

}  // namespace

SentencePieceModel parse_sentencepiece_model(std::string_view bytes, const std::string& path) {
  SentencePieceModel model;
  MessageReader reader(bytes, path);
  while (reader.next()) {
    if (reader.field() == 1) {
      model.pieces.push_back(read_piece(reader.bytes(), path));
    } else if (reader.field() == 2) {
      read_trainer(reader.bytes(), path, model);
    } else if (reader.field() == 3) {
      read_normalizer(reader.bytes(), path, model);
    } else if (reader.field() == 5) {
      model.has_denormalizer = has_character_map(reader.bytes(), path);
    }
  }
  check<FileError>(!model.pieces.empty(), "{} is a SentencePiece model without pieces", path);
  return model;
}

}  // namespace switchyard

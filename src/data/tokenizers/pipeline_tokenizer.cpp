#include "data/tokenizers/pipeline_tokenizer.h"

#include <utility>

#include "base/error.h"
#include "data/tokenizers/utf8.h"

namespace switchyard {
namespace {

// Gives pieces to a model.
class ModelReader final : public PieceReader {
 public:
  ModelReader(const PieceModel& model, std::vector<int32_t>& ids) : model_(model), ids_(ids) {}
  void read(const Piece& piece) override {
    if (!piece.text.empty()) {
      model_.encode(piece.text, ids_);
    }
  }

 private:
  const PieceModel& model_;
  std::vector<int32_t>& ids_;
};

class PipelineStreamDecoder : public StreamDecoder {
 public:
  PipelineStreamDecoder(const TokenizerParts& parts, SpecialTokens special)
      : parts_(parts), special_(special) {
    for (const auto& make_step : parts.decoder) {
      steps_.push_back(make_step());
    }
  }

  void push(int32_t id, std::string& text) override {
    const auto size = std::ssize(parts_.token_texts);
    check<ConfigError>(id >= 0 && id < size,
                       "token id {} is outside the vocabulary of the tokenizer \"{}\" (0 to {})",
                       id, parts_.name, size - 1);
    const auto index = static_cast<size_t>(id);
    const std::string& token = parts_.token_texts[index];
    if (!token.empty() && (special_ == SpecialTokens::kKeep || !parts_.is_special[index])) {
      run(token, 0, text);
    }
  }

  void finish(std::string& text) override {
    for (size_t step = 0; step < steps_.size(); ++step) {
      std::vector<std::string> out;
      steps_[step]->finish(out);
      for (const std::string& token : out) {
        run(token, step + 1, text);
      }
    }
  }

 private:
  void run(std::string_view token, size_t step, std::string& text) {
    if (step == steps_.size()) {
      text += token;
      return;
    }
    std::vector<std::string> out;
    steps_[step]->push(token, out);
    for (const std::string& next : out) {
      run(next, step + 1, text);
    }
  }

  const TokenizerParts& parts_;
  const SpecialTokens special_;
  DecoderSteps steps_;
};

}  // namespace

PipelineTokenizer::PipelineTokenizer(std::unique_ptr<TokenizerParts> parts)
    : parts_(std::move(parts)) {}

std::vector<int32_t> PipelineTokenizer::encode(std::string_view text) const {
  std::string repaired;
  if (valid_utf8_prefix(text) != text.size()) {
    repaired = repair_utf8(text);
    text = repaired;
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 1);
  parts_->added_tokens.for_each_part(
      text,
      [&](size_t begin, size_t end) {
        encode_part(text.substr(begin, end - begin), begin == 0, ids);
      },
      [&](int32_t id) { ids.push_back(id); });
  return ids;
}

std::vector<int32_t> PipelineTokenizer::encode_with_special_tokens(std::string_view text) const {
  std::vector<int32_t> ids = encode(text);
  ids.insert(ids.begin(), parts_->ids_before.begin(), parts_->ids_before.end());
  ids.insert(ids.end(), parts_->ids_after.begin(), parts_->ids_after.end());
  return ids;
}

void PipelineTokenizer::encode_part(std::string_view part, bool at_start,
                                    std::vector<int32_t>& ids) const {
  if (parts_->normalizer == nullptr) {
    encode_normalized(part, at_start, ids);
    return;
  }
  NormalizedText normalized{std::string(part), at_start};
  parts_->normalizer->apply(normalized);
  encode_normalized(normalized.text, normalized.at_start, ids);
}

void PipelineTokenizer::encode_normalized(std::string_view part, bool at_start,
                                          std::vector<int32_t>& ids) const {
  ModelReader model(*parts_->model, ids);
  parts_->normalized_added_tokens.for_each_part(
      part,
      [&](size_t begin, size_t end) {
        const Piece piece{part.substr(begin, end - begin), at_start && begin == 0};
        if (parts_->pre_tokenizer != nullptr) {
          parts_->pre_tokenizer->split(piece, model);
        } else {
          model.read(piece);
        }
      },
      [&](int32_t id) { ids.push_back(id); });
}

std::unique_ptr<StreamDecoder> PipelineTokenizer::stream_decoder(SpecialTokens special) const {
  return std::make_unique<PipelineStreamDecoder>(*parts_, special);
}

}  // namespace switchyard

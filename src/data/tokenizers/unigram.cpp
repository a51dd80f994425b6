#include "data/tokenizers/unigram.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "base/error.h"
#include "data/tokenizers/utf8.h"

namespace switchyard {
namespace {

constexpr auto kNone = Vocabulary::kNone;
constexpr double kLargestSum = 100000;  // sentencepiece's kScoreResetThreshold

}  // namespace

// The last token of the best way to reach a place.
struct Unigram::Step {
  double score = 0;
  int64_t begin = -1;  // -1: not reached
  int32_t id = 0;
};

Unigram::Unigram(const Vocabulary& vocabulary, UnigramOptions options)
    : vocabulary_(vocabulary), options_(std::move(options)) {
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    if (!vocabulary_.text(id).empty()) {
      trie_.insert(vocabulary_.text(id), vocabulary_.find(vocabulary_.text(id)));
      max_token_size_ = std::max(max_token_size_, vocabulary_.text(id).size());
    }
  }
}

void Unigram::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  const bool is_short = piece.size() <= PieceCache::kMaxTextSize;
  PieceCache& cache = PieceCache::of_this_thread(cache_owner_);
  const uint64_t hash = is_short ? hash_piece(piece) : 0;
  if (is_short && cache.append(piece, hash, ids)) {
    return;
  }
  thread_local std::vector<Step> best_to;
  find_best_path(piece, best_to);
  // Parts from last to first, in which neighbouring unknown characters are one.
  struct Part {
    size_t begin;
    size_t end;
    bool is_unknown;
  };
  std::vector<Part> parts;
  bool was_unknown = false;
  for (size_t end = piece.size(); end > 0;) {
    const Step& step = best_to[end];
    const bool is_unknown = options_.unknown && step.id == *options_.unknown;
    const auto begin = static_cast<size_t>(step.begin);
    if (is_unknown && was_unknown) {
      parts.back().begin = begin;
    } else {
      parts.push_back({begin, end, is_unknown});
    }
    was_unknown = is_unknown;
    end = begin;
  }
  const size_t num_before = ids.size();
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    put_part(piece.substr(part->begin, part->end - part->begin), part->is_unknown, ids);
  }
  if (is_short) {
    cache.put(piece, hash, std::span(ids).subspan(num_before));
  }
}

// Long texts have sums so large that fp32 would lose the scores: from here on they are relative.
void Unigram::start_sums_anew(size_t begin, std::vector<Step>& best_to) const {
  const double offset = best_to[begin].score;
  for (size_t end = begin; end < best_to.size(); ++end) {
    if (end == begin || best_to[end].begin >= 0) {
      best_to[end].score = double{static_cast<float>(best_to[end].score - offset)};
    } else if (end > begin + max_token_size_) {
      break;
    }
  }
}

void Unigram::find_best_path(std::string_view piece, std::vector<Step>& best_to) const {
  best_to.assign(piece.size() + 1, Step());
  const auto round = [&](double sum) {
    return options_.is_sentencepiece ? double{static_cast<float>(sum)} : sum;
  };
  const auto improve = [&](size_t begin, size_t end, double score, int32_t id) {
    Step& step = best_to[end];
    const double total = round(score + best_to[begin].score);
    if (step.begin < 0 || total > step.score) {
      step = {total, static_cast<int64_t>(begin), id};
    }
  };
  for (size_t begin = 0; begin < piece.size();) {
    const size_t length = character_length(piece[begin]);
    bool has_character = false;
    if (options_.is_sentencepiece && std::abs(best_to[begin].score) > kLargestSum) {
      start_sums_anew(begin, best_to);
    }
    int32_t node = ByteTrie::kRoot;
    for (size_t end = begin; end < piece.size();) {
      node = trie_.step(node, piece[end++]);
      if (node == ByteTrie::kNone) {
        break;
      }
      const int32_t id = trie_.value(node);
      if (id != ByteTrie::kNone) {
        improve(begin, end, options_.scores[static_cast<size_t>(id)], id);
        has_character = has_character || end - begin == length;
      }
    }
    if (!has_character) {
      check<FileError>(options_.unknown.has_value(),
                       "the tokenizer has no token for the character \"{}\", and no unknown token "
                       "(model.unk_id)",
                       piece.substr(begin, length));
      improve(begin, begin + length, options_.unknown_score, *options_.unknown);
    }
    begin += length;
  }
}

void Unigram::put_part(std::string_view part, bool is_unknown, std::vector<int32_t>& ids) const {
  const int32_t id = is_unknown && options_.is_sentencepiece ? kNone : vocabulary_.find(part);
  if (id != kNone) {
    ids.push_back(id);
    return;
  }
  const auto byte_id = [&](char byte) {
    return options_.byte_fallback[static_cast<unsigned char>(byte)];
  };
  if (!options_.byte_fallback.empty() &&
      std::all_of(part.begin(), part.end(), [&](char byte) { return byte_id(byte) != kNone; })) {
    for (const char byte : part) {
      ids.push_back(byte_id(byte));
    }
    return;
  }
  ids.push_back(*options_.unknown);
}

}  // namespace switchyard

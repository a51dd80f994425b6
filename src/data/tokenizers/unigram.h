#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "data/tokenizers/byte_trie.h"
#include "data/tokenizers/piece_cache.h"
#include "data/tokenizers/piece_model.h"
#include "data/tokenizers/vocabulary.h"

namespace switchyard {

struct UnigramOptions {
  std::vector<double> scores = {};  // by id
  std::optional<int32_t> unknown = {};
  double unknown_score = 0;                 // of a character that is no token
  std::vector<int32_t> byte_fallback = {};  // none, or 256 ids of which some may be kNone
  // As sentencepiece does: sums are in fp32, started anew when they grow large, and unknown text is
  // never looked up again.
  bool is_sentencepiece = false;
};

// Unigram language model (Kudo 2018, arXiv:1804.10959): of all ways to cut a piece into tokens, the
// one with the largest sum of scores; among equals, the one whose last token is longest. A run of
// characters that are no tokens is one unknown token, or bytes. Equal to the Unigram model of the
// tokenizers package, or to sentencepiece's.
class Unigram : public PieceModel {
 public:
  // Keeps a reference to `vocabulary`.
  Unigram(const Vocabulary& vocabulary, UnigramOptions options);

  // Throws FileError for a piece with an unknown character where the model has no unknown token.
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  struct Step;

  void start_sums_anew(size_t begin, std::vector<Step>& best_to) const;
  void find_best_path(std::string_view piece, std::vector<Step>& best_to) const;
  void put_part(std::string_view part, bool is_unknown, std::vector<int32_t>& ids) const;

  const Vocabulary& vocabulary_;
  UnigramOptions options_;
  ByteTrie trie_;
  size_t max_token_size_ = 4;  // no less than a character
  uint64_t cache_owner_ = PieceCache::new_owner();
};

}  // namespace switchyard

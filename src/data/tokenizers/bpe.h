#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "data/tokenizers/pair_table.h"
#include "data/tokenizers/piece_cache.h"
#include "data/tokenizers/piece_model.h"
#include "data/tokenizers/vocabulary.h"

namespace switchyard {

struct BpeMerge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t result = 0;
  uint32_t rank = 0;
};

struct BpeOptions {
  // The texts of tokens are bytes and a piece starts as its bytes; else they are valid UTF-8 and it
  // starts as its characters.
  bool uses_bytes = false;
  // A piece that is a token becomes that token, whatever the merges would make of it.
  bool ignores_merges = false;
  // Ids of the bytes, for characters that are not tokens: none, or 256 ids of which some are kNone.
  std::vector<int32_t> byte_fallback = {};
  std::optional<int32_t> unknown =
      {};                      // for characters that no bytes stand for; else they are dropped
  bool fuses_unknown = false;  // neighbouring ones become one
};

// Byte pair encoding: the two neighbouring symbols with the lowest rank are merged, the leftmost
// first, until none can be (Sennrich et al. 2016, arXiv:1508.07909). Equal to the tokenizers
// package's BPE model.
class Bpe : public PieceModel {
 public:
  // Keeps a reference to `vocabulary`, which holds what left, right and result stand for. Of merges
  // of the same pair the last counts.
  Bpe(const Vocabulary& vocabulary, const std::vector<BpeMerge>& merges, BpeOptions options);

  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  struct Workspace;

  void read_characters();
  void find_cuts(const std::vector<BpeMerge>& merges);
  size_t next_cut(std::string_view piece, size_t from) const;
  void encode_part(std::string_view part, bool may_be_token, Workspace& work,
                   std::vector<int32_t>& ids) const;
  void put_symbols(std::string_view part, std::vector<int32_t>& symbols) const;
  void put_unit(std::string_view unit, int32_t id, bool& has_unknown,
                std::vector<int32_t>& symbols) const;
  void merge_few(std::vector<int32_t>& symbols, Workspace& work) const;
  void merge_many(std::vector<int32_t>& symbols, Workspace& work) const;

  const Vocabulary& vocabulary_;
  BpeOptions options_;
  PairTable pairs_;
  std::vector<int32_t> character_ids_;  // by code point, up to the largest that is a token
  std::array<int32_t, 256> byte_ids_{};
  // A word never merges with the space mark before the next, except behind these characters: a
  // long text can be cut there, and its words be remembered.
  bool cuts_at_spaces_ = false;
  std::unordered_set<char32_t> joined_to_space_;
  uint64_t cache_owner_ = PieceCache::new_owner();
};

}  // namespace switchyard

#include "data/tokenizers/bpe.h"

#include <map>

#include <gtest/gtest.h>

#include "base/random.h"

namespace switchyard {
namespace {

using Pair = std::pair<int32_t, int32_t>;

// Merges the lowest rank, leftmost first, looking at every pair anew each time.
std::vector<int32_t> merge_naively(std::vector<int32_t> symbols,
                                   const std::map<Pair, BpeMerge>& merges) {
  while (true) {
    const BpeMerge* best = nullptr;
    size_t place = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = merges.find({symbols[i], symbols[i + 1]});
      if (found != merges.end() && (best == nullptr || found->second.rank < best->rank)) {
        best = &found->second;
        place = i;
      }
    }
    if (best == nullptr) {
      return symbols;
    }
    symbols[place] = best->result;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

struct Trained {
  Vocabulary vocabulary;
  std::vector<BpeMerge> merges;
  std::map<Pair, BpeMerge> by_pair;
};

// Letters a to d, and tokens joined at random of earlier ones.
Trained random_merges(uint64_t seed) {
  const RandomStream random(seed, "bpe");
  std::vector<std::pair<std::string, int32_t>> tokens;
  for (const char* letter : {"a", "b", "c", "d"}) {
    tokens.emplace_back(letter, std::ssize(tokens));
  }
  Trained trained;
  std::map<std::string, int32_t> ids(tokens.begin(), tokens.end());
  for (uint64_t i = 0; trained.merges.size() < 60; ++i) {
    const auto left = static_cast<int32_t>(random.below(2 * i, tokens.size()));
    const auto right = static_cast<int32_t>(random.below(2 * i + 1, tokens.size()));
    const std::string text =
        tokens[static_cast<size_t>(left)].first + tokens[static_cast<size_t>(right)].first;
    if (text.size() > 12 || trained.by_pair.contains({left, right})) {
      continue;
    }
    if (ids.emplace(text, std::ssize(tokens)).second) {
      tokens.emplace_back(text, std::ssize(tokens));
    }
    const BpeMerge merge{left, right, ids[text], static_cast<uint32_t>(trained.merges.size())};
    trained.merges.push_back(merge);
    trained.by_pair[{left, right}] = merge;
  }
  trained.vocabulary = Vocabulary(tokens);
  return trained;
}

TEST(Bpe, MergesAsANaiveLoopDoes) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const Trained trained = random_merges(seed);
    const Bpe bpe(trained.vocabulary, trained.merges, {.uses_bytes = true});
    const RandomStream random(seed, "text");
    for (const size_t length : {1U, 2U, 5U, 30U, 38U, 39U, 96U, 97U, 700U}) {
      std::string text;
      std::vector<int32_t> symbols;
      for (size_t i = 0; i < length; ++i) {
        symbols.push_back(static_cast<int32_t>(random.below(i, 4)));
        text.push_back(static_cast<char>('a' + symbols.back()));
      }
      std::vector<int32_t> ids;
      bpe.encode(text, ids);
      EXPECT_EQ(ids, merge_naively(symbols, trained.by_pair)) << text;
    }
  }
}

std::vector<int32_t> encode(const Bpe& bpe, const std::string& text) {
  std::vector<int32_t> ids;
  bpe.encode(text, ids);
  return ids;
}

TEST(Bpe, TakesAWholePieceOnlyIfAsked) {
  const Vocabulary vocabulary({{"a", 0}, {"b", 1}, {"ab", 2}});
  EXPECT_EQ(encode(Bpe(vocabulary, {}, {.ignores_merges = true}), "ab"), std::vector<int32_t>{2});
  EXPECT_EQ(encode(Bpe(vocabulary, {}, {}), "ab"), (std::vector<int32_t>{0, 1}));
}

TEST(Bpe, WritesUnknownCharactersAsAsked) {
  const Vocabulary vocabulary({{"a", 0}, {"<unk>", 1}, {"<0xC3>", 2}, {"<0xA9>", 3}});
  const auto bytes = byte_token_ids(vocabulary);
  EXPECT_EQ(encode(Bpe(vocabulary, {}, {}), "xay"), std::vector<int32_t>{0});
  EXPECT_EQ(encode(Bpe(vocabulary, {}, {.unknown = 1}), "xxay"),
            (std::vector<int32_t>{1, 1, 0, 1}));
  EXPECT_EQ(encode(Bpe(vocabulary, {}, {.unknown = 1, .fuses_unknown = true}), "xxay"),
            (std::vector<int32_t>{1, 0, 1}));
  EXPECT_EQ(encode(Bpe(vocabulary, {}, {.byte_fallback = bytes, .unknown = 1}), "\u00e9\u00e8"),
            (std::vector<int32_t>{2, 3, 1}));
}

// The text is cut before space marks where it can be; here a merge reaches over one.
TEST(Bpe, MergesOverSpacesWhereAMergeSaysSo) {
  const std::string mark = "\u2581";
  const Vocabulary vocabulary(
      {{"a", 0}, {"b", 1}, {mark, 2}, {mark + "b", 3}, {"a" + mark + "b", 4}, {"b" + mark, 5}});
  const std::vector<BpeMerge> merges = {{2, 1, 3, 0}, {0, 3, 4, 1}};
  EXPECT_EQ(encode(Bpe(vocabulary, merges, {}), "a" + mark + "b" + mark + "b"),
            (std::vector<int32_t>{4, 3}));
}

}  // namespace
}  // namespace switchyard

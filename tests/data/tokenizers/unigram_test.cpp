#include "data/tokenizers/unigram.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/tokenizers/scratch_folder.h"

namespace switchyard {
namespace {

std::vector<int32_t> encode(const Unigram& unigram, const std::string& text) {
  std::vector<int32_t> ids;
  unigram.encode(text, ids);
  return ids;
}

// Tries every way to cut the rest of a text.
double best_score(const Vocabulary& vocabulary, const std::vector<double>& scores,
                  std::string_view rest) {
  double best = rest.empty() ? 0 : -1e9;
  for (size_t length = 1; length <= rest.size(); ++length) {
    const int32_t id = vocabulary.find(rest.substr(0, length));
    if (id != Vocabulary::kNone) {
      best = std::max(best, scores[static_cast<size_t>(id)] +
                                best_score(vocabulary, scores, rest.substr(length)));
    }
  }
  return best;
}

TEST(Unigram, FindsTheBestOfAllWaysToCut) {
  const Vocabulary vocabulary(
      {{"<unk>", 0}, {"a", 1}, {"b", 2}, {"ab", 3}, {"ba", 4}, {"aba", 5}, {"bab", 6}});
  const std::vector<double> scores = {0, -2, -2.5, -3.1, -3.3, -5.2, -4.9};
  const Unigram unigram(vocabulary, {.scores = scores, .unknown = 0, .unknown_score = -20});
  for (const std::string text : {"a", "ab", "aba", "abab", "babba", "aabbababab", "bbbaaabab"}) {
    double sum = 0;
    std::string joined;
    for (const int32_t id : encode(unigram, text)) {
      sum += scores[static_cast<size_t>(id)];
      joined += vocabulary.text(id);
    }
    EXPECT_EQ(joined, text);
    EXPECT_NEAR(sum, best_score(vocabulary, scores, text), 1e-12) << text;
  }
}

TEST(Unigram, JoinsUnknownCharacters) {
  const Vocabulary vocabulary({{"<unk>", 0}, {"a", 1}});
  const Unigram unigram(vocabulary, {.scores = {0, -1}, .unknown = 0, .unknown_score = -11});
  EXPECT_EQ(encode(unigram, "xyaz"), (std::vector<int32_t>{0, 1, 0}));
}

TEST(Unigram, RefusesAnUnknownCharacterWithoutATokenForIt) {
  const Vocabulary vocabulary({{"a", 0}});
  const Unigram unigram(vocabulary, {.scores = {-1}});
  EXPECT_EQ(message_of<FileError>([&] { encode(unigram, "x"); }),
            "the tokenizer has no token for the character \"x\", and no unknown token "
            "(model.unk_id)");
}

}  // namespace
}  // namespace switchyard

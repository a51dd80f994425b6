#include "data/evaluation_data.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/error.h"
#include "data/byte_tokenizer.h"
#include "data/dataset_files.h"

namespace switchyard {
namespace {

struct Pair {
  int64_t token;
  int64_t label;
  bool operator==(const Pair&) const = default;
};

// The (token, label) pairs that carry weight, in order. Checks the table against the weights.
std::vector<Pair> pairs_of(const TokenBatch& batch) {
  std::vector<Pair> pairs;
  const at::Tensor ids = batch.table.sequence_ids();
  for (int64_t i = 0; i < batch.table.num_tokens; ++i) {
    const bool is_real = ids[i].item<int64_t>() >= 0;
    EXPECT_EQ(batch.weights[i].item<float>(), is_real ? 1 : 0);
    EXPECT_EQ(is_real, batch.labels[i].item<int64_t>() != -100);
    if (is_real) {
      pairs.push_back({batch.tokens[i].item<int64_t>(), batch.labels[i].item<int64_t>()});
    }
  }
  return pairs;
}

std::vector<Pair> all_pairs(const EvaluationData& data, int64_t count) {
  std::vector<Pair> pairs;
  for (int64_t first = 0; first < data.num_sequences(); first += count) {
    const auto more = pairs_of(data.batch(first, count));
    pairs.insert(pairs.end(), more.begin(), more.end());
  }
  return pairs;
}

TEST(EvaluationData, TakesEveryTokenOnceInOrderForAnyLengthAndCut) {
  const std::string folder = fresh_folder();
  for (const int64_t num_tokens : {2, 3, 9, 10, 11, 60}) {
    const std::string prefix =
        write_counting_dataset(folder + std::to_string(num_tokens), num_tokens);
    std::vector<Pair> expected;
    for (int64_t i = 0; i + 1 < num_tokens; ++i) {
      expected.push_back({i, i + 1});
    }
    for (const int64_t length : {1, 3, 5, 9, 10, 100}) {
      const EvaluationData data("data.eval", {prefix}, ByteTokenizer(), length);
      EXPECT_EQ(data.num_labels(), num_tokens - 1);
      for (const int64_t count : {1, 2, 7}) {
        EXPECT_EQ(all_pairs(data, count), expected) << num_tokens << " " << length << " " << count;
      }
    }
  }
}

TEST(EvaluationData, EndsEachSetWithAShorterSequence) {
  const std::string folder = fresh_folder();
  const EvaluationData data(
      "data.eval",
      {write_counting_dataset(folder + "a", 8), write_counting_dataset(folder + "b", 5, 100)},
      ByteTokenizer(), 5);
  EXPECT_EQ(data.num_sequences(), 3);
  const TokenBatch batch = data.batch(0, 3);
  EXPECT_EQ(batch.table.starts, (std::vector<int64_t>{0, 5, 7, 11}));
  EXPECT_EQ(batch.table.num_tokens, 15);
  // No label crosses from one set to the other.
  EXPECT_EQ(pairs_of(batch), (std::vector<Pair>{{0, 1},
                                                {1, 2},
                                                {2, 3},
                                                {3, 4},
                                                {4, 5},
                                                {5, 6},
                                                {6, 7},
                                                {100, 101},
                                                {101, 102},
                                                {102, 103},
                                                {103, 104}}));
}

TEST(EvaluationData, GivesARankPastTheEndABatchWithoutSequences) {
  const EvaluationData data("data.eval", {write_counting_dataset(fresh_folder() + "a", 8)},
                            ByteTokenizer(), 5);
  const TokenBatch batch = data.batch(2, 3);
  EXPECT_EQ(batch.table.num_sequences(), 0);
  EXPECT_EQ(batch.tokens.numel(), 15);
  EXPECT_TRUE(pairs_of(batch).empty());
}

TEST(EvaluationData, SaysWhatIsWrong) {
  const std::string folder = fresh_folder();
  const std::string prefix = write_counting_dataset(folder + "a", 1);
  EXPECT_EQ(error_of<FileError>([&] { EvaluationData("data.eval", {prefix}, ByteTokenizer(), 5); }),
            prefix +
                " holds 1 tokens, evaluation needs at least 2 (a token and the one that "
                "follows it); add text");
  EXPECT_EQ(error_of<ConfigError>(
                [&] { EvaluationData("data.eval", {"0.5:" + prefix}, ByteTokenizer(), 5); }),
            "data.eval: " + prefix +
                " has a weight, which means nothing here: evaluation takes "
                "every token once; leave the weight out");
  EXPECT_EQ(error_of<ConfigError>([&] { EvaluationData("data.eval", {}, ByteTokenizer(), 5); }),
            "data.eval is empty, expected the prefix of a tokenized data set");
}

TEST(EvaluationData, CountsLabelsAndTheirBytesAsDocumentsAreTaken) {
  const std::string prefix =
      write_dataset(fresh_folder() + "set", {{1, 2, 256}, {}, {3, 256}, {256}, {4, 5, 6, 256}});
  const auto data = [&](Documents documents, bool is_masked) {
    return EvaluationData("data.eval", {prefix}, ByteTokenizer(), 3,
                          {.documents = {documents, is_masked}});
  };
  const auto weight = [](const EvaluationData& all) {
    double sum = 0;
    for (int64_t i = 0; i < all.num_sequences(); ++i) {
      sum += all.batch(i, 1).weights.sum().item<double>();
    }
    return sum;
  };
  // Ten tokens, six of them bytes; the first is no label, or the first of each document.
  const EvaluationData joined = data(Documents::kJoined, false);
  EXPECT_EQ(joined.num_labels(), 9);
  EXPECT_EQ(weight(joined), 9);
  EXPECT_EQ(joined.count_label_bytes(ByteTokenizer()), 5);
  for (const EvaluationData& cut :
       {data(Documents::kJoined, true), data(Documents::kPacked, false)}) {
    EXPECT_EQ(cut.num_labels(), 6);
    EXPECT_EQ(weight(cut), 6);
    EXPECT_EQ(cut.count_label_bytes(ByteTokenizer()), 3);
  }
}

TEST(EvaluationData, NeedsNoMoreMemoryThanTheDataForLongSequences) {
  const std::string prefix = write_counting_dataset(fresh_folder() + "set", 11);
  EvaluationData data("data.eval", {prefix}, ByteTokenizer(), 1'000'000'000);
  data.drop_needless_padding();
  EXPECT_EQ(data.num_sequences(), 1);
  EXPECT_EQ(data.batch(0, 2).tokens.numel(), 20);
  EXPECT_EQ(data.batch(0, 1).weights.sum().item<double>(), 10);
}

TEST(EvaluationData, RefusesDataWithoutATokenToPredict) {
  const std::string prefix = write_dataset(fresh_folder() + "set", {{1}, {2}, {3}});
  EXPECT_EQ(
      error_of<FileError>([&] {
        EvaluationData("--data", {prefix}, ByteTokenizer(), 3,
                       {.documents = {Documents::kPacked, false}});
      }),
      "--data holds no token to predict: every document has one token, and none foretells the "
      "next (data.documents, data.mask_end_of_document)");
}

}  // namespace
}  // namespace switchyard

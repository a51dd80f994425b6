#include "data/training_data.h"

#include <chrono>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/error.h"
#include "data/byte_tokenizer.h"
#include "data/dataset_files.h"

namespace switchyard {
namespace {

std::vector<int64_t> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

// Sample `sample` of a counting data set.
std::vector<int64_t> counting(int64_t sample, int64_t length, int64_t first = 0) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < length; ++i) {
    tokens.push_back((first + sample * length + i) % 256);
  }
  return tokens;
}

TEST(TrainingData, NumbersTheTokensOfTheRun) {
  const std::string prefix = write_counting_dataset(fresh_folder() + "set", 24);
  TrainingData data({prefix}, ByteTokenizer(), 5, 1);
  EXPECT_EQ(data.batch(0, 2).first_token, 0);
  EXPECT_EQ(data.batch(7, 2).first_token, 35);
}

TEST(TrainingData, CutsTheStreamIntoSamplesWhoseLabelsAreTheNextTokens) {
  // 24 tokens are 4 samples of 5 with the label of their last token; 3 tokens remain.
  const std::string prefix = write_counting_dataset(fresh_folder() + "set", 24);
  TrainingData data({prefix}, ByteTokenizer(), 5, 1);
  EXPECT_EQ(data.num_samples(), 4);
  std::set<int64_t> samples;
  for (int64_t position = 0; position < 4; ++position) {
    const SamplePlace place = data.place(position);
    samples.insert(place.sample);
    const TokenBatch sample = data.batch(position, 1);
    EXPECT_EQ(values(sample.tokens), counting(place.sample, 5));
    EXPECT_EQ(values(sample.labels), counting(place.sample, 5, 1));
  }
  EXPECT_EQ(samples, (std::set<int64_t>{0, 1, 2, 3}));
}

TEST(TrainingData, CountsTheSamplesThatHaveAllTheirLabels) {
  const std::string folder = fresh_folder();
  for (const auto& [tokens, samples] :
       std::vector<std::pair<int64_t, int64_t>>{{6, 1}, {10, 1}, {11, 2}, {15, 2}, {16, 3}}) {
    const std::string prefix = write_counting_dataset(folder + std::to_string(tokens), tokens);
    EXPECT_EQ(TrainingData({prefix}, ByteTokenizer(), 5, 1).num_samples(), samples);
  }
}

// A sample may span documents: they are joined in order, each with its end.
TEST(TrainingData, JoinsDocumentsInOrder) {
  const std::string prefix =
      write_dataset(fresh_folder() + "set", {{1, 2, 256}, {3, 256}, {4, 5, 6, 256}});
  TrainingData data({prefix}, ByteTokenizer(), 8, 1);
  EXPECT_EQ(values(data.batch(0, 1).tokens), (std::vector<int64_t>{1, 2, 256, 3, 256, 4, 5, 6}));
  EXPECT_EQ(values(data.batch(0, 1).labels), (std::vector<int64_t>{2, 256, 3, 256, 4, 5, 6, 256}));
}

// Seven tokens of three documents, of which the last is cut.
TEST(TrainingData, PacksDocumentsAsSequencesOfTheirOwn) {
  const std::string prefix =
      write_dataset(fresh_folder() + "set", {{1, 2, 256}, {}, {3, 256}, {4, 5, 6, 256}, {7, 256}});
  const DatasetOptions packed{.documents = {Documents::kPacked, false}};
  TrainingData data({prefix}, ByteTokenizer(), 7, 1, packed);
  ASSERT_EQ(data.num_samples(), 1);
  const TokenBatch batch = data.batch(0, 1);
  EXPECT_EQ(values(batch.tokens), (std::vector<int64_t>{1, 2, 256, 3, 256, 4, 5}));
  EXPECT_EQ(values(batch.labels), (std::vector<int64_t>{2, 256, -100, 256, -100, 5, 6}));
  EXPECT_TRUE(at::equal(batch.weights, at::tensor({1.F, 1.F, 0.F, 1.F, 0.F, 1.F, 1.F})));
  EXPECT_EQ(batch.table.starts, (std::vector<int64_t>{0, 3, 5, 7}));
  EXPECT_EQ(values(batch.table.positions), (std::vector<int64_t>{0, 1, 2, 0, 1, 0, 1}));
  // A sample that ends with a document has no label for its last token.
  TrainingData short_one({prefix}, ByteTokenizer(), 3, 1, packed);
  for (int64_t i = 0; i < short_one.num_samples(); ++i) {
    const TokenBatch sample = short_one.batch(i, 1);
    const bool is_cut = short_one.place(i).sample == 1;  // 3, 256, 4: the others end with 256
    EXPECT_EQ(sample.labels[2].item<int64_t>() == -100, !is_cut);
    EXPECT_EQ(sample.table.num_sequences(), is_cut ? 2 : 1);
  }
}

TEST(TrainingData, MasksTheFirstTokenOfADocumentAndJoinsIt) {
  const std::string prefix =
      write_dataset(fresh_folder() + "set", {{1, 2, 256}, {3, 256}, {4, 5, 6, 256}});
  TrainingData data({prefix}, ByteTokenizer(), 8, 1, {.documents = {Documents::kJoined, true}});
  const TokenBatch batch = data.batch(0, 1);
  EXPECT_EQ(values(batch.labels), (std::vector<int64_t>{2, 256, 3, 256, 4, 5, 6, 256}));
  EXPECT_TRUE(at::equal(batch.weights, at::tensor({1.F, 1.F, 0.F, 1.F, 0.F, 1.F, 1.F, 1.F})));
  EXPECT_EQ(batch.table.starts, (std::vector<int64_t>{0, 8}));
}

TEST(TrainingData, TakesEverySampleOncePerEpochInAnotherOrder) {
  const std::string prefix = write_counting_dataset(fresh_folder() + "set", 201);
  TrainingData data({prefix}, ByteTokenizer(), 2, 1);
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < 100; ++i) {
      const SamplePlace place = data.place(epoch * 100 + i);
      EXPECT_EQ(place.epoch, epoch);
      order.push_back(place.sample);
    }
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 100U);
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 5U);
}

TEST(TrainingData, OrdersByTheSeed) {
  const std::string prefix = write_counting_dataset(fresh_folder() + "set", 201);
  const auto order = [&](uint64_t seed) {
    TrainingData data({prefix}, ByteTokenizer(), 2, seed);
    std::vector<int64_t> samples;
    for (int64_t i = 0; i < 100; ++i) {
      samples.push_back(data.place(i).sample);
    }
    return samples;
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
}

TEST(TrainingData, PutsABatchInOneRowWithOneSequencePerSample) {
  const std::string prefix = write_counting_dataset(fresh_folder() + "set", 100);
  TrainingData data({prefix}, ByteTokenizer(), 7, 3);
  const TokenBatch batch = data.batch(5, 3);
  EXPECT_EQ(batch.table.starts, (std::vector<int64_t>{0, 7, 14, 21}));
  EXPECT_EQ(batch.table.num_tokens, 21);
  EXPECT_TRUE(at::equal(batch.weights, at::ones({21}, at::kFloat)));
  for (int64_t i = 0; i < 3; ++i) {
    const TokenBatch sample = data.batch(5 + i, 1);
    EXPECT_TRUE(at::equal(batch.tokens.narrow(0, 7 * i, 7), sample.tokens));
    EXPECT_TRUE(at::equal(batch.labels.narrow(0, 7 * i, 7), sample.labels));
  }
}

// However the global batches are cut over ranks and steps, and wherever a run is resumed, the
// samples are the same: the position is the whole state.
TEST(TrainingData, GivesTheSameSamplesInAnyCut) {
  const std::string folder = fresh_folder();
  const std::vector<std::string> entries = {"0.8:" + write_counting_dataset(folder + "a", 100),
                                            "0.2:" + write_counting_dataset(folder + "b", 50, 7)};
  TrainingData whole(entries, ByteTokenizer(), 4, 3);
  const at::Tensor expected = whole.batch(0, 96).tokens;
  for (const int64_t count : {1, 2, 3, 8, 32}) {
    TrainingData data(entries, ByteTokenizer(), 4, 3);
    for (int64_t first = 96 - count; first >= 0; first -= count) {  // backwards: no state
      EXPECT_TRUE(
          at::equal(data.batch(first, count).tokens, expected.narrow(0, 4 * first, 4 * count)));
    }
  }
}

// The small set is drawn once in a thousand, and so has its fourth epoch while the large one has.
TEST(TrainingData, BlendsByWeightWithEachSampleOncePerEpoch) {
  const std::string folder = fresh_folder();
  TrainingData data({"0.001:" + write_counting_dataset(folder + "small", 7),
                     "0.999:" + write_counting_dataset(folder + "large", 6001)},
                    ByteTokenizer(), 2, 9);
  ASSERT_EQ(data.num_samples(0), 3);
  ASSERT_EQ(data.num_samples(1), 3000);
  std::vector<int64_t> counts(2);
  std::map<std::pair<int64_t, int64_t>, std::set<int64_t>> seen;  // by set and epoch
  const int64_t positions = 12'000;
  for (int64_t position = 0; position < positions; ++position) {
    const SamplePlace place = data.place(position);
    const int64_t before = counts[static_cast<size_t>(place.set)]++;
    EXPECT_EQ(place.epoch, before / data.num_samples(place.set));
    const bool is_new = seen[{place.set, place.epoch}].insert(place.sample).second;
    ASSERT_TRUE(is_new) << position;
    ASSERT_LT(std::abs(static_cast<double>(counts[0]) - 0.001 * static_cast<double>(position + 1)),
              1 + 1e-9);
  }
  const std::pair<int64_t, int64_t> first_epoch_of_large{1, 0};
  EXPECT_EQ(seen[first_epoch_of_large].size(), 3000U);
  EXPECT_EQ(counts[0], 12);
}

TEST(TrainingData, DrawsInProportionToSizeWithoutWeights) {
  const std::string folder = fresh_folder();
  TrainingData data(
      {write_counting_dataset(folder + "a", 31), write_counting_dataset(folder + "b", 11)},
      ByteTokenizer(), 2, 1);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<std::pair<int64_t, int64_t>> seen;
    for (int64_t i = 0; i < 20; ++i) {
      const SamplePlace place = data.place(epoch * 20 + i);
      EXPECT_EQ(place.epoch, epoch);
      seen.insert({place.set, place.sample});
    }
    EXPECT_EQ(seen.size(), 20U);
  }
}

// Two sets of the same size must not be shuffled alike.
TEST(TrainingData, ShufflesEachSetInItsOwnWay) {
  const std::string folder = fresh_folder();
  TrainingData data(
      {write_counting_dataset(folder + "a", 201), write_counting_dataset(folder + "b", 201)},
      ByteTokenizer(), 2, 1);
  std::vector<std::vector<int64_t>> orders(2);
  for (int64_t i = 0; i < 200; ++i) {
    const SamplePlace place = data.place(i);
    orders[static_cast<size_t>(place.set)].push_back(place.sample);
  }
  EXPECT_NE(orders[0], orders[1]);
}

// Ten times what was measured: a busy machine passes, a walk from the start does not.
TEST(TrainingData, ReachesPositionABillionInAboutAMillisecond) {
  const std::string folder = fresh_folder();
  TrainingData data({"0.001:" + write_counting_dataset(folder + "small", 7),
                     "0.999:" + write_counting_dataset(folder + "large", 6001)},
                    ByteTokenizer(), 2, 9);
  const auto start = std::chrono::steady_clock::now();
  data.batch(1'000'000'000, 1);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 0.01);
}

TEST(TrainingData, RefusesATextShorterThanOneSample) {
  const std::string prefix = write_counting_dataset(fresh_folder() + "set", 128);
  EXPECT_EQ(error_of<FileError>([&] { TrainingData({prefix}, ByteTokenizer(), 128, 1); }),
            prefix +
                " holds 128 tokens, one sample needs 129 (data.sequence_length 128 and the "
                "label of the last token); add text or lower data.sequence_length");
  EXPECT_EQ(TrainingData({prefix}, ByteTokenizer(), 127, 1).num_samples(), 1);
}

class OtherTokenizer : public ByteTokenizer {
 public:
  uint64_t fingerprint() const override { return 1; }
};

TEST(TrainingData, RefusesDataOfAnotherTokenizer) {
  const std::string prefix = write_counting_dataset(fresh_folder() + "set", 128);
  EXPECT_NE(error_of<ConfigError>([&] {
              TrainingData({prefix}, OtherTokenizer(), 8, 1);
            }).find(prefix + " was made with \"bytes\""),
            std::string::npos);
}

}  // namespace
}  // namespace switchyard

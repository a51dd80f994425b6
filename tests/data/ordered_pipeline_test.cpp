#include "data/ordered_pipeline.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include <gtest/gtest.h>

#include "base/error.h"

namespace switchyard {
namespace {

using Pipeline = OrderedPipeline<int64_t, int64_t>;

// Numbers 0 to count - 1, of which `bad` fails in work.
struct Outcome {
  std::vector<int64_t> consumed;
  int64_t most_under_way = 0;
};

Outcome run(int64_t count, int64_t threads, int64_t max_weight, int64_t bad = -1) {
  Outcome result;
  int64_t next = 0;
  std::atomic<int64_t> under_way = 0;
  std::atomic<int64_t> most = 0;
  const auto stages = Pipeline::Stages{
      .produce = [&]() -> std::optional<int64_t> {
        return next < count ? std::optional(next++) : std::nullopt;
      },
      .weigh = [](const int64_t&) { return int64_t{1}; },
      .work =
          [&](int64_t number) {
            const int64_t now = ++under_way;
            for (int64_t seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
            }
            // Later ones are done sooner.
            std::this_thread::sleep_for(std::chrono::microseconds(number % 7 == 0 ? 300 : 10));
            check<FileError>(number != bad, "number {} is bad", number);
            return number;
          },
      .consume =
          [&](int64_t number) {
            --under_way;
            result.consumed.push_back(number);
          }};
  try {
    Pipeline::run(stages, threads, max_weight);
  } catch (const FileError& error) {
    EXPECT_EQ(error.what(), fmt::format("number {} is bad", bad));
    EXPECT_GE(bad, 0);
    EXPECT_EQ(std::ssize(result.consumed), bad);
  }
  result.most_under_way = most;
  return result;
}

TEST(OrderedPipeline, ConsumesInOrderWhateverTheNumberOfThreads) {
  for (const int64_t threads : {1, 2, 8}) {
    const Outcome done = run(500, threads, 16);
    ASSERT_EQ(done.consumed.size(), 500U);
    EXPECT_TRUE(std::is_sorted(done.consumed.begin(), done.consumed.end()));
    EXPECT_LE(done.most_under_way, 16);
  }
}

TEST(OrderedPipeline, LetsAnInputThroughThatIsHeavierThanAllowed) {
  EXPECT_EQ(run(5, 2, 0).consumed.size(), 5U);
}

TEST(OrderedPipeline, HasNothingToDoWithoutInputs) {
  EXPECT_TRUE(run(0, 3, 4).consumed.empty());
}

// The first mistake in order is thrown, after all before it came through.
TEST(OrderedPipeline, ThrowsInOrder) {
  for (const int64_t bad : {0, 7, 123, 499}) {
    run(500, 4, 16, bad);
  }
}

TEST(OrderedPipeline, PassesOnWhatProduceAndConsumeThrow) {
  int64_t next = 0;
  std::vector<int64_t> consumed;
  Pipeline::Stages stages{.produce = [&]() -> std::optional<int64_t> {
                            check<FileError>(next < 3, "no more");
                            return next++;
                          },
                          .weigh = [](const int64_t&) { return int64_t{1}; },
                          .work = [](int64_t number) { return number; },
                          .consume = [&](int64_t number) { consumed.push_back(number); }};
  EXPECT_THROW(Pipeline::run(stages, 2, 4), FileError);
  EXPECT_EQ(consumed, (std::vector<int64_t>{0, 1, 2}));
  next = 0;
  stages.consume = [](int64_t) { throw FileError("disk full"); };
  EXPECT_THROW(Pipeline::run(stages, 2, 1), FileError);
}

}  // namespace
}  // namespace switchyard

#include "parallel/group.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "parallel/launch.h"

namespace switchyard {
namespace {

using Clock = std::chrono::steady_clock;
using Counts = std::vector<int64_t>;

constexpr Site kSite{"test.site", Purpose::kTensorParallel};
constexpr int64_t kLargestGroup = 8;

MeshShape world_of(int64_t size) {
  MeshShape shape;
  shape.world_size = size;
  return shape;
}

void run_world(int64_t size, const std::function<void(const Group& world)>& body) {
  run_ranks(world_of(size), [&](Groups& groups) { body(groups[GroupName::kWorld]); });
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What rank `rank` brings to case `seed`; every rank can compute what every other brings.
at::Tensor input_of(int64_t rank, uint64_t seed, const Counts& sizes, at::ScalarType dtype) {
  auto generator = at::detail::createCPUGenerator(seed * 1000 + static_cast<uint64_t>(rank));
  return ((at::rand(sizes, generator, at::kDouble) - 0.5) * 200).to(dtype);
}

// The sum over ranks from rank 0 up, in the wider of fp32 and the dtype, rounded once.
at::Tensor sum_over_ranks(int64_t size, const std::function<at::Tensor(int64_t rank)>& value_of) {
  const at::Tensor first = value_of(0);
  at::Tensor sum = first.scalar_type() == at::kBFloat16 ? first.to(at::kFloat) : first.clone();
  for (int64_t rank = 1; rank < size; ++rank) {
    sum = sum + value_of(rank).to(sum.scalar_type());
  }
  return sum.to(first.scalar_type());
}

// A random case, the same on all ranks.
struct Case {
  explicit Case(uint64_t case_seed) : seed(case_seed), random(case_seed) {}

  int64_t below(int64_t limit) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(limit));
  }
  at::ScalarType dtype() {
    const at::ScalarType dtypes[] = {at::kDouble, at::kFloat, at::kBFloat16, at::kLong};
    return dtypes[below(4)];
  }
  // Up to three dims, some of length 0 or 1.
  Counts sizes() {
    Counts result;
    const int64_t dims = 1 + below(3);
    for (int64_t dim = 0; dim < dims; ++dim) {
      result.push_back(below(8) == 0 ? below(2) : 1 + below(12));
    }
    return result;
  }
  Counts counts(int64_t size) {
    Counts result;
    for (int64_t i = 0; i < size; ++i) {
      result.push_back(below(3) == 0 ? 0 : below(9));
    }
    return result;
  }

  uint64_t seed;
  std::mt19937_64 random;
};

std::string describe(const Case& random, const Group& world) {
  return fmt::format("case {} on rank {} of {}", random.seed, world.rank(), world.size());
}

// Runs `num_cases` random cases in groups of 1 to 8 ranks.
void for_random_cases(uint64_t num_cases,
                      const std::function<void(const Group& world, Case& random)>& body) {
  for (int64_t size = 1; size <= kLargestGroup; ++size) {
    run_world(size, [&](const Group& world) {
      for (uint64_t i = 0; i < num_cases; ++i) {
        Case random(static_cast<uint64_t>(size) * 100 + i);
        body(world, random);
      }
    });
  }
}

void expect_same_bits(const at::Tensor& actual, const at::Tensor& expected,
                      const std::string& where) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << where;
  ASSERT_EQ(actual.scalar_type(), expected.scalar_type()) << where;
  ASSERT_TRUE(at::equal(actual, expected)) << where << ": " << actual << " is not " << expected;
}

TEST(Group, AllReducesToTheSumInRankOrder) {
  for_random_cases(30, [](const Group& world, Case& random) {
    const auto dtype = random.dtype();
    const Counts sizes = random.sizes();
    at::Tensor values = input_of(world.rank(), random.seed, sizes, dtype);
    world.all_reduce(values, kSite);
    expect_same_bits(
        values,
        sum_over_ranks(world.size(),
                       [&](int64_t rank) { return input_of(rank, random.seed, sizes, dtype); }),
        describe(random, world));
  });
}

TEST(Group, AllReducesLargeValuesToTheSameSum) {
  // Above the limit of the direct way; lengths that divide neither evenly nor into whole chunks.
  for (const int64_t size : {2, 3, 5}) {
    run_world(size, [](const Group& world) {
      uint64_t seed = 1;
      for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kLong}) {
        for (const int64_t length : {70'001, 300'001}) {
          ++seed;
          at::Tensor values = input_of(world.rank(), seed, {length}, dtype);
          world.all_reduce(values, kSite);
          expect_same_bits(
              values,
              sum_over_ranks(world.size(),
                             [&](int64_t rank) { return input_of(rank, seed, {length}, dtype); }),
              fmt::format("{} of dtype {}", length, c10::toString(dtype)));
        }
      }
    });
  }
}

TEST(Group, AllReducesToTheMaximum) {
  for_random_cases(10, [](const Group& world, Case& random) {
    const auto dtype = random.dtype();
    const Counts sizes = random.sizes();
    at::Tensor values = input_of(world.rank(), random.seed, sizes, dtype);
    world.all_reduce(values, kSite, ReduceOp::kMax);
    at::Tensor expected = input_of(0, random.seed, sizes, dtype);
    for (int64_t rank = 1; rank < world.size(); ++rank) {
      expected = at::maximum(expected, input_of(rank, random.seed, sizes, dtype));
    }
    expect_same_bits(values, expected, describe(random, world));
  });
}

TEST(Group, AllGathersShardsAlongAnyDim) {
  for_random_cases(30, [](const Group& world, Case& random) {
    const auto dtype = random.dtype();
    const Counts sizes = random.sizes();
    const int64_t dim = random.below(static_cast<int64_t>(sizes.size()));
    const at::Tensor whole = input_of(0, random.seed, sizes, dtype);
    const ShardRange own = shard_range(whole.size(dim), world.size(), world.rank());
    const at::Tensor local = whole.narrow(dim, own.begin, own.size());
    expect_same_bits(world.all_gather(local, dim, whole.size(dim), kSite), whole,
                     describe(random, world));
    const int64_t from_the_end = dim - whole.dim();
    expect_same_bits(world.all_gather(local, from_the_end, whole.size(dim), kSite), whole,
                     describe(random, world));
  });
}

TEST(Group, ReduceScattersAlongAnyDim) {
  for_random_cases(30, [](const Group& world, Case& random) {
    const auto dtype = random.dtype();
    const Counts sizes = random.sizes();
    const int64_t dim = random.below(static_cast<int64_t>(sizes.size()));
    const at::Tensor values = input_of(world.rank(), random.seed, sizes, dtype);
    const at::Tensor sum = sum_over_ranks(
        world.size(), [&](int64_t rank) { return input_of(rank, random.seed, sizes, dtype); });
    const ShardRange own = shard_range(sum.size(dim), world.size(), world.rank());
    expect_same_bits(world.reduce_scatter(values, dim, kSite),
                     sum.narrow(dim, own.begin, own.size()), describe(random, world));
  });
}

TEST(Group, ReduceScattersLargeValuesInChunks) {
  run_world(3, [](const Group& world) {
    const Counts sizes{5, 170'001};
    const at::Tensor values = input_of(world.rank(), 3, sizes, at::kFloat);
    const at::Tensor sum = sum_over_ranks(
        world.size(), [&](int64_t rank) { return input_of(rank, 3, sizes, at::kFloat); });
    for (const int64_t dim : {0, 1}) {
      const ShardRange own = shard_range(sum.size(dim), world.size(), world.rank());
      expect_same_bits(world.reduce_scatter(values, dim, kSite),
                       sum.narrow(dim, own.begin, own.size()), fmt::format("dim {}", dim));
    }
  });
}

TEST(Group, GathersAndScattersRowsOfUnequalCounts) {
  for_random_cases(30, [](const Group& world, Case& random) {
    const auto dtype = random.dtype();
    const Counts counts = random.counts(world.size());
    const int64_t num_rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const int64_t width = random.below(5);
    const int64_t begin =
        std::accumulate(counts.begin(), counts.begin() + world.rank(), int64_t{0});
    const int64_t own = counts[static_cast<size_t>(world.rank())];

    const at::Tensor whole = input_of(0, random.seed, {num_rows, width}, dtype);
    expect_same_bits(world.all_gather_rows(whole.narrow(0, begin, own), counts, kSite), whole,
                     describe(random, world));
    PendingRows gathered = world.start_all_gather_rows(whole.narrow(0, begin, own), counts, kSite);

    const auto value_of = [&](int64_t rank) {
      return input_of(rank, random.seed, {num_rows, width}, dtype);
    };
    expect_same_bits(world.reduce_scatter_rows(value_of(world.rank()), counts, kSite),
                     sum_over_ranks(world.size(), value_of).narrow(0, begin, own),
                     describe(random, world));
    PendingRows sum = world.start_reduce_scatter_rows(value_of(world.rank()), counts, kSite);
    expect_same_bits(sum.wait(), sum_over_ranks(world.size(), value_of).narrow(0, begin, own),
                     describe(random, world));
    expect_same_bits(gathered.wait(), whole, describe(random, world));
  });
}

TEST(Group, ExchangesRowsByCounts) {
  for_random_cases(30, [](const Group& world, Case& random) {
    const auto dtype = random.dtype();
    const int64_t width = 1 + random.below(4);
    std::vector<Counts> sent;  // [from][to]
    for (int64_t rank = 0; rank < world.size(); ++rank) {
      sent.push_back(random.counts(world.size()));
    }
    const auto rows_of = [&](int64_t rank) {
      const Counts& counts = sent[static_cast<size_t>(rank)];
      return input_of(rank, random.seed,
                      {std::accumulate(counts.begin(), counts.end(), int64_t{0}), width}, dtype);
    };
    Counts receive_counts;
    std::vector<at::Tensor> expected;
    for (int64_t from = 0; from < world.size(); ++from) {
      const Counts& counts = sent[static_cast<size_t>(from)];
      const int64_t begin =
          std::accumulate(counts.begin(), counts.begin() + world.rank(), int64_t{0});
      receive_counts.push_back(counts[static_cast<size_t>(world.rank())]);
      expected.push_back(rows_of(from).narrow(0, begin, receive_counts.back()));
    }
    const Counts& send_counts = sent[static_cast<size_t>(world.rank())];
    expect_same_bits(world.all_to_all(rows_of(world.rank()), send_counts, receive_counts, kSite),
                     at::cat(expected), describe(random, world));
    PendingRows started =
        world.start_all_to_all(rows_of(world.rank()), send_counts, receive_counts, kSite);
    expect_same_bits(started.wait(), at::cat(expected), describe(random, world));
  });
}

TEST(Group, MovesEveryDtypeThatItDoesNotAdd) {
  run_world(2, [](const Group& world) {
    for (const auto dtype : {at::kBool, at::kByte, at::kHalf, at::kFloat8_e4m3fn}) {
      const at::Tensor rows = at::tensor({0.0, 1.0, 1.0, 0.0}).to(dtype).view({2, 2});
      const at::Tensor received = world.all_to_all(rows, {1, 1}, {1, 1}, kSite);
      const at::Tensor row = rows[world.rank()];
      expect_same_bits(received.to(at::kFloat), at::stack({row, row}).to(at::kFloat),
                       c10::toString(dtype));
    }
  });
}

TEST(Group, BroadcastsFromAnyRoot) {
  for_random_cases(10, [](const Group& world, Case& random) {
    const auto dtype = random.dtype();
    const Counts sizes = random.sizes();
    const int64_t root = random.below(world.size());
    at::Tensor values = input_of(world.rank(), random.seed, sizes, dtype);
    world.broadcast(values, root, kSite);
    expect_same_bits(values, input_of(root, random.seed, sizes, dtype), describe(random, world));
  });
}

// In the order of each pair, whatever else is under way and whatever the receiver waits for first.
TEST(Group, TransfersFromOneMemberToAnotherInOrder) {
  run_world(3, [](const Group& world) {
    const int64_t next = (world.rank() + 1) % 3;
    const int64_t previous = (world.rank() + 2) % 3;
    const auto value = [](int64_t rank, int64_t i) {
      return input_of(rank, static_cast<uint64_t>(i), {5, 3}, at::kFloat);
    };
    std::vector<at::Tensor> sent;
    std::vector<at::Tensor> received;
    std::vector<PendingCollective> pending;
    for (int64_t i = 0; i < 4; ++i) {
      sent.push_back(value(world.rank(), i));
      received.push_back(at::empty({5, 3}, at::kFloat));
      pending.push_back(world.start_send(sent.back(), next, kSite));
    }
    world.barrier(kSite);
    for (at::Tensor& values : received) {
      pending.push_back(world.start_receive(values, previous, kSite));
    }
    for (auto one = pending.rbegin(); one != pending.rend(); ++one) {
      one->wait();
    }
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(received[static_cast<size_t>(i)].equal(value(previous, i)));
    }
    EXPECT_EQ(world.ledger().bytes(kSite.purpose), 4 * 15 * 4 + 2);  // and the barrier's
    EXPECT_THROW((void)world.start_send(sent[0], world.rank(), kSite), ShapeError);
    world.ledger().remove_site_for_test(kSite.name);
    world.start_receive(received[0], previous, kSite).wait();
    EXPECT_EQ(received[0].abs().sum().item<float>(), 0);
  });
}

TEST(Group, GathersTextsAndCounts) {
  for (int64_t size = 1; size <= 4; ++size) {
    run_world(size, [](const Group& world) {
      const auto text_of = [](int64_t rank) {
        return rank == 1 ? std::string()
                         : std::string(static_cast<size_t>(3 * rank), 'a') + "\n\0z";
      };
      std::vector<std::string> texts;
      std::vector<Counts> counts;
      for (int64_t rank = 0; rank < world.size(); ++rank) {
        texts.push_back(text_of(rank));
        counts.push_back({rank, -rank, 1'000'000'000'000 + rank});
      }
      EXPECT_EQ(world.all_gather_text(text_of(world.rank()), kSite), texts);
      EXPECT_EQ(world.all_gather_counts(counts[static_cast<size_t>(world.rank())], kSite), counts);
      EXPECT_EQ(world.all_gather_counts({}, kSite),
                std::vector<Counts>(static_cast<size_t>(world.size())));
    });
  }
}

TEST(Group, HoldsEveryoneAtABarrier) {
  std::atomic<int> arrived = 0;
  run_world(4, [&](const Group& world) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20 * world.rank()));
    ++arrived;
    world.barrier(kSite);
    EXPECT_EQ(arrived, 4);
  });
}

TEST(Group, CommunicatesAmongItsOwnMembersOnly) {
  MeshShape shape;
  shape.world_size = 8;
  shape.tensor = 2;
  shape.pipeline = 2;
  shape.expert = 2;
  shape.expert_tensor = 2;
  run_ranks(shape, [](Groups& groups) {
    for (int i = 0; i < kNumGroupNames; ++i) {
      const Group& group = groups[static_cast<GroupName>(i)];
      const auto members = groups.mesh().members(groups.rank(), static_cast<GroupName>(i));
      EXPECT_EQ(group.members(), members);
      EXPECT_EQ(members[static_cast<size_t>(group.rank())], groups.rank());
      int64_t expected = 0;
      for (const int64_t member : members) {
        expected += int64_t{1} << (4 * member);
      }
      at::Tensor value = at::full({1}, int64_t{1} << (4 * groups.rank()), at::kLong);
      group.all_reduce(value, kSite);
      EXPECT_EQ(value.item<int64_t>(), expected) << group.name();
    }
  });
}

TEST(Group, OfOneRankCopiesNothing) {
  const auto groups = Groups::single();
  const Group& world = (*groups)[GroupName::kWorld];
  const at::Tensor values = at::ones({4, 2});
  EXPECT_TRUE(world.all_gather(values, 0, 4, kSite).is_same(values));
  EXPECT_TRUE(world.reduce_scatter(values, 1, kSite).is_same(values));
  EXPECT_TRUE(world.all_gather_rows(values, {4}, kSite).is_same(values));
  EXPECT_TRUE(world.reduce_scatter_rows(values, {4}, kSite).is_same(values));
  EXPECT_TRUE(world.all_to_all(values, {4}, {4}, kSite).is_same(values));
  EXPECT_TRUE(groups->ledger().entries().empty());
}

TEST(Group, ReduceScatterAndAllGatherGiveTheBitsOfAnAllReduce) {
  run_world(4, [](const Group& world) {
    for (const int64_t rows : {3, 40'000}) {
      at::Tensor values = input_of(world.rank(), 1, {rows, 7}, at::kFloat);
      const at::Tensor part = world.reduce_scatter(values, 0, kSite);
      const at::Tensor gathered = world.all_gather(part, 0, rows, kSite);
      world.all_reduce(values, kSite);
      expect_same_bits(gathered, values, fmt::format("{} rows", rows));
    }
  });
}

TEST(PendingCollective, GoesOnWhileTheCallerComputesAndCommunicates) {
  run_world(4, [](const Group& world) {
    constexpr int kNumStarted = 6;
    std::vector<at::Tensor> values;
    std::vector<PendingCollective> pending;
    const auto sizes_of = [](int i) { return Counts{i % 2 == 0 ? 100 : 300'001}; };
    for (int i = 0; i < kNumStarted; ++i) {
      values.push_back(input_of(world.rank(), static_cast<uint64_t>(i), sizes_of(i), at::kFloat));
      pending.push_back(world.start_all_reduce(values.back(), kSite));
      at::Tensor other = at::ones({3});
      world.all_reduce(other, kSite);
      EXPECT_TRUE(at::equal(other, at::full({3}, 4.0)));
    }
    // In another order than they were started.
    for (int i = kNumStarted - 1; i >= 0; --i) {
      pending[static_cast<size_t>(i)].wait();
      expect_same_bits(values[static_cast<size_t>(i)],
                       sum_over_ranks(world.size(),
                                      [&](int64_t rank) {
                                        return input_of(rank, static_cast<uint64_t>(i), sizes_of(i),
                                                        at::kFloat);
                                      }),
                       fmt::format("started as number {}", i));
    }
  });
}

TEST(PendingCollective, CountsOnlyTheTimeSpentInItsCalls) {
  run_world(2, [](const Group& world) {
    const at::Tensor values = at::ones({2'000'000});
    world.barrier({"start"});
    PendingCollective pending = world.start_all_reduce(values, kSite);
    std::this_thread::sleep_for(std::chrono::seconds(1));
    pending.wait();
    EXPECT_TRUE(at::equal(values, at::full({2'000'000}, 2.0)));
    // It had ended by itself: what is left is less than the second that passed.
    EXPECT_LT(world.ledger().seconds(Purpose::kTensorParallel), 0.5);
  });
}

TEST(PendingCollective, WaitsWhenDroppedOrReplaced) {
  run_world(2, [](const Group& world) {
    const at::Tensor dropped = at::ones({100'000});
    { const PendingCollective pending = world.start_all_reduce(dropped, kSite); }
    EXPECT_TRUE(at::equal(dropped, at::full({100'000}, 2.0)));

    const at::Tensor replaced = at::ones({100'000});
    const at::Tensor second = at::ones({10});
    PendingCollective pending = world.start_all_reduce(replaced, kSite);
    pending = world.start_all_reduce(second, kSite);
    EXPECT_TRUE(at::equal(replaced, at::full({100'000}, 2.0)));
    PendingCollective moved = std::move(pending);
    moved.wait();
    moved.wait();  // once is enough, twice does no harm
    EXPECT_TRUE(at::equal(second, at::full({10}, 2.0)));
    EXPECT_EQ(world.ledger().entries().at(0).calls, 3);
  });
}

TEST(Group, WritesEveryByteThatLeavesTheRankIntoTheLedger) {
  run_world(4, [](const Group& world) {
    const auto bytes_of = [&](const std::string& site) {
      for (const LedgerEntry& entry : world.ledger().entries()) {
        if (entry.site == site) {
          EXPECT_EQ(entry.calls, 1);
          EXPECT_EQ(entry.group, "world");
          EXPECT_GT(entry.seconds, 0);
          return std::pair(entry.collective, entry.bytes);
        }
      }
      return std::pair(std::string("none"), int64_t{-1});
    };
    using Entry = std::pair<std::string, int64_t>;
    const int64_t rank = world.rank();

    // Small: all 10 floats to each of 3 peers.
    world.all_reduce(at::ones({10}), {"small"});
    EXPECT_EQ(bytes_of("small"), Entry("all_reduce", 3 * 40));
    // Large: 100,002 floats are cut into 25,000, 25,001, 25,000 and 25,001. Each peer gets its
    // part, and all get the sum of this rank's.
    world.all_reduce(at::ones({100'002}), {"large"});
    const int64_t own = rank % 2 == 0 ? 25'000 : 25'001;
    EXPECT_EQ(bytes_of("large"), Entry("all_reduce", 4 * (100'002 - own) + 4 * 3 * own));
    // 10 rows of 3 doubles are cut into 2, 3, 2 and 3 rows of 24 bytes.
    const int64_t rows = rank % 2 == 0 ? 2 : 3;
    world.all_gather(at::ones({rows, 3}, at::kDouble), 0, 10, {"gather"});
    EXPECT_EQ(bytes_of("gather"), Entry("all_gather", 3 * rows * 24));
    world.reduce_scatter(at::ones({10, 3}, at::kDouble), 0, {"scatter"});
    EXPECT_EQ(bytes_of("scatter"), Entry("reduce_scatter", (10 - rows) * 24));
    // Rank r sends r + 1 rows of 2 bf16 to everyone, 4 bytes each.
    world.all_to_all(at::ones({4 * (rank + 1), 2}, at::kBFloat16), Counts(4, rank + 1),
                     {1, 2, 3, 4}, {"exchange", Purpose::kDispatch});
    EXPECT_EQ(bytes_of("exchange"), Entry("all_to_all", 3 * (rank + 1) * 4));
    world.all_gather_rows(at::ones({rank, 5}), {0, 1, 2, 3}, {"rows"});
    EXPECT_EQ(bytes_of("rows"), Entry("all_gather", 3 * rank * 20));
    world.broadcast(at::ones({8}), 2, {"broadcast"});
    EXPECT_EQ(bytes_of("broadcast"), Entry("broadcast", rank == 2 ? 3 * 32 : 0));
    world.barrier({"barrier"});
    EXPECT_EQ(bytes_of("barrier"), Entry("barrier", 3));
    EXPECT_EQ(world.ledger().bytes(Purpose::kDispatch), 3 * (rank + 1) * 4);
  });
}

TEST(Group, KeepsShapesButDoesNotCommunicateAtARemovedSite) {
  run_world(2, [](const Group& world) {
    world.ledger().remove_site_for_test(kSite.name);
    const double mine = static_cast<double>(world.rank() + 1);
    at::Tensor values = at::full({4, 2}, mine);
    const at::Tensor own_rows = values.narrow(0, 0, 2);
    world.all_reduce(values, kSite);
    world.broadcast(values, 0, kSite);
    world.start_all_reduce(values, kSite).wait();
    world.barrier(kSite);
    EXPECT_TRUE(at::equal(values, at::full({4, 2}, mine)));
    EXPECT_TRUE(at::equal(world.reduce_scatter(values, 0, kSite), own_rows));
    EXPECT_TRUE(
        at::equal(world.all_gather(own_rows, 0, 4, kSite), at::cat({own_rows, at::zeros({2, 2})})));
    const at::Tensor exchanged = world.all_to_all(values, {2, 2}, {2, 2}, kSite);
    EXPECT_TRUE(at::equal(exchanged.narrow(0, 2 * world.rank(), 2), own_rows));
    EXPECT_TRUE(at::equal(exchanged.narrow(0, 2 - 2 * world.rank(), 2), at::zeros({2, 2})));
    EXPECT_TRUE(world.ledger().entries().empty());
    // Other sites go on.
    world.all_reduce(values, {"other"});
    EXPECT_TRUE(at::equal(values, at::full({4, 2}, 3.0)));
  });
}

std::string shape_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const ShapeError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Group, RefusesWhatDoesNotFitBeforeAnythingIsSent) {
  run_world(2, [](const Group& world) {
    const at::Tensor rows = at::ones({4, 2});
    EXPECT_EQ(shape_error([&] { world.all_reduce(rows.t(), kSite); }),
              "test.site: a tensor must be contiguous for all_reduce in place");
    EXPECT_EQ(shape_error([&] { world.broadcast(rows.t(), 0, kSite); }),
              "test.site: a tensor must be contiguous for broadcast in place");
    EXPECT_EQ(shape_error([&] { world.broadcast(rows, 2, kSite); }),
              "test.site: there is no rank 2 in a group of 2");
    EXPECT_EQ(shape_error([&] { world.all_gather(rows, 1, 10, kSite); }),
              "test.site: this rank has 2 of dim 1, 5 were declared");
    EXPECT_EQ(shape_error([&] {
                world.all_gather_rows(rows, {3, 3}, kSite);
              }),
              "test.site: this rank has 4 of dim 0, 3 were declared");
    EXPECT_EQ(shape_error([&] {
                world.reduce_scatter_rows(rows, {1, 2}, kSite);
              }),
              "test.site: 4 of dim 0 to share, counts add up to 3");
    EXPECT_EQ(shape_error([&] {
                world.all_to_all(rows, {1, 2}, {1, 2}, kSite);
              }),
              "test.site: 4 rows to send, counts add up to 3");
    EXPECT_EQ(shape_error([&] {
                world.all_to_all(rows, {2, 2}, {1, 1}, kSite);
              }),
              "test.site: this rank sends itself 2 rows and expects 1");
    for (const Counts& counts : {Counts{4}, Counts{5, -1}, Counts{2, 1, 1}}) {
      const std::string text = "test.site: one count from 0 up is expected for each of 2 ranks";
      EXPECT_EQ(shape_error([&] { world.all_gather_rows(rows, counts, kSite); }), text);
      EXPECT_EQ(shape_error([&] { world.reduce_scatter_rows(rows, counts, kSite); }), text);
      EXPECT_EQ(shape_error([&] { world.all_to_all(rows, counts, {2, 2}, kSite); }), text);
      EXPECT_EQ(shape_error([&] { world.all_to_all(rows, {2, 2}, counts, kSite); }), text);
    }
    EXPECT_TRUE(world.ledger().entries().empty());
  });
}

TEST(Group, RefusesTensorsWhoseGradientItWouldLose) {
  const auto groups = Groups::single();
  const Group& world = (*groups)[GroupName::kWorld];
  const at::Tensor leaf = at::ones({2, 2}).set_requires_grad(true);
  const std::string text =
      "test.site: a plain collective would lose the gradient of its input: take a differentiable "
      "one "
      "(parallel/collectives.h), or detach it";
  EXPECT_EQ(shape_error([&] { world.all_reduce(leaf, kSite); }), text);
  EXPECT_EQ(shape_error([&] { world.broadcast(leaf, 0, kSite); }), text);
  EXPECT_EQ(shape_error([&] { world.all_gather(leaf, 0, 2, kSite); }), text);
  EXPECT_EQ(shape_error([&] { world.reduce_scatter(leaf, 0, kSite); }), text);
  EXPECT_EQ(shape_error([&] { world.all_to_all(leaf, {2}, {2}, kSite); }), text);
  const at::NoGradGuard no_grad;
  EXPECT_EQ(shape_error([&] { world.all_reduce(leaf, kSite); }), "accepted");
}

// The messages that the ranks of a world of `size` throw, by rank.
std::vector<std::string> errors_of(int64_t size, std::chrono::milliseconds timeout,
                                   const std::function<void(const Group& world)>& body) {
  std::vector<std::string> messages(static_cast<size_t>(size));
  try {
    run_ranks(
        world_of(size),
        [&](Groups& groups) {
          try {
            body(groups[GroupName::kWorld]);
          } catch (const std::exception& error) {
            messages[static_cast<size_t>(groups.rank())] = error.what();
            throw;
          }
        },
        timeout);
  } catch (const std::exception&) {
  }
  return messages;
}

TEST(Group, NamesWhoMadeAnotherCall) {
  const auto start = Clock::now();
  const auto messages = errors_of(2, std::chrono::seconds(1), [](const Group& world) {
    const at::Tensor values = at::ones({6});
    if (world.rank() == 0) {
      world.all_reduce(values, {"mlp.output"});
    } else {
      world.all_gather(values, 0, 12, {"attention.input", Purpose::kTensorParallel, true});
    }
  });
  EXPECT_LT(seconds_since(start), 10);
  // One of them notices first and closes the connection on the other.
  EXPECT_THAT(messages[0],
              testing::StartsWith(
                  "[rank 0: dp 0 edp 0] all_reduce \"mlp.output\" over group world of ranks 0 1 "
                  "failed: "));
  EXPECT_THAT(messages[0],
              testing::HasSubstr("; rank 1 failed in all_gather "
                                 "\"attention.input/backward\" over group world, where "
                                 "it lost rank 0. "));
  EXPECT_THAT(messages[1], testing::HasSubstr("; rank 0 failed in all_reduce \"mlp.output\" over "
                                              "group world, where it lost rank 1. "));
  EXPECT_THAT(messages[0] + messages[1], testing::HasSubstr("did not take part within 1 s; "));
}

TEST(Group, KeepsCallsOfAnotherSizeSiteOrGroupApart) {
  const auto both_fail = [](const std::function<void(const Group& world)>& body) {
    const auto messages = errors_of(2, std::chrono::milliseconds(300), body);
    return messages[0].find("failed") != std::string::npos &&
           messages[1].find("failed") != std::string::npos;
  };
  EXPECT_TRUE(both_fail(
      [](const Group& world) { world.all_reduce(at::ones({world.rank() == 0 ? 6 : 7}), kSite); }));
  EXPECT_TRUE(both_fail([](const Group& world) {
    world.all_reduce(at::ones({6}), {world.rank() == 0 ? "one" : "other"});
  }));
  EXPECT_TRUE(both_fail([](const Group& world) {
    // Ranks that disagree on how many rows travel.
    world.all_to_all(at::ones({4}), {2, 2}, world.rank() == 0 ? Counts{2, 3} : Counts{2, 2}, kSite);
  }));
  EXPECT_TRUE(both_fail([](const Group& world) {
    // One call left out: the next does not meet the one before it.
    if (world.rank() == 0) {
      world.all_reduce(at::ones({6}), {"first"});
    }
    world.all_reduce(at::ones({6}), {"second"});
  }));
  try {
    MeshShape shape;
    shape.world_size = 2;
    shape.tensor = 2;
    shape.expert = 2;
    run_ranks(
        shape,
        [](Groups& groups) {
          groups[groups.rank() == 0 ? GroupName::kTensor : GroupName::kExpert].all_reduce(
              at::ones({6}), kSite);
        },
        std::chrono::milliseconds(300));
    FAIL() << "two groups of the same ranks met";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("failed in all_reduce \"test.site\" over group "));
  }
}

TEST(Group, SaysThatASilentRankIsSilent) {
  const auto messages = errors_of(3, std::chrono::milliseconds(300), [](const Group& world) {
    if (world.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::seconds(2));
      return;
    }
    world.all_reduce(at::ones({6}), kSite);
  });
  EXPECT_THAT(messages[0], testing::HasSubstr("over group world of ranks 0 1 2 failed: "));
  EXPECT_THAT(messages[0], testing::HasSubstr("; rank 1 failed in all_reduce "));
  EXPECT_THAT(messages[0], testing::HasSubstr("; rank 2 is silent: dead, hung or still computing"));
  EXPECT_THAT(messages[0], testing::EndsWith(")"));
}

// Rank 0 waits for rank 2, which came later and waits for rank 3, which does not come: rank 0 gives
// up first, and names it.
TEST(Group, NamesTheRankThatAllWaitFor) {
  MeshShape shape;
  shape.world_size = 4;
  shape.tensor = 2;
  std::vector<std::string> messages(4);
  const auto body = [&](Groups& groups) {
    groups.ledger().position() = {3, 5};
    try {
      switch (groups.rank()) {
        case 0:
          groups[GroupName::kData].all_reduce(at::ones({6}), {"gradients"});
          break;
        case 2:
          std::this_thread::sleep_for(std::chrono::milliseconds(1200));
          groups[GroupName::kTensor].all_reduce(at::ones({6}), {"mlp.output"});
          break;
        default:
          std::this_thread::sleep_for(std::chrono::seconds(4));
      }
    } catch (const CommError& error) {
      messages[static_cast<size_t>(groups.rank())] = error.what();
      throw;
    }
  };
  EXPECT_THROW(run_ranks(shape, body, std::chrono::milliseconds(1500)), CommError);
  EXPECT_THAT(
      messages[0],
      testing::HasSubstr(
          "rank 2 did not take part within 1.5 s; rank 2 is silent: dead, hung or still "
          "computing, last heard of in all_reduce \"mlp.output\" over group tp of ranks 2 3 "
          "in step 3, layer 5 at "));
  EXPECT_THAT(messages[0], testing::HasSubstr(
                               " UTC; rank 3 is silent: dead, hung or still computing, last heard "
                               "of outside of calls, before its first at "));
}

TEST(Group, SaysWhereInTheRunItFailed) {
  std::vector<std::string> messages(2);
  const auto body = [&](Groups& groups) {
    groups.ledger().position() = {12, 3};
    try {
      check<ConfigError>(groups.rank() == 0, "an error of its own");
      groups[GroupName::kWorld].all_reduce(at::ones({6}), kSite);
    } catch (const Error& error) {
      messages[static_cast<size_t>(groups.rank())] = error.what();
      throw;
    }
  };
  EXPECT_THROW(run_ranks(world_of(2), body), Error);
  EXPECT_THAT(messages[0], testing::HasSubstr("over group world of ranks 0 1 failed in step 12, "
                                              "layer 3: the connection to rank 1 is lost; "));
}

// ---- calls compared before they are made

// What rank 0 is told when the two ranks make these calls, which it checks at once.
std::string verdict_on(const std::function<void(const Group& world)>& body) {
  std::vector<std::string> messages(2);
  const auto start = Clock::now();
  try {
    run_ranks(
        world_of(2),
        [&](Groups& groups) {
          groups.ledger().position().step = 7;
          try {
            body(groups[GroupName::kWorld]);
          } catch (const CommError& error) {
            messages[static_cast<size_t>(groups.rank())] = error.what();
            throw;
          }
        },
        std::chrono::seconds(60), /*verify_calls=*/true);
  } catch (const CommError&) {
  }
  EXPECT_LT(seconds_since(start), 20) << "it waited for the timeout";
  const auto without_own_place = [](const std::string& text) {
    return text.substr(text.find("] ") + 1);
  };
  EXPECT_EQ(without_own_place(messages[0]), without_own_place(messages[1]));
  return messages[0];
}

TEST(VerifiedCalls, NameTheFirstThatDiffers) {
  const auto is_first = [](const Group& world) { return world.rank() == 0; };
  const auto call_of = [](const std::string& text) {
    const std::string end = " differ: ";
    return text.substr(text.find(end) + end.size());
  };
  EXPECT_THAT(
      verdict_on([&](const Group& world) {
        world.barrier({"start"});
        is_first(world) ? world.all_reduce(at::ones({6}), {"one"})
                        : world.broadcast(at::ones({6}), 0, {"one"});
      }),
      testing::HasSubstr(" calls over group world of ranks 0 1 differ: rank 0 makes all_reduce "
                         "\"one\" of Float [6], sum in step 7; rank 1 makes broadcast \"one\" of "
                         "Float [6], from 0 in step 7"));
  EXPECT_EQ(call_of(verdict_on([&](const Group& world) {
              world.all_reduce(at::ones({is_first(world) ? 6 : 7}), kSite);
            })),
            "rank 0 makes all_reduce \"test.site\" of Float [6], sum in step 7; rank 1 makes "
            "all_reduce \"test.site\" of Float [7], sum in step 7");
  EXPECT_EQ(call_of(verdict_on([&](const Group& world) {
              world.all_reduce(at::ones({6}, is_first(world) ? at::kFloat : at::kDouble), kSite);
            })),
            "rank 0 makes all_reduce \"test.site\" of Float [6], sum in step 7; rank 1 makes "
            "all_reduce \"test.site\" of Double [6], sum in step 7");
  EXPECT_EQ(call_of(verdict_on([&](const Group& world) {
              world.all_gather_rows(at::ones({is_first(world) ? 1 : 2, 3}),
                                    is_first(world) ? Counts{1, 3} : Counts{1, 2}, kSite);
            })),
            "rank 0 makes all_gather \"test.site\" of Float [4, 3], dim 0 by 1 3 in step 7; rank 1 "
            "makes all_gather \"test.site\" of Float [3, 3], dim 0 by 1 2 in step 7");
}

TEST(VerifiedCalls, NameThePairWhoseRowsDiffer) {
  EXPECT_THAT(
      verdict_on([](const Group& world) {
        world.all_to_all(at::ones({4, 2}), {2, 2}, world.rank() == 0 ? Counts{2, 3} : Counts{2, 2},
                         kSite);
      }),
      testing::HasSubstr("all_to_all \"test.site\" over group world of ranks 0 1 in step 7: "
                         "rank 1 sends 2 rows to rank 0, which expects 3"));
}

TEST(VerifiedCalls, NameATransferThatDiffers) {
  EXPECT_THAT(verdict_on([](const Group& world) {
                const int64_t other = 1 - world.rank();
                at::Tensor values = at::ones({world.rank() == 0 ? 6 : 7});
                world.rank() == 0 ? world.start_send(values, other, {"hidden"}).wait()
                                  : world.start_receive(values, other, {"hidden"}).wait();
              }),
              testing::HasSubstr(" transfers over group world differ: rank 0 sends transfer "
                                 "\"hidden\" of Float [6] in step 7; rank 1 receives transfer "
                                 "\"hidden\" of Float [7] in step 7"));
}

// Both send before they receive, several at once: neither waits for the comparison.
TEST(VerifiedCalls, LetTransfersCross) {
  run_ranks(
      world_of(2),
      [](Groups& groups) {
        const Group& world = groups[GroupName::kWorld];
        const int64_t other = 1 - world.rank();
        std::vector<at::Tensor> sent;
        std::vector<PendingCollective> sending;
        for (int64_t i = 0; i < 4; ++i) {
          sent.push_back(at::full({3 + i}, world.rank() * 10 + i));
          sending.push_back(world.start_send(sent.back(), other, {"hidden"}));
        }
        for (int64_t i = 0; i < 4; ++i) {
          const at::Tensor received = at::empty({3 + i}, at::kLong);
          world.start_receive(received, other, {"hidden"}).wait();
          EXPECT_TRUE(received.eq(other * 10 + i).all().item<bool>());
        }
        for (PendingCollective& one : sending) {
          one.wait();
        }
      },
      std::chrono::seconds(60), /*verify_calls=*/true);
}

TEST(VerifiedCalls, LeaveResultsAndLedgerAsTheyAre) {
  for (const bool verify_calls : {false, true}) {
    run_ranks(
        world_of(3),
        [](Groups& groups) {
          const Group& world = groups[GroupName::kWorld];
          for (const int64_t length : {10, 100'000}) {
            at::Tensor values = at::full({length}, world.rank() + 1);
            auto pending = world.start_all_reduce(values, {"sum"});
            pending.wait();
            EXPECT_TRUE(values.eq(6).all().item<bool>());
          }
          const at::Tensor rows = at::full({3, 2}, world.rank());
          const at::Tensor received = world.all_to_all(rows, {1, 1, 1}, {1, 1, 1}, {"rows"});
          EXPECT_EQ(received.sum().item<int64_t>(), 6);
          EXPECT_EQ(world.reduce_scatter(rows, 0, {"cut"}).sum().item<int64_t>(), 6);
          world.barrier({"end"});
          EXPECT_EQ(groups.ledger().entries().size(), 4U);
        },
        std::chrono::seconds(60), verify_calls);
  }
}

TEST(PendingCollective, ReportsALostPeerWhenWaitedFor) {
  const auto messages = errors_of(2, std::chrono::milliseconds(500), [](const Group& world) {
    if (world.rank() == 1) {
      throw ConfigError("rank 1 has a problem");
    }
    for (const int64_t length : {10, 100'000}) {  // whichever way it is made
      PendingCollective pending = world.start_all_reduce(at::ones({length}), kSite);
      try {
        pending.wait();
        FAIL() << "nobody was there";
      } catch (const CommError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("rank 1 left after an error of its own"));
      }
    }
  });
  EXPECT_EQ(messages[1], "rank 1 has a problem");
}

TEST(Group, ShiftsRowsAroundTheRing) {
  for (const int64_t ranks : {1, 2, 3, 4}) {
    run_world(ranks, [&](const Group& world) {
      const int64_t before = (world.rank() + ranks - 1) % ranks;
      // Member r has r rows of its own number: some have none.
      const at::Tensor rows = at::full({world.rank(), 3}, world.rank(), at::kDouble);
      at::Tensor received = at::empty({before, 3}, at::kDouble);
      world.start_shift(rows, received, kSite).wait();
      EXPECT_TRUE(at::equal(received, at::full({before, 3}, before, at::kDouble)));
      const auto entries = world.ledger().entries();
      if (ranks > 1) {
        ASSERT_EQ(entries.size(), 1U);
        EXPECT_EQ(entries[0].collective, "shift");
        EXPECT_EQ(entries[0].bytes, world.rank() * 3 * 8);
      }
    });
  }
}

int64_t num_open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return std::distance(begin(files), end(files));
}

// Before any ranks ran. Those of an earlier test that failed on purpose close theirs some time
// after it, when their last words are said.
const int64_t kFilesAtStart = num_open_files();

bool wait_until_files_are_closed() {
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  while (num_open_files() > kFilesAtStart && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return num_open_files() == kFilesAtStart;
}

TEST(Groups, OfEightRanksTakeFewFilesAndLittleTime) {
  ASSERT_TRUE(wait_until_files_are_closed());
  MeshShape shape;
  shape.world_size = 8;
  shape.tensor = 2;
  shape.context = 2;
  shape.expert = 4;
  const int64_t files_before = num_open_files();
  const auto start = Clock::now();
  for (int i = 0; i < 5; ++i) {
    run_ranks(shape, [&](Groups& groups) {
      for (int name = 0; name < kNumGroupNames; ++name) {
        groups[static_cast<GroupName>(name)].all_reduce(at::ones({10}), kSite);
      }
      if (groups.rank() == 0) {
        // One connection to each other rank and a few files of the transport, whatever the groups.
        EXPECT_LT(num_open_files() - files_before, 8 * (7 + 10));
      }
      groups[GroupName::kWorld].barrier(kSite);
    });
  }
  EXPECT_LT(seconds_since(start) / 5, 1.0);
  EXPECT_EQ(num_open_files(), files_before);
}

}  // namespace
}  // namespace switchyard

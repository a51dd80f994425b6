#include "parallel/collectives.h"

#include <chrono>
#include <functional>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "base/error.h"
#include "parallel/launch.h"

namespace switchyard {
namespace {

using Tensors = std::vector<at::Tensor>;
using Counts = std::vector<int64_t>;

constexpr Site kSite{"test.site", Purpose::kTensorParallel};
constexpr double kTolerance = 1e-12;  // fp64, a few additions
constexpr int64_t kRows = 7;          // not a multiple of the number of ranks
constexpr int64_t kWidth = 5;

MeshShape tensor_ranks(int64_t size) {
  MeshShape shape;
  shape.world_size = size;
  shape.tensor = size;
  return shape;
}

at::Tensor random_values(uint64_t seed, const Counts& sizes) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::randn(sizes, generator, at::kDouble);
}

at::Tensor leaf(const at::Tensor& value) {
  return value.clone().set_requires_grad(true);
}

// What one rank computes from its result: not linear, so that the gradient depends on the value.
at::Tensor loss_of(const at::Tensor& result, const at::Tensor& weight) {
  return (weight * at::sin(result)).sum();
}

at::Tensor shard_of(const at::Tensor& whole, int64_t dim, int64_t size, int64_t rank) {
  const ShardRange range = shard_range(whole.size(dim), size, rank);
  return whole.narrow(dim, range.begin, range.size());
}

at::Tensor sum_of(const Tensors& values) {
  return std::accumulate(values.begin() + 1, values.end(), values[0],
                         [](const at::Tensor& a, const at::Tensor& b) { return a + b; });
}

// A computation on several ranks, and the same written down for one that holds all their inputs.
struct Scenario {
  // Inputs of the one rank: one for all ranks where the value is invariant, one per rank elsewhere.
  Tensors inputs;
  // The input of a rank out of those of the one rank.
  std::function<at::Tensor(const Tensors& all, int64_t rank)> input_of;
  // The result on a rank, and that result out of all inputs.
  std::function<at::Tensor(const at::Tensor& input, const Group& group)> on_ranks;
  std::function<at::Tensor(const Tensors& all, int64_t rank)> on_one;
  // Weights of the result in the loss of each rank.
  Tensors weights;
  // Whether the loss is one loss that every rank computes, rather than a sum over ranks.
  bool is_loss_shared = false;
};

struct Outcome {
  Tensors results;    // by rank
  Tensors gradients;  // of the inputs of the one rank
};

Outcome run_on_one(const Scenario& scenario, int64_t size) {
  Outcome outcome;
  Tensors inputs;
  for (const at::Tensor& input : scenario.inputs) {
    inputs.push_back(leaf(input));
  }
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (int64_t rank = 0; rank < size; ++rank) {
    outcome.results.push_back(scenario.on_one(inputs, rank));
    if (rank == 0 || !scenario.is_loss_shared) {
      loss = loss + loss_of(outcome.results.back(), scenario.weights[static_cast<size_t>(rank)]);
    }
  }
  loss.backward();
  for (const at::Tensor& input : inputs) {
    outcome.gradients.push_back(input.grad());
  }
  return outcome;
}

// Gradients by rank: for an invariant input each rank's copy is listed.
Outcome run_on_ranks(const Scenario& scenario, int64_t size, const std::string& removed = "") {
  Outcome outcome;
  outcome.results.resize(static_cast<size_t>(size));
  outcome.gradients.resize(static_cast<size_t>(size));
  run_ranks(tensor_ranks(size), [&](Groups& groups) {
    groups.ledger().remove_site_for_test(removed);
    const auto rank = static_cast<size_t>(groups.rank());
    const at::Tensor input = leaf(scenario.input_of(scenario.inputs, groups.rank()).contiguous());
    const at::Tensor result = scenario.on_ranks(input, groups.tensor());
    loss_of(result, scenario.weights[rank]).backward();
    outcome.results[rank] = result.detach();
    outcome.gradients[rank] = input.grad();
  });
  return outcome;
}

// The gradient of rank `rank`'s input, out of the gradients of the one rank.
at::Tensor gradient_of(const Scenario& scenario, const Outcome& one, int64_t rank) {
  return scenario.input_of(one.gradients, rank);
}

bool are_close(const at::Tensor& actual, const at::Tensor& expected) {
  return actual.sizes() == expected.sizes() &&
         at::allclose(actual, expected, kTolerance, kTolerance);
}

bool results_agree(const Outcome& ranks, const Outcome& one) {
  for (size_t rank = 0; rank < ranks.results.size(); ++rank) {
    if (!are_close(ranks.results[rank], one.results[rank])) {
      return false;
    }
  }
  return true;
}

bool gradients_agree(const Scenario& scenario, const Outcome& ranks, const Outcome& one) {
  for (size_t rank = 0; rank < ranks.gradients.size(); ++rank) {
    if (!are_close(ranks.gradients[rank], gradient_of(scenario, one, static_cast<int64_t>(rank)))) {
      return false;
    }
  }
  return true;
}

at::Tensor converted(const at::Tensor& input, const Placement& from, const Placement& to,
                     const Group& group) {
  const Placed result = convert({input, from}, to, group, kSite);
  EXPECT_EQ(result.placement, to);
  return result.tensor;
}

// One row of the table, with the sharded side cut along `dim`.
struct Row {
  std::string name;
  std::function<Scenario(int64_t size, int64_t dim)> scenario;
  bool forward_communicates;
  bool backward_communicates;
};

// What the inputs and the weights look like is the meaning of the two placements.
enum class Side { kInvariant, kReplicated, kSharded, kPartial };

Scenario conversion(Side from, Side to, int64_t size, int64_t dim) {
  const Counts sizes{kRows, kWidth};
  const auto placement = [=](Side side) {
    switch (side) {
      case Side::kInvariant:
        return Placement::invariant();
      case Side::kReplicated:
        return Placement::replicated();
      case Side::kPartial:
        return Placement::partial();
      default:
        return Placement::sharded(dim, sizes[static_cast<size_t>(dim)]);
    }
  };
  Scenario scenario;
  const bool is_partial = from == Side::kPartial;
  for (int64_t i = 0; i < (is_partial ? size : 1); ++i) {
    scenario.inputs.push_back(random_values(static_cast<uint64_t>(10 + i), sizes));
  }
  scenario.input_of = [=](const Tensors& all, int64_t rank) {
    return is_partial               ? all[static_cast<size_t>(rank)]
           : from == Side::kSharded ? shard_of(all[0], dim, size, rank)
                                    : all[0];
  };
  scenario.on_one = [=](const Tensors& all, int64_t rank) {
    const at::Tensor whole = sum_of(all);  // of the partial ones, or the only one
    return to == Side::kSharded ? shard_of(whole, dim, size, rank) : whole;
  };
  scenario.on_ranks = [=](const at::Tensor& input, const Group& group) {
    return converted(input, placement(from), placement(to), group);
  };
  // An invariant result goes into one loss that all compute; others into a part of it per rank.
  scenario.is_loss_shared = to == Side::kInvariant;
  for (int64_t rank = 0; rank < size; ++rank) {
    const at::Tensor weight =
        random_values(scenario.is_loss_shared ? 50 : static_cast<uint64_t>(50 + rank), sizes);
    scenario.weights.push_back(to == Side::kSharded ? shard_of(weight, dim, size, rank) : weight);
  }
  return scenario;
}

std::vector<Row> table() {
  const auto row = [](const std::string& name, Side from, Side to, bool forward, bool backward) {
    return Row{name, [=](int64_t size, int64_t dim) { return conversion(from, to, size, dim); },
               forward, backward};
  };
  return {
      row("invariant, replicated", Side::kInvariant, Side::kReplicated, false, true),
      row("partial, invariant", Side::kPartial, Side::kInvariant, true, false),
      row("sharded, replicated", Side::kSharded, Side::kReplicated, true, true),
      row("sharded, invariant", Side::kSharded, Side::kInvariant, true, false),
      row("invariant, sharded", Side::kInvariant, Side::kSharded, false, true),
      row("partial, sharded", Side::kPartial, Side::kSharded, true, true),
  };
}

TEST(Convert, EqualsOneRankForwardAndBackward) {
  for (const Row& row : table()) {
    for (const int64_t size : {1, 2, 3}) {
      for (const int64_t dim : {0, 1}) {
        const Scenario scenario = row.scenario(size, dim);
        const Outcome one = run_on_one(scenario, size);
        const Outcome ranks = run_on_ranks(scenario, size);
        EXPECT_TRUE(results_agree(ranks, one)) << row.name << " over " << size << " dim " << dim;
        EXPECT_TRUE(gradients_agree(scenario, ranks, one))
            << row.name << " over " << size << " dim " << dim;
      }
    }
  }
}

TEST(Convert, HasGradientsThatAgreeWithFiniteDifferences) {
  constexpr double kStep = 1e-6;
  for (const Row& row : table()) {
    const Scenario scenario = row.scenario(2, 0);
    const Outcome ranks = run_on_ranks(scenario, 2);
    const auto loss = [&](const Tensors& inputs) {
      double sum = 0;
      for (size_t rank = 0; rank < (scenario.is_loss_shared ? 1 : 2); ++rank) {
        sum += loss_of(scenario.on_one(inputs, static_cast<int64_t>(rank)), scenario.weights[rank])
                   .item<double>();
      }
      return sum;
    };
    // One element of rank 1's input, by its place in the inputs of the one rank.
    Tensors moved = scenario.inputs;
    const size_t which = moved.size() - 1;
    const auto shifted = [&](double step) {
      Tensors inputs = scenario.inputs;
      inputs[which] = inputs[which].clone();
      inputs[which].index({kRows - 1, 2}).add_(step);
      return loss(inputs);
    };
    const double slope = (shifted(kStep) - shifted(-kStep)) / (2 * kStep);
    const at::Tensor& gradient = ranks.gradients[1];
    EXPECT_NEAR(gradient[gradient.size(0) - 1][2].item<double>(), slope, 1e-8) << row.name;
  }
}

TEST(Convert, NoticesARemovedTransferOfEitherDirection) {
  for (const Row& row : table()) {
    const Scenario scenario = row.scenario(2, 0);
    const Outcome one = run_on_one(scenario, 2);
    const Outcome without_forward = run_on_ranks(scenario, 2, "test.site");
    EXPECT_EQ(results_agree(without_forward, one), !row.forward_communicates) << row.name;
    const Outcome without_backward = run_on_ranks(scenario, 2, "test.site/backward");
    EXPECT_TRUE(results_agree(without_backward, one)) << row.name;
    EXPECT_EQ(gradients_agree(scenario, without_backward, one), !row.backward_communicates)
        << row.name;
  }
}

TEST(Convert, PassesEqualPlacementsThrough) {
  run_ranks(tensor_ranks(2), [](Groups& groups) {
    const at::Tensor value = at::ones({3, 2});
    for (const Placement& placement : {Placement::invariant(), Placement::replicated(),
                                       Placement::partial(), Placement::sharded(0, 6)}) {
      EXPECT_TRUE(
          convert({value, placement}, placement, groups.tensor(), kSite).tensor.is_same(value));
    }
    EXPECT_TRUE(groups.ledger().entries().empty());
  });
}

TEST(Convert, TakesGradientsThatAreNotContiguous) {
  // sum() sends back one number seen through strides of zero.
  run_ranks(tensor_ranks(2), [](Groups& groups) {
    for (const Row& row : table()) {
      const Scenario scenario = row.scenario(2, 1);
      const at::Tensor input = leaf(scenario.input_of(scenario.inputs, groups.rank()).contiguous());
      scenario.on_ranks(input, groups.tensor()).sum().backward();
      const bool is_summed =
          row.name == "invariant, replicated" || row.name == "sharded, replicated";
      EXPECT_TRUE(at::equal(input.grad(), at::full_like(input, is_summed ? 2.0 : 1.0))) << row.name;
    }
  });
}

TEST(Convert, WritesBothDirectionsIntoTheLedger) {
  run_ranks(tensor_ranks(2), [](Groups& groups) {
    const Scenario scenario = conversion(Side::kSharded, Side::kReplicated, 2, 1);
    const at::Tensor input = leaf(scenario.input_of(scenario.inputs, groups.rank()).contiguous());
    scenario.on_ranks(input, groups.tensor()).sum().backward();
    const auto entries = groups.ledger().entries();
    ASSERT_EQ(entries.size(), 2u);
    EXPECT_EQ(entries[0].site, "test.site");
    EXPECT_EQ(entries[0].collective, "all_gather");
    EXPECT_EQ(entries[0].purpose, Purpose::kTensorParallel);
    EXPECT_EQ(entries[1].site, "test.site/backward");
    EXPECT_EQ(entries[1].collective, "reduce_scatter");
    // Width 5 is cut into 2 and 3; forward sends the own part, backward the other's.
    const int64_t own = groups.rank() == 0 ? 2 : 3;
    EXPECT_EQ(entries[0].bytes, kRows * own * 8);
    EXPECT_EQ(entries[1].bytes, kRows * (5 - own) * 8);
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

TEST(Convert, RefusesPairsWithoutMeaning) {
  const Placement all[] = {Placement::invariant(), Placement::replicated(), Placement::partial(),
                           Placement::sharded(0, 4), Placement::sharded(1, 4)};
  const std::vector<std::pair<int, int>> legal = {{0, 1}, {2, 0}, {3, 1}, {4, 1}, {3, 0},
                                                  {4, 0}, {0, 3}, {0, 4}, {2, 3}, {2, 4}};
  const auto groups = Groups::single();  // a missing sum is refused on one rank already
  int num_refused = 0;
  for (int from = 0; from < 5; ++from) {
    for (int to = 0; to < 5; ++to) {
      const bool is_legal =
          from == to || std::find(legal.begin(), legal.end(), std::pair(from, to)) != legal.end();
      const std::string outcome = shape_error([&] {
        convert({at::ones({4, 4}), all[from]}, all[to], groups->tensor(), kSite);
      });
      num_refused += is_legal ? 0 : 1;
      EXPECT_EQ(outcome, is_legal ? "accepted"
                                  : fmt::format("test.site: a {} value cannot become {} over tp",
                                                to_string(all[from]), to_string(all[to])));
    }
  }
  EXPECT_EQ(num_refused, 10);
}

TEST(Convert, RefusesACutThatDoesNotFitTheTensor) {
  run_ranks(tensor_ranks(2), [](Groups& groups) {
    const Group& group = groups.tensor();
    const at::Tensor value = at::ones({4, 3});
    EXPECT_EQ(shape_error([&] {
                convert({value, Placement::invariant()}, Placement::sharded(1, 4), group, kSite);
              }),
              "test.site: a value of shape [4, 3] cannot become sharded(1 of 4) over tp");
    EXPECT_EQ(shape_error([&] {
                convert({value, Placement::sharded(0, 6)}, Placement::invariant(), group, kSite);
              }),
              "test.site: a value of shape [4, 3] is not sharded(0 of 6) over tp of 2 ranks: 3 are "
              "expected");
    EXPECT_EQ(shape_error([&] {
                convert({value, Placement::sharded(0, 6)}, Placement::sharded(0, 6), group, kSite);
              }),
              "test.site: a value of shape [4, 3] is not sharded(0 of 6) over tp of 2 ranks: 3 are "
              "expected");
  });
}

TEST(Convert, JoinsColumnAndRowLinearsIntoOneMlp) {
  // y = sin(x a) b with a cut by columns and b by rows, with and without tokens cut over the ranks.
  constexpr int64_t kTokens = 6;
  constexpr int64_t kHidden = 4;
  constexpr int64_t kFfn = 7;
  const at::Tensor x = random_values(1, {kTokens, kHidden});
  const at::Tensor a = random_values(2, {kHidden, kFfn});
  const at::Tensor b = random_values(3, {kFfn, kHidden});
  const at::Tensor weight = random_values(4, {kTokens, kHidden});
  const at::Tensor one_x = leaf(x);
  const at::Tensor one_a = leaf(a);
  const at::Tensor one_b = leaf(b);
  const at::Tensor one_y = at::sin(one_x.matmul(one_a)).matmul(one_b);
  loss_of(one_y, weight).backward();

  for (const int64_t size : {2, 3}) {
    for (const bool cuts_tokens : {false, true}) {
      run_ranks(tensor_ranks(size), [&](Groups& groups) {
        const Group& group = groups.tensor();
        const auto tokens_of = [&](const at::Tensor& whole) {
          return cuts_tokens ? shard_of(whole, 0, size, group.rank()) : whole;
        };
        const Placement outside =
            cuts_tokens ? Placement::sharded(0, kTokens) : Placement::invariant();
        const at::Tensor local_x = leaf(tokens_of(x));
        const at::Tensor local_a = leaf(shard_of(a, 1, size, group.rank()));
        const at::Tensor local_b = leaf(shard_of(b, 0, size, group.rank()));
        const Placed inside =
            convert({local_x, outside}, Placement::replicated(), group, {"mlp.input"});
        const at::Tensor product = at::sin(inside.tensor.matmul(local_a)).matmul(local_b);
        const Placed y = convert({product, Placement::partial()}, outside, group, {"mlp.output"});
        loss_of(y.tensor, tokens_of(weight)).backward();
        EXPECT_TRUE(are_close(y.tensor, tokens_of(one_y)));
        EXPECT_TRUE(are_close(local_x.grad(), tokens_of(one_x.grad())));
        EXPECT_TRUE(are_close(local_a.grad(), shard_of(one_a.grad(), 1, size, group.rank())));
        EXPECT_TRUE(are_close(local_b.grad(), shard_of(one_b.grad(), 0, size, group.rank())));
      });
    }
  }
}

int64_t sum(const Counts& counts, int64_t up_to) {
  return std::accumulate(counts.begin(), counts.begin() + up_to, int64_t{0});
}
int64_t sum(const Counts& counts) {
  return sum(counts, static_cast<int64_t>(counts.size()));
}

// Rank p's rows for rank r: counts[p][r] of them.
Scenario exchange(const std::vector<Counts>& counts) {
  const auto size = static_cast<int64_t>(counts.size());
  const auto received = [counts](int64_t rank) {
    Counts result;
    for (const Counts& sent : counts) {
      result.push_back(sent[static_cast<size_t>(rank)]);
    }
    return result;
  };
  Scenario scenario;
  for (int64_t rank = 0; rank < size; ++rank) {
    const auto seed = static_cast<uint64_t>(rank);
    scenario.inputs.push_back(
        random_values(seed, {sum(counts[static_cast<size_t>(rank)]), kWidth}));
    scenario.weights.push_back(random_values(50 + seed, {sum(received(rank)), kWidth}));
  }
  scenario.input_of = [](const Tensors& all, int64_t rank) {
    return all[static_cast<size_t>(rank)];
  };
  scenario.on_one = [=](const Tensors& all, int64_t rank) {
    Tensors parts;
    for (size_t from = 0; from < all.size(); ++from) {
      parts.push_back(
          all[from].narrow(0, sum(counts[from], rank), counts[from][static_cast<size_t>(rank)]));
    }
    return at::cat(parts);
  };
  scenario.on_ranks = [=](const at::Tensor& input, const Group& group) {
    return exchange_rows(input, counts[static_cast<size_t>(group.rank())], received(group.rank()),
                         group, kSite);
  };
  return scenario;
}

// All ranks' rows on each; or the sum, of which each keeps its rows.
Scenario gather_or_scatter(const Counts& counts, bool is_gather) {
  const auto size = static_cast<int64_t>(counts.size());
  Scenario scenario;
  const auto own_rows = [=](const at::Tensor& whole, int64_t rank) {
    return whole.narrow(0, sum(counts, rank), counts[static_cast<size_t>(rank)]);
  };
  for (int64_t rank = 0; rank < size; ++rank) {
    const auto seed = static_cast<uint64_t>(rank);
    const int64_t own = counts[static_cast<size_t>(rank)];
    scenario.inputs.push_back(random_values(seed, {is_gather ? own : sum(counts), kWidth}));
    scenario.weights.push_back(random_values(50 + seed, {is_gather ? sum(counts) : own, kWidth}));
  }
  scenario.input_of = [](const Tensors& all, int64_t rank) {
    return all[static_cast<size_t>(rank)];
  };
  scenario.on_one = [=](const Tensors& all, int64_t rank) {
    return is_gather ? at::cat(all) : own_rows(sum_of(all), rank);
  };
  scenario.on_ranks = [=](const at::Tensor& input, const Group& group) {
    return is_gather ? gather_rows(input, counts, group, kSite)
                     : reduce_scatter_rows(input, counts, group, kSite);
  };
  return scenario;
}

void expect_equal_to_one_rank(const Scenario& scenario) {
  const auto size = static_cast<int64_t>(scenario.weights.size());
  const Outcome one = run_on_one(scenario, size);
  const Outcome ranks = run_on_ranks(scenario, size);
  EXPECT_TRUE(results_agree(ranks, one));
  EXPECT_TRUE(gradients_agree(scenario, ranks, one));
  if (size > 1) {
    EXPECT_FALSE(results_agree(run_on_ranks(scenario, size, "test.site"), one));
    const Outcome without_backward = run_on_ranks(scenario, size, "test.site/backward");
    EXPECT_TRUE(results_agree(without_backward, one));
    EXPECT_FALSE(gradients_agree(scenario, without_backward, one));
  }
}

// Together they come to what each comes to alone; one that needs no gradient gets none.
TEST(ExchangeRows, TakesSeveralTensorsAtOnce) {
  run_ranks({.world_size = 2}, [](Groups& groups) {
    const Group& world = groups[GroupName::kWorld];
    const auto rank = static_cast<uint64_t>(world.rank());
    const Counts counts = {1, 2};
    const Counts received(2, world.rank() + 1);
    const auto leaves = [&] {
      return Tensors{random_values(rank, {3, kWidth}).requires_grad_(true),
                     random_values(rank + 7, {3}).to(at::kFloat),
                     random_values(rank + 9, {3}).requires_grad_(true)};
    };
    const std::vector<Site> sites = {{"first"}, {"second"}, {"third"}};
    const Tensors together = leaves();
    const Tensors arrived = exchange_rows(together, counts, received, world, sites);
    (arrived[0].pow(2).sum() + arrived[2].pow(3).sum()).backward();
    const Tensors alone = leaves();
    for (size_t i = 0; i < alone.size(); ++i) {
      const at::Tensor own = exchange_rows(alone[i], counts, received, world, sites[i]);
      EXPECT_TRUE(arrived[i].equal(own));
      if (alone[i].requires_grad()) {
        own.pow(i == 0 ? 2 : 3).sum().backward();
        EXPECT_TRUE(together[i].grad().equal(alone[i].grad()));
      }
    }
    EXPECT_FALSE(together[1].grad().defined());
  });
}

// In two steps, with something else computed between them, rows and gradients have the same bits.
TEST(StartedRows, ComeToTheSameAsInOneStep) {
  run_ranks({.world_size = 2}, [](Groups& groups) {
    const Group& world = groups[GroupName::kWorld];
    const auto rank = static_cast<uint64_t>(world.rank());
    const Counts counts = {1, 2};
    const Counts received(2, world.rank() + 1);
    for (const bool is_exchange : {true, false}) {
      const auto leaf = [&] { return random_values(rank, {3, kWidth}).requires_grad_(true); };
      const at::Tensor in_one = leaf();
      const at::Tensor expected = is_exchange
                                      ? exchange_rows(in_one, counts, received, world, kSite)
                                      : reduce_scatter_rows(in_one, counts, world, kSite);
      (expected.pow(3).sum() + in_one.exp().sum()).backward();
      const at::Tensor in_two = leaf();
      const RowsUnderWay started = is_exchange
                                       ? start_exchange_rows(in_two, counts, received, world, kSite)
                                       : start_reduce_scatter_rows(in_two, counts, world, kSite);
      const at::Tensor other = in_two.exp().sum();
      const at::Tensor arrived = finish_rows(started);
      EXPECT_TRUE(arrived.equal(expected));
      (arrived.pow(3).sum() + other).backward();
      EXPECT_TRUE(in_two.grad().equal(in_one.grad()));
    }
  });
}

// What is computed between the two steps hides the transfer, and its gradient that of theirs.
TEST(StartedRows, TravelWhileOtherThingsAreComputedForwardAndBackward) {
  const auto body = [](Groups& groups) {
    const auto sleep = [] { std::this_thread::sleep_for(std::chrono::milliseconds(40)); };
    const at::Tensor rows = at::ones({2, 3}, at::kDouble).requires_grad_(true);
    const RowsUnderWay started =
        start_exchange_rows(rows, {1, 1}, {1, 1}, groups[GroupName::kWorld], kSite);
    const at::Tensor other = rows.exp();
    other.register_hook([&](const at::Tensor& gradient) {
      sleep();
      return gradient;
    });
    sleep();
    (finish_rows(started) + other).sum().backward();
    const std::vector<LedgerEntry> entries = groups.ledger().entries();
    ASSERT_EQ(entries.size(), 2u);
    for (const LedgerEntry& entry : entries) {
      EXPECT_GE(entry.hidden_seconds, 0.02) << entry.site;
    }
  };
  run_ranks({.world_size = 2}, body, std::chrono::seconds(60), /*verify_calls=*/false,
            {.names = {GroupName::kWorld}, .speed = {.latency_s = 0.02}});
}

TEST(ExchangeRows, EqualsOneRankForwardAndBackward) {
  expect_equal_to_one_rank(exchange({{4}}));
  expect_equal_to_one_rank(exchange({{1, 2}, {3, 0}}));
  expect_equal_to_one_rank(exchange({{0, 5, 1}, {2, 2, 0}, {0, 0, 0}}));  // rank 2 sends nothing
}

TEST(GatherRows, EqualsOneRankForwardAndBackward) {
  expect_equal_to_one_rank(gather_or_scatter({3}, true));
  expect_equal_to_one_rank(gather_or_scatter({2, 3}, true));
  expect_equal_to_one_rank(gather_or_scatter({4, 0, 1}, true));
}

TEST(ReduceScatterRows, EqualsOneRankForwardAndBackward) {
  expect_equal_to_one_rank(gather_or_scatter({3}, false));
  expect_equal_to_one_rank(gather_or_scatter({2, 3}, false));
  expect_equal_to_one_rank(gather_or_scatter({4, 0, 1}, false));
}

}  // namespace
}  // namespace switchyard

// Sequences packed into one row against rows of their own, for every kind of layer, on one rank and
// with the row cut over ranks, in fp64.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "model/language_model.h"
#include "support/model_variants.h"
#include "train/train_step.h"

namespace switchyard {
namespace {

// Longer and shorter than windows, chunks of scans and the ranks of cp.
const std::vector<int64_t> kLengths{9, 1, 23, 4};
constexpr int64_t kPadding = 3;

// What looks at a whole row sees other rows when they are packed.
bool looks_at_rows(const Config& config) {
  return config.routing.method == RoutingMethod::kSinkhorn || config.routing.capacity_factor > 0 ||
         config.rope.type == RopeType::kDynamic;  // stretched by the row's longest sequence
}

Config without_losses_of_rows(Config config) {
  config.moe.aux_loss_coeff = 0;
  config.moe.step_aux_loss_coeff = 0;
  config.moe.global_aux_loss_coeff = 0;
  config.moe.z_loss_coeff = 0;
  config.parallel.data_sharding = DataSharding::kNone;
  return config;
}

TokenBatch packed_row(const Config& config) {
  return random_batch(config, kLengths, kPadding, 5);
}

std::vector<TokenBatch> separate_rows(const Config& config) {
  const TokenBatch row = packed_row(config);
  std::vector<TokenBatch> rows;
  int64_t start = 0;
  for (const int64_t length : kLengths) {
    const auto part = [&](const at::Tensor& tensor) { return tensor.narrow(0, start, length); };
    rows.push_back({.tokens = part(row.tokens),
                    .labels = part(row.labels),
                    .weights = part(row.weights),
                    .table = SequenceTable::from_lengths({length}, length),
                    .first_token = row.first_token + start});
    start += length;
  }
  return rows;
}

void add_pass(const Config& config, const Layout& layout, const std::vector<TokenBatch>& whole_rows,
              LogicalTensors& result) {
  run_ranks(layout.mesh(), [&](Groups& groups) {
    std::vector<TokenBatch> rows = whole_rows;
    Parameters parameters(groups, Dtypes::of(config.train.precision),
                          static_cast<uint64_t>(config.run.seed));
    const LanguageModel model(parameters, config);
    randomize_constant_parameters(parameters);
    const Group& context = groups[GroupName::kContext];
    for (TokenBatch& row : rows) {
      row.look_further(config.mtp.num_layers);
      row = row.share(context.size(), context.rank());
    }
    const StepOutcome outcome = compute_gradients(model, parameters, rows);
    result.add_gradients(parameters);
    result.add_whole("loss", at::full({1}, outcome.loss(), at::kDouble));
    for (size_t i = 0; i < outcome.further.size(); ++i) {
      result.add_whole(fmt::format("further_{}", i),
                       at::full({1}, outcome.further[i].loss_sum, at::kDouble));
    }
  });
}

class PackedLayout : public testing::TestWithParam<size_t> {};

TEST_P(PackedLayout, EqualsSeparateSequencesWithAndWithoutContextParallelism) {
  constexpr double kTolerance = 1e-9;
  const Variant& variant = model_variants()[GetParam()];
  if (looks_at_rows(variant.config)) {
    GTEST_SKIP() << "its routing or its positions depend on the row";
  }
  const Config config = without_losses_of_rows(variant.config);
  LogicalTensors separate;
  add_pass(config, {.name = "one"}, separate_rows(config), separate);
  EXPECT_GT(separate.values().size(), 10U);
  const std::vector<Layout> layouts = {
      {.name = "one"},
      {.name = "ring", .world_size = 2, .context = 2, .exchange = ContextExchange::kRing},
      {.name = "gather", .world_size = 2, .context = 2, .exchange = ContextExchange::kAllGather},
      {.name = "heads", .world_size = 2, .context = 2, .exchange = ContextExchange::kAllToAll}};
  for (const Layout& layout : layouts) {
    LogicalTensors packed;
    add_pass(layout.apply(config), layout, {packed_row(config)}, packed);
    for (const std::string& line : differences(separate, packed, kTolerance)) {
      ADD_FAILURE() << layout.name << ": " << line;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PackedLayout, testing::Range(size_t{0}, model_variants().size()),
                         [](const testing::TestParamInfo<size_t>& one) {
                           return model_variants()[one.param].name;
                         });

}  // namespace
}  // namespace switchyard

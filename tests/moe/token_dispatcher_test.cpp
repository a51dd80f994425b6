#include "moe/token_dispatcher.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "moe/moe_layer.h"
#include "support/small_model.h"

namespace switchyard {
namespace {

// Empty rows change no value, so the layout tests cannot see them: here every expert must get its
// capacity of rows, whatever the router says.
TEST(TokenDispatcher, FillsEveryExpertUpToTheCapacityOfAllSequences) {
  for (const DispatcherKind kind : {DispatcherKind::kAllToAll, DispatcherKind::kAllGather}) {
    Config config = small_config();
    config.moe.dispatcher = kind;
    config.routing.capacity_factor = 1.5;
    config.routing.capacity_padding = true;
    const Layout layout{.name = "ep2", .world_size = 2, .expert = 2};
    config = layout.apply(config);
    run_ranks(layout.mesh(), [&](Groups& groups) {
      Parameters parameters(groups, Dtypes::fp64(), 3);
      const MoeLayer layer(Scope{parameters, "moe"}, config, config.moe);
      // Sequences of 4 and 6 tokens on the first rank, of 2 and 8 on the second; one of padding.
      const std::vector<int64_t> lengths =
          groups.rank() == 0 ? std::vector<int64_t>{4, 6} : std::vector<int64_t>{2, 8};
      ForwardContext context;
      context.table = SequenceTable::from_lengths(lengths, 11);
      context.is_training = true;
      const at::Tensor tokens =
          at::sin(at::arange(11 * 16, at::kDouble) * 1.3 + static_cast<double>(groups.rank()))
              .view({11, 16});
      RoutingMemo memo;
      const Routing routing = layer.route(tokens, context, memo);
      const DispatchedTokens dispatched = layer.dispatch(tokens, routing);
      // ceil(length x 2 / 4 x 1.5): 3 + 5 and 2 + 6.
      EXPECT_EQ(dispatched.rows_per_expert, (std::vector<int64_t>{16, 16}));
      EXPECT_EQ(dispatched.rows.size(0), 32);
    });
  }
}

}  // namespace
}  // namespace switchyard

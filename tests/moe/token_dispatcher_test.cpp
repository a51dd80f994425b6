#include "moe/token_dispatcher.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <ostream>
#include <string>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/random.h"
#include "moe/moe_layer.h"
#include "support/small_model.h"

namespace switchyard {
namespace {

// Rows of each local expert of the first rank of two, with two experts each, filled up to the
// capacity. `removed`: see Ledger.
std::vector<int64_t> padded_rows(DispatcherKind kind, const std::string& removed) {
  Config config = small_config();
  config.moe.dispatcher = kind;
  config.routing.capacity_factor = 1.5;
  config.routing.capacity_padding = true;
  const Layout layout{.name = "ep2", .world_size = 2, .expert = 2, .ranks_per_node = 1};
  config = layout.apply(config);
  std::vector<int64_t> rows;
  run_ranks(layout.mesh(), [&](Groups& groups) {
    groups.ledger().remove_site_for_test(removed);
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
    EXPECT_EQ(dispatched.rows.size(0),
              dispatched.rows_per_expert[0] + dispatched.rows_per_expert[1]);
    if (groups.rank() == 0) {
      rows = dispatched.rows_per_expert;
    }
  });
  return rows;
}

// Empty rows change no value, so the layout tests cannot see them: here every expert must get its
// capacity of rows, whatever the router says; and not without its transfer, where it has one.
TEST(TokenDispatcher, FillsEveryExpertUpToTheCapacityOfAllSequences) {
  const std::vector<int64_t> full = {16, 16};  // ceil(length x 2 / 4 x 1.5): 3 + 5 and 2 + 6
  EXPECT_EQ(padded_rows(DispatcherKind::kAllToAll, ""), full);
  for (const DispatcherKind kind : {DispatcherKind::kAllGather, DispatcherKind::kFlex}) {
    EXPECT_EQ(padded_rows(kind, ""), full);
    EXPECT_NE(padded_rows(kind, "moe.dispatch.padding_rows"), full);
  }
}

// --- What travels, against a count of its own

constexpr int64_t kHidden = 6;
constexpr int64_t kTopK = 3;
constexpr int64_t kExperts = 8;
constexpr int64_t kTokenBytes = 4 * kHidden;  // fp32
constexpr int64_t kWeightBytes = 4;           // fp32
constexpr int64_t kIdBytes = 8;

// Experts of a rank's tokens: other numbers of tokens on each rank, none on the third; some copies
// are dropped. [tokens][top_k]
std::vector<std::vector<int64_t>> ids_of(int64_t rank) {
  const RandomStream stream(static_cast<uint64_t>(rank), "expert_ids");
  const int64_t num_tokens = rank == 2 ? 0 : 5 + 3 * rank;
  std::vector<std::vector<int64_t>> ids;
  for (int64_t token = 0; token < num_tokens; ++token) {
    const auto first = static_cast<int64_t>(stream.below(static_cast<uint64_t>(token), kExperts));
    const int64_t stride = token % 2 == 0 ? 1 : 3;  // neighbours on one rank, or spread out
    std::vector<int64_t>& row = ids.emplace_back();
    for (int64_t slot = 0; slot < kTopK; ++slot) {
      row.push_back((token + slot) % 7 == 0 ? -1 : (first + slot * stride) % kExperts);
    }
  }
  return ids;
}

// The ranks that share one copy of the experts, all ranks of the world here.
struct Fleet {
  MeshShape shape;
  int64_t size() const { return shape.world_size; }
  int64_t expert_rank(int64_t rank) const { return Mesh(shape).coordinate(rank, Axis::kExpert); }
  bool shares_experts(int64_t a, int64_t b) const { return expert_rank(a) == expert_rank(b); }
  bool has(int64_t rank, int64_t expert) const {
    return expert >= 0 && expert / (kExperts / shape.expert) == expert_rank(rank);
  }
  bool has_any(int64_t rank, const std::vector<int64_t>& ids) const {
    return std::any_of(ids.begin(), ids.end(), [&](int64_t id) { return has(rank, id); });
  }
  int64_t node(int64_t rank) const {
    return shape.ranks_per_node == 0 ? 0 : rank / shape.ranks_per_node;
  }
  bool node_has_any(int64_t node_number, const std::vector<int64_t>& ids) const {
    for (int64_t rank = 0; rank < size(); ++rank) {
      if (node(rank) == node_number && has_any(rank, ids)) {
        return true;
      }
    }
    return false;
  }
  // The rank of another node to which `source` hands what that node gets.
  int64_t entrance(int64_t source, int64_t node_number) const {
    const int64_t first = node_number * shape.ranks_per_node;
    const int64_t count = std::min(shape.ranks_per_node, size() - first);
    return first + source % shape.ranks_per_node % count;
  }
};

// Bytes that one rank sends.
struct SentBytes {
  int64_t dispatch = 0;
  int64_t combine = 0;
  int64_t combine_backward = 0;
  int64_t dispatch_backward = 0;
  bool operator==(const SentBytes&) const = default;
};

void PrintTo(const SentBytes& bytes, std::ostream* out) {
  *out << "dispatch " << bytes.dispatch << ", combine " << bytes.combine << ", combine backward "
       << bytes.combine_backward << ", dispatch backward " << bytes.dispatch_backward;
}

// Every token to all others; a sum of each token back to whoever has it.
SentBytes expect_all_gather(const Fleet& fleet, int64_t rank) {
  const int64_t own = std::ssize(ids_of(rank)) * (fleet.size() - 1);
  int64_t others = 0;
  for (int64_t other = 0; other < fleet.size(); ++other) {
    others += other == rank ? 0 : std::ssize(ids_of(other));
  }
  return {own * (kTokenBytes + kTopK * (kWeightBytes + kIdBytes)), others * kTokenBytes,
          own * kTokenBytes, others * (kTokenBytes + kTopK * kWeightBytes)};
}

// Every copy to the rank of its expert with the sender's place in etp, and from there to the others
// that share the expert.
SentBytes expect_all_to_all(const Fleet& fleet, int64_t rank) {
  const Mesh mesh(fleet.shape);
  const auto tensor_rank = [&](int64_t one) { return mesh.coordinate(one, Axis::kExpertTensor); };
  const auto arrives_at = [&](int64_t to, int64_t from) {
    int64_t copies = 0;
    for (const auto& ids : ids_of(from)) {
      copies +=
          std::count_if(ids.begin(), ids.end(), [&](int64_t id) { return fleet.has(to, id); });
    }
    return tensor_rank(to) == tensor_rank(from) ? copies : 0;
  };
  int64_t sent = 0;
  int64_t received = 0;
  int64_t received_from_others = 0;
  int64_t received_by_sharers = 0;
  for (int64_t other = 0; other < fleet.size(); ++other) {
    sent += other == rank ? 0 : arrives_at(other, rank);
    received += arrives_at(rank, other);
    received_from_others += other == rank ? 0 : arrives_at(rank, other);
    for (int64_t from = 0; from < fleet.size(); ++from) {
      const bool is_sharer = other != rank && fleet.shares_experts(other, rank);
      received_by_sharers += is_sharer ? arrives_at(other, from) : 0;
    }
  }
  const int64_t forth = sent + received * (fleet.shape.expert_tensor - 1);
  const int64_t back = received_from_others + received_by_sharers;
  constexpr int64_t kRowBytes = kTokenBytes + kWeightBytes;
  return {forth * kRowBytes, back * kTokenBytes, forth * kTokenBytes, back * kRowBytes};
}

// Every token once to each other node that has experts of it, and there once to each other rank.
SentBytes expect_flex(const Fleet& fleet, int64_t rank) {
  int64_t forth = 0;
  int64_t back = 0;
  for (int64_t source = 0; source < fleet.size(); ++source) {
    for (const auto& ids : ids_of(source)) {
      for (int64_t node = 0; node <= fleet.node(fleet.size() - 1); ++node) {
        if (!fleet.node_has_any(node, ids)) {
          continue;
        }
        const bool crosses = node != fleet.node(source);
        const int64_t holder = crosses ? fleet.entrance(source, node) : source;
        forth += crosses && source == rank ? 1 : 0;
        back += crosses && holder == rank ? 1 : 0;
        for (int64_t to = 0; to < fleet.size(); ++to) {
          const bool goes_on = to != holder && fleet.node(to) == node && fleet.has_any(to, ids);
          forth += goes_on && holder == rank ? 1 : 0;
          back += goes_on && to == rank ? 1 : 0;
        }
      }
    }
  }
  return {forth * (kTokenBytes + kTopK * (kWeightBytes + kIdBytes)), back * kTokenBytes,
          forth * kTokenBytes, back * (kTokenBytes + kTopK * kWeightBytes)};
}

// Copies of tokens that cross between nodes, over all ranks: one per token and node.
int64_t num_crossings(const Fleet& fleet) {
  int64_t crossings = 0;
  for (int64_t source = 0; source < fleet.size(); ++source) {
    for (const auto& ids : ids_of(source)) {
      for (int64_t node = 0; node <= fleet.node(fleet.size() - 1); ++node) {
        crossings += node != fleet.node(source) && fleet.node_has_any(node, ids) ? 1 : 0;
      }
    }
  }
  return crossings;
}

// Tokens go to experts that return them as they are, and their gradients come back.
void send_there_and_back(const TokenDispatcher& dispatcher, int64_t rank) {
  const auto ids = ids_of(rank);
  const int64_t num_tokens = std::ssize(ids);
  Routing routing;
  routing.expert_ids = at::zeros({num_tokens, kTopK}, at::kLong);
  for (int64_t token = 0; token < num_tokens; ++token) {
    for (int64_t slot = 0; slot < kTopK; ++slot) {
      routing.expert_ids[token][slot] = ids[static_cast<size_t>(token)][static_cast<size_t>(slot)];
    }
  }
  routing.weights = at::rand({num_tokens, kTopK}).requires_grad_(true);
  const at::Tensor tokens = at::rand({num_tokens, kHidden}).requires_grad_(true);
  const DispatchedTokens there = dispatcher.dispatch(tokens, routing);
  dispatcher.combine(there.rows * there.weights.unsqueeze(1), there).sum().backward();
}

SentBytes bytes_in(const Ledger& ledger) {
  SentBytes bytes;
  for (const LedgerEntry& entry : ledger.entries()) {
    const bool is_backward = entry.site.ends_with("/backward");
    if (entry.purpose == Purpose::kDispatch) {
      (is_backward ? bytes.dispatch_backward : bytes.dispatch) += entry.bytes;
    } else if (entry.purpose == Purpose::kCombine) {
      (is_backward ? bytes.combine_backward : bytes.combine) += entry.bytes;
    }
  }
  return bytes;
}

const std::vector<MeshShape>& fleets() {
  static const std::vector<MeshShape> all = {
      {.world_size = 4, .expert = 4},
      {.world_size = 4, .expert = 2, .expert_tensor = 2},
      {.world_size = 4, .expert = 4, .ranks_per_node = 2},
      {.world_size = 4, .expert = 4, .ranks_per_node = 3},
      {.world_size = 4, .expert = 2, .expert_tensor = 2, .ranks_per_node = 2},
      {.world_size = 4, .expert_tensor = 4, .ranks_per_node = 2},
      {.world_size = 8, .expert = 4, .expert_tensor = 2, .ranks_per_node = 4},
      {.world_size = 8, .expert = 8, .order = "dp-tp-cp-ep-pp", .ranks_per_node = 2},
  };
  return all;
}

using CountBytes = SentBytes (*)(const Fleet& fleet, int64_t rank);
const std::map<DispatcherKind, CountBytes> kCounts = {
    {DispatcherKind::kAllGather, expect_all_gather},
    {DispatcherKind::kAllToAll, expect_all_to_all},
    {DispatcherKind::kFlex, expect_flex}};

TEST(TokenDispatcher, SendsExactlyTheBytesThatTheRoutingAsksFor) {
  for (const MeshShape& shape : fleets()) {
    for (const auto& [kind, expect] : kCounts) {
      MoeConfig moe;
      moe.num_experts = kExperts;
      moe.dispatcher = kind;
      run_ranks(shape, [&, expect = expect](Groups& groups) {
        send_there_and_back(*make_dispatcher(moe, groups), groups.rank());
        EXPECT_EQ(bytes_in(groups.ledger()), expect({shape}, groups.rank()))
            << "dispatcher " << static_cast<int>(moe.dispatcher) << ", rank " << groups.rank()
            << " of ep " << shape.expert << ", etp " << shape.expert_tensor << ", "
            << shape.ranks_per_node << " ranks per node";
      });
    }
  }
}

TEST(TokenDispatcher, FlexSendsOneCopyPerTokenAndNode) {
  for (const MeshShape& shape : fleets()) {
    MoeConfig moe;
    moe.num_experts = kExperts;
    moe.dispatcher = DispatcherKind::kFlex;
    std::map<std::string, std::atomic<int64_t>> sent;
    for (const char* site :
         {"moe.dispatch.node_tokens", "moe.combine.node_sums", "moe.combine.node_sums/backward",
          "moe.dispatch.node_tokens/backward"}) {
      sent[site] = 0;
    }
    run_ranks(shape, [&](Groups& groups) {
      send_there_and_back(*make_dispatcher(moe, groups), groups.rank());
      for (const LedgerEntry& entry : groups.ledger().entries()) {
        if (sent.contains(entry.site)) {
          sent.at(entry.site) += entry.bytes;
        }
      }
    });
    for (const auto& [site, bytes] : sent) {
      EXPECT_EQ(bytes, num_crossings({shape}) * kTokenBytes) << site;
    }
  }
}

}  // namespace
}  // namespace switchyard

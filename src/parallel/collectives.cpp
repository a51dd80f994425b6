#include "parallel/collectives.h"

#include <fmt/ranges.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "parallel/turns.h"

namespace switchyard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

enum class Step { kNothing, kAllReduce, kAllGather, kOwnSlice, kReduceScatter };

struct Conversion {
  PlacementKind from;
  PlacementKind to;
  Step forward;
  Step backward;
};

constexpr Conversion kConversions[] = {
    {PlacementKind::kInvariant, PlacementKind::kReplicated, Step::kNothing, Step::kAllReduce},
    {PlacementKind::kPartial, PlacementKind::kInvariant, Step::kAllReduce, Step::kNothing},
    {PlacementKind::kSharded, PlacementKind::kReplicated, Step::kAllGather, Step::kReduceScatter},
    {PlacementKind::kSharded, PlacementKind::kInvariant, Step::kAllGather, Step::kOwnSlice},
    {PlacementKind::kInvariant, PlacementKind::kSharded, Step::kOwnSlice, Step::kAllGather},
    {PlacementKind::kPartial, PlacementKind::kSharded, Step::kReduceScatter, Step::kAllGather},
};

// How one direction of a conversion acts; `dim` and `full` describe the sharded side.
struct Action {
  Step step;
  int64_t dim;
  int64_t full;
};

at::Tensor perform(const Action& action, const at::Tensor& value, const Group& group,
                   const Site& site) {
  switch (action.step) {
    case Step::kNothing:
      return value.view_as(value);  // autograd wants an output that is not its input
    case Step::kAllReduce: {
      at::Tensor sum = value.clone(at::MemoryFormat::Contiguous);
      group.all_reduce(sum, site);
      return sum;
    }
    case Step::kAllGather:
      return group.all_gather(value, action.dim, action.full, site);
    case Step::kOwnSlice: {
      const ShardRange own = shard_range(action.full, group.size(), group.rank());
      return value.narrow(action.dim, own.begin, own.size()).contiguous();
    }
    case Step::kReduceScatter:
      return group.reduce_scatter(value, action.dim, site);
  }
  return {};
}

// The group and the sites of a collective, for its gradient.
void save_group(AutogradContext* context, const Group& group, const std::vector<Site>& sites) {
  std::vector<int64_t> numbers;
  for (const Site& site : sites) {
    numbers.push_back(reinterpret_cast<int64_t>(site.name.data()));
    numbers.push_back(static_cast<int64_t>(site.name.size()));
    numbers.push_back(static_cast<int64_t>(site.purpose));
  }
  context->saved_data["group"] = reinterpret_cast<int64_t>(&group);
  context->saved_data["sites"] = std::move(numbers);
  context->saved_data["layer"] = group.ledger().position().layer;
}

const Group& saved_group(AutogradContext* context) {
  return *reinterpret_cast<const Group*>(context->saved_data["group"].toInt());
}

std::vector<Site> saved_sites(AutogradContext* context) {
  const std::vector<int64_t> numbers = context->saved_data["sites"].toIntVector();
  std::vector<Site> sites;
  for (size_t i = 0; i < numbers.size(); i += 3) {
    sites.push_back(
        {{reinterpret_cast<const char*>(numbers[i]), static_cast<size_t>(numbers[i + 1])},
         static_cast<Purpose>(numbers[i + 2]),
         /*is_backward=*/true,
         context->saved_data["layer"].toInt()});
  }
  return sites;
}

struct ConvertFunction : torch::autograd::Function<ConvertFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& value,
                            const Action& forward_action, const Action& backward_action,
                            const Group& group, const Site& site) {
    save_group(context, group, {site});
    context->saved_data["step"] = static_cast<int64_t>(backward_action.step);
    context->saved_data["dim"] = backward_action.dim;
    context->saved_data["full"] = backward_action.full;
    return perform(forward_action, value, group, site);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Action action{static_cast<Step>(context->saved_data["step"].toInt()),
                        context->saved_data["dim"].toInt(), context->saved_data["full"].toInt()};
    return {perform(action, gradients[0], saved_group(context), saved_sites(context)[0]),
            {},
            {},
            {},
            {}};
  }
};

// How rows travel. An exchange has counts to send and to receive, the others those of all ranks.
struct RowMove {
  enum class Kind { kExchange, kGather, kReduceScatter };
  Kind kind;
  std::vector<int64_t> counts;
  std::vector<int64_t> receive_counts = {};

  // The way of the gradient.
  RowMove reversed() const {
    switch (kind) {
      case Kind::kExchange:
        return {kind, receive_counts, counts};
      case Kind::kGather:
        return {Kind::kReduceScatter, counts};
      case Kind::kReduceScatter:
        return {Kind::kGather, counts};
    }
    return {};
  }

  at::Tensor run(const Group& group, const at::Tensor& rows, const Site& site) const {
    switch (kind) {
      case Kind::kExchange:
        return group.all_to_all(rows, counts, receive_counts, site);
      case Kind::kGather:
        return group.all_gather_rows(rows, counts, site);
      case Kind::kReduceScatter:
        return group.reduce_scatter_rows(rows, counts, site);
    }
    return {};
  }

  PendingRows start(const Group& group, const at::Tensor& rows, const Site& site) const {
    switch (kind) {
      case Kind::kExchange:
        return group.start_all_to_all(rows, counts, receive_counts, site);
      case Kind::kGather:
        return group.start_all_gather_rows(rows, counts, site);
      case Kind::kReduceScatter:
        return group.start_reduce_scatter_rows(rows, counts, site);
    }
    return {};
  }
};

bool may_give_way(const Site& site) {
  return site.purpose == Purpose::kDispatch || site.purpose == Purpose::kCombine;
}

// Undefined rows stay.
std::vector<PendingRows> start(const RowMove& way, const variable_list& rows, const Group& group,
                               const std::vector<Site>& sites) {
  std::vector<PendingRows> travelling(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].defined()) {
      travelling[i] = way.start(group, rows[i], sites[i]);
    }
  }
  return travelling;
}

variable_list finish(std::vector<PendingRows> travelling, const Site& site) {
  if (may_give_way(site)) {
    Turns::give_way();
  }
  variable_list rows;
  for (PendingRows& one : travelling) {
    rows.push_back(one.wait());
  }
  return rows;
}

variable_list move(const RowMove& way, const variable_list& rows, const Group& group,
                   const std::vector<Site>& sites) {
  if (may_give_way(sites[0]) && Turns::are_taken()) {
    return finish(start(way, rows, group, sites), sites[0]);
  }
  variable_list moved(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    moved[i] = rows[i].defined() ? way.run(group, rows[i], sites[i]) : at::Tensor();
  }
  return moved;
}

void save_move(AutogradContext* context, const RowMove& way) {
  context->saved_data["kind"] = static_cast<int64_t>(way.kind);
  context->saved_data["counts"] = way.counts;
  context->saved_data["receive_counts"] = way.receive_counts;
}

RowMove saved_move(AutogradContext* context) {
  return {static_cast<RowMove::Kind>(context->saved_data["kind"].toInt()),
          context->saved_data["counts"].toIntVector(),
          context->saved_data["receive_counts"].toIntVector()};
}

variable_list wanted(const AutogradContext* context, const variable_list& gradients) {
  variable_list result;
  for (size_t i = 0; i < gradients.size(); ++i) {
    result.push_back(context->needs_input_grad(i) ? gradients[i].contiguous() : at::Tensor());
  }
  return result;
}

struct MoveFunction : torch::autograd::Function<MoveFunction> {
  static variable_list forward(AutogradContext* context, at::TensorList rows, const RowMove& way,
                               const Group& group, const std::vector<Site>& sites) {
    save_group(context, group, sites);
    save_move(context, way.reversed());
    return move(way, rows.vec(), group, sites);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list results = move(saved_move(context), wanted(context, gradients),
                                 saved_group(context), saved_sites(context));
    results.resize(results.size() + 3);  // the other arguments of forward()
    return results;
  }
};

variable_list move_rows(const variable_list& rows, const RowMove& way, const Group& group,
                        const std::vector<Site>& sites) {
  return group.size() == 1 ? rows : MoveFunction::apply(at::TensorList(rows), way, group, sites);
}

// A move in two steps, and what travels now: rows, or their gradients on the way back.
struct Transfers : torch::CustomClassHolder {
  Transfers(const RowMove& rows_way, const Group& rows_group, const Site& rows_site)
      : way(rows_way),
        group(rows_group),
        site(rows_site),
        site_back{rows_site.name, rows_site.purpose, /*is_backward=*/true,
                  rows_group.ledger().position().layer} {}

  const RowMove way;
  const Group& group;
  const Site site;
  const Site site_back;
  std::vector<PendingRows> travelling = {};
};
using TransfersPointer = c10::intrusive_ptr<Transfers>;

void save_transfers(AutogradContext* context, const TransfersPointer& transfers) {
  context->saved_data["transfers"] = c10::IValue::make_capsule(transfers);
}

Transfers& saved_transfers(AutogradContext* context) {
  return static_cast<Transfers&>(*context->saved_data["transfers"].toCapsule());
}

// Forward it starts the transfer of the rows and returns where they will be; backward it waits for
// that of their gradients, which FinishFunction has started.
struct StartFunction : torch::autograd::Function<StartFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const TransfersPointer& transfers) {
    save_transfers(context, transfers);
    transfers->travelling = start(transfers->way, {rows}, transfers->group, {transfers->site});
    return transfers->travelling[0].rows;
  }
  static variable_list backward(AutogradContext* context, const variable_list&) {
    Transfers& transfers = saved_transfers(context);
    return {finish(std::exchange(transfers.travelling, {}), transfers.site_back)[0], {}};
  }
};

struct FinishFunction : torch::autograd::Function<FinishFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const TransfersPointer& transfers) {
    save_transfers(context, transfers);
    finish(std::exchange(transfers->travelling, {}), transfers->site);
    return rows.view_as(rows);
  }
  // Returns what StartFunction has no use for.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    Transfers& transfers = saved_transfers(context);
    transfers.travelling = start(transfers.way.reversed(), {gradients[0].contiguous()},
                                 transfers.group, {transfers.site_back});
    return {gradients[0], {}};
  }
};

RowsUnderWay start_rows(const at::Tensor& rows, const RowMove& way, const Group& group,
                        const Site& site) {
  if (group.size() == 1) {
    return {rows};
  }
  const auto transfers = c10::make_intrusive<Transfers>(way, group, site);
  return {StartFunction::apply(rows, transfers), transfers};
}

const Conversion* find_conversion(PlacementKind from, PlacementKind to) {
  for (const Conversion& conversion : kConversions) {
    if (conversion.from == from && conversion.to == to) {
      return &conversion;
    }
  }
  return nullptr;
}

// A sharded value must be as long as its placement says.
void check_cut(const Placed& value, const Group& group, const Site& site) {
  const Placement& placement = value.placement;
  if (placement.kind != PlacementKind::kSharded) {
    return;
  }
  const int64_t own = shard_range(placement.full, group.size(), group.rank()).size();
  if (value.tensor.size(placement.dim) != own) {
    throw ShapeError(
        fmt::format("{}: a value of shape [{}] is not {} over {} of {} ranks: {} are expected",
                    site.name, fmt::join(value.tensor.sizes(), ", "), to_string(placement),
                    group.name(), group.size(), own));
  }
}

}  // namespace

std::string to_string(const Placement& placement) {
  switch (placement.kind) {
    case PlacementKind::kInvariant:
      return "invariant";
    case PlacementKind::kReplicated:
      return "replicated";
    case PlacementKind::kPartial:
      return "partial";
    case PlacementKind::kSharded:
      return fmt::format("sharded({} of {})", placement.dim, placement.full);
  }
  return "";
}

Placed convert(const Placed& value, const Placement& to, const Group& group, const Site& site) {
  check_cut(value, group, site);
  if (value.placement == to) {
    return value;
  }
  const Conversion* conversion = find_conversion(value.placement.kind, to.kind);
  if (conversion == nullptr) {
    throw ShapeError(fmt::format("{}: a {} value cannot become {} over {}", site.name,
                                 to_string(value.placement), to_string(to), group.name()));
  }
  const bool is_cut_after = to.kind == PlacementKind::kSharded;
  if (is_cut_after && value.tensor.size(to.dim) != to.full) {
    throw ShapeError(fmt::format("{}: a value of shape [{}] cannot become {} over {}", site.name,
                                 fmt::join(value.tensor.sizes(), ", "), to_string(to),
                                 group.name()));
  }
  if (group.size() == 1) {
    return {value.tensor, to};
  }
  const Placement& cut = is_cut_after ? to : value.placement;
  return {ConvertFunction::apply(value.tensor, Action{conversion->forward, cut.dim, cut.full},
                                 Action{conversion->backward, cut.dim, cut.full}, group, site),
          to};
}

std::vector<at::Tensor> exchange_rows(const std::vector<at::Tensor>& rows,
                                      const std::vector<int64_t>& send_counts,
                                      const std::vector<int64_t>& receive_counts,
                                      const Group& group, const std::vector<Site>& sites) {
  return move_rows(rows, {RowMove::Kind::kExchange, send_counts, receive_counts}, group, sites);
}

at::Tensor exchange_rows(const at::Tensor& rows, const std::vector<int64_t>& send_counts,
                         const std::vector<int64_t>& receive_counts, const Group& group,
                         const Site& site) {
  return exchange_rows(variable_list{rows}, send_counts, receive_counts, group, {site})[0];
}

RowsUnderWay start_exchange_rows(const at::Tensor& rows, const std::vector<int64_t>& send_counts,
                                 const std::vector<int64_t>& receive_counts, const Group& group,
                                 const Site& site) {
  return start_rows(rows, {RowMove::Kind::kExchange, send_counts, receive_counts}, group, site);
}

RowsUnderWay start_reduce_scatter_rows(const at::Tensor& rows, const std::vector<int64_t>& counts,
                                       const Group& group, const Site& site) {
  return start_rows(rows, {RowMove::Kind::kReduceScatter, counts}, group, site);
}

at::Tensor finish_rows(const RowsUnderWay& rows) {
  if (rows.transfers == nullptr) {
    return rows.rows;
  }
  return FinishFunction::apply(rows.rows,
                               c10::static_intrusive_pointer_cast<Transfers>(rows.transfers));
}

std::vector<at::Tensor> gather_rows(const std::vector<at::Tensor>& rows,
                                    const std::vector<int64_t>& counts, const Group& group,
                                    const std::vector<Site>& sites) {
  return move_rows(rows, {RowMove::Kind::kGather, counts}, group, sites);
}

at::Tensor gather_rows(const at::Tensor& rows, const std::vector<int64_t>& counts,
                       const Group& group, const Site& site) {
  return gather_rows(variable_list{rows}, counts, group, {site})[0];
}

at::Tensor reduce_scatter_rows(const at::Tensor& rows, const std::vector<int64_t>& counts,
                               const Group& group, const Site& site) {
  return move_rows({rows}, {RowMove::Kind::kReduceScatter, counts}, group, {site})[0];
}

}  // namespace switchyard

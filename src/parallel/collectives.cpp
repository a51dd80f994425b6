#include "parallel/collectives.h"

#include <fmt/ranges.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"

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

void save_group(AutogradContext* context, const Group& group, const Site& site) {
  context->saved_data["group"] = reinterpret_cast<int64_t>(&group);
  context->saved_data["site"] = reinterpret_cast<int64_t>(site.name.data());
  context->saved_data["site_length"] = static_cast<int64_t>(site.name.size());
  context->saved_data["purpose"] = static_cast<int64_t>(site.purpose);
  context->saved_data["layer"] = group.ledger().position().layer;
}

const Group& saved_group(AutogradContext* context) {
  return *reinterpret_cast<const Group*>(context->saved_data["group"].toInt());
}

Site saved_site(AutogradContext* context) {
  const auto* name = reinterpret_cast<const char*>(context->saved_data["site"].toInt());
  const auto length = static_cast<size_t>(context->saved_data["site_length"].toInt());
  return {{name, length},
          static_cast<Purpose>(context->saved_data["purpose"].toInt()),
          /*is_backward=*/true,
          context->saved_data["layer"].toInt()};
}

struct ConvertFunction : torch::autograd::Function<ConvertFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& value,
                            const Action& forward_action, const Action& backward_action,
                            const Group& group, const Site& site) {
    save_group(context, group, site);
    context->saved_data["step"] = static_cast<int64_t>(backward_action.step);
    context->saved_data["dim"] = backward_action.dim;
    context->saved_data["full"] = backward_action.full;
    return perform(forward_action, value, group, site);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Action action{static_cast<Step>(context->saved_data["step"].toInt()),
                        context->saved_data["dim"].toInt(), context->saved_data["full"].toInt()};
    return {
        perform(action, gradients[0], saved_group(context), saved_site(context)), {}, {}, {}, {}};
  }
};

struct ExchangeFunction : torch::autograd::Function<ExchangeFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const std::vector<int64_t>& send_counts,
                            const std::vector<int64_t>& receive_counts, const Group& group,
                            const Site& site) {
    save_group(context, group, site);
    context->saved_data["send"] = send_counts;
    context->saved_data["receive"] = receive_counts;
    return group.all_to_all(rows, send_counts, receive_counts, site);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto sent = context->saved_data["send"].toIntVector();
    const auto received = context->saved_data["receive"].toIntVector();
    return {saved_group(context).all_to_all(gradients[0].contiguous(), received, sent,
                                            saved_site(context)),
            {},
            {},
            {},
            {}};
  }
};

template <bool is_gather>
struct RowsFunction : torch::autograd::Function<RowsFunction<is_gather>> {
  static at::Tensor run(bool gather, const at::Tensor& rows, const std::vector<int64_t>& counts,
                        const Group& group, const Site& site) {
    return gather ? group.all_gather_rows(rows, counts, site)
                  : group.reduce_scatter_rows(rows, counts, site);
  }
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const std::vector<int64_t>& counts, const Group& group,
                            const Site& site) {
    save_group(context, group, site);
    context->saved_data["counts"] = counts;
    return run(is_gather, rows, counts, group, site);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {run(!is_gather, gradients[0].contiguous(), context->saved_data["counts"].toIntVector(),
                saved_group(context), saved_site(context)),
            {},
            {},
            {}};
  }
};

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

at::Tensor exchange_rows(const at::Tensor& rows, const std::vector<int64_t>& send_counts,
                         const std::vector<int64_t>& receive_counts, const Group& group,
                         const Site& site) {
  return group.size() == 1
             ? rows
             : ExchangeFunction::apply(rows, send_counts, receive_counts, group, site);
}

at::Tensor gather_rows(const at::Tensor& rows, const std::vector<int64_t>& counts,
                       const Group& group, const Site& site) {
  return group.size() == 1 ? rows : RowsFunction<true>::apply(rows, counts, group, site);
}

at::Tensor reduce_scatter_rows(const at::Tensor& rows, const std::vector<int64_t>& counts,
                               const Group& group, const Site& site) {
  return group.size() == 1 ? rows : RowsFunction<false>::apply(rows, counts, group, site);
}

}  // namespace switchyard

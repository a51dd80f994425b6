#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "parallel/group.h"
#include "parallel/placement.h"

namespace switchyard {

// Differentiable collectives. Each is collective over `group` in its forward and, where the table
// says so, in its backward: the result must be part of what every rank differentiates, be it with
// weight zero, or the others wait for the rank whose backward never comes. `group` must outlive the
// graph. Deterministic, as Group. They throw what Group throws.

// Converts a value from its placement to another over the ranks of `group`. What the backward pass
// does follows from the two placements:
//
//   from, to                 forward          backward
//   invariant, replicated    nothing          all-reduce
//   partial, invariant       all-reduce       nothing
//   sharded, replicated      all-gather       reduce-scatter
//   sharded, invariant       all-gather       own slice
//   invariant, sharded       own slice        all-gather
//   partial, sharded         reduce-scatter   all-gather
//
// Equal placements pass through. Throws ShapeError for any other pair: it has no meaning (a partial
// value taken for a replicated one is a missing sum).
Placed convert(const Placed& value, const Placement& to, const Group& group, const Site& site);

// Below, rows of dim 0. With several tensors, which travel together, there is a site for each. Of
// dispatch and combine (Site::purpose) they give way while they travel, also in the backward pass,
// where the caller takes turns with another computation (parallel/turns.h).

// Rows change hands (Group::all_to_all); the gradient travels back the same way.
at::Tensor exchange_rows(const at::Tensor& rows, const std::vector<int64_t>& send_counts,
                         const std::vector<int64_t>& receive_counts, const Group& group,
                         const Site& site);
std::vector<at::Tensor> exchange_rows(const std::vector<at::Tensor>& rows,
                                      const std::vector<int64_t>& send_counts,
                                      const std::vector<int64_t>& receive_counts,
                                      const Group& group, const std::vector<Site>& sites);

// A move in two steps: what is computed between them, forward, goes on while the rows travel, and
// its gradient is computed while theirs do. The rows may be used when finish_rows() returns them.
struct RowsUnderWay {
  at::Tensor rows;
  c10::intrusive_ptr<c10::intrusive_ptr_target> transfers = {};  // null: they are there
};
RowsUnderWay start_exchange_rows(const at::Tensor& rows, const std::vector<int64_t>& send_counts,
                                 const std::vector<int64_t>& receive_counts, const Group& group,
                                 const Site& site);
RowsUnderWay start_reduce_scatter_rows(const at::Tensor& rows, const std::vector<int64_t>& counts,
                                       const Group& group, const Site& site);
at::Tensor finish_rows(const RowsUnderWay& rows);

// All ranks' rows, counts[i] of them from rank i; the gradient is summed and cut (reduce-scatter).
at::Tensor gather_rows(const at::Tensor& rows, const std::vector<int64_t>& counts,
                       const Group& group, const Site& site);
std::vector<at::Tensor> gather_rows(const std::vector<at::Tensor>& rows,
                                    const std::vector<int64_t>& counts, const Group& group,
                                    const std::vector<Site>& sites);

// The sum over ranks, of which rank i keeps counts[i] rows; the gradient is gathered.
at::Tensor reduce_scatter_rows(const at::Tensor& rows, const std::vector<int64_t>& counts,
                               const Group& group, const Site& site);

}  // namespace switchyard

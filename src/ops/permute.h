#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace switchyard {

// Where each copy of a token lies once the copies are grouped by expert. A token has one copy per
// slot, that is per expert it was routed to. Copies of one expert stay in (token, slot) order, and
// empty rows, if any, follow them.
struct ExpertOrder {
  at::Tensor token_of_row;               // [rows] int64; -1: an empty row
  at::Tensor row_of_copy;                // [tokens, k] int64; -1: the copy has no row here
  std::vector<int64_t> rows_per_expert;  // [num_experts], adds up to rows
};

// The order of all copies: a stable counting sort, tokens x k steps. expert_ids [tokens, k] int64;
// -1: a copy that was dropped and gets no row. `empty_rows` [num_experts]: rows to add to each
// expert, or nothing. Throws ShapeError when an id is not -1 to num_experts - 1.
ExpertOrder expert_order(const at::Tensor& expert_ids, int64_t num_experts,
                         const std::vector<int64_t>& empty_rows = {});

// The order of the copies for experts first_expert to first_expert + num_local_experts - 1 only,
// for a rank that holds these experts and sees tokens of others too. Other copies get no row.
// `empty_rows` [num_local_experts] or nothing.
ExpertOrder local_expert_order(const at::Tensor& expert_ids, int64_t first_expert,
                               int64_t num_local_experts,
                               const std::vector<int64_t>& empty_rows = {});

// All functions below are differentiable in their first argument, keep its dtype (fp64, fp32 or
// bf16), throw ShapeError when sizes do not belong together, and give the same bits for every
// number of threads.

// Copies in expert order: row r is tokens[token_of_row[r]], zero if empty. tokens [tokens, hidden]
// -> [rows, hidden]. Backward sums the copies of a token as `combine` does.
at::Tensor permute(const at::Tensor& tokens, const ExpertOrder& order);

// The sum of a token's copies, slot 0 first, in the wider of fp32 and the input and rounded once;
// zero for a token without copies. rows [rows, hidden] -> [tokens, hidden]. Weights belong into
// the rows beforehand.
at::Tensor combine(const at::Tensor& rows, const ExpertOrder& order);

// The weight of each row, 0 if empty. weights [tokens, k] -> [rows]
at::Tensor permute_weights(const at::Tensor& weights, const ExpertOrder& order);

// Row i of the result is rows[row_of_output[i]]. rows [received, ...] with any trailing sizes;
// row_of_output [received] int64 is a permutation and `inverse` undoes it, which is checked on the
// way. Brings rows that arrived ordered by source rank and then expert into expert order, and back.
at::Tensor reorder_rows(const at::Tensor& rows, const at::Tensor& row_of_output,
                        const at::Tensor& inverse);

}  // namespace switchyard

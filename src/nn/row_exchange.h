#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "base/sequence_table.h"
#include "parallel/group.h"

namespace switchyard {

// For layers that need whole rows where the ranks of cp divide them in zigzag: every rank takes all
// tokens of some columns (heads, channels) in place of some tokens of all columns (Ulysses,
// arXiv:2309.14509). Differentiable; collective over `group` (cp), in backward too.

// for_ranks: what each rank gets of this rank's tokens, [held, ...] of one shape for all ->
// [row tokens, ...], in the order of the row.
at::Tensor take_row(const std::vector<at::Tensor>& for_ranks, const SequenceTable& table,
                    const Group& group, const Site& site);

// Back again: row [row tokens, columns, ...] -> [held, ranks x columns, ...], the columns of the
// ranks side by side.
at::Tensor return_row(const at::Tensor& row, const SequenceTable& table, const Group& group,
                      const Site& site);

}  // namespace switchyard

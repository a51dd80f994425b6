#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace switchyard {

enum class ReduceOp { kSum, kMax };

// out[i] = pieces[0][i] + pieces[1][i] + ..., in this order, or their maximum (NaN wins). Sums are
// taken in the wider of fp32 and the dtype and rounded once. The pieces and `out` are contiguous,
// of one size and dtype; `out` may be one of the pieces. Runs on the calling thread alone.
//
// Throws ShapeError for a dtype other than fp64, fp32, bf16, fp16, int64 and int32.
void reduce_pieces(const std::vector<at::Tensor>& pieces, const at::Tensor& out, ReduceOp op);

}  // namespace switchyard

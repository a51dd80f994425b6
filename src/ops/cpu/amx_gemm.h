#pragma once

#include <cstdint>

#include "ops/cpu/kernels.h"

namespace switchyard {

// Does this processor have matrix units for bf16 (Intel AMX), and is libtorch allowed to use them?
bool has_amx();

// TypedKernels<Bf16Bits>::gemm on oneDNN's block product, which libtorch carries and which uses AMX
// where there is AMX. Needs AVX-512 with bf16. oneDNN compiles a kernel per size at run time, so
// blocks are padded to few sizes.
void amx_gemm(const MatrixProduct<Bf16Bits>& product, void* workspace);

// What brings operands and results into oneDNN's order; compiled for AVX-512 with bf16.
struct AmxPacking {
  // A matrix [depth, width] to panels [pairs, 32], one after the other, of pairs along depth;
  // with zeros up to whole panels.
  void (*to_panels)(const Bf16Bits* from, int64_t stride, bool depth_is_contiguous, int64_t depth,
                    int64_t width, uint32_t* panels);
  // Panels of `pairs` pairs to rows [width, row_stride] of pairs. Pairs and width are multiples of
  // 16.
  void (*panels_to_rows)(const uint32_t* panels, int64_t pairs, int64_t width, uint32_t* rows,
                         int64_t row_stride);
  // One row of sums, rounded to bf16.
  void (*round_sums)(const float* sums, int64_t count, Bf16Bits* to);
};
extern const AmxPacking kAmxPacking;
constexpr int64_t kAmxPanelColumns = 32;

}  // namespace switchyard

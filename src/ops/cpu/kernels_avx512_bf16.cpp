#if defined(__x86_64__)
#include "ops/cpu/amx_gemm.h"
#include "ops/cpu/table.h"

namespace switchyard {

static_assert(Operand<Bf16Bits>::kDepth == 2,
              "src/CMakeLists.txt sets the instruction set of this file");
static_assert(kPanelColumns<Bf16Bits> == kAmxPanelColumns, "amx_gemm.cpp relies on it");

namespace {

void to_panels(const Bf16Bits* from, int64_t stride, bool depth_is_contiguous, int64_t depth,
               int64_t width, uint32_t* panels) {
  pack_panels(Source<Bf16Bits>{from, stride, depth_is_contiguous, depth, width}, panels);
}

void panels_to_rows(const uint32_t* panels, int64_t pairs, int64_t width, uint32_t* rows,
                    int64_t row_stride) {
  constexpr int64_t kSide = kLanes<uint32_t>;
  for (int64_t column = 0; column < width; column += kSide) {
    const int64_t in_panel = column % kAmxPanelColumns;
    const uint32_t* panel = panels + (column - in_panel) * pairs + in_panel;
    for (int64_t pair = 0; pair < pairs; pair += kSide) {
      Words square[kSide];
      for (int64_t i = 0; i < kSide; ++i) {
        square[i] = load(panel + (pair + i) * kAmxPanelColumns);
      }
      transpose(square);
      for (int64_t i = 0; i < kSide; ++i) {
        store(rows + (column + i) * row_stride + pair, square[i]);
      }
    }
  }
}

void round_sums(const float* sums, int64_t count, Bf16Bits* to) {
  constexpr int64_t kWidth = kLanes<float>;
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    store_sums(to + i, load(sums + i));
  }
  if (i < count) {
    store_sums(to + i, load_sums(sums + i, count - i), count - i);
  }
}

}  // namespace

extern const CpuKernels kAvx512Bf16Kernels;
constinit const CpuKernels kAvx512Bf16Kernels = kernels_named("avx512_bf16");
constinit const AmxPacking kAmxPacking = {to_panels, panels_to_rows, round_sums};

}  // namespace switchyard
#endif

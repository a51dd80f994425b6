#include "ops/cpu/amx_gemm.h"

#include <algorithm>
#include <cstring>

#include <ATen/native/CPUBlas.h>

namespace switchyard {

#if defined(__x86_64__)
namespace {

// Rows of one call of oneDNN: many of the first kind, then the rest in the second, padded.
constexpr int64_t kManyRows = 128;
constexpr int64_t kFewRows = 32;
// Depth of packed operands is padded to whole tiles of the matrix unit.
constexpr int64_t kDepthStep = 32;

int64_t round_up(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

const at::BFloat16* as_bf16(const void* values) {
  return static_cast<const at::BFloat16*>(values);
}

// The workspace of one block, laid out once per call.
struct Workspace {
  explicit Workspace(void* memory)
      : b_panels(static_cast<uint32_t*>(memory)),
        a_rows(b_panels + kGemmDepth / 2 * kGemmColumns),
        a_panels(a_rows + kGemmRows * kGemmDepth / 2),
        last_rows(a_panels + kGemmRows * kGemmDepth / 2),
        sums(reinterpret_cast<float*>(last_rows + kFewRows * kGemmDepth / 2)) {}

  uint32_t* b_panels;   // [columns / 32, pairs, 32]
  uint32_t* a_rows;     // [rows, kGemmDepth / 2] pairs
  uint32_t* a_panels;   // on the way to a_rows
  uint32_t* last_rows;  // [kFewRows, pairs], zeros below the last row of a
  float* sums;          // [rows, kGemmColumns]
};
static_assert(4 * (kGemmDepth / 2 * (kGemmColumns + 2 * kGemmRows + kFewRows) +
                   (kGemmRows + kFewRows) * kGemmColumns) <=
              kGemmWorkspaceBytes);

// The rows of a for one part of k, as pairs.
struct Rows {
  const Bf16Bits* values;
  int64_t stride;
};

// Panels of `depth` values have room for `padded` values: moves them apart and fills up with zeros.
void pack_padded(const Bf16Bits* from, int64_t stride, bool depth_is_contiguous, int64_t depth,
                 int64_t padded, int64_t width, uint32_t* panels) {
  const int64_t pairs = (depth + 1) / 2;
  for (int64_t column = 0; column < width; column += kAmxPanelColumns) {
    uint32_t* panel = panels + column * padded / 2;
    kAmxPacking.to_panels(depth_is_contiguous ? from + column * stride : from + column, stride,
                          depth_is_contiguous, depth, std::min(kAmxPanelColumns, width - column),
                          panel);
    std::fill(panel + pairs * kAmxPanelColumns, panel + padded / 2 * kAmxPanelColumns, 0U);
  }
}

Rows rows_of_a(const MatrixProduct<Bf16Bits>& product, int64_t first, int64_t depth, int64_t padded,
               const Workspace& workspace) {
  if (!product.a_transposed && depth == padded) {
    return {product.a + first, product.a_stride};
  }
  const Rows rows{reinterpret_cast<const Bf16Bits*>(workspace.a_rows), kGemmDepth};
  if (product.a_transposed) {
    pack_padded(product.a + first * product.a_stride, product.a_stride, false, depth, padded,
                product.m, workspace.a_panels);
    kAmxPacking.panels_to_rows(workspace.a_panels, padded / 2, round_up(product.m, 16),
                               workspace.a_rows, kGemmDepth / 2);
    return rows;
  }
  for (int64_t row = 0; row < product.m; ++row) {
    auto* to = reinterpret_cast<Bf16Bits*>(workspace.a_rows + row * kGemmDepth / 2);
    std::copy_n(product.a + row * product.a_stride + first, depth, to);
    std::fill(to + depth, to + padded, Bf16Bits{});
  }
  return rows;
}

// sums [rows, n] += a [rows, depth] x panels, a whole number of rows at a time.
void multiply_rows(int64_t rows, const Bf16Bits* a, int64_t a_stride, int64_t n, int64_t depth,
                   const uint32_t* b_panels, bool add, float* sums) {
  for (int64_t column = 0; column < n; column += kAmxPanelColumns) {
    at::native::cpublas::brgemm(rows, kAmxPanelColumns, depth, a_stride, kAmxPanelColumns,
                                kGemmColumns, add, as_bf16(a),
                                as_bf16(b_panels + column * depth / 2), sums + column);
  }
}

void multiply_all_rows(const MatrixProduct<Bf16Bits>& product, const Rows& a, int64_t depth,
                       bool add, const Workspace& workspace) {
  int64_t row = 0;
  for (const int64_t rows : {kManyRows, kFewRows}) {
    for (; row + rows <= product.m; row += rows) {
      multiply_rows(rows, a.values + row * a.stride, a.stride, product.n, depth, workspace.b_panels,
                    add, workspace.sums + row * kGemmColumns);
    }
  }
  if (row < product.m) {
    auto* last = reinterpret_cast<Bf16Bits*>(workspace.last_rows);
    std::fill_n(last, kFewRows * depth, Bf16Bits{});
    for (int64_t i = row; i < product.m; ++i) {
      std::copy_n(a.values + i * a.stride, depth, last + (i - row) * depth);
    }
    multiply_rows(kFewRows, last, depth, product.n, depth, workspace.b_panels, add,
                  workspace.sums + row * kGemmColumns);
  }
}

void start_sums(const MatrixProduct<Bf16Bits>& product, float* sums) {
  for (int64_t row = 0; row < round_up(product.m, kFewRows); ++row) {
    float* to = sums + row * kGemmColumns;
    std::fill_n(to, kGemmColumns, 0.0F);
    if (product.accumulate && row < product.m) {
      std::copy_n(product.wide_c + row * product.c_stride, product.n, to);
    }
  }
}

void finish_sums(const MatrixProduct<Bf16Bits>& product, const float* sums) {
  for (int64_t row = 0; row < product.m; ++row) {
    const float* from = sums + row * kGemmColumns;
    if (product.wide_c != nullptr) {
      std::copy_n(from, product.n, product.wide_c + row * product.c_stride);
    } else {
      kAmxPacking.round_sums(from, product.n, product.c + row * product.c_stride);
    }
  }
}

}  // namespace

bool has_amx() {
  return at::native::cpublas::could_pack(at::kBFloat16);
}

void amx_gemm(const MatrixProduct<Bf16Bits>& product, void* memory) {
  const Workspace workspace(memory);
  const bool starts_with_sums = product.accumulate || product.k == 0;
  if (starts_with_sums) {
    start_sums(product, workspace.sums);
  }
  for (int64_t first = 0; first < product.k; first += kGemmDepth) {
    const int64_t depth = std::min(kGemmDepth, product.k - first);
    const int64_t padded = round_up(depth, kDepthStep);
    pack_padded(product.b_transposed ? product.b + first : product.b + first * product.b_stride,
                product.b_stride, product.b_transposed, depth, padded, product.n,
                workspace.b_panels);
    const Rows a = rows_of_a(product, first, depth, padded, workspace);
    multiply_all_rows(product, a, padded, starts_with_sums || first > 0, workspace);
  }
  at::native::cpublas::brgemm_release();
  finish_sums(product, workspace.sums);
}
#else
bool has_amx() {
  return false;
}
#endif

}  // namespace switchyard

#pragma once

// The matrix product of kernels.h: both operands are brought into an order in which the inner
// loop reads them without gaps, then tiles of c as large as the register file are summed over k.
// Only for the kernels_*.cpp files.

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include "ops/cpu/kernels.h"
#include "ops/cpu/vector.h"

namespace switchyard {
namespace {

// A tile of c is kTileRows x 2 vectors of sums, half of the registers: enough to keep the
// multipliers busy (12 and 14 rows were no faster on AVX-512), and a divisor of a panel's width.
constexpr int64_t kTileRows = kVectorBytes == 64 ? 8 : 4;

// How T enters the inner loop. A unit is what one multiply-add step takes from one row of a or one
// column of b: a value, or a pair of bf16 values that follow each other along k.
template <class T>
struct Operand {
  using Unit = T;
  static constexpr int64_t kDepth = 1;    // values in a unit
  static constexpr bool kInPlace = true;  // a row of T is a row of units already

  static Unit unit(T first, T /*second*/) { return first; }
  static Vector<Unit> along_depth(const T* from) { return load(from); }
  static Vector<Unit> across(const T* from, int64_t /*stride*/) { return load(from); }
  static Vector<T> multiply_add(Vector<T> sum, Unit a, Vector<Unit> b) { return sum + a * b; }
};

#if defined(__AVX512BF16__)
template <>
struct Operand<Bf16Bits> {
  using Unit = uint32_t;
  static constexpr int64_t kDepth = 2;
  static constexpr bool kInPlace = true;

  static Unit unit(Bf16Bits first, Bf16Bits second) {
    return first.bits | (static_cast<uint32_t>(second.bits) << 16);
  }
  static Words along_depth(const Bf16Bits* from) {
    return load(reinterpret_cast<const uint32_t*>(from));
  }
  static Words across(const Bf16Bits* from, int64_t stride) {
    return load_words(from) | (load_words(from + stride) << 16);
  }
  static Vector<float> multiply_add(Vector<float> sum, Unit a, Words b) {
    return reinterpret_cast<Vector<float>>(
        _mm512_dpbf16_ps(reinterpret_cast<__m512>(sum), reinterpret_cast<__m512bh>(broadcast(a)),
                         reinterpret_cast<__m512bh>(b)));
  }
};
#else
template <>
struct Operand<Bf16Bits> {
  using Unit = float;
  static constexpr int64_t kDepth = 1;
  static constexpr bool kInPlace = false;

  static Unit unit(Bf16Bits first, Bf16Bits /*second*/) { return to_sum(first); }
  static Vector<float> along_depth(const Bf16Bits* from) { return load_sums(from); }
  static Vector<float> across(const Bf16Bits* from, int64_t /*stride*/) { return load_sums(from); }
  static Vector<float> multiply_add(Vector<float> sum, Unit a, Vector<Unit> b) {
    return sum + a * b;
  }
};
#endif

inline int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

template <class T>
using Unit = typename Operand<T>::Unit;
template <class T>
constexpr int64_t kPanelColumns = 2 * kLanes<Unit<T>>;

template <class T>
int64_t units_of(int64_t k) {
  return (k + Operand<T>::kDepth - 1) / Operand<T>::kDepth;
}

// A matrix of T seen from the product: `depth` runs along k, `width` across (rows of a, columns
// of b).
template <class T>
struct Source {
  const T* data;
  int64_t stride;
  bool depth_is_contiguous;
  int64_t depth;
  int64_t width;

  const T* at(int64_t depth_index, int64_t width_index) const {
    return depth_is_contiguous ? data + width_index * stride + depth_index
                               : data + depth_index * stride + width_index;
  }
  // One unit, with zeros outside the matrix.
  Unit<T> unit(int64_t unit_index, int64_t width_index) const {
    const int64_t first = unit_index * Operand<T>::kDepth;
    if (width_index >= width) {
      return Unit<T>{};
    }
    const bool has_second = Operand<T>::kDepth == 2 && first + 1 < depth;
    return Operand<T>::unit(*at(first, width_index),
                            has_second ? *at(first + 1, width_index) : T{});
  }
};

// Slow, for the edges: units [first_unit, last_unit) of one panel.
template <class T>
void pack_edge(const Source<T>& source, int64_t first, int64_t first_unit, int64_t last_unit,
               Unit<T>* packed) {
  constexpr int64_t kColumns = kPanelColumns<T>;
  for (int64_t unit = first_unit; unit < last_unit; ++unit) {
    for (int64_t i = 0; i < kColumns; ++i) {
      packed[unit * kColumns + i] = source.unit(unit, first + i);
    }
  }
}

// Columns `first` and following, as many as a panel has, to packed [units, kPanelColumns].
template <class T>
void pack_panel(const Source<T>& source, int64_t first, Unit<T>* packed) {
  constexpr int64_t kColumns = kPanelColumns<T>;
  constexpr int64_t kWidth = kLanes<Unit<T>>;
  const int64_t units = units_of<T>(source.depth);
  const int64_t whole_units = source.depth / Operand<T>::kDepth;
  int64_t done = 0;
  if (first + kColumns <= source.width && source.depth_is_contiguous) {
    for (; done + kWidth <= whole_units; done += kWidth) {
      for (int64_t column = 0; column < kColumns; column += kWidth) {
        Vector<Unit<T>> square[kWidth];
        for (int64_t i = 0; i < kWidth; ++i) {
          square[i] =
              Operand<T>::along_depth(source.at(done * Operand<T>::kDepth, first + column + i));
        }
        transpose(square);
        for (int64_t i = 0; i < kWidth; ++i) {
          store(packed + (done + i) * kColumns + column, square[i]);
        }
      }
    }
  } else if (first + kColumns <= source.width) {
    for (; done < whole_units; ++done) {
      const T* from = source.at(done * Operand<T>::kDepth, first);
      for (int64_t column = 0; column < kColumns; column += kWidth) {
        store(packed + done * kColumns + column, Operand<T>::across(from + column, source.stride));
      }
    }
  }
  pack_edge(source, first, done, units, packed);
}

template <class T>
void pack_panels(const Source<T>& source, Unit<T>* packed) {
  for (int64_t first = 0; first < source.width; first += kPanelColumns<T>) {
    pack_panel(source, first, packed + first * units_of<T>(source.depth));
  }
}

// Brings the source of a panel into the cache, a share at a time, while another panel is worked on:
// weights come from memory, and packing them would wait for it.
template <class T>
class PanelFetch {
 public:
  PanelFetch(const Source<T>& source, int64_t first, int64_t num_shares) : source_(source) {
    const int64_t columns = smaller(kPanelColumns<T>, source.width - first);
    if (columns <= 0) {
      return;
    }
    const bool along_depth = source.depth_is_contiguous;
    next_row_ = source.at(0, first);
    num_rows_ = along_depth ? columns : source.depth;
    row_values_ = along_depth ? source.depth : columns;
    const int64_t lines_in_row = (row_values_ + kLineValues - 1) / kLineValues;
    lines_in_share_ = (num_rows_ * lines_in_row + num_shares - 1) / num_shares;
  }

  void fetch_share() {
    for (int64_t line = 0; line < lines_in_share_ && num_rows_ > 0; ++line) {
      __builtin_prefetch(next_row_ + done_in_row_, 0, 2);
      done_in_row_ += kLineValues;
      if (done_in_row_ >= row_values_) {
        done_in_row_ = 0;
        next_row_ += source_.stride;
        --num_rows_;
      }
    }
  }

 private:
  static constexpr int64_t kLineValues = 64 / static_cast<int64_t>(sizeof(T));

  Source<T> source_;
  const T* next_row_ = nullptr;
  int64_t num_rows_ = 0;
  int64_t row_values_ = 0;
  int64_t done_in_row_ = 0;
  int64_t lines_in_share_ = 0;
};

// Where a tile's rows of a are: in place, at row_step units from row to row, or in a packed panel.
template <class U>
struct TileOfA {
  const U* units;
  int64_t row_step;
};

// Where a tile of c goes. Between parts of k, sums are kept in `sums`, row by row.
template <class T>
struct TileOfC {
  T* c;
  int64_t c_stride;
  int64_t columns;
  Sum<T>* sums;   // [rows, kGemmColumns]
  bool is_first;  // of the parts of k
  bool is_last;
  Sum<T>* wide_c;  // unless null, in place of c
  bool accumulate;
};

template <class T>
inline Vector<Sum<T>> first_sums(const TileOfC<T>& to, int64_t row, int64_t column) {
  const Sum<T>* from = to.wide_c + row * to.c_stride + column;
  const int64_t count = to.columns - column;
  if (count >= kLanes<Sum<T>>) {
    return load(from);
  }
  return load_sums(from, count < 0 ? 0 : count);
}

// As many lanes as there are columns left.
template <class T>
inline void store_part(T* to, Vector<Sum<T>> value, int64_t columns) {
  if (columns >= kLanes<Sum<T>>) {
    store_sums(to, value);
  } else {
    store_sums(to, value, columns < 0 ? 0 : columns);
  }
}

template <class T, int64_t kRows>
inline void finish_tile(const Vector<Sum<T>> (&sums)[kRows][2], const TileOfC<T>& to) {
  constexpr int64_t kWidth = kLanes<Sum<T>>;
#pragma GCC unroll 8
  for (int64_t row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t column = half * kWidth;
      if (!to.is_last) {
        store(to.sums + row * kGemmColumns + column, sums[row][half]);
      } else if (to.wide_c != nullptr) {
        store_part(to.wide_c + row * to.c_stride + column, sums[row][half], to.columns - column);
      } else {
        store_part(to.c + row * to.c_stride + column, sums[row][half], to.columns - column);
      }
    }
  }
}

template <class T, bool kPacked, int64_t kRows>
[[gnu::noinline]] void multiply_tile(int64_t units, TileOfA<Unit<T>> a, const Unit<T>* panel,
                                     const TileOfC<T>& to) {
  constexpr int64_t kWidth = kLanes<Sum<T>>;
  Vector<Sum<T>> sums[kRows][2] = {};
  if (!to.is_first) {
#pragma GCC unroll 8
    for (int64_t row = 0; row < kRows; ++row) {
      sums[row][0] = load(to.sums + row * kGemmColumns);
      sums[row][1] = load(to.sums + row * kGemmColumns + kWidth);
    }
  } else if (to.accumulate) {
#pragma GCC unroll 8
    for (int64_t row = 0; row < kRows; ++row) {
      sums[row][0] = first_sums(to, row, 0);
      sums[row][1] = first_sums(to, row, kWidth);
    }
  }
  const int64_t row_step = kPacked ? 1 : a.row_step;
  constexpr int64_t kUnitStep = kPacked ? kPanelColumns<T> : 1;
  for (int64_t unit = 0; unit < units; ++unit) {
    const auto left = load(panel + unit * 2 * kWidth);
    const auto right = load(panel + unit * 2 * kWidth + kWidth);
#pragma GCC unroll 8
    for (int64_t row = 0; row < kRows; ++row) {
      Unit<T> value;
      __builtin_memcpy(&value, a.units + row * row_step + unit * kUnitStep, sizeof(value));
      sums[row][0] = Operand<T>::multiply_add(sums[row][0], value, left);
      sums[row][1] = Operand<T>::multiply_add(sums[row][1], value, right);
    }
  }
  finish_tile<T, kRows>(sums, to);
}

template <class T, bool kPacked, int64_t kRows = kTileRows>
void multiply_tile(int64_t rows, int64_t units, TileOfA<Unit<T>> a, const Unit<T>* panel,
                   const TileOfC<T>& to) {
  if constexpr (kRows > 0) {
    if (rows == kRows) {
      multiply_tile<T, kPacked, kRows>(units, a, panel, to);
    } else {
      multiply_tile<T, kPacked, kRows - 1>(rows, units, a, panel, to);
    }
  }
}

// The rows of a for one part of k: in place where they can be read as units, else in panels.
template <class T>
class RowsOfA {
 public:
  RowsOfA(const Source<T>& source, Unit<T>* workspace) : source_(source), packed_(workspace) {
    constexpr int64_t kDepth = Operand<T>::kDepth;
    in_place_ = Operand<T>::kInPlace && source.depth_is_contiguous && source.depth % kDepth == 0 &&
                source.stride % kDepth == 0;
    if (!in_place_) {
      pack_panels(source, workspace);
    }
  }

  bool is_in_place() const { return in_place_; }
  TileOfA<Unit<T>> tile(int64_t row) const {
    if (in_place_) {
      return {reinterpret_cast<const Unit<T>*>(source_.data + row * source_.stride),
              source_.stride / Operand<T>::kDepth};
    }
    const int64_t row_in_panel = row % kPanelColumns<T>;
    return {packed_ + (row - row_in_panel) * units_of<T>(source_.depth) + row_in_panel, 1};
  }

 private:
  Source<T> source_;
  const Unit<T>* packed_;
  bool in_place_;
};

template <class T>
TileOfC<T> tile_of_c(const MatrixProduct<T>& product, int64_t row, int64_t column, Sum<T>* sums,
                     bool is_first, bool is_last) {
  const int64_t offset = row * product.c_stride + column;
  return {product.wide_c != nullptr ? nullptr : product.c + offset,
          product.c_stride,
          product.n - column,
          sums + row * kGemmColumns + column,
          is_first,
          is_last,
          product.wide_c != nullptr ? product.wide_c + offset : nullptr,
          product.accumulate};
}

// One part of k: all tiles of c, a panel of b after the other, which stays in the cache meanwhile.
template <class T>
void multiply_depth(const MatrixProduct<T>& product, int64_t first_depth, char* workspace) {
  auto* panel = reinterpret_cast<Unit<T>*>(workspace);
  auto* packed_a = panel + kGemmDepth * kPanelColumns<T>;
  auto* sums = reinterpret_cast<Sum<T>*>(packed_a + kGemmDepth * kGemmRows);
  const int64_t depth = smaller(kGemmDepth, product.k - first_depth);
  const int64_t units = units_of<T>(depth);
  const bool is_first = first_depth == 0;
  const bool is_last = first_depth + depth == product.k;

  Source<T> b{product.b, product.b_stride, product.b_transposed, depth, product.n};
  b.data = b.at(first_depth, 0);
  Source<T> source_of_a{product.a, product.a_stride, !product.a_transposed, depth, product.m};
  source_of_a.data = source_of_a.at(first_depth, 0);
  const RowsOfA<T> a(source_of_a, packed_a);

  const int64_t num_tiles = (product.m + kTileRows - 1) / kTileRows;
  for (int64_t column = 0; column < product.n; column += kPanelColumns<T>) {
    pack_panel(b, column, panel);
    PanelFetch<T> next_panel(b, column + kPanelColumns<T>, num_tiles);
    for (int64_t row = 0; row < product.m; row += kTileRows) {
      const int64_t rows = smaller(kTileRows, product.m - row);
      const TileOfC<T> to = tile_of_c(product, row, column, sums, is_first, is_last);
      if (a.is_in_place()) {
        multiply_tile<T, false>(rows, units, a.tile(row), panel, to);
      } else {
        multiply_tile<T, true>(rows, units, a.tile(row), panel, to);
      }
      next_panel.fetch_share();
    }
  }
}

template <class T>
void gemm(const MatrixProduct<T>& product, void* workspace) {
  int64_t depth = 0;
  do {
    multiply_depth(product, depth, static_cast<char*>(workspace));
    depth += kGemmDepth;
  } while (depth < product.k);
}

}  // namespace
}  // namespace switchyard

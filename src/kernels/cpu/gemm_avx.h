// Our own GEMM kernel: both factors are packed into panels that stay in the cache, and a small block of C is kept in
// registers over the whole inner dimension. Included only by gemm.cc.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/support.h"

namespace some::cpu {

// Register blocking: Bytes is the size of a vector register, Rows the number of rows of C kept in registers (two
// vectors wide).
template <int Bytes, int Rows>
struct RegisterBlock {
  static constexpr int bytes = Bytes, rows = Rows;
};

// Adds the product of one packed panel of A (depth x rows) and one of B (depth x columns) to `block` (rows x columns).
// It uses the compiler's vector types, so one source serves every instruction set. It must be inlined into a function
// compiled for the instruction set that has registers of this size.
template <typename T, typename Block>
[[gnu::always_inline]] inline void multiply_panels(std::int64_t depth, const T* a, const T* b, T* block) {
  constexpr int lanes = Block::bytes / static_cast<int>(sizeof(T));
  typedef T Vector __attribute__((vector_size(Block::bytes), aligned(sizeof(T)), may_alias));
  Vector sums[Block::rows][2] = {};
  for (std::int64_t p = 0; p < depth; ++p) {
    const Vector left = *reinterpret_cast<const Vector*>(b);
    const Vector right = *reinterpret_cast<const Vector*>(b + lanes);
#pragma GCC unroll 16
    for (int i = 0; i < Block::rows; ++i) {
      sums[i][0] += left * a[i];
      sums[i][1] += right * a[i];
    }
    a += Block::rows;
    b += 2 * lanes;
  }
#pragma GCC unroll 16
  for (int i = 0; i < Block::rows; ++i) {
    *reinterpret_cast<Vector*>(block + (2 * i) * lanes) = sums[i][0];
    *reinterpret_cast<Vector*>(block + (2 * i + 1) * lanes) = sums[i][1];
  }
}

// Copies `count` rows of op(A) (or columns of op(B)) and `depth` of the inner dimension into a panel of `width`, padded
// with zeros. step: distance between neighbors along the panel's width; inner: along the inner dimension.
template <typename T>
void pack_panel(const T* source, std::int64_t step, std::int64_t inner, std::int64_t count, int width,
                std::int64_t depth, T* panel) {
  for (std::int64_t p = 0; p < depth; ++p) {
    for (int i = 0; i < width; ++i) panel[p * width + i] = i < count ? source[i * step + p * inner] : T(0);
  }
}

template <typename T, typename Block>
[[gnu::always_inline]] inline void multiply_blocked(const Product<T>& product) {
  constexpr int rows = Block::rows, columns = 2 * Block::bytes / static_cast<int>(sizeof(T));
  constexpr std::int64_t depth_block = 256, row_block = rows * 12, column_block = columns * 16;
  T* packed_a = thread_buffer<T>(gemm_buffer_slot, (row_block + column_block) * depth_block);
  T* packed_b = packed_a + row_block * depth_block;
  alignas(64) T block[rows * columns];
  const std::int64_t a_row = product.transpose_a ? 1 : product.lda, a_inner = product.transpose_a ? product.lda : 1;
  const std::int64_t b_column = product.transpose_b ? product.ldb : 1, b_inner = product.transpose_b ? 1 : product.ldb;

  for (std::int64_t column = 0; column < product.n; column += column_block) {
    const std::int64_t width = std::min(column_block, product.n - column);
    for (std::int64_t first = 0; first < product.k; first += depth_block) {
      const std::int64_t depth = std::min(depth_block, product.k - first);
      const T beta = first == 0 ? product.beta : T(1);
      for (std::int64_t j = 0; j < width; j += columns) {
        pack_panel(product.b + (column + j) * b_column + first * b_inner, b_column, b_inner, width - j, columns, depth,
                   packed_b + j * depth);
      }
      for (std::int64_t row = 0; row < product.m; row += row_block) {
        const std::int64_t height = std::min(row_block, product.m - row);
        for (std::int64_t i = 0; i < height; i += rows) {
          pack_panel(product.a + (row + i) * a_row + first * a_inner, a_row, a_inner, height - i, rows, depth,
                     packed_a + i * depth);
        }
        for (std::int64_t j = 0; j < width; j += columns) {
          for (std::int64_t i = 0; i < height; i += rows) {
            multiply_panels<T, Block>(depth, packed_a + i * depth, packed_b + j * depth, block);
            const std::int64_t used_rows = std::min<std::int64_t>(rows, height - i);
            const std::int64_t used_columns = std::min<std::int64_t>(columns, width - j);
            for (std::int64_t r = 0; r < used_rows; ++r) {
              T* c = product.c + (row + i + r) * product.ldc + column + j;
              const T* sums = block + r * columns;
              if (beta == T(0)) {
                for (std::int64_t s = 0; s < used_columns; ++s) c[s] = product.alpha * sums[s];
              } else {
                for (std::int64_t s = 0; s < used_columns; ++s) c[s] = product.alpha * sums[s] + beta * c[s];
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace some::cpu

// GEMM for generation on the CPU: C [m, n] = alpha * A W^T + beta * C, A [m, k], W [n, k]. Every number of C is one dot
// product whose order of additions depends only on k: a row of C has the same bits for any number of rows, any tile
// and any number of threads. Each weight is read once for all rows, directly from the row-major matrix.
#pragma once

#include "kernels/cpu/gemm.h"
#include "runtime/row_products.h"

namespace some::cpu {

// Computes it in the calling thread. Requires !transpose_a and transpose_b. half: W in bf16 with the same layout, read
// instead of b; null: none.
template <typename T>
void row_gemm_serial(const Product<T>& product, const std::uint16_t* half = nullptr);
template <>
void row_gemm_serial(const Product<float>& product, const std::uint16_t* half);
template <>
void row_gemm_serial(const Product<double>& product, const std::uint16_t* half);

// Returns the product of a layer in the context's precision.
template <typename T>
Product<T> in_precision(const Context& ctx, Product<T> product) {
  product.bf16 = std::is_same_v<T, float> && bf16_products(ctx);
  return product;
}

// gemm_serial, or row_gemm_serial while text is generated.
template <typename T>
void gemm_serial_for(const Context& ctx, const Product<T>& product) {
  if (const RowProducts* const rows = row_products(ctx))
    row_gemm_serial(product, rows->half_of(product.b));
  else
    gemm_serial(product);
}

// gemm_then, with row_gemm_serial while text is generated.
template <typename T, typename Epilogue>
void gemm_then_for(Context& ctx, const Product<T>& product, Epilogue&& epilogue) {
  const RowProducts* const rows = row_products(ctx);
  if (rows == nullptr) return gemm_then(*ctx.threads, product, epilogue);
  constexpr std::int64_t columns = 64;
  parallel_chunks(*ctx.threads, product.n, columns, [&](std::int64_t begin, std::int64_t end) {
    const Tile tile{0, product.m, begin, end};
    const Product<T> part = part_of(product, tile);
    row_gemm_serial(part, rows->half_of(part.b));
    epilogue(tile);
  });
}

template <typename T>
void gemm_for(Context& ctx, const Product<T>& product) {
  gemm_then_for(ctx, product, [](const Tile&) {});
}

}  // namespace some::cpu

// GEMM on the CPU. In float, oneDNN computes it if it is installed (it is loaded at run time). In double, and in float
// without oneDNN, our own kernel does. Every GEMM is divided into a grid of tiles that depends only on its size, and
// each tile is computed by one thread, so the bits do not depend on the number of threads.
//
// All matrices are row-major: C [m, n] = alpha * op(A) op(B) + beta * C, op(A) [m, k], op(B) [k, n]; lda, ldb and ldc
// are the distances between rows as stored. With beta = 0, C may be uninitialized.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "core/threads.h"

namespace some::cpu {

template <typename T>
struct Product {
  bool transpose_a, transpose_b;
  std::int64_t m, n, k;
  T alpha;
  const T* a;
  std::int64_t lda;
  const T* b;
  std::int64_t ldb;
  T beta;
  T* c;
  std::int64_t ldc;
  // Rounds op(A) and op(B) to bf16 and sums in float (float only; bf16_gemm_reason() must be empty).
  bool bf16 = false;
};

// Computes one GEMM in the calling thread. For use inside a piece of a parallel_for.
template <typename T>
void gemm_serial(const Product<T>& product);
template <>
void gemm_serial(const Product<float>& product);
template <>
void gemm_serial(const Product<double>& product);

// Computes one GEMM with our own kernel, even if oneDNN is available.
template <typename T>
void native_gemm(const Product<T>& product);
template <>
void native_gemm(const Product<float>& product);
template <>
void native_gemm(const Product<double>& product);

struct Tile {
  std::int64_t row_begin, row_end, column_begin, column_end;
};
// Returns the grid of tiles of an [m, n] result: at least `wanted` tiles, unless they would become too small.
std::vector<Tile> make_tiles(std::int64_t m, std::int64_t n, std::int64_t wanted);

template <typename T>
Product<T> part_of(const Product<T>& product, const Tile& tile) {
  Product<T> part = product;
  part.m = tile.row_end - tile.row_begin;
  part.n = tile.column_end - tile.column_begin;
  part.a += tile.row_begin * (product.transpose_a ? 1 : product.lda);
  part.b += tile.column_begin * (product.transpose_b ? product.ldb : 1);
  part.c += tile.row_begin * product.ldc + tile.column_begin;
  return part;
}

// Both operands of a product, rounded to bf16 on all threads, so that its tiles need not round them again. They are in
// memory of the calling thread and valid until its next GEMM.
struct RoundedOperands {
  std::uint16_t *a, *b;
  std::int64_t lda, ldb;
};
RoundedOperands round_operands(Threads& threads, const Product<float>& product);
// Computes a tile of the product in the calling thread.
void multiply_rounded(const Product<float>& product, const RoundedOperands& operands, const Tile& tile);

// Computes a GEMM on all threads; epilogue(tile) is called right after each tile, while it is in the cache.
constexpr std::int64_t tiles_wanted = 8;
template <typename T, typename Epilogue>
void gemm_then(Threads& threads, const Product<T>& product, Epilogue&& epilogue) {
  const std::vector<Tile> tiles = make_tiles(product.m, product.n, tiles_wanted);
  if constexpr (std::is_same_v<T, float>) {
    if (product.bf16 && product.k > 0 && tiles.size() > 1) {
      const RoundedOperands operands = round_operands(threads, product);
      return parallel_for(threads, static_cast<std::int64_t>(tiles.size()), [&](std::int64_t i) {
        const Tile& tile = tiles[static_cast<std::size_t>(i)];
        multiply_rounded(product, operands, tile);
        epilogue(tile);
      });
    }
  }
  parallel_for(threads, static_cast<std::int64_t>(tiles.size()), [&](std::int64_t i) {
    const Tile& tile = tiles[static_cast<std::size_t>(i)];
    gemm_serial(part_of(product, tile));
    epilogue(tile);
  });
}

template <typename T>
void gemm(Threads& threads, const Product<T>& product) {
  gemm_then(threads, product, [](const Tile&) {});
}

template <typename T>
void gemm(Threads& threads, bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, T alpha,
          const T* a, std::int64_t lda, const T* b, std::int64_t ldb, T beta, T* c, std::int64_t ldc) {
  gemm(threads, Product<T>{transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc});
}

// Computes many GEMMs at once (one per expert). The tiles of all of them form one work list, so that small experts do
// not leave a thread idle.
template <typename T>
void gemm_batch(Threads& threads, const std::vector<Product<T>>& products);
template <>
void gemm_batch(Threads& threads, const std::vector<Product<float>>& products);
template <>
void gemm_batch(Threads& threads, const std::vector<Product<double>>& products);

bool gemm_is_onednn();           // true if oneDNN computes float GEMMs
std::string gemm_description();  // for display: which library, or why oneDNN is not used

// Returns why this machine cannot multiply in bf16; empty if it can. That requires a CPU with AVX512-BF16, and oneDNN.
std::string bf16_gemm_reason();

// Returns the FLOP/s in float that this machine's oneDNN reaches at this size with its own threading on as many threads
// (our own kernel's rate without oneDNN). This is the reference rate for all other measurements.
double peak_gemm_rate(Threads& threads, std::int64_t m, std::int64_t n, std::int64_t k, double seconds);

}  // namespace some::cpu

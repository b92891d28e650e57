// The matrices of Hadamard experts applied to single rows on the CPU (ops/hadamard_experts.h). Factors of the
// unnormalized transforms (HadamardSizes::scale1, scale2) are left to the callers, who multiply by a gate anyway.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/hadamard.h"
#include "kernels/cpu/support.h"
#include "ops/hadamard_experts.h"

namespace some::cpu {

template <typename T>
class HadamardRows {
 public:
  HadamardRows(const HadamardSizes& sizes, const HadamardSigns& signs)
      : sizes_(sizes), signs_(signs), size_(sizes.size()), blocks_(sizes.blocks()), words_(sizes.words()) {}

  std::int64_t size() const { return size_; }
  std::int64_t padded() const { return blocks_ * size_; }  // room for the f outputs of all blocks

  // Computes the f numbers B x of all blocks. x: `size()` numbers, zeros from d on; out: `padded()` numbers, of which
  // those from f on are meaningless.
  void forward(std::int64_t expert, const T* x, T* out) const {
    for (int block = 0; block < blocks_; ++block, out += size_) {
      Hadamard<T>::transform(x, words(expert, block, 0), out, size_);
      for (int m = 1; m < sizes_.transforms; ++m) Hadamard<T>::transform(out, words(expert, block, m), out, size_);
    }
  }
  // Adds the transposed blocks' results to sum, of `size()` numbers. g: `padded()` numbers, zeros from f on;
  // overwritten.
  void add_transposed(std::int64_t expert, T* g, T* sum) const {
    for (int block = 0; block < blocks_; ++block, g += size_) {
      for (int m = sizes_.transforms - 1; m > 0; --m)
        Hadamard<T>::template transposed<false>(g, words(expert, block, m), g, size_);
      Hadamard<T>::template transposed<true>(g, words(expert, block, 0), sum, size_);
    }
  }

  // Several rows of one expert, with the scratch memory of gemm_serial: out = factor * B x, with rows of d and f
  // numbers, and out = factor * B^T g, with rows of f and d numbers.
  void forward_rows(std::int64_t expert, std::int64_t rows, T factor, const T* x, T* out) const {
    T* buffer = thread_buffer<T>(gemm_buffer_slot, size_ + padded());
    T* result = buffer + size_;
    for (std::int64_t row = 0; row < rows; ++row, x += sizes_.d, out += sizes_.f) {
      forward(expert, padded_input(x, buffer), result);
      for (int j = 0; j < sizes_.f; ++j) out[j] = factor * result[j];
    }
  }
  void transposed_rows(std::int64_t expert, std::int64_t rows, T factor, const T* g, T* out) const {
    T* buffer = thread_buffer<T>(gemm_buffer_slot, size_ + padded());
    T* input = buffer + size_;
    for (std::int64_t row = 0; row < rows; ++row, g += sizes_.f, out += sizes_.d) {
      std::fill(std::copy_n(g, sizes_.f, input), input + padded(), T(0));
      std::fill_n(buffer, size_, T(0));
      add_transposed(expert, input, buffer);
      for (int j = 0; j < sizes_.d; ++j) out[j] = factor * buffer[j];
    }
  }

  // Returns x with zeros after it, in a buffer of the caller with `size()` numbers if they are needed.
  const T* padded_input(const T* x, T* buffer) const {
    if (sizes_.d == size_) return x;
    std::fill(std::copy_n(x, sizes_.d, buffer), buffer + size_, T(0));
    return buffer;
  }

 private:
  const std::uint64_t* words(std::int64_t expert, int block, int m) const {
    const std::uint64_t first = sizes_.first_word(static_cast<std::uint64_t>(expert), block, m);
    if (signs_.cached != nullptr) return signs_.cached + first;
    auto* generated = thread_buffer<std::uint64_t>(hadamard_buffer_slot, words_);
    random_words(signs_.stream, first, words_, generated);
    return generated;
  }

  HadamardSizes sizes_;
  HadamardSigns signs_;
  std::int64_t size_;
  int blocks_, words_;
};

}  // namespace some::cpu

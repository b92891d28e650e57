// Low-rank correction of one matrix per expert (kernels/gemm/low_rank.h) on the CPU, applied to blocks of routing slots
// that share an expert. An empty correction does nothing.
#pragma once

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/row_gemm.h"
#include "kernels/cpu/support.h"
#include "kernels/gemm/low_rank.h"

namespace some::cpu {

template <typename T>
class Correction {
 public:
  // low: [routing slots, r]
  Correction(const LowRank& factors, const Tensor& low) {
    if (!factors) return;
    rank_ = factors.rank(), in_ = factors.a.compute.dim(2), out_ = factors.b.compute.dim(1);
    a_ = factors.a.compute.data<T>(), b_ = factors.b.compute.data<T>();
    if (factors.a.grad) a_gradient_ = factors.a.grad.data<T>();
    if (factors.b.grad) b_gradient_ = factors.b.grad.data<T>();
    low_ = low.data<T>();
  }
  explicit operator bool() const { return rank_ > 0; }
  std::int64_t rank() const { return rank_; }

  // Computes low = a x, y += b low for the routing slots starting at `begin`; x [rows, in], y [rows, out].
  void forward(const Context& ctx, std::int64_t expert, std::int64_t begin, std::int64_t rows, const T* x, T* y) const {
    if (rank_ == 0) return;
    T* low = low_ + begin * rank_;
    gemm_serial_for(ctx, Product<T>{false, true, rows, rank_, in_, T(1), x, in_, a_of(expert), in_, T(0), low, rank_});
    gemm_serial_for(ctx,
                    Product<T>{false, true, rows, out_, rank_, T(1), low, rank_, b_of(expert), rank_, T(1), y, out_});
  }

  // Computes pulled = b^T dy, dx += a^T pulled; pulled [rows, r].
  void backward(std::int64_t expert, std::int64_t rows, const T* dy, T* pulled, T* dx) const {
    if (rank_ == 0) return;
    gemm_serial(Product<T>{false, false, rows, rank_, out_, T(1), dy, out_, b_of(expert), rank_, T(0), pulled, rank_});
    gemm_serial(Product<T>{false, false, rows, in_, rank_, T(1), pulled, rank_, a_of(expert), in_, T(1), dx, in_});
  }

  // Multiplies low by the gates, for gradients of outputs that are summed with gates.
  void weigh(std::int64_t begin, std::int64_t rows, const std::int32_t* order, const T* gates) const {
    for (std::int64_t j = begin; j < begin + rows; ++j) {
      for (std::int64_t r = 0; r < rank_; ++r) low_[j * rank_ + r] *= gates[order[j]];
    }
  }

  // Allocates the sums of this many blocks from the arena.
  void make_room(Context& ctx, std::int64_t blocks) {
    if (rank_ > 0) sums_ = ctx.scratch({blocks, rank_ * (in_ + out_)}, dtype_of<T>()).template data<T>();
  }
  // Computes this block's part of the factors' gradients: pulled^T x and dy^T low.
  void sum_block(std::int64_t block, std::int64_t begin, std::int64_t rows, const T* x, const T* dy,
                 const T* pulled) const {
    if (rank_ == 0) return;
    T* a_sum = sums_ + block * rank_ * (in_ + out_);
    gemm_serial(Product<T>{true, false, rank_, in_, rows, T(1), pulled, rank_, x, in_, T(0), a_sum, in_});
    gemm_serial(Product<T>{true, false, out_, rank_, rows, T(1), dy, out_, low_ + begin * rank_, rank_, T(0),
                           a_sum + rank_ * in_, rank_});
  }
  // Adds a block's part to the gradients of its expert. The blocks of one expert must be added in order.
  void add_block(std::int64_t block, std::int64_t expert) const {
    if (rank_ == 0) return;
    const T* a_sum = sums_ + block * rank_ * (in_ + out_);
    add(a_sum, rank_ * in_, a_gradient_, expert);
    add(a_sum + rank_ * in_, rank_ * out_, b_gradient_, expert);
  }

 private:
  const T* a_of(std::int64_t expert) const { return a_ + expert * rank_ * in_; }
  const T* b_of(std::int64_t expert) const { return b_ + expert * out_ * rank_; }
  static void add(const T* sums, std::int64_t count, T* gradients, std::int64_t expert) {
    if (gradients == nullptr) return;
    T* target = gradients + expert * count;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) target[i] += sums[i];
  }

  std::int64_t rank_ = 0, in_ = 0, out_ = 0;
  const T* a_ = nullptr;
  const T* b_ = nullptr;
  T* a_gradient_ = nullptr;
  T* b_gradient_ = nullptr;
  T* low_ = nullptr;
  T* sums_ = nullptr;
};

}  // namespace some::cpu

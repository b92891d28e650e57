#include "ops/experts.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/row_gemm.h"
#include "kernels/cpu/support.h"
#include "ops/cpu/hadamard_rows.h"
#include "ops/cpu/low_rank.h"
#include "ops/elementwise.h"

namespace some::cpu {
namespace {

// Piece of work: some of the routing slots of one expert. Large enough for its GEMMs to run at full speed, small enough
// that the hidden layer between them stays in the cache.
constexpr std::int64_t largest_block = 384;
struct Block {
  std::int64_t number, expert, begin, end;  // range in plan.order
};

std::vector<Block> make_blocks(const DispatchPlan& plan) {
  const std::int32_t* offsets = plan.offsets.data<std::int32_t>();
  std::vector<Block> blocks;
  for (std::int64_t e = 0; e < plan.experts; ++e) {
    const std::int64_t begin = offsets[e], count = offsets[e + 1] - begin;
    const std::int64_t parts = (count + largest_block - 1) / largest_block;
    for (std::int64_t part = 0; part < parts; ++part) {
      blocks.push_back({static_cast<std::int64_t>(blocks.size()), e, begin + count * part / parts,
                        begin + count * (part + 1) / parts});
    }
  }
  return blocks;
}

template <typename Body>
void for_each_block(Context& ctx, const std::vector<Block>& blocks, Body&& body) {
  parallel_for(*ctx.threads, static_cast<std::int64_t>(blocks.size()),
               [&](std::int64_t i) { body(blocks[static_cast<std::size_t>(i)]); });
}

// Computes target[j] = x[token of the j-th routing slot], for the routing slots of a block.
template <typename T>
void gather(const T* x, std::int64_t width, const std::int32_t* order, std::int64_t k, const Block& block, T* target) {
  for (std::int64_t j = block.begin; j < block.end; ++j) {
    std::copy_n(x + order[j] / k * width, width, target + (j - block.begin) * width);
  }
}

// The matrices of the experts: stored ones, or Hadamard transforms (ops/hadamard_experts.h). Results are overwritten.
template <typename T>
class Matrices {
 public:
  Matrices(const Context& ctx, const ExpertWeights& weights)
      : ctx_(&ctx),
        hadamard_(weights.hadamard),
        first_(hadamard_.sizes, hadamard_.signs1()),
        second_(hadamard_.sizes, hadamard_.signs2()),
        d_(hadamard_ ? hadamard_.sizes.d : weights.w1.dim(2)),
        f_(hadamard_ ? hadamard_.sizes.f : weights.w1.dim(1)),
        has_w2_(weights.has_w2()) {
    if (hadamard_) return;
    w1_ = weights.w1.data<T>();
    w2_ = weights.w2 ? weights.w2.data<T>() : nullptr;
  }
  std::int64_t f() const { return f_; }
  bool has_w2() const { return has_w2_; }

  // x: [rows, d]; hidden: [rows, f].
  void hidden(std::int64_t e, std::int64_t rows, const T* x, T* hidden) const {
    if (hadamard_)
      first_.forward_rows(e, rows, factor1(), x, hidden);
    else
      gemm_serial_for(*ctx_, in_precision(*ctx_, Product<T>{false, true, rows, f_, d_, T(1), x, d_, w1_ + e * f_ * d_,
                                                            d_, T(0), hidden, f_}));
  }
  void hidden_backward(std::int64_t e, std::int64_t rows, const T* dhidden, T* dx) const {
    if (hadamard_)
      first_.transposed_rows(e, rows, factor1(), dhidden, dx);
    else
      gemm_serial(in_precision(
          *ctx_, Product<T>{false, false, rows, d_, f_, T(1), dhidden, f_, w1_ + e * f_ * d_, d_, T(0), dx, d_}));
  }
  // activations: [rows, f]; y: [rows, d].
  void output(std::int64_t e, std::int64_t rows, const T* activations, T* y) const {
    if (hadamard_)
      second_.transposed_rows(e, rows, factor2(), activations, y);
    else
      gemm_serial_for(*ctx_, in_precision(*ctx_, Product<T>{false, true, rows, d_, f_, T(1), activations, f_,
                                                            w2_ + e * d_ * f_, f_, T(0), y, d_}));
  }
  void output_backward(std::int64_t e, std::int64_t rows, const T* dy, T* dactivations) const {
    if (hadamard_)
      second_.forward_rows(e, rows, factor2(), dy, dactivations);
    else
      gemm_serial(in_precision(
          *ctx_, Product<T>{false, false, rows, f_, d_, T(1), dy, d_, w2_ + e * d_ * f_, f_, T(0), dactivations, f_}));
  }

 private:
  T factor1() const { return static_cast<T>(hadamard_.sizes.scale1()); }
  T factor2() const { return static_cast<T>(hadamard_.sizes.scale2()); }

  const Context* ctx_;
  HadamardExperts hadamard_;
  HadamardRows<T> first_, second_;
  std::int64_t d_, f_;
  bool has_w2_;
  const T* w1_ = nullptr;
  const T* w2_ = nullptr;
};

template <typename T>
void forward(Context& ctx, const Tensor& x, const ExpertWeights& weights, const DispatchPlan& plan, const Tensor& gates,
             ExpertTape& tape, Tensor& y) {
  const Matrices<T> matrices(ctx, weights);
  const std::int64_t tokens = x.dim(0), d = x.dim(1), f = matrices.f(), k = gates.dim(1);
  const std::int32_t* order = plan.order.data<std::int32_t>();
  const std::int32_t* place = plan.place.data<std::int32_t>();
  const T* gate = gates.data<T>();
  T* hidden = tape.pre.data<T>();
  T* result = y.data<T>();
  const Correction<T> first(weights.low1, tape.low1), second(weights.low2, tape.low2);
  ArenaScope scope(*ctx.arena);
  T* answers =
      matrices.has_w2() ? ctx.scratch({tokens * k, d}).template data<T>() : nullptr;  // per routing slot, in plan order
  for_each_block(ctx, make_blocks(plan), [&](const Block& block) {
    const std::int64_t rows = block.end - block.begin;
    T* input = thread_buffer<T>(0, rows * d);
    gather(x.data<T>(), d, order, k, block, input);
    T* before = hidden + block.begin * f;
    matrices.hidden(block.expert, rows, input, before);
    first.forward(ctx, block.expert, block.begin, rows, input, before);
    if (answers == nullptr) return;
    T* after = thread_buffer<T>(1, rows * f);
    gelu(before, after, rows * f);
    matrices.output(block.expert, rows, after, answers + block.begin * d);
    second.forward(ctx, block.expert, block.begin, rows, after, answers + block.begin * d);
  });
  // Each token sums the outputs of its own experts, best first: no two pieces of work add to the same number.
  parallel_chunks(*ctx.threads, tokens, 32, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t width = answers != nullptr ? d : f;
    T* features = thread_buffer<T>(0, f);
    for (std::int64_t t = begin; t < end; ++t) {
      T* target = result + t * width;
      std::fill_n(target, width, T(0));
      for (std::int64_t i = t * k; i < (t + 1) * k; ++i) {
        if (answers != nullptr) {
          add_scaled(gate[i], answers + place[i] * d, target, d);
        } else {
          gelu(hidden + place[i] * f, features, f);
          add_scaled(gate[i], features, target, f);
        }
      }
    }
  });
}

// Turns the gradient of one routing slot's GELU(pre), not yet multiplied by its gate, into the gradient of pre; returns
// the gate's gradient. activation receives gate * GELU(pre) if the experts are trained.
template <bool Learns, typename T>
T choice_gradient(const T* pre, T gate, T* gradient, [[maybe_unused]] T* activation, std::int64_t f) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < f; ++i) {
    const NormalDistribution<T> law = normal_distribution(pre[i]);
    const T value = pre[i] * law.cumulative;
    sum += gradient[i] * value;
    gradient[i] *= gate * (law.cumulative + pre[i] * law.density);
    if constexpr (Learns) activation[i] = gate * value;
  }
  return sum;
}

// Each expert sums its own blocks in order: the same sums for any number of threads.
template <typename T>
void add_corrections(Context& ctx, const DispatchPlan& plan, const std::vector<Block>& blocks,
                     const Correction<T>& first, const Correction<T>& second) {
  parallel_for(*ctx.threads, plan.experts, [&](std::int64_t e) {
    auto block = std::lower_bound(blocks.begin(), blocks.end(), e,
                                  [](const Block& one, std::int64_t expert) { return one.expert < expert; });
    for (; block != blocks.end() && block->expert == e; ++block) {
      first.add_block(block->number, e);
      second.add_block(block->number, e);
    }
  });
}

template <typename T>
void backward(Context& ctx, const Tensor& dy, const Tensor& x, const ExpertWeights& weights, const DispatchPlan& plan,
              const Tensor& gates, ExpertTape& tape, Tensor& dx, Tensor& dgates, ExpertGrads* grads) {
  const Matrices<T> matrices(ctx, weights);
  const std::int64_t tokens = x.dim(0), d = x.dim(1), f = matrices.f(), k = gates.dim(1);
  const std::int64_t choices = tokens * k, dy_width = dy.dim(1);
  const std::int32_t* order = plan.order.data<std::int32_t>();
  const std::int32_t* place = plan.place.data<std::int32_t>();
  const T* gate = gates.data<T>();
  T* hidden = tape.pre.data<T>();
  T* gate_gradient = dgates.data<T>();
  const bool w1_learns = grads != nullptr && grads->w1, w2_learns = grads != nullptr && grads->w2 && weights.w2;
  ArenaScope scope(*ctx.arena);
  T* shares = ctx.scratch({choices, d}).template data<T>();  // contribution of each routing slot to dx, in plan order
  // Inputs of the weight gradients are kept for all routing slots; frozen experts keep nothing.
  T* activations = w2_learns ? ctx.scratch({choices, f}).template data<T>() : nullptr;
  T* answers = w2_learns ? ctx.scratch({choices, d}).template data<T>() : nullptr;
  T* inputs = w1_learns ? ctx.scratch({choices, d}).template data<T>() : nullptr;
  const std::vector<Block> blocks = make_blocks(plan);
  Correction<T> first(weights.low1, tape.low1), second(weights.low2, tape.low2);
  first.make_room(ctx, static_cast<std::int64_t>(blocks.size()));
  second.make_room(ctx, static_cast<std::int64_t>(blocks.size()));
  for_each_block(ctx, blocks, [&](const Block& block) {
    const std::int64_t rows = block.end - block.begin;
    T* gradient = thread_buffer<T>(1, rows * f);
    T* answer = w2_learns ? answers + block.begin * d : thread_buffer<T>(0, rows * d);
    T* pulled = thread_buffer<T>(3, rows * std::max(first.rank(), second.rank()));
    if (matrices.has_w2()) {
      gather(dy.data<T>(), d, order, k, block, answer);
      matrices.output_backward(block.expert, rows, answer, gradient);
      second.backward(block.expert, rows, answer, pulled, gradient);
    } else {
      gather(dy.data<T>(), dy_width, order, k, block, gradient);
    }
    // gate * GELU(pre), for gradients of w2 or of its correction
    T* activation = w2_learns ? activations + block.begin * f : second ? thread_buffer<T>(2, rows * f) : nullptr;
    for (std::int64_t j = block.begin; j < block.end; ++j) {
      const std::int64_t own = (j - block.begin) * f;
      T* row = gradient + own;
      gate_gradient[order[j]] = activation != nullptr
                                    ? choice_gradient<true>(hidden + j * f, gate[order[j]], row, activation + own, f)
                                    : choice_gradient<false, T>(hidden + j * f, gate[order[j]], row, nullptr, f);
      if (w1_learns) std::copy_n(row, f, hidden + j * f);
    }
    second.weigh(block.begin, rows, order, gate);
    second.sum_block(block.number, block.begin, rows, activation, answer, pulled);
    T* share = shares + block.begin * d;
    matrices.hidden_backward(block.expert, rows, gradient, share);
    if (w1_learns) gather(x.data<T>(), d, order, k, block, inputs + block.begin * d);
    if (first) {
      first.backward(block.expert, rows, gradient, pulled, share);
      T* input = thread_buffer<T>(0, rows * d);
      gather(x.data<T>(), d, order, k, block, input);
      first.sum_block(block.number, block.begin, rows, input, gradient, pulled);
    }
  });
  if (first || second) add_corrections(ctx, plan, blocks, first, second);
  T* input_gradient = dx.data<T>();
  parallel_chunks(*ctx.threads, tokens, 32, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t i = t * k; i < (t + 1) * k; ++i)
        add_scaled(T(1), shares + place[i] * d, input_gradient + t * d, d);
    }
  });
  const std::int32_t* offsets = plan.offsets.data<std::int32_t>();
  std::vector<Product<T>> products;
  for (std::int64_t e = 0; e < plan.experts; ++e) {
    const std::int64_t begin = offsets[e], count = offsets[e + 1] - begin;
    if (count == 0) continue;
    if (w1_learns) {
      products.push_back(
          in_precision(ctx, Product<T>{true, false, f, d, count, T(1), hidden + begin * f, f, inputs + begin * d, d,
                                       T(1), grads->w1.data<T>() + e * f * d, d}));
    }
    if (w2_learns) {
      products.push_back(
          in_precision(ctx, Product<T>{true, false, d, f, count, T(1), answers + begin * d, d, activations + begin * f,
                                       f, T(1), grads->w2.data<T>() + e * d * f, f}));
    }
  }
  gemm_batch(*ctx.threads, products);
}

}  // namespace

DispatchPlan make_dispatch(Context& ctx, const Tensor& indices, int experts, const Tensor&) {
  const std::int64_t choices = indices.elements();
  DispatchPlan plan;
  plan.experts = experts;
  plan.order = ctx.scratch({choices}, DType::i32);
  plan.place = ctx.scratch({choices}, DType::i32);
  plan.offsets = ctx.scratch({experts + 1}, DType::i32);
  const std::int32_t* chosen = indices.data<std::int32_t>();
  std::int32_t* order = plan.order.data<std::int32_t>();
  std::int32_t* place = plan.place.data<std::int32_t>();
  std::int32_t* offsets = plan.offsets.data<std::int32_t>();
  // Counting sort: it is stable, and 100,000 routing slots take less than a millisecond.
  std::fill_n(offsets, experts + 1, 0);
  for (std::int64_t i = 0; i < choices; ++i) {
    if (chosen[i] < 0 || chosen[i] >= experts)
      failed(Code::index_out_of_range, "assignment {} has expert {} of {}", i, chosen[i], experts);
    ++offsets[chosen[i] + 1];
  }
  for (int e = 0; e < experts; ++e) offsets[e + 1] += offsets[e];
  std::vector<std::int32_t> next(offsets, offsets + experts);
  for (std::int64_t i = 0; i < choices; ++i) {
    place[i] = next[static_cast<std::size_t>(chosen[i])]++;
    order[place[i]] = static_cast<std::int32_t>(i);
  }
  return plan;
}

bool experts_keep_outputs(Context&, const ExpertWeights&) { return false; }

void experts_forward(Context& ctx, const Tensor& x, const ExpertWeights& weights, const DispatchPlan& plan,
                     const Tensor& gates, ExpertTape& tape, Tensor& y) {
  with_precision(ctx, [&](auto zero) { forward<decltype(zero)>(ctx, x, weights, plan, gates, tape, y); });
}

void combine_rows(Context& ctx, const Tensor& rows, const Tensor& place, const Tensor* gates, Into into, Tensor& y) {
  with_precision(ctx, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t tokens = y.dim(0), width = y.dim(1), k = place.dim(1);
    const std::int32_t* at = place.data<std::int32_t>();
    const T* gate = gates != nullptr ? gates->data<T>() : nullptr;
    parallel_chunks(*ctx.threads, tokens, 32, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        T* target = y.data<T>() + t * width;
        if (into == Into::overwrite) std::fill_n(target, width, T(0));
        for (std::int64_t i = t * k; i < (t + 1) * k; ++i)
          add_scaled(gate != nullptr ? gate[i] : T(1), rows.data<T>() + at[i] * width, target, width);
      }
    });
  });
}

void experts_backward(Context& ctx, const ExpertsBackward& in) {
  if (in.into == Into::overwrite) cpu::fill(ctx, 0, in.dx);
  with_precision(ctx, [&](auto zero) {
    backward<decltype(zero)>(ctx, in.dy, in.x, in.weights, in.plan, in.gates, in.tape, in.dx, in.dgates, in.grads);
  });
}

}  // namespace some::cpu

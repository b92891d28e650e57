#include "ops/modulate.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/row_gemm.h"
#include "kernels/cpu/support.h"

namespace some::cpu {
namespace {

constexpr std::int64_t row_grain = 32;

// Piece of work: some of the routing slots of one expert, enough for a GEMM to run at full speed.
struct Block {
  std::int64_t expert, begin, end;  // range in plan.order
};

template <typename Body>
void for_each_block(Context& ctx, const DispatchPlan& plan, Body&& body) {
  constexpr std::int64_t largest = 384;
  const std::int32_t* offsets = plan.offsets.data<std::int32_t>();
  std::vector<Block> blocks;
  for (std::int64_t e = 0; e < plan.experts; ++e) {
    for (std::int64_t begin = offsets[e]; begin < offsets[e + 1]; begin += largest)
      blocks.push_back({e, begin, std::min<std::int64_t>(begin + largest, offsets[e + 1])});
  }
  parallel_for(*ctx.threads, static_cast<std::int64_t>(blocks.size()),
               [&](std::int64_t i) { body(blocks[static_cast<std::size_t>(i)]); });
}

// Inputs of the functions below, as plain pointers.
template <typename T>
struct View {
  std::int64_t tokens, d, f, k, experts, width, token_shift;  // width: of the table of rows
  const T *hidden, *states, *w1, *gates, *gains;
  const std::int32_t *rows, *indices, *order, *place, *offsets;
  T scale;
  bool additive;

  explicit View(const Modulation& in)
      : tokens(in.routing.gates.dim(0)),
        d(in.states ? in.states.dim(1) : 0),
        f(in.hidden ? in.hidden.dim(1) : in.w1.dim(1)),
        k(in.routing.gates.dim(1)),
        experts(in.plan.experts),
        width(in.token_shift > 0 ? in.rows.dim(1) : 0),
        token_shift(in.token_shift),
        hidden(in.hidden.data<T>()),
        states(in.states ? in.states.data<T>() : nullptr),
        w1(in.w1 ? in.w1.data<T>() : nullptr),
        gates(in.routing.gates.data<T>()),
        gains(in.gains.value.data<T>()),
        rows(in.token_shift > 0 ? in.rows.data<std::int32_t>() : nullptr),
        indices(in.routing.indices.data<std::int32_t>()),
        order(in.plan.order.data<std::int32_t>()),
        place(in.plan.place.data<std::int32_t>()),
        offsets(in.plan.offsets.data<std::int32_t>()),
        scale(static_cast<T>(in.scale)),
        additive(in.additive) {}

  // back: token shift of an expert. source: row of the state that a routing slot reads (-1: none).
  std::int64_t back(std::int64_t expert) const { return token_shift > 0 ? 1 + expert % token_shift : 0; }
  std::int64_t source(std::int64_t choice) const {
    const std::int64_t t = choice / k;
    return rows != nullptr ? rows[t * width + back(indices[choice])] : t;
  }
  const T* gain(std::int64_t choice) const { return gains + indices[choice] * f; }

  void gather(const Block& block, T* target) const {
    for (std::int64_t j = block.begin; j < block.end; ++j) {
      const std::int64_t from = source(order[j]);
      T* row = target + (j - block.begin) * d;
      if (from >= 0)
        std::copy_n(states + from * d, d, row);
      else
        std::fill_n(row, d, T(0));
    }
  }
  // Computes V of token t.
  void modulation(std::int64_t t, const T* activations, T* v) const {
    std::fill_n(v, f, T(0));
    for (std::int64_t i = t * k; i < (t + 1) * k; ++i) {
      const T weight = scale * gates[i];
      const T* g = gain(i);
      if (activations == nullptr) {
        add_scaled(weight, g, v, f);
        continue;
      }
      const T* s = activations + place[i] * f;
#pragma omp simd
      for (std::int64_t j = 0; j < f; ++j) v[j] += weight * g[j] * s[j];
    }
  }
};

template <typename T>
void activate_experts(Context& ctx, const Modulation& in, Tensor& pre) {
  const View<T> view(in);
  const std::int64_t d = view.d, f = view.f;
  T* activations = pre.data<T>();
  for_each_block(ctx, in.plan, [&](const Block& block) {
    const std::int64_t count = block.end - block.begin;
    T* input = thread_buffer<T>(0, count * d);
    view.gather(block, input);
    gemm_serial_for(
        ctx, in_precision(ctx, Product<T>{false, true, count, f, d, T(1), input, d, view.w1 + block.expert * f * d, d,
                                          T(0), activations + block.begin * f, f}));
  });
}

template <typename T>
void forward(Context& ctx, const Modulation& in, Tensor& pre, Tensor& h) {
  const View<T> view(in);
  const std::int64_t f = view.f;
  const T* activations = pre.data<T>();
  T* out = h.data<T>();
  parallel_chunks(*ctx.threads, view.tokens, row_grain, [&](std::int64_t begin, std::int64_t end) {
    T* v = thread_buffer<T>(0, f);
    for (std::int64_t t = begin; t < end; ++t) {
      view.modulation(t, activations, v);
      const T* z = view.hidden + t * f;
      T* target = out + t * f;
      if (view.additive) {
#pragma omp simd
        for (std::int64_t j = 0; j < f; ++j) v[j] += z[j];
        gelu(v, target, f);
      } else {
        gelu(z, target, f);
#pragma omp simd
        for (std::int64_t j = 0; j < f; ++j) target[j] *= T(1) + v[j];
      }
    }
  });
}

template <typename T>
void add_rows(Context& ctx, const Modulation& in, const Tensor& rows, Tensor& dstates) {
  const View<T> view(in);
  const std::int64_t d = rows.dim(1), k = view.k, tokens = view.tokens, width = view.width;
  const T* shares = rows.data<T>();
  T* result = dstates.data<T>();
  parallel_chunks(*ctx.threads, tokens, row_grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      // Routing slots that have read the state of t: its own slots, or those of later tokens with this token shift.
      for (std::int64_t back = view.token_shift > 0 ? 1 : 0; back <= view.token_shift; ++back) {
        const std::int64_t later = t + back;
        if (later >= tokens || (back > 0 && view.rows[later * width + back] != t)) continue;
        for (std::int64_t i = later * k; i < (later + 1) * k; ++i) {
          if (view.back(view.indices[i]) == back) add_scaled(T(1), shares + view.place[i] * d, result + t * d, d);
        }
      }
    }
  });
}

template <typename T>
void hear(Context& ctx, const Modulation& in, const Tensor& dpre, Tensor& dstates, ExpertGrads* grads) {
  const View<T> view(in);
  const std::int64_t d = view.d, f = view.f, choices = view.tokens * view.k;
  const bool learns = grads != nullptr && grads->w1;
  const T* gradients = dpre.data<T>();
  ArenaScope scope(*ctx.arena);
  const Tensor rows = ctx.scratch({choices, d});  // contribution of each routing slot to dstates, in plan order
  T* shares = rows.data<T>();
  T* inputs = learns ? ctx.scratch({choices, d}).template data<T>() : nullptr;
  for_each_block(ctx, in.plan, [&](const Block& block) {
    gemm_serial(
        in_precision(ctx, Product<T>{false, false, block.end - block.begin, d, f, T(1), gradients + block.begin * f, f,
                                     view.w1 + block.expert * f * d, d, T(0), shares + block.begin * d, d}));
    if (learns) view.gather(block, inputs + block.begin * d);
  });
  add_rows<T>(ctx, in, rows, dstates);
  if (!learns) return;
  std::vector<Product<T>> products;
  for (std::int64_t e = 0; e < view.experts; ++e) {
    const std::int64_t begin = view.offsets[e], count = view.offsets[e + 1] - begin;
    if (count == 0) continue;
    products.push_back(in_precision(ctx, Product<T>{true, false, f, d, count, T(1), gradients + begin * f, f,
                                                    inputs + begin * d, d, T(1), grads->w1.data<T>() + e * f * d, d}));
  }
  gemm_batch(*ctx.threads, products);
}

template <typename T>
void backward(Context& ctx, Tensor& dh, const Modulation& in, Tensor& pre, Tensor& dhidden, Tensor& dgates) {
  const View<T> view(in);
  const std::int64_t f = view.f, k = view.k, tokens = view.tokens;
  T* activations = pre.data<T>();
  T* upstream = dh.data<T>();
  T* dz = dhidden.data<T>();
  T* gate_gradient = dgates.data<T>();
  parallel_chunks(*ctx.threads, tokens, row_grain, [&](std::int64_t begin, std::int64_t end) {
    T* v = thread_buffer<T>(0, f);
    for (std::int64_t t = begin; t < end; ++t) {
      view.modulation(t, activations, v);
      const T* z = view.hidden + t * f;
      T* up = upstream + t * f;
      T* target = dz + t * f;
#pragma omp simd
      for (std::int64_t j = 0; j < f; ++j) {
        const T at = view.additive ? z[j] + v[j] : z[j];
        const NormalDistribution<T> law = normal_distribution(at);
        const T slope = law.cumulative + at * law.density;
        const T of_z = view.additive ? up[j] * slope : up[j] * slope * (T(1) + v[j]);
        const T of_v = view.additive ? of_z : up[j] * (at * law.cumulative);
        target[j] = of_z;
        up[j] = of_v;
      }
      for (std::int64_t i = t * k; i < (t + 1) * k; ++i) {
        const T* g = view.gain(i);
        T sum = 0;
        if (activations != nullptr) {
          const T* s = activations + view.place[i] * f;
#pragma omp simd reduction(+ : sum)
          for (std::int64_t j = 0; j < f; ++j) sum += up[j] * g[j] * s[j];
        } else {
          sum = dot(up, g, f);
        }
        gate_gradient[i] = view.scale * sum;
      }
    }
  });
  // Gradients of the gains: one thread sums each piece of an expert's columns over its routing slots, in order.
  constexpr std::int64_t piece = 256;
  const std::int64_t pieces = (f + piece - 1) / piece;
  if (in.gains.grad) {
    T* gain_gradient = in.gains.grad.data<T>();
    parallel_for(*ctx.threads, view.experts * pieces, [&](std::int64_t n) {
      const std::int64_t e = n / pieces, first = n % pieces * piece, count = std::min(piece, f - first);
      T* sums = thread_buffer<T>(0, count);
      std::fill_n(sums, count, T(0));
      for (std::int64_t row = view.offsets[e]; row < view.offsets[e + 1]; ++row) {
        const std::int64_t choice = view.order[row];
        const T weight = view.scale * view.gates[choice];
        const T* up = upstream + choice / k * f + first;
        if (activations == nullptr) {
          add_scaled(weight, up, sums, count);
          continue;
        }
        const T* s = activations + row * f + first;
#pragma omp simd
        for (std::int64_t j = 0; j < count; ++j) sums[j] += weight * up[j] * s[j];
      }
      add_scaled(T(1), sums, gain_gradient + e * f + first, count);
    });
  }
  if (activations == nullptr) return;
  for_each_block(ctx, in.plan, [&](const Block& block) {
    for (std::int64_t row = block.begin; row < block.end; ++row) {
      const std::int64_t choice = view.order[row];
      const T weight = view.scale * view.gates[choice];
      const T* up = upstream + choice / k * f;
      const T* g = view.gain(choice);
      T* s = activations + row * f;
#pragma omp simd
      for (std::int64_t j = 0; j < f; ++j) s[j] = weight * up[j] * g[j];
    }
  });
}

}  // namespace

void modulate_experts_forward(Context& ctx, const Modulation& in, Tensor& pre) {
  with_precision(ctx, [&](auto zero) { activate_experts<decltype(zero)>(ctx, in, pre); });
}

void modulate_experts_backward(Context& ctx, const Modulation& in, const Tensor& dpre, Tensor& dstates,
                               ExpertGrads* grads) {
  with_precision(ctx, [&](auto zero) { hear<decltype(zero)>(ctx, in, dpre, dstates, grads); });
}

void scatter_add_states(Context& ctx, const Modulation& in, const Tensor& rows, Tensor& dstates) {
  with_precision(ctx, [&](auto zero) { add_rows<decltype(zero)>(ctx, in, rows, dstates); });
}

void modulate_forward(Context& ctx, const Modulation& in, Tensor& pre, Tensor& h) {
  if (in.w1) cpu::modulate_experts_forward(ctx, in, pre);
  with_precision(ctx, [&](auto zero) { forward<decltype(zero)>(ctx, in, pre, h); });
}

void modulate_backward(Context& ctx, Tensor& dh, const Modulation& in, Tensor& pre, Tensor& dhidden, Tensor& dstates,
                       Tensor& dgates, ExpertGrads* grads) {
  with_precision(ctx, [&](auto zero) { backward<decltype(zero)>(ctx, dh, in, pre, dhidden, dgates); });
  if (in.w1) cpu::modulate_experts_backward(ctx, in, pre, dstates, grads);
}

}  // namespace some::cpu

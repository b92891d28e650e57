#include "ops/hadamard.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/math.h"
#include "kernels/cpu/support.h"
#include "ops/cpu/hadamard_rows.h"
#include "ops/elementwise.h"

namespace some::cpu {
namespace {

constexpr std::int64_t row_grain = 32;
// Slots of thread_buffer.
enum Slot : int { input_slot = 0, rows_slot = 1, sum_slot = 2 };

template <typename T>
void experts_forward_of(Context& ctx, const Tensor& x, const HadamardExperts& experts, const Tensor& indices,
                        const Tensor& gates, Tensor& y) {
  const std::int64_t tokens = x.dim(0), d = experts.sizes.d, f = experts.sizes.f, k = indices.dim(1);
  const std::int32_t* chosen = indices.data<std::int32_t>();
  const T* gate = gates.data<T>();
  const T factor1 = static_cast<T>(experts.sizes.scale1()), factor2 = static_cast<T>(experts.sizes.scale2());
  const HadamardRows<T> first(experts.sizes, experts.signs1()), second(experts.sizes, experts.signs2());
  parallel_chunks(*ctx.threads, tokens, row_grain, [&](std::int64_t begin, std::int64_t end) {
    T* buffer = thread_buffer<T>(input_slot, first.size());
    T* hidden = thread_buffer<T>(rows_slot, first.padded());
    T* sum = thread_buffer<T>(sum_slot, first.size());
    for (std::int64_t t = begin; t < end; ++t) {
      const T* input = first.padded_input(x.data<T>() + t * d, buffer);
      T* target = y.data<T>() + t * y.dim(1);
      std::fill_n(experts.has_w2 ? sum : target, experts.has_w2 ? first.size() : f, T(0));
      for (std::int64_t i = t * k; i < (t + 1) * k; ++i) {
        first.forward(chosen[i], input, hidden);
#pragma omp simd
        for (std::int64_t j = 0; j < f; ++j) hidden[j] *= factor1;
        gelu(hidden, hidden, f);
        if (!experts.has_w2) {
          add_scaled(gate[i], hidden, target, f);
          continue;
        }
        const T weight = gate[i] * factor2;
#pragma omp simd
        for (std::int64_t j = 0; j < f; ++j) hidden[j] *= weight;
        std::fill(hidden + f, hidden + first.padded(), T(0));
        second.add_transposed(chosen[i], hidden, sum);
      }
      if (experts.has_w2) std::copy_n(sum, d, target);
    }
  });
}

template <typename T>
void experts_backward_of(Context& ctx, const HadamardExpertsBackward& in) {
  const HadamardExperts& experts = in.experts;
  const std::int64_t tokens = in.x.dim(0), d = experts.sizes.d, f = experts.sizes.f, k = in.indices.dim(1);
  const std::int32_t* chosen = in.indices.data<std::int32_t>();
  const T* gate = in.gates.data<T>();
  T* gate_gradient = in.dgates.data<T>();
  const T factor1 = static_cast<T>(experts.sizes.scale1()), factor2 = static_cast<T>(experts.sizes.scale2());
  const HadamardRows<T> first(experts.sizes, experts.signs1()), second(experts.sizes, experts.signs2());
  parallel_chunks(*ctx.threads, tokens, row_grain, [&](std::int64_t begin, std::int64_t end) {
    T* inputs = thread_buffer<T>(input_slot, 2 * first.size());
    T* hidden = thread_buffer<T>(rows_slot, 2 * first.padded());
    T* pulled = hidden + first.padded();  // gradient of GELU(w1 x), before the gate
    T* sum = thread_buffer<T>(sum_slot, first.size());
    for (std::int64_t t = begin; t < end; ++t) {
      const T* input = first.padded_input(in.x.data<T>() + t * d, inputs);
      const T* upstream = in.dy.data<T>() + t * in.dy.dim(1);
      if (experts.has_w2) upstream = first.padded_input(upstream, inputs + first.size());
      std::fill_n(sum, first.size(), T(0));
      for (std::int64_t i = t * k; i < (t + 1) * k; ++i) {
        first.forward(chosen[i], input, hidden);
        T factor = 1;
        if (experts.has_w2) {
          second.forward(chosen[i], upstream, pulled);
          factor = factor2;
        } else {
          std::copy_n(upstream, f, pulled);
        }
        T product = 0;
        const T weight = gate[i] * factor1;
#pragma omp simd reduction(+ : product)
        for (std::int64_t j = 0; j < f; ++j) {
          const T pre = factor1 * hidden[j], pull = factor * pulled[j];
          const NormalDistribution<T> law = normal_distribution(pre);
          product += pull * (pre * law.cumulative);
          pulled[j] = weight * pull * (law.cumulative + pre * law.density);
        }
        gate_gradient[i] = product;
        std::fill(pulled + f, pulled + first.padded(), T(0));
        first.add_transposed(chosen[i], pulled, sum);
      }
      T* target = in.dx.data<T>() + t * d;
      if (in.into == Into::add)
        add_scaled(T(1), sum, target, d);
      else
        std::copy_n(sum, d, target);
    }
  });
}

// Inputs of the modulating experts, as plain pointers.
template <typename T>
struct View {
  const HadamardExperts& experts;
  std::int64_t tokens, d, f, k, width, token_shift;  // width: of the table of rows
  const T *hidden, *states, *gates, *gains;
  const std::int32_t *rows, *chosen;
  T scale;  // of the modulation, including the factor of the transforms
  bool additive;
  HadamardRows<T> matrix;

  explicit View(const Modulation& in)
      : experts(in.hadamard),
        tokens(in.routing.indices.dim(0)),
        d(in.hadamard.sizes.d),
        f(in.hadamard.sizes.f),
        k(in.routing.indices.dim(1)),
        width(in.token_shift > 0 ? in.rows.dim(1) : 0),
        token_shift(in.token_shift),
        hidden(in.hidden.data<T>()),
        states(in.states.data<T>()),
        gates(in.routing.gates.data<T>()),
        gains(in.gains.value.data<T>()),
        rows(in.token_shift > 0 ? in.rows.data<std::int32_t>() : nullptr),
        chosen(in.routing.indices.data<std::int32_t>()),
        scale(static_cast<T>(in.scale * in.hadamard.sizes.scale1())),
        additive(in.additive),
        matrix(in.hadamard.sizes, in.hadamard.signs1()) {}

  std::int64_t back(std::int64_t slot) const { return token_shift > 0 ? 1 + chosen[slot] % token_shift : 0; }
  const T* gain(std::int64_t slot) const { return gains + chosen[slot] * f; }
  // Computes the activations of a routing slot, without the transforms' factor; false if its expert reads no state.
  bool compute_activations(std::int64_t slot, T* buffer, T* out) const {
    const std::int64_t t = slot / k, from = rows != nullptr ? rows[t * width + back(slot)] : t;
    if (from < 0) return false;
    matrix.forward(chosen[slot], matrix.padded_input(states + from * d, buffer), out);
    return true;
  }
  void modulation(std::int64_t t, T* v) const {
    T* buffer = thread_buffer<T>(input_slot, matrix.size());
    T* activations = thread_buffer<T>(rows_slot, matrix.padded());
    std::fill_n(v, f, T(0));
    for (std::int64_t i = t * k; i < (t + 1) * k; ++i) {
      if (!compute_activations(i, buffer, activations)) continue;
      const T weight = scale * gates[i];
      const T* g = gain(i);
#pragma omp simd
      for (std::int64_t j = 0; j < f; ++j) v[j] += weight * g[j] * activations[j];
    }
  }
};

template <typename T>
void modulate_forward_of(Context& ctx, const Modulation& in, Tensor& kept, Tensor& h) {
  const View<T> view(in);
  const std::int64_t f = view.f;
  parallel_chunks(*ctx.threads, view.tokens, row_grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      T* v = kept ? kept.data<T>() + t * f : thread_buffer<T>(sum_slot, f);
      view.modulation(t, v);
      const T* z = view.hidden + t * f;
      T* target = h.data<T>() + t * f;
      if (view.additive) {
#pragma omp simd
        for (std::int64_t j = 0; j < f; ++j) target[j] = z[j] + v[j];
        gelu(target, target, f);
      } else {
        gelu(z, target, f);
#pragma omp simd
        for (std::int64_t j = 0; j < f; ++j) target[j] *= T(1) + v[j];
      }
    }
  });
}

// Turns dh into the gradient of V, and computes that of the hidden layer.
template <typename T>
void through_activation(Context& ctx, const View<T>& view, const Tensor& kept, Tensor& dh, Tensor& dhidden) {
  const std::int64_t f = view.f;
  parallel_chunks(*ctx.threads, view.tokens, row_grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const T* v = kept ? kept.data<T>() + t * f : nullptr;
      if (v == nullptr) {
        T* computed = thread_buffer<T>(sum_slot, f);
        view.modulation(t, computed);
        v = computed;
      }
      const T* z = view.hidden + t * f;
      T* up = dh.data<T>() + t * f;
      T* target = dhidden.data<T>() + t * f;
#pragma omp simd
      for (std::int64_t j = 0; j < f; ++j) {
        const T at = view.additive ? z[j] + v[j] : z[j];
        const NormalDistribution<T> law = normal_distribution(at);
        const T of_z = up[j] * (law.cumulative + at * law.density);
        target[j] = view.additive ? of_z : of_z * (T(1) + v[j]);
        up[j] = view.additive ? of_z : up[j] * (at * law.cumulative);
      }
    }
  });
}

// Computes the gates' gradients and adds those of the gains. The routing slots are sorted by expert; each block of
// slots has sums of its own, which are added in order.
template <typename T>
void gate_and_gain_gradients(Context& ctx, const View<T>& view, const Modulation& in, const Tensor& dv,
                             Tensor& dgates) {
  struct Block {
    std::int64_t expert, begin, end;  // range of sorted routing slots
  };
  constexpr std::int64_t largest = 128;
  const std::int64_t f = view.f, k = view.k;
  ArenaScope scope(*ctx.arena);
  const DispatchPlan plan = cpu::make_dispatch(ctx, in.routing.indices, view.experts.experts, Tensor());
  const std::int32_t* order = plan.order.data<std::int32_t>();
  std::vector<Block> blocks;
  for (std::int64_t begin = 0, slots = view.tokens * k; begin < slots;) {
    const std::int64_t expert = view.chosen[order[begin]],
                       end = std::min<std::int64_t>(begin + largest, plan.offsets.data<std::int32_t>()[expert + 1]);
    blocks.push_back({expert, begin, end});
    begin = end;
  }
  const bool learns = static_cast<bool>(in.gains.grad);
  const auto count = static_cast<std::int64_t>(blocks.size());
  T* sums = learns ? ctx.scratch({count, f}).template data<T>() : nullptr;
  parallel_for(*ctx.threads, count, [&](std::int64_t b) {
    const Block& block = blocks[static_cast<std::size_t>(b)];
    T* buffer = thread_buffer<T>(input_slot, view.matrix.size());
    T* activations = thread_buffer<T>(rows_slot, view.matrix.padded());
    T* sum = learns ? sums + b * f : thread_buffer<T>(sum_slot, f);
    std::fill_n(sum, f, T(0));
    for (std::int64_t place = block.begin; place < block.end; ++place) {
      const std::int64_t slot = order[place];
      T product = 0;
      if (view.compute_activations(slot, buffer, activations)) {
        const T* up = dv.data<T>() + slot / k * f;
        const T* g = view.gain(slot);
        const T weight = view.scale * view.gates[slot];
#pragma omp simd reduction(+ : product)
        for (std::int64_t j = 0; j < f; ++j) {
          const T pair = up[j] * activations[j];
          product += pair * g[j];
          sum[j] += weight * pair;
        }
      }
      dgates.data<T>()[slot] = view.scale * product;
    }
  });
  if (!learns) return;
  parallel_for(*ctx.threads, count, [&](std::int64_t b) {
    const std::int64_t expert = blocks[static_cast<std::size_t>(b)].expert;
    if (b > 0 && blocks[static_cast<std::size_t>(b - 1)].expert == expert) return;  // the first block adds them all
    for (std::int64_t other = b; other < count && blocks[static_cast<std::size_t>(other)].expert == expert; ++other)
      add_scaled(T(1), sums + other * f, in.gains.grad.data<T>() + expert * f, f);
  });
}

template <typename T>
void state_gradients(Context& ctx, const View<T>& view, const Tensor& dv, Tensor& dstates) {
  const std::int64_t d = view.d, f = view.f, k = view.k;
  parallel_chunks(*ctx.threads, view.tokens, row_grain, [&](std::int64_t begin, std::int64_t end) {
    T* gradient = thread_buffer<T>(rows_slot, view.matrix.padded());
    T* sum = thread_buffer<T>(sum_slot, view.matrix.size());
    for (std::int64_t t = begin; t < end; ++t) {
      std::fill_n(sum, view.matrix.size(), T(0));
      // Routing slots that have read the state of t: its own slots, or those of later tokens with this token shift.
      for (std::int64_t back = view.token_shift > 0 ? 1 : 0; back <= view.token_shift; ++back) {
        const std::int64_t later = t + back;
        if (later >= view.tokens || (back > 0 && view.rows[later * view.width + back] != t)) continue;
        const T* up = dv.data<T>() + later * f;
        for (std::int64_t slot = later * k; slot < (later + 1) * k; ++slot) {
          if (view.back(slot) != back) continue;
          const T weight = view.scale * view.gates[slot];
          const T* g = view.gain(slot);
#pragma omp simd
          for (std::int64_t j = 0; j < f; ++j) gradient[j] = weight * up[j] * g[j];
          std::fill(gradient + f, gradient + view.matrix.padded(), T(0));
          view.matrix.add_transposed(view.chosen[slot], gradient, sum);
        }
      }
      add_scaled(T(1), sum, dstates.data<T>() + t * d, d);
    }
  });
}

}  // namespace

void hadamard_experts_forward(Context& ctx, const Tensor& x, const HadamardExperts& experts, const Tensor& indices,
                              const Tensor& gates, Tensor& y) {
  with_precision(ctx, [&](auto zero) { experts_forward_of<decltype(zero)>(ctx, x, experts, indices, gates, y); });
}

void hadamard_experts_backward(Context& ctx, const HadamardExpertsBackward& in) {
  with_precision(ctx, [&](auto zero) { experts_backward_of<decltype(zero)>(ctx, in); });
}

// One row per token saves recomputing the activations of all its experts.
bool hadamard_keeps_modulation(Context&) { return true; }

void hadamard_modulate_forward(Context& ctx, const Modulation& in, Tensor& v, Tensor& h) {
  with_precision(ctx, [&](auto zero) { modulate_forward_of<decltype(zero)>(ctx, in, v, h); });
}

std::int64_t hadamard_modulate_width(Context&, const HadamardExperts& experts) { return experts.sizes.f; }

DispatchPlan hadamard_modulate_plan(Context&, const Modulation&) { return {}; }

void hadamard_modulate_backward(Context& ctx, Tensor& dh, const Modulation& in, const Tensor& v, Tensor& dhidden,
                                Tensor& dstates, Tensor& dgates, Schedule*) {
  with_precision(ctx, [&](auto zero) {
    using T = decltype(zero);
    const View<T> view(in);
    through_activation(ctx, view, v, dh, dhidden);
    gate_and_gain_gradients(ctx, view, in, dh, dgates);
    state_gradients(ctx, view, dh, dstates);
  });
}

}  // namespace some::cpu

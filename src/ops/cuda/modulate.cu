// Modulated hidden layer on the GPU.
//
// Forward, the experts' grouped GEMM writes the activations of each routing slot, 2*T*k*f bytes in bf16, and one kernel
// reads them together with z and writes h. Backward takes two kernels. One works by token: it recomputes V, and
// computes the gradients of z, V and the gates. The other works by expert: it computes the gradients of the gains and,
// in place, of the experts' activations; sums over an expert's routing slots are taken within each tile and then over
// its tiles, in order. A grouped GEMM computes the gradient of the states.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/toolkit.cuh"
#include "kernels/gemm/grouped_gemm.h"
#include "ops/modulate.h"

namespace some::cuda {
namespace {

constexpr int threads = 256, warps = threads / warp_size;
constexpr int together = 4;  // routing slots whose loads are in flight at a time

// Inputs of the kernels.
template <typename T>
struct View {
  const T* hidden;
  const T* activations;  // [T*k, f] in plan order, or null
  const std::int32_t *indices, *place, *order;
  const float *gates, *gains;
  unsigned tokens;
  int choices, columns;
  float scale;
};

// Computes v = the token's V in the WIDTH columns starting at `column`.
template <typename T, int WIDTH>
__device__ __forceinline__ void modulation(const View<T>& view, std::int64_t token, int column, float (&v)[WIDTH]) {
#pragma unroll
  for (int c = 0; c < WIDTH; ++c) v[c] = 0.0f;
  for (int first = 0; first < view.choices; first += together) {
    float activations[together][WIDTH], gain[together][WIDTH], weight[together];
#pragma unroll
    for (int i = 0; i < together; ++i) {
      if (first + i >= view.choices) break;
      const std::int64_t choice = token * view.choices + first + i;
      weight[i] = view.scale * view.gates[choice];
      load_elements<WIDTH>(view.gains + static_cast<std::int64_t>(view.indices[choice]) * view.columns + column,
                           gain[i]);
      if (view.activations != nullptr)
        load_elements<WIDTH>(view.activations + static_cast<std::int64_t>(view.place[choice]) * view.columns + column,
                             activations[i]);
    }
#pragma unroll
    for (int i = 0; i < together; ++i) {
      if (first + i >= view.choices) break;
#pragma unroll
      for (int c = 0; c < WIDTH; ++c)
        v[c] = fmaf(weight[i] * gain[i][c], view.activations != nullptr ? activations[i][c] : 1.0f, v[c]);
    }
  }
}

// Each thread handles WIDTH adjacent columns of one token.
template <typename T, int WIDTH>
__global__ void __launch_bounds__(threads) forward_kernel(const View<T> view, bool additive, T* h) {
  wait_previous_kernel();
  const unsigned pieces = static_cast<unsigned>(view.columns / WIDTH), index = blockIdx.x * threads + threadIdx.x;
  if (index >= view.tokens * pieces) return;
  const std::int64_t token = index / pieces;
  const int column = static_cast<int>(index % pieces) * WIDTH;
  float v[WIDTH], z[WIDTH];
  modulation<T, WIDTH>(view, token, column, v);
  load_elements<WIDTH>(view.hidden + token * view.columns + column, z);
#pragma unroll
  for (int c = 0; c < WIDTH; ++c)
    z[c] = additive ? gelu_of<T>(z[c] + v[c]).value : gelu_of<T>(z[c]).value * (1.0f + v[c]);
  store_elements<WIDTH>(h + token * view.columns + column, z);
}

// Computes dz and the gradients of the gates, and replaces dh by dV; one warp per token.
template <typename T, int WIDTH>
__global__ void __launch_bounds__(threads)
    token_backward_kernel(const View<T> view, bool additive, T* dh, T* dhidden, float* dgates) {
  wait_previous_kernel();
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / warp_size;
  if (token >= view.tokens) return;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  T* const upstream = dh + token * view.columns;
  for (int column = lane * WIDTH; column < view.columns; column += warp_size * WIDTH) {
    float v[WIDTH], z[WIDTH], up[WIDTH], dz[WIDTH];
    modulation<T, WIDTH>(view, token, column, v);
    load_elements<WIDTH>(view.hidden + token * view.columns + column, z);
    load_elements<WIDTH>(upstream + column, up);
#pragma unroll
    for (int c = 0; c < WIDTH; ++c) {
      const Gelu gelu = gelu_of<T>(additive ? z[c] + v[c] : z[c]);
      dz[c] = up[c] * gelu.derivative * (additive ? 1.0f : 1.0f + v[c]);
      up[c] = additive ? dz[c] : up[c] * gelu.value;
    }
    store_elements<WIDTH>(dhidden + token * view.columns + column, dz);
    store_elements<WIDTH>(upstream + column, up);
  }
  // Every lane reads only what it wrote itself, so no barrier is needed.
  for (int first = 0; first < view.choices; first += together) {
    float sums[together] = {};
    for (int column = lane * WIDTH; column < view.columns; column += warp_size * WIDTH) {
      float up[WIDTH];
      load_elements<WIDTH>(upstream + column, up);
#pragma unroll
      for (int i = 0; i < together; ++i) {
        if (first + i >= view.choices) break;
        const std::int64_t choice = token * view.choices + first + i;
        float gain[WIDTH], activations[WIDTH];
        load_elements<WIDTH>(view.gains + static_cast<std::int64_t>(view.indices[choice]) * view.columns + column,
                             gain);
        if (view.activations != nullptr)
          load_elements<WIDTH>(view.activations + static_cast<std::int64_t>(view.place[choice]) * view.columns + column,
                               activations);
#pragma unroll
        for (int c = 0; c < WIDTH; ++c)
          sums[i] = fmaf(up[c] * gain[c], view.activations != nullptr ? activations[c] : 1.0f, sums[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < together; ++i) {
      const float sum = warp_sum(sums[i]);
      if (lane == 0 && first + i < view.choices) dgates[token * view.choices + first + i] = view.scale * sum;
    }
  }
}

// Block (x, y) handles the 32*WIDTH columns starting at x*32*WIDTH of tile y; each warp takes every eighth row. It
// replaces `activations` by its gradient and, unless partials is null, sets partials[y, column] to the tile's part of
// the gradient of its expert's gains.
template <typename T, int WIDTH>
__global__ void __launch_bounds__(threads)
    expert_backward_kernel(const View<T> view, const Tile* tiles, const T* dv, T* activations, float* partials) {
  wait_previous_kernel();
  constexpr int block_columns = warp_size * WIDTH;
  __shared__ float shared[warps][block_columns + 1];
  if (static_cast<int>(blockIdx.y) >= tiles[0].group) return;
  const Tile tile = tiles[1 + blockIdx.y];
  const int lane = static_cast<int>(threadIdx.x) % warp_size, warp = static_cast<int>(threadIdx.x) / warp_size;
  const int first = static_cast<int>(blockIdx.x) * block_columns, column = first + lane * WIDTH;
  float sum[WIDTH] = {};
  if (column < view.columns) {
    float gain[WIDTH];
    load_elements<WIDTH>(view.gains + static_cast<std::int64_t>(tile.group) * view.columns + column, gain);
#pragma unroll(WIDTH <= 4 ? 4 : 2)
    for (std::int64_t row = tile.begin + warp; row < tile.end; row += warps) {
      const int choice = view.order[row];
      const float weight = view.scale * view.gates[choice];
      float up[WIDTH], values[WIDTH];
      load_elements<WIDTH>(dv + static_cast<std::int64_t>(choice / view.choices) * view.columns + column, up);
      if (activations != nullptr) load_elements<WIDTH>(activations + row * view.columns + column, values);
#pragma unroll
      for (int c = 0; c < WIDTH; ++c) {
        const float part = weight * up[c];
        sum[c] = fmaf(part, activations != nullptr ? values[c] : 1.0f, sum[c]);
        values[c] = part * gain[c];
      }
      if (activations != nullptr) store_elements<WIDTH>(activations + row * view.columns + column, values);
    }
  }
  if (partials == nullptr) return;
#pragma unroll
  for (int c = 0; c < WIDTH; ++c) shared[warp][lane * WIDTH + c] = sum[c];
  __syncthreads();
  const int here = min(block_columns, view.columns - first);
  for (int c = static_cast<int>(threadIdx.x); c < here; c += threads) {
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < warps; ++w) total += shared[w][c];
    partials[static_cast<std::int64_t>(blockIdx.y) * view.columns + first + c] = total;
  }
}

// Block (x, y) adds the parts from expert y's tiles to gradient[y], in order.
__global__ void __launch_bounds__(threads)
    gains_kernel(const Tile* tiles, const float* partials, int columns, float* gradient) {
  wait_previous_kernel();
  const int column = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x),
            expert = static_cast<int>(blockIdx.y);
  if (column >= columns) return;
  const int count = tiles[0].group;
  float sum = 0.0f;
  bool any = false;
  for (int tile = 0; tile < count; ++tile) {
    if (tiles[1 + tile].group != expert) continue;
    sum += partials[static_cast<std::int64_t>(tile) * columns + column];
    any = true;
  }
  if (any) gradient[static_cast<std::int64_t>(expert) * columns + column] += sum;
}

// Returns the token shift of an expert.
__device__ __forceinline__ int back_of(int expert, int token_shift) {
  return token_shift > 0 ? 1 + expert % token_shift : 0;
}

// Sets inputs[row] to the state that the row's routing slot reads.
template <typename T, int WIDTH>
__global__ void __launch_bounds__(threads)
    gather_kernel(const T* states, const std::int32_t* rows, const std::int32_t* order, const std::int32_t* indices,
                  std::int64_t count, int choices, int width, int token_shift, int d, T* inputs) {
  wait_previous_kernel();
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  const int pieces = d / WIDTH;
  if (index >= count * pieces) return;
  const std::int64_t row = index / pieces;
  const int column = static_cast<int>(index % pieces) * WIDTH, choice = order[row];
  const std::int64_t from =
      rows[static_cast<std::int64_t>(choice / choices) * width + back_of(indices[choice], token_shift)];
  float values[WIDTH] = {};
  if (from >= 0) load_elements<WIDTH>(states + from * d + column, values);
  store_elements<WIDTH>(inputs + row * d + column, values);
}

// Adds to target[t] the rows of all routing slots that have read the state of token t, those of the nearest token
// first.
template <typename T, int WIDTH>
__global__ void __launch_bounds__(threads)
    listeners_kernel(const T* gradients, const std::int32_t* rows, const std::int32_t* place,
                     const std::int32_t* indices, std::int64_t tokens, int choices, int width, int token_shift, int d,
                     T* target) {
  wait_previous_kernel();
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  const int pieces = d / WIDTH;
  if (index >= tokens * pieces) return;
  const std::int64_t t = index / pieces;
  const int column = static_cast<int>(index % pieces) * WIDTH;
  float sum[WIDTH];
  load_elements<WIDTH>(target + t * d + column, sum);
  for (int back = token_shift > 0 ? 1 : 0; back <= token_shift; ++back) {
    const std::int64_t later = t + back;
    if (later >= tokens || (back > 0 && rows[later * width + back] != t)) continue;
    for (std::int64_t i = later * choices; i < (later + 1) * choices; ++i) {
      if (back_of(indices[i], token_shift) != back) continue;
      float values[WIDTH];
      load_elements<WIDTH>(gradients + static_cast<std::int64_t>(place[i]) * d + column, values);
#pragma unroll
      for (int c = 0; c < WIDTH; ++c) sum[c] += values[c];
    }
  }
  store_elements<WIDTH>(target + t * d + column, sum);
}

template <typename T>
View<T> view_of(const Modulation& in, const Tensor& pre) {
  return {elements_of<T>(in.hidden),
          pre ? elements_of<T>(pre) : nullptr,
          ints(in.routing.indices),
          ints(in.plan.place),
          ints(in.plan.order),
          floats(in.routing.gates),
          floats(in.gains.value),
          static_cast<unsigned>(in.hidden.dim(0)),
          static_cast<int>(in.routing.gates.dim(1)),
          static_cast<int>(in.hidden.dim(1)),
          static_cast<float>(in.scale)};
}

// Calls function.operator()<T, WIDTH>(). WIDTH is 16 bytes if sizes and addresses allow it, otherwise 4 elements or 1.
template <typename Function>
void by_width(DType type, std::int64_t columns, bool aligned, Function&& function) {
  with_real_type(type, "a modulated layer", [&](auto zero) {
    using T = decltype(zero);
    if (aligned && columns % vector_width<T> == 0)
      function.template operator()<T, vector_width<T>>();
    else if (aligned && columns % 4 == 0)
      function.template operator()<T, 4>();
    else
      function.template operator()<T, 1>();
  });
}

// Returns the input of the experts' GEMM: with token shift, the state for each routing slot in plan order (gather = 0);
// otherwise the states of the tokens, from which the GEMM gathers (gather = routing slots per token).
Tensor inputs_of(Context& ctx, const Modulation& in, int& gather) {
  const int choices = static_cast<int>(in.routing.gates.dim(1));
  gather = choices;
  if (in.token_shift == 0) return in.states;
  gather = 0;
  const std::int64_t count = in.plan.order.elements(), d = in.states.dim(1);
  const Tensor inputs = ctx.scratch({count, d});
  by_width(ctx.compute, d, all_aligned16(in.states.raw(), inputs.raw()), [&]<typename T, int WIDTH>() {
    launch_dependent(ctx, gather_kernel<T, WIDTH>, grid_for(count * (d / WIDTH), threads), threads, 0,
                     elements_of<T>(in.states), ints(in.rows), ints(in.plan.order), ints(in.routing.indices), count,
                     choices, static_cast<int>(in.rows.dim(1)), in.token_shift, static_cast<int>(d),
                     elements_of<T>(inputs));
  });
  return inputs;
}

GroupedGemm product_of(const Context& ctx, const Modulation& in, const Tensor& tiles) {
  GroupedGemm product;
  product.type = ctx.compute;
  product.rows = in.plan.order.elements();
  product.groups = in.plan.experts;
  product.tiles = static_cast<const Tile*>(tiles.raw());
  product.order = ints(in.plan.order);
  product.b = in.w1.raw();
  return product;
}

bool aligned(const Modulation& in, const Tensor& pre, const Tensor& other) {
  return all_aligned16(in.hidden.raw(), in.gains.value.raw(), other.raw()) && (!pre || aligned16(pre.raw()));
}

}  // namespace

void modulate_experts_forward(Context& ctx, const Modulation& in, Tensor& pre) {
  if (in.plan.order.elements() == 0) return;
  const ArenaScope scope(*ctx.arena);
  int gather = 0;
  const Tensor inputs = inputs_of(ctx, in, gather);
  GroupedGemm product = product_of(ctx, in, tile_table(ctx, in.plan));
  product.a = inputs.raw();
  product.gather = gather;
  product.columns = in.w1.dim(1);
  product.depth = in.states.dim(1);
  product.result = pre.raw();
  launch_grouped_gemm(ctx, product);
}

void modulate_forward(Context& ctx, const Modulation& in, Tensor& pre, Tensor& h) {
  const std::int64_t tokens = in.hidden.dim(0), f = in.hidden.dim(1);
  if (tokens == 0) return;
  if (tokens * f >= std::int64_t{1} << 31)
    failed(Code::size_unsupported, "a batch of {} tokens is too large for the GPU's experts", tokens);
  if (in.w1) cuda::modulate_experts_forward(ctx, in, pre);
  by_width(ctx.compute, f, aligned(in, pre, h), [&]<typename T, int WIDTH>() {
    launch_dependent(ctx, forward_kernel<T, WIDTH>, grid_for(tokens * (f / WIDTH), threads), threads, 0,
                     view_of<T>(in, pre), in.additive, elements_of<T>(h));
  });
}

void scatter_add_states(Context& ctx, const Modulation& in, const Tensor& rows, Tensor& dstates) {
  const std::int64_t tokens = in.routing.gates.dim(0), d = rows.dim(1);
  if (tokens == 0) return;
  const int choices = static_cast<int>(in.routing.gates.dim(1));
  by_width(ctx.compute, d, all_aligned16(rows.raw(), dstates.raw()), [&]<typename T, int WIDTH>() {
    launch_dependent(ctx, listeners_kernel<T, WIDTH>, grid_for(tokens * (d / WIDTH), threads), threads, 0,
                     elements_of<T>(rows), in.token_shift > 0 ? ints(in.rows) : nullptr, ints(in.plan.place),
                     ints(in.routing.indices), tokens, choices,
                     in.token_shift > 0 ? static_cast<int>(in.rows.dim(1)) : 0, in.token_shift, static_cast<int>(d),
                     elements_of<T>(dstates));
  });
}

void modulate_experts_backward(Context& ctx, const Modulation& in, const Tensor& dpre, Tensor& dstates,
                               ExpertGrads* grads) {
  const std::int64_t count = in.plan.order.elements(), d = in.states.dim(1), f = in.w1.dim(1);
  if (count == 0) return;
  const ArenaScope scope(*ctx.arena);
  Tensor row_gradients = ctx.scratch({count, d});
  GroupedGemm product = product_of(ctx, in, tile_table(ctx, in.plan));
  product.a = dpre.raw();
  product.b_transposed = true;
  product.columns = d;
  product.depth = f;
  product.result = row_gradients.raw();
  launch_grouped_gemm(ctx, product);
  if (grads != nullptr && grads->w1) {
    GroupedGradientGemm outer;
    outer.type = ctx.compute;
    outer.order = ints(in.plan.order);
    outer.offsets = ints(in.plan.offsets);
    outer.groups = in.plan.experts;
    outer.u = dpre.raw();
    const Tensor inputs = inputs_of(ctx, in, outer.v_gather);
    outer.v = inputs.raw();
    outer.m = f;
    outer.n = d;
    outer.target = floats(grads->w1);
    launch_grouped_gradient_gemm(ctx, outer);
  }
  cuda::scatter_add_states(ctx, in, row_gradients, dstates);
}

void modulate_backward(Context& ctx, Tensor& dh, const Modulation& in, Tensor& pre, Tensor& dhidden, Tensor& dstates,
                       Tensor& dgates, ExpertGrads* grads) {
  const std::int64_t tokens = in.hidden.dim(0), f = in.hidden.dim(1), count = in.plan.order.elements();
  if (tokens == 0) return;
  const ArenaScope scope(*ctx.arena);
  const Tensor tiles = tile_table(ctx, in.plan);
  const auto* const table = static_cast<const Tile*>(tiles.raw());
  const std::int64_t max_tiles = tile_table_entries(count, in.plan.experts) - 1;
  float* const partials = in.gains.grad ? floats(ctx.scratch({max_tiles, f}, DType::f32)) : nullptr;
  const bool wide = aligned(in, pre, dh) && aligned16(dhidden.raw());
  by_width(ctx.compute, f, wide, [&]<typename T, int WIDTH>() {
    const View<T> view = view_of<T>(in, pre);
    launch_dependent(ctx, token_backward_kernel<T, WIDTH>, grid_for(tokens, warps), threads, 0, view, in.additive,
                     elements_of<T>(dh), elements_of<T>(dhidden), floats(dgates));
    if (partials == nullptr && !pre) return;
    launch_dependent(ctx, expert_backward_kernel<T, WIDTH>,
                     dim3(grid_for(f, warp_size * WIDTH), static_cast<unsigned>(max_tiles)), threads, 0, view, table,
                     elements_of<T>(dh), pre ? elements_of<T>(pre) : nullptr, partials);
  });
  if (partials != nullptr) {
    launch_dependent(ctx, gains_kernel, dim3(grid_for(f, threads), static_cast<unsigned>(in.plan.experts)), threads, 0,
                     table, partials, static_cast<int>(f), floats(in.gains.grad));
  }
  if (in.w1) cuda::modulate_experts_backward(ctx, in, pre, dstates, grads);
}

}  // namespace some::cuda

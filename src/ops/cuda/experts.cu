// Mixture of experts on the GPU (spec 3.5): two grouped GEMMs forward, two backward, and the steps that connect them.
//
// Forward, for T tokens with k routing slots each, pre = w1 x is written once (the backward pass needs it) together
// with its GELU, which the second GEMM reads. Outputs are then summed token by token, weighted by their gates, in the
// order of the routing slots, so that no result depends on timing. Storing the GELU costs 2*T*k*f bytes, written and
// read; recomputing it while the second GEMM loads would cost its arithmetic once per column tile. Backward, the
// gradients of the gate and of the GELU are computed while the result of the first GEMM is still in registers.
#include <vector>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/primitives.cuh"
#include "kernels/gemm/grouped_gemm.h"
#include "ops/cuda/low_rank.h"
#include "ops/experts.h"
#include "ops/router_backward.h"
#include "runtime/schedule.h"

namespace some::cuda {
namespace {

// Adjacent numbers that are read and written in one access.
template <typename T, int kWidth>
struct alignas(kWidth * sizeof(T)) Piece {
  T values[kWidth];
};

// Computes target[t] (+)= sum_i gate[t, i] * rows[place[t, i]], with kWidth adjacent columns per thread. kGelu: sums
// GELU(rows).
template <typename T, int kWidth, bool kGelu, bool kAdd>
__global__ void __launch_bounds__(256)
    combine_kernel(const T* __restrict__ rows, const std::int32_t* __restrict__ place, const float* __restrict__ gates,
                   unsigned tokens, int choices, int columns, T* __restrict__ target) {
  wait_previous_kernel();
  const unsigned pieces = columns / kWidth, index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= tokens * pieces) return;
  const std::int64_t token = index / pieces;
  const int column = static_cast<int>(index % pieces) * kWidth;
  using Columns = Piece<T, kWidth>;
  float sums[kWidth] = {};
  constexpr int together = 4;  // rows whose loads are in flight at a time
  for (int first = 0; first < choices; first += together) {
    Columns pieces_of[together];
    float weights[together];
#pragma unroll
    for (int i = 0; i < together; ++i) {
      weights[i] = 0.f;
      if (first + i < choices) {
        const std::int64_t choice = token * choices + first + i, row = place[choice];
        weights[i] = gates != nullptr ? gates[choice] : 1.f;
        pieces_of[i] = *reinterpret_cast<const Columns*>(rows + row * columns + column);
      }
    }
#pragma unroll
    for (int i = 0; i < together; ++i) {
      if (first + i < choices) {
#pragma unroll
        for (int c = 0; c < kWidth; ++c) {
          const float value = to_f32(pieces_of[i].values[c]);
          sums[c] = fmaf(weights[i], kGelu ? gelu_of<T>(value).value : value, sums[c]);
        }
      }
    }
  }
  Columns* const out = reinterpret_cast<Columns*>(target + token * columns + column);
  Columns piece;
  if constexpr (kAdd) {
    piece = *out;
#pragma unroll
    for (int c = 0; c < kWidth; ++c) sums[c] += to_f32(piece.values[c]);
  }
#pragma unroll
  for (int c = 0; c < kWidth; ++c) piece.values[c] = from_f32<T>(sums[c]);
  *out = piece;
}

template <bool kGelu, bool kAdd>
void combine(Context& ctx, const Tensor& rows, const Tensor& place, const float* gates, int choices, Tensor& target) {
  const std::int64_t tokens = target.dim(0), columns = target.dim(1);
  const auto launch = [&]<typename T, int kWidth>() {
    launch_dependent(ctx, combine_kernel<T, kWidth, kGelu, kAdd>, grid_for(tokens * (columns / kWidth), 256), 256, 0,
                     static_cast<const T*>(rows.raw()), place.data<std::int32_t>(), gates,
                     static_cast<unsigned>(tokens), choices, static_cast<int>(columns), static_cast<T*>(target.raw()));
  };
  if (tokens * columns >= std::int64_t{1} << 31)
    failed(Code::size_unsupported, "a batch of {} tokens is too large for the GPU's experts", tokens);
  const bool wide =
      (reinterpret_cast<std::uintptr_t>(target.raw()) | reinterpret_cast<std::uintptr_t>(rows.raw())) % 16 == 0;
  if (rows.dtype() == DType::bf16) {
    if (columns % 8 == 0 && wide) return launch.template operator()<bf16, 8>();
    return launch.template operator()<bf16, 1>();
  }
  if (columns % 4 == 0 && wide) return launch.template operator()<float, 4>();
  return launch.template operator()<float, 1>();
}

// Sets dgates[i] to the sum of its row's partial sums, added in order.
__global__ void __launch_bounds__(256)
    gate_gradient_kernel(const float* __restrict__ parts, const std::int32_t* __restrict__ place, int slots,
                         std::int64_t count, float* __restrict__ dgates) {
  wait_previous_kernel();
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= count) return;
  const float* part = parts + static_cast<std::int64_t>(place[index]) * slots;
  float sum = 0.f;
  for (int slot = 0; slot < slots; ++slot) sum += part[slot];
  dgates[index] = sum;
}

// Computes dgates from stored outputs: dgates[t, i] = dot product of dy[t] and the outputs of routing slot (t, i). One
// warp per token, four routing slots at a time, so that five loads are in flight together.
template <typename T, int kWidth>
__global__ void __launch_bounds__(256) gate_products_kernel(const T* __restrict__ dy, const T* __restrict__ outputs,
                                                            const std::int32_t* __restrict__ place, std::int64_t tokens,
                                                            int choices, int columns, float* __restrict__ dgates) {
  wait_previous_kernel();
  constexpr int each = 4;
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * 8 + threadIdx.x / 32;
  if (token >= tokens) return;
  const int lane = threadIdx.x & 31;
  const T* const upstream = dy + token * columns;
  for (int first = 0; first < choices; first += each) {
    const T* rows[each];
    float sums[each] = {};
#pragma unroll
    for (int i = 0; i < each; ++i)
      rows[i] = outputs + static_cast<std::int64_t>(place[token * choices + min(first + i, choices - 1)]) * columns;
#pragma unroll 2
    for (int column = lane * kWidth; column < columns; column += 32 * kWidth) {
      const auto left = *reinterpret_cast<const Piece<T, kWidth>*>(upstream + column);
      Piece<T, kWidth> right[each];
#pragma unroll
      for (int i = 0; i < each; ++i) right[i] = *reinterpret_cast<const Piece<T, kWidth>*>(rows[i] + column);
#pragma unroll
      for (int i = 0; i < each; ++i) {
#pragma unroll
        for (int c = 0; c < kWidth; ++c) sums[i] = fmaf(to_f32(left.values[c]), to_f32(right[i].values[c]), sums[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < each; ++i) {
#pragma unroll
      for (int offset = 16; offset > 0; offset /= 2) sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], offset);
      if (lane == 0 && first + i < choices) dgates[token * choices + first + i] = sums[i];
    }
  }
}

// Backward pass through GELU for some columns of a row: `row` becomes gate * upstream * GELU'(row). Returns `sum` plus
// the dot product of upstream and GELU(row).
template <typename T, int kWidth>
__device__ __forceinline__ float through_gelu(const Piece<T, kWidth>& upstream, float gate, Piece<T, kWidth>& row,
                                              float sum) {
#pragma unroll
  for (int c = 0; c < kWidth; ++c) {
    const float above = to_f32(upstream.values[c]);
    const Gelu gelu = gelu_of<T>(to_f32(row.values[c]));
    sum = fmaf(above, gelu.value, sum);
    row.values[c] = from_f32<T>(gate * above * gelu.derivative);
  }
  return sum;
}

// Backward pass without w2: dgate = dot product of dy and GELU(pre), and pre becomes gate * dy * GELU'(pre); one warp
// per row, kWidth columns per lane. With a low-rank correction of kRanks ranks, it also computes pulled = b^T times the
// new pre, which saves reading it again; a block then belongs to one expert, with sixteen blocks per tile of rows.
template <typename T, int kWidth, int kRanks>
__global__ void __launch_bounds__(256)
    features_backward_kernel(const T* __restrict__ dy, const std::int32_t* __restrict__ order,
                             const float* __restrict__ gates, std::int64_t rows, int choices, int columns,
                             T* __restrict__ pre, float* __restrict__ dgates, const Tile* __restrict__ tiles,
                             const T* __restrict__ b, T* __restrict__ pulled) {
  wait_previous_kernel();
  std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * 8 + threadIdx.x / 32;
  if constexpr (kRanks > 0) {
    constexpr int parts = tile_rows / 8;
    const int index = blockIdx.x / parts;
    if (index >= tiles[0].group) return;
    const Tile tile = tiles[1 + index];
    row = tile.begin + (blockIdx.x % parts) * 8 + threadIdx.x / 32;
    rows = tile.end;
    b += static_cast<std::int64_t>(tile.group) * columns * kRanks;
  }
  if (row >= rows) return;
  const int lane = threadIdx.x & 31, choice = order[row];
  const float gate = gates[choice];
  const T* const gradient = dy + static_cast<std::int64_t>(choice / choices) * columns;
  T* const values = pre + row * columns;
  float sum = 0.f, pulls[kRanks > 0 ? kRanks : 1] = {};
  constexpr int ahead = 4;  // pieces whose loads are in flight at a time
  for (int first = lane * kWidth; first < columns; first += ahead * 32 * kWidth) {
    Piece<T, kWidth> upstream[ahead], before[ahead];
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      const int column = first + i * 32 * kWidth;
      if (column < columns) {
        upstream[i] = *reinterpret_cast<const Piece<T, kWidth>*>(gradient + column);
        before[i] = *reinterpret_cast<const Piece<T, kWidth>*>(values + column);
      }
    }
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      const int column = first + i * 32 * kWidth;
      if (column >= columns) break;
      sum = through_gelu(upstream[i], gate, before[i], sum);
      *reinterpret_cast<Piece<T, kWidth>*>(values + column) = before[i];
#pragma unroll
      for (int part = 0; part < kRanks; ++part) {  // the rows of b for these columns, kWidth numbers at a time
        const auto factors =
            *reinterpret_cast<const Piece<T, kWidth>*>(b + static_cast<std::int64_t>(column) * kRanks + part * kWidth);
#pragma unroll
        for (int n = 0; n < kWidth; ++n) {
          constexpr int ranks = kRanks > 0 ? kRanks : 1;
          const int flat = part * kWidth + n, c = flat / ranks, r = flat % ranks;
          pulls[r] = fmaf(to_f32(before[i].values[c]), to_f32(factors.values[n]), pulls[r]);
        }
      }
    }
  }
  sum = warp_sum(sum);
  if (lane == 0) dgates[choice] = sum;
#pragma unroll
  for (int r = 0; r < kRanks; ++r) {
    const float pull = warp_sum(pulls[r]);
    if (lane == 0) pulled[row * kRanks + r] = from_f32<T>(pull);
  }
}

// Computes the same without a correction, for rows of at most four pieces per lane: one warp per token, whose gradient
// stays in registers while the warp goes through the routing slots, loading the row of the next one ahead.
template <typename T, int kWidth>
__global__ void __launch_bounds__(256)
    token_features_backward_kernel(const T* __restrict__ dy, const std::int32_t* __restrict__ place,
                                   const float* __restrict__ gates, std::int64_t tokens, int choices, int columns,
                                   T* __restrict__ pre, float* __restrict__ dgates) {
  wait_previous_kernel();
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * 8 + threadIdx.x / 32;
  if (token >= tokens) return;
  const int lane = threadIdx.x & 31;
  constexpr int parts = 4;
  using Columns = Piece<T, kWidth>;
  Columns upstream[parts], next[parts];
  const auto load = [&](const T* row, Columns(&pieces)[parts]) {
#pragma unroll
    for (int i = 0; i < parts; ++i) {
      const int column = (i * 32 + lane) * kWidth;
      if (column < columns) pieces[i] = *reinterpret_cast<const Columns*>(row + column);
    }
  };
  const std::int32_t* const places = place + token * choices;
  std::int64_t row = places[0];
  load(pre + row * columns, next);
  load(dy + token * columns, upstream);
  for (int choice = 0; choice < choices; ++choice) {
    Columns before[parts];
#pragma unroll
    for (int i = 0; i < parts; ++i) before[i] = next[i];
    T* const values = pre + row * columns;
    if (choice + 1 < choices) {
      row = places[choice + 1];
      load(pre + row * columns, next);
    }
    const float gate = gates[token * choices + choice];
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < parts; ++i) {
      const int column = (i * 32 + lane) * kWidth;
      if (column < columns) {
        sum = through_gelu(upstream[i], gate, before[i], sum);
        *reinterpret_cast<Columns*>(values + column) = before[i];
      }
    }
    sum = warp_sum(sum);
    if (lane == 0) dgates[token * choices + choice] = sum;
  }
}

// Launches the kernel. Returns true if it computes `pulled` as well.
template <typename T>
bool features_backward(Context& ctx, const Tensor& dy, const LowRank& low, const DispatchPlan& plan,
                       const Tensor& gates, const Tensor& pre, const Tensor& dgates, const Tensor& pulled) {
  constexpr int wide = vector_width<T>;
  const std::int64_t rows = plan.order.elements(), width = pre.dim(1);
  const bool vectors = width % 8 == 0 && all_aligned16(elements_of<T>(dy), elements_of<T>(pre));
  const std::int64_t rank = low && vectors && aligned16(low.b.compute.raw()) ? low.rank() : 0;
  const bool makes_pulled = rank == 2 || rank == 4 || rank == 8;
  if (vectors && !makes_pulled && width <= 4 * 32 * wide) {
    launch_dependent(ctx, token_features_backward_kernel<T, wide>, grid_for(gates.dim(0), 8), 256, 0,
                     elements_of<T>(dy), plan.place.data<std::int32_t>(), gates.data<float>(), gates.dim(0),
                     static_cast<int>(gates.dim(1)), static_cast<int>(width), elements_of<T>(pre),
                     dgates.data<float>());
    return false;
  }
  const auto kernel = rank == 2   ? features_backward_kernel<T, wide, 2>
                      : rank == 4 ? features_backward_kernel<T, wide, 4>
                      : rank == 8 ? features_backward_kernel<T, wide, 8>
                      : vectors   ? features_backward_kernel<T, wide, 0>
                                  : features_backward_kernel<T, 1, 0>;
  const std::int64_t blocks =
      makes_pulled ? (tile_table_entries(rows, plan.experts) - 1) * (tile_rows / 8) : grid_for(rows, 8);
  const Tensor tiles = tile_table(ctx, plan);
  launch_dependent(ctx, kernel, static_cast<unsigned>(blocks), 256, 0, elements_of<T>(dy),
                   plan.order.data<std::int32_t>(), gates.data<float>(), rows, static_cast<int>(gates.dim(1)),
                   static_cast<int>(width), elements_of<T>(pre), dgates.data<float>(),
                   static_cast<const Tile*>(tiles.raw()),
                   makes_pulled ? elements_of<T>(low.b.compute) : static_cast<T*>(nullptr),
                   makes_pulled ? elements_of<T>(pulled) : static_cast<T*>(nullptr));
  return makes_pulled;
}

// Computes gate * GELU(pre), for the gradient of w2.
template <typename T>
__global__ void __launch_bounds__(256)
    gated_activation_kernel(const T* __restrict__ pre, const std::int32_t* __restrict__ order,
                            const float* __restrict__ gates, std::int64_t rows, int columns, T* __restrict__ result) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= rows * columns) return;
  result[index] = from_f32<T>(gates[order[index / columns]] * gelu_of<T>(to_f32(pre[index])).value);
}

template <typename Run>
void by_type(DType type, Run&& run) {
  if (type == DType::bf16) {
    run(bf16{});
  } else {
    run(float{});
  }
}

GroupedGemm product_of(const Context& ctx, const DispatchPlan& plan, const Tensor& tiles) {
  GroupedGemm product;
  product.type = ctx.compute;
  product.rows = plan.order.elements();
  product.groups = plan.experts;
  product.tiles = static_cast<const Tile*>(tiles.raw());
  product.order = plan.order.data<std::int32_t>();
  return product;
}

// Makes a GEMM add a low-rank correction: low times each expert's factor.
void correct(GroupedGemm& product, const Tensor& low, const Factor& factor) {
  product.low = low.raw();
  product.factor = factor.values.raw();
  product.factor_transposed = factor.first;
  product.rank = static_cast<int>(factor.rank());
}

// Does the same when low has not been computed yet. It is computed from `rows`, the left operand of the GEMM: by the
// GEMM itself if its kernel can.
void correct(Context& ctx, const DispatchPlan& plan, GroupedGemm& product, const ThinRows& rows, const Factor& inner,
             const Tensor& low, const Factor& factor) {
  correct(product, low, factor);
  product.inner = inner.values.raw();
  if (computes_low(ctx, product)) return;
  product.inner = nullptr;
  thin_gemm(ctx, plan, rows, inner, low);
}

void gate_gradients(Context& ctx, const Tensor& dy, const Tensor& outputs, const DispatchPlan& plan, Tensor& dgates) {
  const std::int64_t tokens = dgates.dim(0), columns = dy.dim(1);
  const bool wide =
      columns % 8 == 0 &&
      (reinterpret_cast<std::uintptr_t>(dy.raw()) | reinterpret_cast<std::uintptr_t>(outputs.raw())) % 16 == 0;
  by_type(ctx.compute, [&](auto zero) {
    using T = decltype(zero);
    const auto kernel = wide ? gate_products_kernel<T, 16 / sizeof(T)> : gate_products_kernel<T, 1>;
    launch_dependent(ctx, kernel, grid_for(tokens, 8), 256, 0, static_cast<const T*>(dy.raw()),
                     static_cast<const T*>(outputs.raw()), plan.place.data<std::int32_t>(), tokens,
                     static_cast<int>(dgates.dim(1)), static_cast<int>(columns), dgates.data<float>());
  });
}

}  // namespace

// True only in bf16, where the arithmetic of the GELU would limit the backward GEMM: the forward pass stores the GELU's
// slope instead of its input, which takes no more memory, and keeps the outputs, from which the gates' gradients
// follow.
bool experts_keep_outputs(Context& ctx, const ExpertWeights& weights) {
  return ctx.compute == DType::bf16 && static_cast<bool>(weights.w2);
}

void experts_forward(Context& ctx, const Tensor& x, const ExpertWeights& weights, const DispatchPlan& plan,
                     const Tensor& gates, ExpertTape& tape, Tensor& y) {
  if (x.dim(0) == 0) return;
  const ArenaScope scope(*ctx.arena);
  const int choices = static_cast<int>(gates.dim(1));
  GroupedGemm first = product_of(ctx, plan, tile_table(ctx, plan));
  first.b = weights.w1.raw();
  first.columns = weights.w1.dim(1);
  first.depth = weights.w1.dim(2);
  first.result = tape.pre.raw();
  first.a = x.raw();
  first.gather = choices;
  Tensor activated;
  if (weights.w2) {
    activated = ctx.scratch({first.rows, first.columns});
    first.finish = tape.outputs ? Epilogue::gelu_slope : Epilogue::gelu;
    first.activated = activated.raw();
  }
  if (weights.low1)
    correct(ctx, plan, first, {x, choices}, {weights.low1.a.compute, true}, tape.low1, {weights.low1.b.compute, false});
  launch_grouped_gemm(ctx, first);
  if (!weights.w2) return combine<true, false>(ctx, tape.pre, plan.place, gates.data<float>(), choices, y);
  GroupedGemm second = product_of(ctx, plan, tile_table(ctx, plan));
  second.a = activated.raw();
  second.b = weights.w2.raw();
  second.columns = weights.w2.dim(1);
  second.depth = weights.w2.dim(2);
  const Tensor outputs = tape.outputs ? tape.outputs : ctx.scratch({second.rows, second.columns});
  second.result = outputs.raw();
  if (weights.low2)
    correct(ctx, plan, second, {activated}, {weights.low2.a.compute, true}, tape.low2, {weights.low2.b.compute, false});
  launch_grouped_gemm(ctx, second);
  combine<false, false>(ctx, outputs, plan.place, gates.data<float>(), choices, y);
}

void experts_backward(Context& ctx, const ExpertsBackward& in) {
  const Tensor &dy = in.dy, &x = in.x, &gates = in.gates;
  const ExpertWeights& weights = in.weights;
  const DispatchPlan& plan = in.plan;
  const ExpertTape& tape = in.tape;
  ExpertGrads* const grads = in.grads;
  Tensor &dx = in.dx, &dgates = in.dgates;
  const bool concurrently = in.router != nullptr && in.schedule != nullptr && in.router->independent();
  if (x.dim(0) == 0) return;
  if (tape.outputs && (grads != nullptr || weights.low1))
    failed(Code::internal, "trained experts require the input of their GELU, which was not kept");
  const Tensor& pre = tape.pre;
  const ArenaScope scope(*ctx.arena);
  const cudaStream_t stream = ctx.cuda->stream;
  const int choices = static_cast<int>(gates.dim(1));
  const std::int64_t rows = plan.order.elements(), width = weights.w1.dim(1), model = weights.w1.dim(2);
  const std::int32_t* const order = plan.order.data<std::int32_t>();
  GroupedGradientGemm outer;
  outer.type = ctx.compute;
  outer.order = order;
  outer.offsets = plan.offsets.data<std::int32_t>();
  outer.groups = plan.experts;
  GroupedGemm second = product_of(ctx, plan, tile_table(ctx, plan));
  second.a = pre.raw();
  second.b = weights.w1.raw();
  second.b_transposed = true;
  second.columns = model;
  second.depth = width;
  const Tensor row_gradients = ctx.scratch({rows, model});
  second.result = row_gradients.raw();
  Tensor pulled;  // gradient after the second factor of the first matrix's correction, b^T dpre
  bool pulled_made = false;
  if (weights.low1) {
    pulled = ctx.scratch({rows, weights.low1.rank()});
    correct(second, pulled, {weights.low1.a.compute, true});
    second.inner = weights.low1.b.compute.raw();
    pulled_made = computes_low(ctx, second);
    if (!pulled_made) second.inner = nullptr;
  }

  if (weights.w2) {
    if (grads != nullptr && grads->w2) {  // while pre still holds the GELU's input
      const ArenaScope inner(*ctx.arena);
      Tensor gated = ctx.scratch({rows, width});
      by_type(ctx.compute, [&](auto zero) {
        using T = decltype(zero);
        gated_activation_kernel<<<grid_for(rows * width, 256), 256, 0, stream>>>(
            static_cast<const T*>(pre.raw()), order, gates.data<float>(), rows, static_cast<int>(width),
            static_cast<T*>(gated.raw()));
        SOME_CUDA_LAUNCHED();
      });
      GroupedGradientGemm second = outer;
      second.u = dy.raw();
      second.u_gather = choices;
      second.v = gated.raw();
      second.m = model;
      second.n = width;
      second.target = grads->w2.data<float>();
      launch_grouped_gradient_gemm(ctx, second);
    }
    GroupedGemm first = product_of(ctx, plan, tile_table(ctx, plan));
    first.b = weights.w2.raw();
    first.b_transposed = true;
    first.columns = width;
    first.depth = model;
    first.finish = tape.outputs ? Epilogue::slope_backward : Epilogue::gelu_backward;
    first.result = pre.raw();
    first.gates = gates.data<float>();
    first.a = dy.raw();
    first.gather = choices;
    if (weights.low2) {  // while pre still holds the GELU's input
      const Tensor pulled2 = ctx.scratch({rows, weights.low2.rank()});
      thin_gemm(ctx, plan, {dy, choices}, {weights.low2.b.compute, false}, pulled2);
      correct(first, pulled2, {weights.low2.a.compute, true});
      const float* const weight = gates.data<float>();
      std::vector<ThinGradient> gradients;
      if (weights.low2.a.grad) gradients.push_back({{pre}, true, pulled2, weight, weights.low2.a.grad, true});
      if (weights.low2.b.grad)
        gradients.push_back({{dy, choices}, false, tape.low2, weight, weights.low2.b.grad, false});
      thin_gradients(ctx, plan, gradients);
    }
    if (tape.outputs) {
      launch_grouped_gemm(ctx, first);
      gate_gradients(ctx, dy, tape.outputs, plan, dgates);
    } else {
      const int slots = row_sum_parts(ctx, first);
      Tensor parts = ctx.scratch({rows, slots}, DType::f32);
      first.row_sums = parts.data<float>();
      launch_grouped_gemm(ctx, first);
      launch_dependent(ctx, gate_gradient_kernel, grid_for(rows, 256), 256, 0, parts.data<float>(),
                       plan.place.data<std::int32_t>(), slots, rows, dgates.data<float>());
    }
  } else {
    by_type(ctx.compute, [&](auto zero) {
      const LowRank none, &low = pulled_made ? none : weights.low1;
      if (features_backward<decltype(zero)>(ctx, dy, low, plan, gates, pre, dgates, pulled)) pulled_made = true;
    });
  }

  if (concurrently) router_backward(in.schedule->fork(), *in.router);
  if (weights.low1 && !pulled_made) thin_gemm(ctx, plan, {pre}, {weights.low1.b.compute, false}, pulled);
  launch_grouped_gemm(ctx, second);
  if (weights.low1) {
    std::vector<ThinGradient> gradients;
    if (weights.low1.b.grad) gradients.push_back({{pre}, false, tape.low1, nullptr, weights.low1.b.grad, false});
    if (weights.low1.a.grad) gradients.push_back({{x, choices}, false, pulled, nullptr, weights.low1.a.grad, true});
    thin_gradients(ctx, plan, gradients);
  }
  if (in.into == Into::add)
    combine<false, true>(ctx, row_gradients, plan.place, nullptr, choices, dx);
  else
    combine<false, false>(ctx, row_gradients, plan.place, nullptr, choices, dx);

  if (grads != nullptr && grads->w1) {
    GroupedGradientGemm first = outer;
    first.u = pre.raw();
    first.v = x.raw();
    first.v_gather = choices;
    first.m = width;
    first.n = model;
    first.target = grads->w1.data<float>();
    launch_grouped_gradient_gemm(ctx, first);
  }
  if (concurrently) in.schedule->join();  // before its scratch memory is given back
}

void combine_rows(Context& ctx, const Tensor& rows, const Tensor& place, const Tensor* gates, Into into, Tensor& y) {
  if (y.dim(0) == 0) return;
  const int choices = static_cast<int>(place.dim(1));
  const float* const weights = gates != nullptr ? gates->data<float>() : nullptr;
  if (into == Into::add)
    combine<false, true>(ctx, rows, place, weights, choices, y);
  else
    combine<false, false>(ctx, rows, place, weights, choices, y);
}

}  // namespace some::cuda

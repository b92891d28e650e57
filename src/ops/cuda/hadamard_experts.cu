// Additive Hadamard experts on the GPU (spec 3.5, "Hadamard experts").
//
// Each token applies the transforms of its experts: without dispatch or matrices, and without stored activations, which
// the backward pass recomputes. For T tokens in bf16 the memory traffic is that of x and y forward (2T(d + f) bytes, or
// 4Td with w2), and of x, dy and dx backward. With w2 a routing slot takes two transforms per block of P rows forward
// and three backward, and f GELUs in each direction, which limit these kernels.
#include <algorithm>

#include "ops/cuda/hadamard.cuh"

namespace some::cuda {
namespace {

constexpr int threads = 256, warps = threads / warp_size;

// Inputs of the kernels.
template <typename T>
struct View {
  HadamardView experts;
  const T* x;
  const std::int32_t* indices;
  const float* gates;
  int tokens, choices, d, f;
  bool has_w2;

  View(const Tensor& input, const HadamardExperts& made, const Tensor& chosen, const Tensor& weights)
      : experts(made),
        x(elements_of<T>(input)),
        indices(ints(chosen)),
        gates(floats(weights)),
        tokens(static_cast<int>(chosen.dim(0))),
        choices(static_cast<int>(chosen.dim(1))),
        d(made.sizes.d),
        f(made.sizes.f),
        has_w2(made.has_w2) {}
};

// --- P = 512, bf16 ---

// Multiplies by `scale`. CUT: replaces numbers from `length` on by 0.
template <bool CUT>
__device__ __forceinline__ void scale_and_cut(Float512& x, float scale, int start, int length, int base) {
#pragma unroll
  for (int a = 0; a < 2; ++a) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const float factor = !CUT || start + position<LayoutB>(base, a, b) < length ? scale : 0.0f;
#pragma unroll
      for (int r = 0; r < 4; ++r) x.values[a][b][r] *= factor;
    }
  }
}

// Writes numbers in layout A to a row, or adds them.
__device__ __forceinline__ void store_512(const Float512& x, bool add, int length, int base, bf16* row) {
#pragma unroll
  for (int a = 0; a < 2; ++a) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const int column = position<LayoutA>(base, a, b);
      if (column >= length) continue;
      float values[4] = {};
      if (add) load_elements<4>(row + column, values);
#pragma unroll
      for (int r = 0; r < 4; ++r) values[r] += x.values[a][b][r];
      store_elements<4>(row + column, values);
    }
  }
}

// Adds numbers in layout A, times their signs and a factor.
__device__ __forceinline__ void add_signed(const Float512& x, const Signs512& signs, float factor, Float512& sums) {
#pragma unroll
  for (int a = 0; a < 2; ++a) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
#pragma unroll
      for (int r = 0; r < 4; ++r)
        sums.values[a][b][r] = fmaf(factor, signs.applied(x.values[a][b][r], a, b, r), sums.values[a][b][r]);
    }
  }
}

// CUT: f is not a multiple of 512. Without w2: one warp computes the columns of one block of one token's y. With w2:
// all of it.
template <bool W2, bool CACHED, bool CUT>
__global__ void __launch_bounds__(threads, 3) forward_512_kernel(const View<bf16> view, bf16* y) {
  __shared__ uint4 drawn[CACHED ? 1 : warps][2][warp_size];
  const int lane = static_cast<int>(threadIdx.x) % warp_size, warp = static_cast<int>(threadIdx.x) / warp_size;
  const Transform512 transform(lane);
  wait_previous_kernel();
  const int item = static_cast<int>(blockIdx.x) * warps + warp, blocks = view.experts.blocks,
            token = W2 ? item : item / blocks, first_block = W2 ? 0 : item % blocks,
            end_block = W2 ? blocks : first_block + 1;
  if (token >= view.tokens) return;
  const WarpSigns<CACHED> source1{view.experts.signs1, drawn[CACHED ? 0 : warp][0]},
      source2{view.experts.signs2, drawn[CACHED ? 0 : warp][1]};
  const int in = LayoutA::base(lane), out = LayoutB::base(lane);
  const Packed512 x = load_512<LayoutA, false>(view.x + static_cast<std::int64_t>(token) * view.d, 0, view.d, in);
  Float512 sums = {};
  for (int i = 0; i < view.choices; ++i) {
    const std::int64_t slot = static_cast<std::int64_t>(token) * view.choices + i,
                       number_of = static_cast<std::int64_t>(view.indices[slot]) * blocks;
    const float gate = view.gates[slot];
    for (int block = first_block; block < end_block; ++block) {
      const int start = block * transform_size, n = (block - first_block) % blocks_drawn;
      if (!CACHED && n == 0) {
        const std::int64_t drawn_block = number_of + min(block + lane / 4, blocks - 1);
        source1.draw(drawn_block, lane);
        if (W2) source2.draw(drawn_block, lane);
      }
      Float512 hidden = transform(Signs512::load<LayoutA>(source1.bits(number_of + block, n), in).applied(x));
      scale_and_cut<CUT>(hidden, view.experts.scale1, start, view.f, out);
      Float512 activated;
#pragma unroll
      for (int a = 0; a < 2; ++a) {
#pragma unroll
        for (int b = 0; b < 2; ++b) {
          float slope[4];
          gelu_short<4>(hidden.values[a][b], activated.values[a][b], slope);
        }
      }
      if constexpr (W2) {
        const Signs512 signs = Signs512::load<LayoutA>(source2.bits(number_of + block, n), in);
        add_signed(transform(pack(activated)), signs, gate * view.experts.scale2, sums);
      } else {
#pragma unroll
        for (int a = 0; a < 2; ++a) {
#pragma unroll
          for (int b = 0; b < 2; ++b) {
#pragma unroll
            for (int r = 0; r < 4; ++r)
              sums.values[a][b][r] = fmaf(gate, activated.values[a][b][r], sums.values[a][b][r]);
          }
        }
      }
    }
  }
  if constexpr (W2) {
    store_512(sums, false, view.d, in, y + static_cast<std::int64_t>(token) * view.d);
  } else {
#pragma unroll
    for (int a = 0; a < 2; ++a) {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const int column = first_block * transform_size + position<LayoutB>(out, a, b);
        if (column < view.f)
          store_elements<4>(y + static_cast<std::int64_t>(token) * view.f + column, sums.values[a][b]);
      }
    }
  }
}

// Computes dx and dgates of one token per warp.
template <bool W2, bool CACHED, bool CUT>
__global__ void __launch_bounds__(threads, 2)
    backward_512_kernel(const View<bf16> view, const bf16* dy, bool add, bf16* dx, float* dgates) {
  __shared__ uint4 drawn[CACHED ? 1 : warps][2][warp_size];
  const int lane = static_cast<int>(threadIdx.x) % warp_size, warp = static_cast<int>(threadIdx.x) / warp_size;
  const Transform512 transform(lane);
  wait_previous_kernel();
  const int token = static_cast<int>(blockIdx.x) * warps + warp, blocks = view.experts.blocks;
  if (token >= view.tokens) return;
  const WarpSigns<CACHED> source1{view.experts.signs1, drawn[CACHED ? 0 : warp][0]},
      source2{view.experts.signs2, drawn[CACHED ? 0 : warp][1]};
  const int in = LayoutA::base(lane), out = LayoutB::base(lane);
  const Packed512 x = load_512<LayoutA, false>(view.x + static_cast<std::int64_t>(token) * view.d, 0, view.d, in);
  const bf16* const upstream = dy + static_cast<std::int64_t>(token) * (W2 ? view.d : view.f);
  Packed512 above = {};
  if (W2) above = load_512<LayoutA, false>(upstream, 0, view.d, in);
  Float512 sums = {};
  for (int i = 0; i < view.choices; ++i) {
    const std::int64_t slot = static_cast<std::int64_t>(token) * view.choices + i,
                       number_of = static_cast<std::int64_t>(view.indices[slot]) * blocks;
    const float gate = view.gates[slot];
    float product = 0.0f;
    for (int block = 0; block < blocks; ++block) {
      const int start = block * transform_size, n = block % blocks_drawn;
      if (!CACHED && n == 0) {
        const std::int64_t drawn_block = number_of + min(block + lane / 4, blocks - 1);
        source1.draw(drawn_block, lane);
        if (W2) source2.draw(drawn_block, lane);
      }
      const Signs512 signs = Signs512::load<LayoutA>(source1.bits(number_of + block, n), in);
      Float512 hidden = transform(signs.applied(x));
      scale_and_cut<CUT>(hidden, view.experts.scale1, start, view.f, out);
      Float512 pulled;  // gradient of the GELU's result, before the gate
      if constexpr (W2) {
        pulled = transform(Signs512::load<LayoutA>(source2.bits(number_of + block, n), in).applied(above));
        scale_and_cut<CUT>(pulled, view.experts.scale2, start, view.f, out);
      } else {
        pulled = unpack(load_512<LayoutB, !CUT>(upstream, start, view.f, out));
      }
#pragma unroll
      for (int a = 0; a < 2; ++a) {
#pragma unroll
        for (int b = 0; b < 2; ++b) {
          float activated[4], slope[4];
          gelu_short<4>(hidden.values[a][b], activated, slope);
#pragma unroll
          for (int r = 0; r < 4; ++r) {
            product = fmaf(pulled.values[a][b][r], activated[r], product);
            pulled.values[a][b][r] *= slope[r];
          }
        }
      }
      add_signed(transform(pack(pulled)), signs, gate * view.experts.scale1, sums);
    }
    product = warp_sum(product);
    if (lane == 0) dgates[slot] = product;
  }
  store_512(sums, add, view.d, in, dx + static_cast<std::int64_t>(token) * view.d);
}

// --- Any size ---

// Computes y of one token per group of lanes. Two arrays.
template <typename T, int LANES>
__global__ void __launch_bounds__(transform_threads) forward_kernel(const View<T> view, T* y) {
  wait_previous_kernel();
  using Matrix = SharedTransform<LANES>;
  const HadamardView& experts = view.experts;
  const Matrix matrix(experts, 2);
  float *const values = matrix.array(0), *const sums = matrix.array(1);
  const int token = Matrix::group();
  if (token >= view.tokens) return;
  const T* const x = view.x + static_cast<std::int64_t>(token) * view.d;
  matrix.fill(0.0f, sums);
  for (int block = 0; block < experts.blocks; ++block) {
    const int first_column = block * experts.size, columns = min(view.f - first_column, experts.size);
    for (int i = 0; i < view.choices; ++i) {
      const std::int64_t slot = static_cast<std::int64_t>(token) * view.choices + i;
      const int expert = view.indices[slot];
      matrix.load(x, 0, view.d, values);
      matrix.forward(experts.signs1, expert, block, values);
      for (int j = Matrix::lane(); j < experts.size; j += LANES)
        values[j] = j < columns ? gelu_of<T>(experts.scale1 * values[j]).value : 0.0f;
      float factor = view.gates[slot];
      if (view.has_w2) {
        factor *= experts.scale2;
        matrix.transposed(experts.signs2, expert, block, values);
      }
      for (int j = Matrix::lane(); j < experts.size; j += LANES) sums[j] = fmaf(factor, values[j], sums[j]);
    }
    if (view.has_w2) continue;
    for (int j = Matrix::lane(); j < columns; j += LANES) {
      y[static_cast<std::int64_t>(token) * view.f + first_column + j] = from_f32<T>(sums[j]);
      sums[j] = 0.0f;
    }
  }
  if (!view.has_w2) return;
  for (int j = Matrix::lane(); j < view.d; j += LANES)
    y[static_cast<std::int64_t>(token) * view.d + j] = from_f32<T>(sums[j]);
}

// Computes dx and dgates of one token per group of lanes. Three arrays.
template <typename T, int LANES>
__global__ void __launch_bounds__(transform_threads)
    backward_kernel(const View<T> view, const T* dy, bool add, T* dx, float* dgates) {
  wait_previous_kernel();
  __shared__ float scratch[warp_size];
  using Matrix = SharedTransform<LANES>;
  const HadamardView& experts = view.experts;
  const Matrix matrix(experts, 3);
  float *const values = matrix.array(0), *const pulled = matrix.array(1), *const sums = matrix.array(2);
  const int token = Matrix::group();
  if (token >= view.tokens) return;
  const T *const x = view.x + static_cast<std::int64_t>(token) * view.d, *const upstream =
                                                                             dy + static_cast<std::int64_t>(token) *
                                                                                      (view.has_w2 ? view.d : view.f);
  matrix.fill(0.0f, sums);
  for (int i = 0; i < view.choices; ++i) {
    const std::int64_t slot = static_cast<std::int64_t>(token) * view.choices + i;
    const int expert = view.indices[slot];
    const float gate = view.gates[slot];
    float product = 0.0f;
    for (int block = 0; block < experts.blocks; ++block) {
      const int first_column = block * experts.size, columns = min(view.f - first_column, experts.size);
      matrix.load(x, 0, view.d, values);
      matrix.forward(experts.signs1, expert, block, values);
      if (view.has_w2) {
        matrix.load(upstream, 0, view.d, pulled);
        matrix.forward(experts.signs2, expert, block, pulled);
      } else {
        matrix.load(upstream, first_column, view.f, pulled);
      }
      for (int j = Matrix::lane(); j < experts.size; j += LANES) {
        const float pull = view.has_w2 ? experts.scale2 * pulled[j] : pulled[j];
        const Gelu gelu = gelu_of<T>(experts.scale1 * values[j]);
        if (j < columns) product = fmaf(pull, gelu.value, product);
        values[j] = j < columns ? pull * gelu.derivative : 0.0f;
      }
      matrix.transposed(experts.signs1, expert, block, values);
      const float factor = gate * experts.scale1;
      for (int j = Matrix::lane(); j < experts.size; j += LANES) sums[j] = fmaf(factor, values[j], sums[j]);
    }
    product = Matrix::sum(product, scratch);
    if (Matrix::lane() == 0) dgates[slot] = product;
  }
  for (int j = Matrix::lane(); j < view.d; j += LANES) {
    T& target = dx[static_cast<std::int64_t>(token) * view.d + j];
    target = from_f32<T>(add ? to_f32(target) + sums[j] : sums[j]);
  }
}

// --- Launches ---

// Calls function.operator()<CACHED, W2, CUT>().
template <typename Function>
void by_kind(const HadamardExperts& experts, Function&& function) {
  const auto with_cut = [&]<bool CACHED, bool W2>() {
    return experts.sizes.f % transform_size == 0 ? function.template operator()<CACHED, W2, false>()
                                                 : function.template operator()<CACHED, W2, true>();
  };
  const bool cached = experts.cached1 && (!experts.has_w2 || experts.cached2);
  if (experts.has_w2)
    return cached ? with_cut.template operator()<true, true>() : with_cut.template operator()<false, true>();
  return cached ? with_cut.template operator()<true, false>() : with_cut.template operator()<false, false>();
}

void check_size(const Tensor& indices, const HadamardExperts& experts) {
  if (indices.elements() * std::max(experts.sizes.f, experts.sizes.d) >= std::int64_t{1} << 31)
    failed(Code::size_unsupported, "a batch of {} tokens is too large for the GPU's experts", indices.dim(0));
}

}  // namespace

void hadamard_experts_forward(Context& ctx, const Tensor& x, const HadamardExperts& experts, const Tensor& indices,
                              const Tensor& gates, Tensor& y) {
  if (x.dim(0) == 0) return;
  check_size(indices, experts);
  if (fits_512(ctx, experts) && all_aligned16(x.raw(), y.raw())) {
    const View<bf16> view(x, experts, indices, gates);
    const std::int64_t items =
        experts.has_w2 ? view.tokens : static_cast<std::int64_t>(view.tokens) * view.experts.blocks;
    by_kind(experts, [&]<bool CACHED, bool W2, bool CUT>() {
      launch_dependent(ctx, forward_512_kernel<W2, CACHED, CUT>, grid_for(items, warps), threads, 0, view,
                       elements_of<bf16>(y));
    });
    return;
  }
  with_real_type(ctx.compute, "a layer of experts", [&](auto zero) {
    using T = decltype(zero);
    const View<T> view(x, experts, indices, gates);
    by_lanes(view.experts, [&]<int LANES>() {
      launch_transforms(ctx, forward_kernel<T, LANES>, LANES, grid_for(view.tokens, transform_threads / LANES),
                        view.experts, 2, view, elements_of<T>(y));
    });
  });
}

void hadamard_experts_backward(Context& ctx, const HadamardExpertsBackward& in) {
  if (in.x.dim(0) == 0) return;
  check_size(in.indices, in.experts);
  const bool add = in.into == Into::add;
  if (fits_512(ctx, in.experts) && all_aligned16(in.x.raw(), in.dy.raw(), in.dx.raw())) {
    const View<bf16> view(in.x, in.experts, in.indices, in.gates);
    by_kind(in.experts, [&]<bool CACHED, bool W2, bool CUT>() {
      launch_dependent(ctx, backward_512_kernel<W2, CACHED, CUT>, grid_for(view.tokens, warps), threads, 0, view,
                       elements_of<bf16>(in.dy), add, elements_of<bf16>(in.dx), floats(in.dgates));
    });
    return;
  }
  with_real_type(ctx.compute, "a layer of experts", [&](auto zero) {
    using T = decltype(zero);
    const View<T> view(in.x, in.experts, in.indices, in.gates);
    by_lanes(view.experts, [&]<int LANES>() {
      launch_transforms(ctx, backward_kernel<T, LANES>, LANES, grid_for(view.tokens, transform_threads / LANES),
                        view.experts, 3, view, elements_of<T>(in.dy), add, elements_of<T>(in.dx), floats(in.dgates));
    });
  });
}

}  // namespace some::cuda

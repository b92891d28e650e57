// Modulated hidden layer with Hadamard experts on the GPU (spec 3.9, "Hadamard experts").
//
// A routing slot's activations take P log P additions per block of P rows, so they are recomputed wherever they are
// needed instead of being stored. For T tokens in bf16 with k = 4, f = 976 and d = 512, the forward pass reads z and
// the states (2T(f + d) bytes) and writes h and what the backward pass keeps (4Tf bytes); its 8 transforms per token
// take 12 matrix instructions each. The backward pass has four parts: the gradients of z and V (6Tf bytes); those of
// states and gates, by the token whose state was read, which collects the slots that have read it, so that nothing is
// scattered; and those of the gains, from the routing slots sorted by expert, in equal shares whose sums are then added
// in order. The gate's gradient is the inner product of a state and its own gradient, because activations are linear in
// the state.
#include <algorithm>

#include "ops/cuda/hadamard.cuh"
#include "runtime/schedule.h"

namespace some::cuda {
namespace {

constexpr int threads = 256, warps = threads / warp_size;
constexpr int small_threads = 128, small_warps = small_threads / warp_size;
constexpr int gains_blocks = 3;  // of the gradient of the gains, per multiprocessor

// Inputs of the kernels.
template <typename T>
struct View {
  HadamardView experts;
  const T *hidden, *states;
  const std::int32_t *rows, *indices;
  const float *gates, *gains;
  int tokens, choices, width, token_shift, d, f;
  int stride;   // between rows of [T, f] tensors
  float scale;  // of the modulation, including the factor of the transforms
  bool additive;

  explicit View(const Modulation& in)
      : experts(in.hadamard),
        hidden(elements_of<T>(in.hidden)),
        states(elements_of<T>(in.states)),
        rows(in.token_shift > 0 ? ints(in.rows) : nullptr),
        indices(ints(in.routing.indices)),
        gates(floats(in.routing.gates)),
        gains(floats(in.gains.value)),
        tokens(static_cast<int>(in.routing.indices.dim(0))),
        choices(static_cast<int>(in.routing.indices.dim(1))),
        width(in.token_shift > 0 ? static_cast<int>(in.rows.dim(1)) : 0),
        token_shift(in.token_shift),
        d(in.hadamard.sizes.d),
        f(in.hadamard.sizes.f),
        stride(static_cast<int>(in.hidden.dim(1))),
        scale(static_cast<float>(in.scale * in.hadamard.sizes.scale1())),
        additive(in.additive) {}

  __device__ __forceinline__ int back(int expert) const { return token_shift > 0 ? 1 + expert % token_shift : 0; }
  // Returns the row of the state that an expert reads for a token, or -1.
  __device__ __forceinline__ int source(int token, int expert) const {
    return rows != nullptr ? rows[static_cast<std::int64_t>(token) * width + back(expert)] : token;
  }
  __device__ __forceinline__ int own_row(int token) const {
    return rows != nullptr ? rows[static_cast<std::int64_t>(token) * width] : token;
  }
  __device__ __forceinline__ const float* gain(int expert) const {
    return gains + static_cast<std::int64_t>(expert) * f;
  }
  // Candidate c of a token: a routing slot that may have read the token's state. Returns the slot, or -1 if it has not.
  __device__ __forceinline__ int reader(int token, int candidate) const {
    const int distance = token_shift > 0 ? 1 + candidate / choices : 0, later = token + distance;
    if (later >= tokens) return -1;
    if (distance > 0 && rows[static_cast<std::int64_t>(later) * width + distance] != token) return -1;
    const int slot = later * choices + candidate % choices;
    return back(indices[slot]) == distance ? slot : -1;
  }
  __device__ __forceinline__ int candidates() const { return max(token_shift, 1) * choices; }
};

// Computes h of one number, and what the backward pass keeps: the input of the GELU if additive, otherwise V.
template <typename T>
__device__ __forceinline__ void activate(float z, float v, bool additive, float& h, float& kept) {
  const float input = additive ? z + v : z, value = gelu_of<T>(input).value;
  h = additive ? value : value * (1.0f + v);
  kept = additive ? input : v;
}

// Computes dz and dV. Additive: both are the same, and `upstream` is left as it is. Otherwise it becomes dV.
template <typename T, int WIDTH>
__global__ void __launch_bounds__(threads) activation_backward_kernel(const T* kept, const T* hidden, bool additive,
                                                                      std::int64_t count, T* upstream, T* dhidden) {
  wait_previous_kernel();
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * WIDTH;
  if (at >= count) return;
  float of_forward[WIDTH], up[WIDTH], dz[WIDTH];
  load_elements<WIDTH>(kept + at, of_forward);
  load_elements<WIDTH>(upstream + at, up);
  if (additive) {
#pragma unroll
    for (int c = 0; c < WIDTH; ++c) dz[c] = up[c] * gelu_of<T>(of_forward[c]).derivative;
  } else {
    float z[WIDTH];
    load_elements<WIDTH>(hidden + at, z);
#pragma unroll
    for (int c = 0; c < WIDTH; ++c) {
      const Gelu gelu = gelu_of<T>(z[c]);
      dz[c] = up[c] * gelu.derivative * (1.0f + of_forward[c]);
      up[c] *= gelu.value;
    }
    store_elements<WIDTH>(upstream + at, up);
  }
  store_elements<WIDTH>(dhidden + at, dz);
}

// The routing slots, sorted by expert, in shares of equal size: each block takes one, so that all blocks fit on the
// multiprocessors at once and end together. A share has a part in the sums of each of its experts; part share + expert
// is that of no other pair, because an expert's shares are adjacent, and a share's experts as well.
struct Shares {
  const std::int32_t *offsets, *order;  // of the plan
  int slots, experts, size;             // size: slots per share
  __device__ __forceinline__ std::int64_t part(int share, int expert) const { return share + expert; }
  // Returns the expert of a place in the order: the last one whose offset is not above it. Called by a whole warp.
  __device__ __forceinline__ int expert_at(int place) const {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    int low = 0, count = experts;  // the answer is among `count` experts starting at `low`
    while (count > 1) {
      const int step = (count + warp_size - 1) / warp_size, candidate = low + lane * step;
      const bool reached = lane * step < count && offsets[candidate] <= place;
      const int last = warp_size - 1 - __clz(static_cast<int>(__ballot_sync(full_warp, reached)));
      low += last * step;
      count = min(step, count - last * step);
    }
    return low;
  }
};

// Block (x, y) adds the parts of expert y to gradient[y], in order.
__global__ void __launch_bounds__(threads)
    add_shares_kernel(const Shares shares, const float* partials, int columns, float* gradient) {
  wait_previous_kernel();
  const int column = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x),
            expert = static_cast<int>(blockIdx.y), begin = shares.offsets[expert], end = shares.offsets[expert + 1];
  if (begin == end || column >= columns) return;
  float sum = 0.0f;
  const int last = (end - 1) / shares.size;
  constexpr int ahead = 16;  // loads in flight at a time
  for (int first = begin / shares.size; first <= last; first += ahead) {
    float values[ahead];
#pragma unroll
    for (int i = 0; i < ahead; ++i)
      values[i] = first + i <= last ? partials[shares.part(first + i, expert) * columns + column] : 0.0f;
#pragma unroll
    for (int i = 0; i < ahead; ++i) sum += values[i];
  }
  gradient[static_cast<std::int64_t>(expert) * columns + column] += sum;
}

// --- P = 512, bf16 ---

// Computes V in the columns of one block for one token, then h and kept (each may be null); one warp each. EXACT: d =
// 512.
template <bool CACHED, bool EXACT, bool ADDITIVE>
__global__ void __launch_bounds__(small_threads, 6)
    forward_512_kernel(const View<bf16> view, bf16* __restrict__ kept, bf16* __restrict__ h) {
  __shared__ uint4 drawn[CACHED ? 1 : small_warps][warp_size];
  const int lane = static_cast<int>(threadIdx.x) % warp_size, warp = static_cast<int>(threadIdx.x) / warp_size;
  const Transform512 transform(lane);
  wait_previous_kernel();
  const int token = static_cast<int>(blockIdx.x) * small_warps + warp, block = static_cast<int>(blockIdx.y),
            blocks = view.experts.blocks;
  if (token >= view.tokens) return;
  const WarpSigns<CACHED> source{view.experts.signs1, drawn[CACHED ? 0 : warp]};
  const int in = LayoutA::base(lane), out = LayoutB::base(lane), first_column = block * transform_size;
  const auto compute = [&]<bool FULL>() {  // FULL: all columns of this block exist
    Float512 sums = {};
    for (int first = 0; first < view.choices; first += warp_size) {
      const int here = min(view.choices - first, warp_size);
      int expert_of_lane = 0, row_of_lane = 0;
      float weight_of_lane = 0.0f;
      if (lane < here) {
        const std::int64_t slot = static_cast<std::int64_t>(token) * view.choices + first + lane;
        expert_of_lane = view.indices[slot];
        weight_of_lane = view.scale * view.gates[slot];
        row_of_lane = view.source(token, expert_of_lane);
        if (row_of_lane < 0) {  // no state: any other one counts 0 times
          row_of_lane = view.own_row(token);
          weight_of_lane = 0.0f;
        }
      }
#pragma unroll 1
      for (int i = 0; i < here; ++i) {
        if (!CACHED && i % blocks_drawn == 0) {
          const int expert = __shfl_sync(full_warp, expert_of_lane, min(i + lane / 4, warp_size - 1));
          source.draw(static_cast<std::int64_t>(expert) * blocks + block, lane);
        }
        const int expert = __shfl_sync(full_warp, expert_of_lane, i), row = __shfl_sync(full_warp, row_of_lane, i);
        const float weight = __shfl_sync(full_warp, weight_of_lane, i);
        const Packed512 state =
            load_512<LayoutA, EXACT>(view.states + static_cast<std::int64_t>(row) * view.d, 0, view.d, in);
        const Signs512 signs = Signs512::load<LayoutA>(
            source.bits(static_cast<std::int64_t>(expert) * blocks + block, i % blocks_drawn), in);
        const Float512 activations = transform(signs.applied(state));
        const Float512 factor = load_512<LayoutB, FULL>(view.gain(expert), first_column, view.f, out);
#pragma unroll
        for (int a = 0; a < 2; ++a) {
#pragma unroll
          for (int b = 0; b < 2; ++b) {
#pragma unroll
            for (int r = 0; r < 4; ++r)
              sums.values[a][b][r] =
                  fmaf(weight * activations.values[a][b][r], factor.values[a][b][r], sums.values[a][b][r]);
          }
        }
      }
    }
    const std::int64_t start = static_cast<std::int64_t>(token) * view.stride + first_column + out;
#pragma unroll
    for (int a = 0; a < 2; ++a) {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        if (!FULL && first_column + position<LayoutB>(out, a, b) >= view.f) continue;
        const std::int64_t at = start + position<LayoutB>(0, a, b);
        float z[4], result[4], keep[4];
        load_elements<4>(view.hidden + at, z);
#pragma unroll
        for (int r = 0; r < 4; ++r) activate<bf16>(z[r], sums.values[a][b][r], ADDITIVE, result[r], keep[r]);
        if (h != nullptr) store_elements<4>(h + at, result);
        if (kept != nullptr) store_elements<4>(kept + at, keep);
      }
    }
  };
  if (first_column + transform_size <= view.f)
    compute.template operator()<true>();
  else
    compute.template operator()<false>();
}

// Adds the gradient of one token's state, and computes the gradients of the gates of the routing slots that have read
// it; one warp each. EXACT: d = 512.
template <bool CACHED, bool EXACT>
__global__ void __launch_bounds__(small_threads, 5)
    states_512_kernel(const View<bf16> view, const bf16* __restrict__ dv, bf16* __restrict__ dstates,
                      float* __restrict__ dgates) {
  __shared__ uint4 drawn[CACHED ? 1 : small_warps][warp_size];
  const int lane = static_cast<int>(threadIdx.x) % warp_size, warp = static_cast<int>(threadIdx.x) / warp_size;
  const Transform512 transform(lane);
  wait_previous_kernel();
  const int token = static_cast<int>(blockIdx.x) * small_warps + warp, blocks = view.experts.blocks;
  if (token >= view.tokens) return;
  const WarpSigns<CACHED> source{view.experts.signs1, drawn[CACHED ? 0 : warp]};
  const int in = LayoutC::base(lane), out = LayoutD::base(lane);
  const Float512 state =
      unpack(load_512<LayoutD, EXACT>(view.states + static_cast<std::int64_t>(token) * view.d, 0, view.d, out));
  Float512 sums = {};
  for (int first = 0; first < view.candidates(); first += warp_size) {
    int slot_of_lane = -1, expert_of_lane = 0;
    float gate_of_lane = 0.0f;
    if (first + lane < view.candidates()) slot_of_lane = view.reader(token, first + lane);
    if (slot_of_lane >= 0) {
      expert_of_lane = view.indices[slot_of_lane];
      gate_of_lane = view.gates[slot_of_lane];
    }
    for (unsigned left = __ballot_sync(full_warp, slot_of_lane >= 0); left != 0; left &= left - 1) {
      const int from = __ffs(static_cast<int>(left)) - 1, slot = __shfl_sync(full_warp, slot_of_lane, from),
                expert = __shfl_sync(full_warp, expert_of_lane, from);
      const float weight = view.scale * __shfl_sync(full_warp, gate_of_lane, from);
      const bf16* const row = dv + static_cast<std::int64_t>(slot / view.choices) * view.stride;
      const float* const gain = view.gain(expert);
      const std::int64_t number_of = static_cast<std::int64_t>(expert) * blocks;
      float product = 0.0f;
      for (int block = 0; block < blocks; ++block) {
        if (!CACHED && block % blocks_drawn == 0) source.draw(number_of + min(block + lane / 4, blocks - 1), lane);
        const int start = block * transform_size;
        Packed512 up;
        Float512 factor;
        if (start + transform_size <= view.f) {
          up = load_512<LayoutC, true>(row, start, view.f, in);
          factor = load_512<LayoutC, true>(gain, start, view.f, in);
        } else {
          up = load_512<LayoutC, false>(row, start, view.f, in);
          factor = load_512<LayoutC, false>(gain, start, view.f, in);
        }
        const Signs512 signs = Signs512::load<LayoutD>(source.bits(number_of + block, block % blocks_drawn), out);
        Packed512 scaled = pack(factor);
#pragma unroll
        for (int a = 0; a < 2; ++a) {
#pragma unroll
          for (int b = 0; b < 2; ++b) {
#pragma unroll
            for (int w = 0; w < 2; ++w)
              scaled.words[a][b][w] = multiply_pairs(scaled.words[a][b][w], up.words[a][b][w]);
          }
        }
        const Float512 back = transform(scaled);
#pragma unroll
        for (int a = 0; a < 2; ++a) {
#pragma unroll
          for (int b = 0; b < 2; ++b) {
#pragma unroll
            for (int r = 0; r < 4; ++r) {
              const float gradient = signs.applied(back.values[a][b][r], a, b, r);
              product = fmaf(state.values[a][b][r], gradient, product);
              sums.values[a][b][r] = fmaf(weight, gradient, sums.values[a][b][r]);
            }
          }
        }
      }
      product = warp_sum(product);
      if (lane == 0) dgates[slot] = view.scale * product;
    }
  }
  // Own slots that read no state.
  for (int i = lane; i < view.choices; i += warp_size) {
    const int slot = token * view.choices + i;
    if (view.source(token, view.indices[slot]) < 0) dgates[slot] = 0.0f;
  }
  bf16* const target = dstates + static_cast<std::int64_t>(token) * view.d + out;
#pragma unroll
  for (int a = 0; a < 2; ++a) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      if (!EXACT && position<LayoutD>(out, a, b) >= view.d) continue;
      float values[4];
      load_elements<4>(target + position<LayoutD>(0, a, b), values);
#pragma unroll
      for (int r = 0; r < 4; ++r) values[r] += sums.values[a][b][r];
      store_elements<4>(target + position<LayoutD>(0, a, b), values);
    }
  }
}

// Block (x, y): sets the parts of share y, in the columns of block x of the experts' rows, of the gradient of the
// gains. EXACT: d = 512.
template <bool CACHED, bool EXACT>
__global__ void __launch_bounds__(threads, gains_blocks)
    gains_512_kernel(const View<bf16> view, const Shares shares, const bf16* __restrict__ dv,
                     float* __restrict__ partials) {
  __shared__ float4 shared[warps][transform_size / 4];
  __shared__ uint4 drawn[CACHED ? 1 : warps][warp_size];
  const int lane = static_cast<int>(threadIdx.x) % warp_size, warp = static_cast<int>(threadIdx.x) / warp_size;
  const Transform512 transform(lane);
  wait_previous_kernel();
  const int share = static_cast<int>(blockIdx.y), first_column = static_cast<int>(blockIdx.x) * transform_size,
            stop = min((share + 1) * shares.size, shares.slots);
  const int in = LayoutA::base(lane), out = LayoutB::base(lane);
  const WarpSigns<CACHED> source{view.experts.signs1, drawn[CACHED ? 0 : warp]};
  int begin = share * shares.size;
  for (int expert = shares.expert_at(begin); begin < stop; ++expert) {
    const int end = min(shares.offsets[expert + 1], stop);
    if (begin == end) continue;
    const std::int64_t number_of = static_cast<std::int64_t>(expert) * view.experts.blocks + blockIdx.x;
    source.draw(number_of, lane);
    const Packed512 masks = Signs512::load<LayoutA>(source.bits(number_of, 0), in).masks();
    // Each warp takes adjacent routing slots. Their numbers are loaded by its lanes at once, because each load depends
    // on the one before.
    const int each = (end - begin + warps - 1) / warps, own = begin + warp * each, own_end = min(own + each, end);
    Float512 sums = {};
    const auto add = [&]<bool FULL>() {
      for (int first = own; first < own_end; first += warp_size) {
        int token_of_lane = 0, row_of_lane = -1;
        float weight_of_lane = 0.0f;
        if (first + lane < own_end) {
          const int slot = shares.order[first + lane];
          token_of_lane = slot / view.choices;
          row_of_lane = view.source(token_of_lane, expert);
          weight_of_lane = view.scale * view.gates[slot];
        }
        for (unsigned left = __ballot_sync(full_warp, row_of_lane >= 0); left != 0; left &= left - 1) {
          const int from = __ffs(static_cast<int>(left)) - 1, row = __shfl_sync(full_warp, row_of_lane, from),
                    token = __shfl_sync(full_warp, token_of_lane, from);
          const float weight = __shfl_sync(full_warp, weight_of_lane, from);
          const Packed512 state =
              load_512<LayoutA, EXACT>(view.states + static_cast<std::int64_t>(row) * view.d, 0, view.d, in);
          const Packed512 up =
              load_512<LayoutB, FULL>(dv + static_cast<std::int64_t>(token) * view.stride, first_column, view.f, out);
          const Float512 activations = transform(flipped(state, masks));
          const std::uint32_t weights = pack(weight, weight);
          Packed512 factor;
#pragma unroll
          for (int a = 0; a < 2; ++a) {
#pragma unroll
            for (int b = 0; b < 2; ++b) {
#pragma unroll
              for (int w = 0; w < 2; ++w) factor.words[a][b][w] = multiply_pairs(up.words[a][b][w], weights);
#pragma unroll
              for (int r = 0; r < 4; ++r)
                sums.values[a][b][r] = fmaf(activations.values[a][b][r], number(factor, a, b, r), sums.values[a][b][r]);
            }
          }
        }
      }
    };
    if (first_column + transform_size <= view.f)
      add.template operator()<true>();
    else
      add.template operator()<false>();
#pragma unroll
    for (int a = 0; a < 2; ++a) {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const float* const values = sums.values[a][b];
        shared[warp][position<LayoutB>(out, a, b) / 4] = make_float4(values[0], values[1], values[2], values[3]);
      }
    }
    __syncthreads();
    const int piece = static_cast<int>(threadIdx.x), column = first_column + 4 * piece;
    if (piece < transform_size / 4 && column < view.f) {
      float total[4] = {};
#pragma unroll
      for (int w = 0; w < warps; ++w) {
        const float4 part = shared[w][piece];
        total[0] += part.x;
        total[1] += part.y;
        total[2] += part.z;
        total[3] += part.w;
      }
      store_elements<4>(partials + shares.part(share, expert) * view.f + column, total);
    }
    begin = end;
    if (begin < stop) __syncthreads();  // before `shared` is written again
  }
}

// --- Any size ---

// Computes V, h and kept of one token per group of lanes. Two arrays.
template <typename T, int LANES>
__global__ void __launch_bounds__(transform_threads) forward_kernel(const View<T> view, T* kept, T* h) {
  wait_previous_kernel();
  using Matrix = SharedTransform<LANES>;
  const HadamardView& experts = view.experts;
  const Matrix matrix(experts, 2);
  float *const values = matrix.array(0), *const sums = matrix.array(1);
  const int token = Matrix::group();
  if (token >= view.tokens) return;
  for (int block = 0; block < experts.blocks; ++block) {
    const int first_column = block * experts.size, columns = min(view.f - first_column, experts.size);
    matrix.fill(0.0f, sums);
    for (int i = 0; i < view.choices; ++i) {
      const int slot = token * view.choices + i, expert = view.indices[slot], row = view.source(token, expert);
      if (row < 0) continue;
      matrix.load(view.states + static_cast<std::int64_t>(row) * view.d, 0, view.d, values);
      matrix.forward(experts.signs1, expert, block, values);
      const float weight = view.scale * view.gates[slot];
      const float* const gain = view.gain(expert) + first_column;
      for (int j = Matrix::lane(); j < columns; j += LANES) sums[j] += weight * gain[j] * values[j];
    }
    for (int j = Matrix::lane(); j < columns; j += LANES) {
      const std::int64_t at = static_cast<std::int64_t>(token) * view.stride + first_column + j;
      float result, keep;
      activate<T>(to_f32(view.hidden[at]), sums[j], view.additive, result, keep);
      if (h != nullptr) h[at] = from_f32<T>(result);
      if (kept != nullptr) kept[at] = from_f32<T>(keep);
    }
  }
}

// Computes what states_512_kernel computes, for one token per group of lanes. Three arrays.
template <typename T, int LANES>
__global__ void __launch_bounds__(transform_threads)
    states_kernel(const View<T> view, const T* dv, T* dstates, float* dgates) {
  wait_previous_kernel();
  __shared__ float scratch[warp_size];
  using Matrix = SharedTransform<LANES>;
  const HadamardView& experts = view.experts;
  const Matrix matrix(experts, 3);
  float *const values = matrix.array(0), *const sums = matrix.array(1), *const gradient = matrix.array(2);
  const int token = Matrix::group();
  if (token >= view.tokens) return;
  matrix.fill(0.0f, sums);
  for (int candidate = 0; candidate < view.candidates(); ++candidate) {
    const int slot = view.reader(token, candidate);
    if (slot < 0) continue;
    const int expert = view.indices[slot];
    const T* const up = dv + static_cast<std::int64_t>(slot / view.choices) * view.stride;
    matrix.fill(0.0f, gradient);
    for (int block = 0; block < experts.blocks; ++block) {
      const int first_column = block * experts.size;
      matrix.load(up, first_column, view.f, values);
      const float* const gain = view.gain(expert) + first_column;
      for (int j = Matrix::lane(); j < min(view.f - first_column, experts.size); j += LANES) values[j] *= gain[j];
      matrix.transposed(experts.signs1, expert, block, values);
      for (int j = Matrix::lane(); j < view.d; j += LANES) gradient[j] += values[j];
    }
    const float weight = view.scale * view.gates[slot];
    float product = 0.0f;
    for (int j = Matrix::lane(); j < view.d; j += LANES) {
      product = fmaf(to_f32(view.states[static_cast<std::int64_t>(token) * view.d + j]), gradient[j], product);
      sums[j] = fmaf(weight, gradient[j], sums[j]);
    }
    product = Matrix::sum(product, scratch);
    if (Matrix::lane() == 0) dgates[slot] = view.scale * product;
  }
  for (int i = Matrix::lane(); i < view.choices; i += LANES) {
    const int slot = token * view.choices + i;
    if (view.source(token, view.indices[slot]) < 0) dgates[slot] = 0.0f;
  }
  for (int j = Matrix::lane(); j < view.d; j += LANES) {
    T& target = dstates[static_cast<std::int64_t>(token) * view.d + j];
    target = from_f32<T>(to_f32(target) + sums[j]);
  }
}

// Computes what gains_512_kernel computes; grid and partials are the same. Two arrays.
template <typename T, int LANES>
__global__ void __launch_bounds__(transform_threads)
    gains_kernel(const View<T> view, const Shares shares, const T* dv, float* partials) {
  wait_previous_kernel();
  using Matrix = SharedTransform<LANES>;
  constexpr int groups = transform_threads / LANES;
  __shared__ const float* parts[groups];
  const HadamardView& experts = view.experts;
  const Matrix matrix(experts, 2);
  float *const values = matrix.array(0), *const sums = matrix.array(1);
  const int group = static_cast<int>(threadIdx.x) / LANES, first_column = static_cast<int>(blockIdx.x) * experts.size,
            columns = min(view.f - first_column, experts.size), share = static_cast<int>(blockIdx.y),
            stop = min((share + 1) * shares.size, shares.slots);
  if (Matrix::lane() == 0) parts[group] = sums;
  int begin = share * shares.size;
  for (int expert = shares.expert_at(begin); begin < stop; ++expert) {
    const int end = min(shares.offsets[expert + 1], stop);
    if (begin == end) continue;
    matrix.fill(0.0f, sums);
    for (int place = begin + group; place < end; place += groups) {
      const int slot = shares.order[place], token = slot / view.choices, row = view.source(token, expert);
      if (row < 0) continue;
      matrix.load(view.states + static_cast<std::int64_t>(row) * view.d, 0, view.d, values);
      matrix.forward(experts.signs1, expert, static_cast<int>(blockIdx.x), values);
      const float weight = view.scale * view.gates[slot];
      const T* const up = dv + static_cast<std::int64_t>(token) * view.stride + first_column;
      for (int j = Matrix::lane(); j < columns; j += LANES) sums[j] = fmaf(weight * values[j], to_f32(up[j]), sums[j]);
    }
    __syncthreads();
    for (int j = threadIdx.x; j < columns; j += transform_threads) {
      float total = 0.0f;
      for (int g = 0; g < groups; ++g) total += parts[g][j];
      partials[shares.part(share, expert) * view.f + first_column + j] = total;
    }
    __syncthreads();
    begin = end;
  }
}

// --- Launches ---

// Calls function.operator()<T, FAST, CACHED, EXACT>(view). FAST: the kernels for P = 512; EXACT: d = 512.
template <typename Function>
void by_kind(const Context& ctx, const Modulation& in, bool aligned, Function&& function) {
  if (static_cast<std::int64_t>(in.routing.indices.elements()) * in.hidden.dim(1) >= std::int64_t{1} << 31)
    failed(Code::size_unsupported, "a batch of {} tokens is too large for the GPU's experts",
           in.routing.indices.dim(0));
  aligned = aligned && all_aligned16(in.hidden.raw(), in.states.raw(), in.gains.value.raw());
  if (aligned && fits_512(ctx, in.hadamard)) {
    const View<bf16> view(in);
    const bool exact = view.d == transform_size;
    if (in.hadamard.cached1)
      return exact ? function.template operator()<bf16, true, true, true>(view)
                   : function.template operator()<bf16, true, true, false>(view);
    return exact ? function.template operator()<bf16, true, false, true>(view)
                 : function.template operator()<bf16, true, false, false>(view);
  }
  with_real_type(ctx.compute, "a modulated layer", [&](auto zero) {
    using T = decltype(zero);
    function.template operator()<T, false, false, false>(View<T>(in));
  });
}

void forward(Context& ctx, const Modulation& in, const Tensor& kept, const Tensor& h) {
  if (in.hidden.dim(0) == 0) return;
  by_kind(ctx, in, all_aligned16(kept.raw(), h.raw()),
          [&]<typename T, bool FAST, bool CACHED, bool EXACT>(const View<T>& view) {
            T* const keep = kept ? elements_of<T>(kept) : nullptr;
            T* const result = h ? elements_of<T>(h) : nullptr;
            if constexpr (FAST) {
              const auto kernel =
                  in.additive ? forward_512_kernel<CACHED, EXACT, true> : forward_512_kernel<CACHED, EXACT, false>;
              const dim3 grid(grid_for(view.tokens, small_warps), static_cast<unsigned>(view.experts.blocks));
              launch_dependent(ctx, kernel, grid, small_threads, 0, view, keep, result);
            } else {
              by_lanes(view.experts, [&]<int LANES>() {
                launch_transforms(ctx, forward_kernel<T, LANES>, LANES,
                                  grid_for(view.tokens, transform_threads / LANES), view.experts, 2, view, keep,
                                  result);
              });
            }
          });
}

void activation_backward(Context& ctx, const Modulation& in, const Tensor& kept, Tensor& dh, Tensor& dhidden) {
  const std::int64_t count = dh.elements();
  with_real_type(ctx.compute, "a modulated layer", [&](auto zero) {
    using T = decltype(zero);
    constexpr int wide = vector_width<T>;
    const auto launch = [&]<int WIDTH>() {
      launch_dependent(ctx, activation_backward_kernel<T, WIDTH>, grid_for(count / WIDTH, threads), threads, 0,
                       elements_of<T>(kept), elements_of<T>(in.hidden), in.additive, count, elements_of<T>(dh),
                       elements_of<T>(dhidden));
    };
    if (count % wide == 0 && all_aligned16(kept.raw(), in.hidden.raw(), dh.raw(), dhidden.raw()))
      launch.template operator()<wide>();
    else
      launch.template operator()<1>();
  });
}

void gains_backward(Context& ctx, const Modulation& in, const DispatchPlan& plan, const Tensor& dv) {
  const std::int64_t f = in.hadamard.sizes.f, slots = plan.order.elements();
  // As many shares as have room on the GPU at once, but at least 32 slots in each.
  const std::int64_t room = std::max<std::int64_t>(
                         1, gains_blocks * ctx.cuda->multiprocessors / in.hadamard.sizes.blocks()),
                     size = std::max<std::int64_t>(32, grid_for(slots, room));
  const auto count = static_cast<unsigned>(grid_for(slots, size));
  const Shares shares{ints(plan.offsets), ints(plan.order), static_cast<int>(slots), plan.experts,
                      static_cast<int>(size)};
  float* const partials = floats(ctx.scratch({count + plan.experts, f}, DType::f32));
  by_kind(ctx, in, aligned16(dv.raw()), [&]<typename T, bool FAST, bool CACHED, bool EXACT>(const View<T>& view) {
    const dim3 grid(static_cast<unsigned>(view.experts.blocks), count);
    if constexpr (FAST) {
      launch_dependent(ctx, gains_512_kernel<CACHED, EXACT>, grid, threads, 0, view, shares, elements_of<T>(dv),
                       partials);
    } else {
      by_lanes(view.experts, [&]<int LANES>() {
        launch_transforms(ctx, gains_kernel<T, LANES>, LANES, grid, view.experts, 2, view, shares, elements_of<T>(dv),
                          partials);
      });
    }
  });
  launch_dependent(ctx, add_shares_kernel, dim3(grid_for(f, threads), static_cast<unsigned>(plan.experts)), threads, 0,
                   shares, partials, static_cast<int>(f), floats(in.gains.grad));
}

void states_backward(Context& ctx, const Modulation& in, const Tensor& dv, Tensor& dstates, Tensor& dgates) {
  by_kind(ctx, in, all_aligned16(dv.raw(), dstates.raw()),
          [&]<typename T, bool FAST, bool CACHED, bool EXACT>(const View<T>& view) {
            if constexpr (FAST) {
              launch_dependent(ctx, states_512_kernel<CACHED, EXACT>, grid_for(view.tokens, small_warps), small_threads,
                               0, view, elements_of<T>(dv), elements_of<T>(dstates), floats(dgates));
            } else {
              by_lanes(view.experts, [&]<int LANES>() {
                launch_transforms(ctx, states_kernel<T, LANES>, LANES, grid_for(view.tokens, transform_threads / LANES),
                                  view.experts, 3, view, elements_of<T>(dv), elements_of<T>(dstates), floats(dgates));
              });
            }
          });
}

}  // namespace

// Rows that are multiples of 16 but not of 32 bytes are slow to load in boxes: with 968 columns, the weight gradients
// that read them took 60 us instead of 44 (H200).
std::int64_t hadamard_modulate_width(Context& ctx, const HadamardExperts& experts) {
  const std::int64_t f = experts.sizes.f;
  return fits_512(ctx, experts) && f % 16 == 8 ? f + 8 : f;
}

// Keeping a number per hidden unit costs less than transforming again.
bool hadamard_keeps_modulation(Context&) { return true; }

void hadamard_modulate_forward(Context& ctx, const Modulation& in, Tensor& v, Tensor& h) { forward(ctx, in, v, h); }

DispatchPlan hadamard_modulate_plan(Context& ctx, const Modulation& in) {
  if (!in.gains.grad || in.routing.indices.elements() == 0) return {};
  return cuda::make_dispatch(ctx, in.routing.indices, in.hadamard.experts, in.routing.counts);
}

void hadamard_modulate_backward(Context& ctx, Tensor& dh, const Modulation& in, const Tensor& v, Tensor& dhidden,
                                Tensor& dstates, Tensor& dgates, Schedule* schedule) {
  if (dh.dim(0) == 0) return;
  Tensor kept = v;
  if (!kept) {
    kept = ctx.scratch(dh.shape());
    forward(ctx, in, kept, Tensor());
  }
  activation_backward(ctx, in, kept, dh, dhidden);
  const Tensor& dv = in.additive ? dhidden : dh;
  if (in.gains.grad) {
    Context& concurrent = schedule != nullptr ? schedule->fork() : ctx;
    gains_backward(concurrent, in, in.plan.order ? in.plan : cuda::hadamard_modulate_plan(concurrent, in), dv);
  }
  states_backward(ctx, in, dv, dstates, dgates);
}

}  // namespace some::cuda

// The mixture of model and memory on the GPU. Each step depends on the previous one, so a single warp computes all
// steps, on its own stream concurrently with the updates.
#include "memory/cuda/search.cuh"
#include "memory/mixture.h"

namespace some::cuda {
namespace {

constexpr int shares_of_one = static_cast<int>(shares_each);
__constant__ float share_of[shares_of_one] = {0.0f, 0.05f, 0.1f, 0.2f, 0.4f, 0.6f, 0.8f};

// Returns 1 / x to one unit in the last place, for x such that neither x nor 1 / x is denormal. Errors do not
// accumulate: the next step divides the weights by their own sum.
__device__ __forceinline__ float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
  return result;
}

// One block. Its first warp processes the positions one after another; groups of LANES lanes compute the same values,
// one lane per beta. All lanes follow the same control flow, and the sequential part is as short as possible: all
// threads compute what does not depend on earlier positions, including exponentials and logarithms. The probabilities
// of a position are scaled by a power of two (the exponent of the largest), which keeps sums in the range of safe
// division.
constexpr int mixed_at_once = 512;
template <int LANES>
__global__ void __launch_bounds__(threads)
    mix_kernel(const float* target_prob, const std::int32_t* targets, int positions, int beta_count, float kept,
               float given, float* shares, float* nll) {
  wait_previous_kernel_no_trigger();
  __shared__ float model[mixed_at_once], answer[mixed_at_once], memory[mixed_at_once][LANES];
  __shared__ bool real[mixed_at_once];
  float weight[shares_of_one];
  const int kind = threadIdx.x % LANES;
  const bool works = threadIdx.x < warp_size;
#pragma unroll
  for (int j = 0; j < shares_of_one; ++j)
    weight[j] = works && kind < beta_count ? shares[kind * shares_of_one + j] : 0.0f;
  constexpr int each = mixed_at_once / threads;
  for (int first = 0; first < positions; first += mixed_at_once) {
    const int count = min(mixed_at_once, positions - first);
    float level[each];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < each; ++k) {
      const int i = k * threads + static_cast<int>(threadIdx.x);
      level[k] = 0.0f;
      if (i >= count) continue;
      const float alone = fmaxf(expf(-nll[first + i]), 1.17549435e-38f);
      float remembered[LANES], largest = alone;
#pragma unroll
      for (int s = 0; s < LANES; ++s) {
        remembered[s] = s < beta_count ? target_prob[s * positions + first + i] : 0.0f;
        largest = fmaxf(largest, remembered[s]);
      }
      const int exponent = ilogbf(largest);
      level[k] = static_cast<float>(exponent) * 0.693147181f;
      real[i] = targets[first + i] >= 0;
      model[i] = scalbnf(alone, -exponent);
#pragma unroll
      for (int s = 0; s < LANES; ++s) memory[i][s] = scalbnf(remembered[s], -exponent);
    }
    __syncthreads();
    if (works) {
      for (int i = 0; i < count; ++i) {
        const float alone = model[i], remembered = memory[i][kind];
        const bool learns = real[i] && kind < beta_count;
        float part[shares_of_one];
#pragma unroll
        for (int j = 0; j < shares_of_one; ++j)
          part[j] = weight[j] * fmaf(share_of[j], remembered, (1.0f - share_of[j]) * alone);
        float sum = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + part[6]);
#pragma unroll
        for (int offset = LANES / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(full_warp, sum, offset);
        const float factor = kept * reciprocal(sum);
#pragma unroll
        for (int j = 0; j < shares_of_one; ++j) weight[j] = learns ? fmaf(factor, part[j], given) : weight[j];
        answer[i] = sum;  // the same in all lanes
      }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < each; ++k) {
      const int i = k * threads + static_cast<int>(threadIdx.x);
      if (i < count && real[i]) nll[first + i] = -(logf(answer[i]) + level[k]);
    }
  }
  if (works && threadIdx.x < beta_count) {
#pragma unroll
    for (int j = 0; j < shares_of_one; ++j) shares[kind * shares_of_one + j] = weight[j];
  }
}

// Calls launch(kernel, arguments...) with the kernel for this number of betas.
template <typename Launch>
void launch_mix(const Launch& launch, const MemorySettings& settings, const Matches& found, const Tensor& targets,
                Tensor& shares, Tensor& nll) {
  const int positions = static_cast<int>(targets.dim(0)), beta_count = static_cast<int>(settings.beta.size());
  if (positions == 0) return;
  const float kept = static_cast<float>(1 - settings.switch_rate),
              given = static_cast<float>(settings.switch_rate / static_cast<double>(settings.mixed()));
  const auto run = [&](auto* kernel) {
    launch(kernel, floats(found.target_prob), ints(targets), positions, beta_count, kept, given, floats(shares),
           floats(nll));
  };
  if (beta_count == 1)
    run(mix_kernel<1>);
  else if (beta_count == 2)
    run(mix_kernel<2>);
  else if (beta_count <= 4)
    run(mix_kernel<4>);
  else
    run(mix_kernel<8>);
}

// A second stream, and the events with which the streams wait for each other.
struct Side {
  cudaStream_t stream = nullptr;
  cudaEvent_t searched = nullptr, mixed = nullptr;

  Side() {
    int least = 0, greatest = 0;
    SOME_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    SOME_CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));  // as for updates
    SOME_CUDA_CHECK(cudaEventCreateWithFlags(&searched, cudaEventDisableTiming));
    SOME_CUDA_CHECK(cudaEventCreateWithFlags(&mixed, cudaEventDisableTiming));
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;
  ~Side() {
    if (stream != nullptr) cudaStreamSynchronize(stream);
    if (mixed != nullptr) cudaEventDestroy(mixed);
    if (searched != nullptr) cudaEventDestroy(searched);
    if (stream != nullptr) cudaStreamDestroy(stream);
    cudaGetLastError();  // clears the error: a destructor cannot report it
  }
};

}  // namespace

void mix(Context& ctx, const MemorySettings& settings, const Matches& found, const Tensor& targets, Tensor& shares,
         Tensor& nll) {
  launch_mix(
      [&](auto* kernel, auto... arguments) { launch_dependent(ctx, kernel, dim3(1), dim3(threads), 0, arguments...); },
      settings, found, targets, shares, nll);
}

void search_and_mix_concurrently(Context& ctx, Mixing& mixing, const Store& store, const MemorySettings& settings,
                                 const Tensor& queries, const Tensor& targets, Matches& found, Tensor& shares,
                                 Tensor& nll) {
  if (targets.dim(0) == 0) return;
  if (mixing == nullptr) mixing = std::make_shared<Side>();
  const Side& side = *static_cast<Side*>(mixing.get());
  const Combine combine = begin_search(ctx, store, settings, queries, targets, found);
  SOME_CUDA_CHECK(cudaEventRecord(side.searched, ctx.cuda->stream));
  SOME_CUDA_CHECK(cudaStreamWaitEvent(side.stream, side.searched, 0));
  if (combine) combine(side.stream);
  launch_mix(
      [&](auto* kernel, auto... arguments) {
        kernel<<<1, threads, 0, side.stream>>>(arguments...);
        SOME_CUDA_LAUNCHED();
      },
      settings, found, targets, shares, nll);
}

void finish_mixing(Context& ctx, const Mixing& mixing) {
  if (mixing == nullptr) return;
  const Side& side = *static_cast<Side*>(mixing.get());
  SOME_CUDA_CHECK(cudaEventRecord(side.mixed, side.stream));
  SOME_CUDA_CHECK(cudaStreamWaitEvent(ctx.cuda->stream, side.mixed, 0));
}

}  // namespace some::cuda

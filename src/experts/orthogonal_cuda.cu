// Block Gram-Schmidt in double precision, with one matrix per block. Every number is one chain of fused multiply-adds
// along one index (orthogonal.h), so each thread computes whole chains: in steps 1 and 2 each thread has 16 or 32 of
// them, while step 3 has few and is bound by their latency. A matrix of 1024 x 512 takes 1.1 GFLOP, and the finished
// columns are read 4 times per panel (256 MB in all, from L2 and device memory).
#include <algorithm>

#include "experts/orthogonal.h"
#include "experts/orthogonal_cuda.h"
#include "kernels/cuda/toolkit.cuh"

namespace some::cuda {
namespace {

constexpr int threads = 512;
constexpr int width = kOrthogonalPanel;
static_assert(width == 16);

struct Problem {
  LibraryMatrix matrix;
  RandomStream stream;
  std::int64_t part_begin;  // first expert of the requested range
  int first_expert;         // first expert of a launch, relative to part_begin
  int rows, cols, tall, wide;
  double* finished;    // [matrices, panels, tall, 16]
  double* projection;  // [matrices, panels * 16, 16], if it does not fit in shared memory
  bool shared_panel, shared_projection;
  void* weights;
  unsigned long long* hash;

  __device__ int panels() const { return (wide + width - 1) / width; }
  // Returns the index of element (i, c) of the tall matrix in the stored matrix.
  __device__ std::int64_t place(int i, int c) const {
    return rows >= cols ? static_cast<std::int64_t>(i) * cols + c : static_cast<std::int64_t>(c) * cols + i;
  }
};

__device__ __forceinline__ void load4(const double* source, double (&values)[4]) {
  const double2 low = reinterpret_cast<const double2*>(source)[0], high = reinterpret_cast<const double2*>(source)[1];
  values[0] = low.x;
  values[1] = low.y;
  values[2] = high.x;
  values[3] = high.y;
}

// Step 1: s[j][l] = sum_i q[i][j] * p[i][l]; each thread computes four j by four l.
__device__ void project(const double* q, const double* p, int columns, int tall, double* s) {
  const int part = static_cast<int>(threadIdx.x) % 4 * 4;
  for (int first = static_cast<int>(threadIdx.x) / 4 * 4; first < columns; first += threads) {
    const double* source = q + (static_cast<std::int64_t>(first / width) * tall) * width + first % width;
    double sum[4][4] = {};
#pragma unroll 4
    for (int i = 0; i < tall; ++i) {
      double left[4], right[4];
      load4(source + static_cast<std::int64_t>(i) * width, left);
      load4(p + i * width + part, right);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int l = 0; l < 4; ++l) sum[j][l] = fma(left[j], right[l], sum[j][l]);
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int l = 0; l < 4; ++l) s[(first + j) * width + part + l] = sum[j][l];
    }
  }
}

// Step 2: p[i] -= sum_j q[i][j] * s[j]; each thread updates ROWS whole rows of the panel.
template <int ROWS>
__device__ __forceinline__ void subtract_rows(const double* q, const double* s, int columns, int tall, int row,
                                              int step, double* p) {
  double sum[ROWS][width];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
#pragma unroll
    for (int l = 0; l < width; ++l) sum[r][l] = p[(row + r * step) * width + l];
  }
  for (int panel = 0; panel < columns / width; ++panel) {
    const double* source = q + (static_cast<std::int64_t>(panel) * tall + row) * width;
    for (int j = 0; j < width; j += 2) {
      double2 factor[ROWS];
#pragma unroll
      for (int r = 0; r < ROWS; ++r)
        factor[r] = *reinterpret_cast<const double2*>(source + static_cast<std::int64_t>(r) * step * width + j);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const double* line = s + (panel * width + j + half) * width;
#pragma unroll
        for (int l = 0; l < width; l += 2) {
          const double2 two = *reinterpret_cast<const double2*>(line + l);
#pragma unroll
          for (int r = 0; r < ROWS; ++r) {
            const double minus = half == 0 ? -factor[r].x : -factor[r].y;
            sum[r][l] = fma(minus, two.x, sum[r][l]);
            sum[r][l + 1] = fma(minus, two.y, sum[r][l + 1]);
          }
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
#pragma unroll
    for (int l = 0; l < width; ++l) p[(row + r * step) * width + l] = sum[r][l];
  }
}

__device__ void subtract(const double* q, const double* s, int columns, int tall, double* p) {
  int row = static_cast<int>(threadIdx.x);
  for (; row + threads < tall; row += 2 * threads) subtract_rows<2>(q, s, columns, tall, row, threads, p);
  if (row < tall) subtract_rows<1>(q, s, columns, tall, row, threads, p);
}

// Step 3. The first warp computes both kinds of chains: the squared length, and the products with the columns to the
// right.
__device__ void orthonormalize_panel(double* p, int tall, int columns, double* line) {
  const int lane = static_cast<int>(threadIdx.x);
  for (int j = 0; j < columns; ++j) {
    if (lane == 0) {
      double square = 0.0;
#pragma unroll 16
      for (int i = 0; i < tall; ++i) square = fma(p[i * width + j], p[i * width + j], square);
      line[0] = inverse_length(square);
    }
    __syncthreads();
    const double scale = line[0];
    for (int i = lane; i < tall; i += threads) p[i * width + j] = p[i * width + j] * scale;
    __syncthreads();
    if (lane > j && lane < columns) {
      double product = 0.0;
#pragma unroll 16
      for (int i = 0; i < tall; ++i) product = fma(p[i * width + j], p[i * width + lane], product);
      line[lane] = product;
    }
    __syncthreads();
    for (int n = lane; n < tall * width; n += threads) {
      const int l = n % width;
      if (l > j && l < columns) p[n] = fma(-p[n - l + j], line[l], p[n]);
    }
    __syncthreads();
  }
}

template <typename T>
__global__ void __launch_bounds__(threads, 1) orthogonal_kernel(Problem problem) {
  extern __shared__ double2 dynamic[];
  __shared__ double line[width];
  __shared__ unsigned long long shared_hash[threads / warp_size];
  const int tall = problem.tall, panels = problem.panels();
  const std::int64_t matrix_size = static_cast<std::int64_t>(panels) * tall * width;
  double* q = problem.finished + blockIdx.x * matrix_size;
  double* next = reinterpret_cast<double*>(dynamic);
  double* shared_panel = next;
  if (problem.shared_panel) next += static_cast<std::int64_t>(tall) * width;
  double* s = problem.shared_projection
                  ? next
                  : problem.projection + static_cast<std::int64_t>(blockIdx.x) * panels * width * width;
  const std::int64_t count = static_cast<std::int64_t>(problem.rows) * problem.cols;
  const std::int64_t expert = problem.first_expert + static_cast<int>(blockIdx.x);
  const std::uint64_t first_index = static_cast<std::uint64_t>((problem.part_begin + expert) * count);
  T* out = static_cast<T*>(problem.weights) + expert * count;
  unsigned long long hash = 0;
  for (int panel = 0; panel < panels; ++panel) {
    const int first = panel * width, columns = min(width, problem.wide - first);
    double* home = q + static_cast<std::int64_t>(panel) * tall * width;
    double* p = problem.shared_panel ? shared_panel : home;
    for (int n = threadIdx.x; n < tall * width; n += threads) {
      const int i = n / width, l = n % width;
      p[n] = l < columns
                 ? static_cast<double>(gaussian_element(problem.stream, first_index + problem.place(i, first + l)))
                 : 0.0;
    }
    __syncthreads();
    for (int pass = 0; pass < kOrthogonalPasses; ++pass) {
      if (first > 0) {
        project(q, p, first, tall, s);
        __syncthreads();
        subtract(q, s, first, tall, p);
        __syncthreads();
      }
      orthonormalize_panel(p, tall, columns, line);
    }
    for (int n = threadIdx.x; n < tall * width; n += threads) {
      const double value = p[n];
      home[n] = value;
      const int i = n / width, l = n % width;
      if (l >= columns) continue;
      const float result = orthogonal_result(value);
      const std::int64_t place = problem.place(i, first + l);
      out[place] = from_f32<T>(result);
      hash += hash_element(problem.matrix, first_index + place, result);
    }
    __syncthreads();
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) hash += __shfl_xor_sync(full_warp, hash, offset);
  if (threadIdx.x % warp_size == 0) shared_hash[threadIdx.x / warp_size] = hash;
  __syncthreads();
  if (threadIdx.x != 0) return;
  unsigned long long total = 0;
  for (const unsigned long long part : shared_hash) total += part;
  atomicAdd(problem.hash, total);
}

}  // namespace

void fill_orthogonal(Context& ctx, LibraryMatrix matrix, RandomStream stream, Block part, int rows, int cols,
                     const Tensor& weights, unsigned long long* hash) {
  const int experts = static_cast<int>(part.count());
  Problem problem;
  problem.part_begin = part.begin;
  problem.matrix = matrix;
  problem.stream = stream;
  problem.rows = rows;
  problem.cols = cols;
  problem.tall = std::max(rows, cols);
  problem.wide = std::min(rows, cols);
  problem.weights = weights.raw();
  problem.hash = hash;
  const std::int64_t panels = (problem.wide + width - 1) / width;
  const std::int64_t matrix_size = panels * problem.tall * width, projection_size = panels * width * width;
  // Two matrices per multiprocessor at a time, within about 2 GiB of memory, which is released before training begins.
  const std::int64_t together = std::clamp<std::int64_t>(
      (std::int64_t{1} << 31) / (matrix_size * 8), 1, std::min<std::int64_t>(experts, 2 * ctx.cuda->multiprocessors));
  const Tensor finished = Tensor::empty({together, matrix_size}, DType::f64, ctx.device);
  const Tensor projection = Tensor::empty({together, projection_size}, DType::f64, ctx.device);
  problem.finished = finished.data<double>();
  problem.projection = projection.data<double>();
  int device = 0, max_shared = 0;
  SOME_CUDA_CHECK(cudaGetDevice(&device));
  SOME_CUDA_CHECK(cudaDeviceGetAttribute(&max_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  const std::int64_t room = max_shared - 2048;
  const std::int64_t panel_bytes = std::int64_t{8} * problem.tall * width, projection_bytes = 8 * projection_size;
  problem.shared_panel = panel_bytes <= room;
  problem.shared_projection = projection_bytes + (problem.shared_panel ? panel_bytes : 0) <= room;
  const std::int64_t shared =
      (problem.shared_panel ? panel_bytes : 0) + (problem.shared_projection ? projection_bytes : 0);
  with_real_type(weights.dtype(), "an expert library", [&](auto tag) {
    using T = decltype(tag);
    SOME_CUDA_CHECK(cudaFuncSetAttribute(orthogonal_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(room)));
    for (int first = 0; first < experts; first += static_cast<int>(together)) {
      problem.first_expert = first;
      const int blocks = static_cast<int>(std::min<std::int64_t>(together, experts - first));
      orthogonal_kernel<T><<<blocks, threads, static_cast<std::size_t>(shared), ctx.cuda->stream>>>(problem);
      SOME_CUDA_LAUNCHED();
    }
  });
}

}  // namespace some::cuda

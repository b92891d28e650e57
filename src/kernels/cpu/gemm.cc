// Floating-point contraction is allowed only in this file: a GEMM kernel without fused multiply-add runs at half speed.
#pragma GCC optimize("fp-contract=fast")

#include "kernels/cpu/gemm.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <new>

#include "kernels/cpu/gemm_avx.h"

namespace some::cpu {
namespace {

using Sgemm = int (*)(char, char, std::int64_t, std::int64_t, std::int64_t, float, const float*, std::int64_t,
                      const float*, std::int64_t, float, float*, std::int64_t);

struct Onednn {
  Sgemm sgemm = nullptr;
  // Get and set the thread count of oneDNN's OpenMP library for calls by this thread; null if oneDNN does not use
  // OpenMP.
  int (*get_threads)() = nullptr;
  void (*set_threads)(int) = nullptr;
  std::string description;
};

// Returns a description such as "oneDNN 2.6.3, instruction set 0xe7 (libdnnl.so.2)": everything that determines a
// GEMM's bits.
std::string describe_onednn(void* handle, const char* name) {
  struct Version {  // first fields of dnnl_version_t
    int major, minor, patch;
  };
  std::string text = "oneDNN";
  if (const auto version = reinterpret_cast<const Version* (*)()>(dlsym(handle, "dnnl_version"))) {
    const Version* number = version();
    text += fmt::format(" {}.{}.{}", number->major, number->minor, number->patch);
  }
  if (const auto isa = reinterpret_cast<unsigned (*)()>(dlsym(handle, "dnnl_get_effective_cpu_isa")))
    text += fmt::format(", instruction set {:#x}", isa());
  return text + " (" + name + ")";
}

// Sets the number of threads that oneDNN uses when called by this thread, for the lifetime of the object. The previous
// number is restored, because the calling thread may use OpenMP for other work.
class OnednnThreads {
 public:
  OnednnThreads(const Onednn& library, int count)
      : library_(library), before_(library.set_threads != nullptr ? library.get_threads() : count), count_(count) {
    if (before_ != count_) library_.set_threads(count_);
  }
  ~OnednnThreads() {
    if (before_ != count_) library_.set_threads(before_);
  }
  OnednnThreads(const OnednnThreads&) = delete;
  OnednnThreads& operator=(const OnednnThreads&) = delete;

 private:
  const Onednn& library_;
  int before_, count_;
};

// Fails if a library is installed but cannot be loaded for lack of memory: running without it would change the results.
[[noreturn]] void no_memory_to_open(const std::string& name) {
  failed(Code::out_of_memory,
         "out of memory: {} cannot be loaded; end other programs, or raise the limit of this shell with 'ulimit -v'",
         name);
}

bool is_for_want_of_memory(const std::string& reason) {
  return reason.find("allocate memory") != std::string::npos || reason.find("map segment") != std::string::npos;
}

// Makes oneDNN generate all its kernels now. oneDNN generates each family of kernels at first use, and writes through a
// null pointer if it cannot allocate memory for them. So all families are generated here, after a probe for enough
// memory: products of one number, of a vector and of a small matrix need 18 MB for their kernels together (oneDNN 2.6.3
// with AVX-512). Later calls allocate only working memory and report an error if that fails.
void make_all_kernels(const Onednn& library, const std::string& name) {
  constexpr std::size_t room = std::size_t{32} << 20;
  void* const probe = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (probe == MAP_FAILED) no_memory_to_open(name);
  munmap(probe, room);
  const OnednnThreads one(library, 1);  // more threads would need memory, too
  constexpr std::int64_t largest = 17;
  const std::vector<float> a(largest * largest), b(largest * largest);
  std::vector<float> c(largest * largest);
  for (const char transpose_a : {'N', 'T'}) {
    for (const char transpose_b : {'N', 'T'}) {
      for (const std::int64_t m : {std::int64_t{1}, std::int64_t{2}, largest}) {
        for (const std::int64_t n : {std::int64_t{1}, std::int64_t{2}, largest}) {
          for (const float beta : {0.0f, 1.0f})
            library.sgemm(transpose_a, transpose_b, m, n, 1, 1.0f, a.data(), largest, b.data(), largest, beta, c.data(),
                          largest);
        }
      }
    }
  }
}

// Returns oneDNN, which the first caller loads for the whole process. It is loaded at run time so that a program built
// here also runs where oneDNN is not installed. The result never changes afterwards.
const Onednn& onednn() {
  static const Onednn library = [] {
    Onednn result;
    // oneDNN 2.6 fails with an illegal instruction in its AMX kernels; a value set by the user has precedence.
    setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", 0);
    for (const char* name : {"libdnnl.so.2", "libdnnl.so.3", "libdnnl.so"}) {
      void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (handle == nullptr) {
        const char* const reason = dlerror();
        if (reason != nullptr && is_for_want_of_memory(reason)) no_memory_to_open(name);
        continue;
      }
      result.sgemm = reinterpret_cast<Sgemm>(dlsym(handle, "dnnl_sgemm"));
      if (result.sgemm != nullptr) {
        result.get_threads = reinterpret_cast<int (*)()>(dlsym(handle, "omp_get_max_threads"));
        result.set_threads = reinterpret_cast<void (*)(int)>(dlsym(handle, "omp_set_num_threads"));
        result.description = describe_onednn(handle, name);
        make_all_kernels(result, name);
        return result;
      }
    }
    result.description = "own kernel (oneDNN is not installed: package libdnnl2 makes training faster)";
    return result;
  }();
  return library;
}

void call_onednn(const Product<float>& p, int threads) {
  const OnednnThreads used(onednn(), threads);
  const int status = onednn().sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.m, p.n, p.k, p.alpha, p.a,
                                    p.lda, p.b, p.ldb, p.beta, p.c, p.ldc);
  constexpr int out_of_memory = 1;
  if (status == out_of_memory) throw std::bad_alloc();
  if (status != 0)
    failed(Code::gpu_failed, "oneDNN refused a product of {} x {} x {} (status {})", p.m, p.n, p.k, status);
}

#if defined(__AVX2__)
template <typename T>
[[gnu::target("avx512f,avx512vl,avx512bw,avx512dq")]] void multiply_avx512(const Product<T>& product) {
  multiply_blocked<T, RegisterBlock<64, 12>>(product);
}

template <typename T>
void multiply_avx2(const Product<T>& product) {
  multiply_blocked<T, RegisterBlock<32, 6>>(product);
}

template <typename T>
void multiply_fast(const Product<T>& product) {
  static const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
  if (wide)
    multiply_avx512(product);
  else
    multiply_avx2(product);
}
#else
// SSE2 has 16 registers of 16 bytes, NEON 32. The order of sums is that of the other blocks; without fused
// multiply-adds (SSE2) each product is rounded too.
template <typename T>
void multiply_fast(const Product<T>& product) {
  multiply_blocked<T, RegisterBlock<16, 6>>(product);
}
#endif

template <typename T>
void multiply(const Product<T>& product) {
  if (product.k == 0) {
    for (std::int64_t row = 0; row < product.m; ++row) {
      T* c = product.c + row * product.ldc;
      for (std::int64_t j = 0; j < product.n; ++j) c[j] = product.beta == T(0) ? T(0) : product.beta * c[j];
    }
  } else {
    multiply_fast(product);
  }
}

}  // namespace

template <>
void native_gemm(const Product<float>& product) {
  multiply(product);
}

template <>
void native_gemm(const Product<double>& product) {
  multiply(product);
}

template <>
void gemm_serial(const Product<float>& product) {
  if (product.m == 0 || product.n == 0) return;
  if (product.k == 0 || onednn().sgemm == nullptr) return native_gemm(product);
  // With several threads, oneDNN would split its sums differently for different thread counts.
  call_onednn(product, 1);
}

template <>
void gemm_serial(const Product<double>& product) {
  native_gemm(product);
}

std::vector<Tile> make_tiles(std::int64_t m, std::int64_t n, std::int64_t wanted) {
  if (m <= 0 || n <= 0) return {};
  constexpr std::int64_t largest_tile = 512, smallest_tile = 96, multiple = 16;
  std::int64_t across = (n + largest_tile - 1) / largest_tile, down = (m + largest_tile - 1) / largest_tile;
  while (across * down < wanted) {
    const std::int64_t width = n / across, height = m / down;
    if (std::max(width, height) < 2 * smallest_tile) break;
    ++(height >= width ? down : across);
  }
  const auto side = [&](std::int64_t size, std::int64_t parts) {
    return ((size + parts - 1) / parts + multiple - 1) / multiple * multiple;
  };
  const std::int64_t height = side(m, down), width = side(n, across);
  std::vector<Tile> tiles;
  for (std::int64_t row = 0; row < m; row += height) {
    for (std::int64_t column = 0; column < n; column += width) {
      tiles.push_back({row, std::min(m, row + height), column, std::min(n, column + width)});
    }
  }
  return tiles;
}

namespace {

template <typename T>
void multiply_all(Threads& threads, const std::vector<Product<T>>& products) {
  if (products.empty()) return;
  const std::int64_t count = static_cast<std::int64_t>(products.size());
  std::vector<Product<T>> work;
  for (const Product<T>& product : products) {
    for (const Tile& tile : make_tiles(product.m, product.n, (tiles_wanted + count - 1) / count)) {
      work.push_back(part_of(product, tile));
    }
  }
  parallel_for(threads, static_cast<std::int64_t>(work.size()),
               [&](std::int64_t i) { gemm_serial(work[static_cast<std::size_t>(i)]); });
}

}  // namespace

template <>
void gemm_batch(Threads& threads, const std::vector<Product<float>>& products) {
  multiply_all(threads, products);
}

template <>
void gemm_batch(Threads& threads, const std::vector<Product<double>>& products) {
  multiply_all(threads, products);
}

bool gemm_is_onednn() { return onednn().sgemm != nullptr; }
std::string gemm_description() { return onednn().description; }

double peak_gemm_rate(Threads& threads, std::int64_t m, std::int64_t n, std::int64_t k, double seconds) {
  std::vector<float> a(static_cast<std::size_t>(m * k), 0.5f), b(static_cast<std::size_t>(k * n), 0.25f);
  std::vector<float> c(static_cast<std::size_t>(m * n));
  const Product<float> product{false, false, m, n, k, 1.0f, a.data(), k, b.data(), n, 0.0f, c.data(), n};
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  double best = 0, spent = 0;
  const auto run_all = [&](auto&& multiply) {
    multiply();  // the first call generates the kernel
    for (int runs = 0; runs < 3 || spent < seconds; ++runs) {
      const double start = now();
      multiply();
      const double took = now() - start;
      spent += took;
      best = std::max(best, 2.0 * static_cast<double>(m * n * k) / took);
    }
  };
  if (gemm_is_onednn()) {
    run_all([&] { call_onednn(product, threads.count()); });
  } else {
    run_all([&] { gemm(threads, product); });
  }
  return best;
}

}  // namespace some::cpu

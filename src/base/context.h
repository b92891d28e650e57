// What every operation is given: the device it runs on, its precisions, and scratch memory that is given back
// when the step ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/tensor.h"

namespace some {

// Bump allocator for activations and scratch. Memory is taken once and reused every step: no allocation in a
// steady training step. Scopes nest: memory allocated inside an ArenaScope is given back at its end.
class Arena {
 public:
  explicit Arena(Device device) : device_(device) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Tensor allocate(Shape shape, DType type);  // contents undefined
  void reset();                              // everything given back; blocks are merged into one of the peak size
  std::size_t peak_bytes() const { return peak_; }
  // Goes up whenever memory is taken or given back: while it stays, equal allocations give equal addresses.
  std::int64_t generation() const { return generation_; }

 private:
  friend class ArenaScope;
  struct Block {
    char* data;
    std::size_t size;
    std::size_t used;
  };
  Device device_;
  std::vector<Block> blocks_;
  std::size_t current_ = 0;
  std::size_t in_use_ = 0;
  std::size_t peak_ = 0;
  std::int64_t generation_ = 0;
};

class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena);
  ~ArenaScope();
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  std::size_t block_;
  std::size_t used_;
  std::size_t in_use_;
};

class Staging;     // base/staging.h
struct CudaState;  // stream, cuBLASLt handle and workspace; defined in base/cuda_state.h (CUDA builds only)
namespace cuda {
std::shared_ptr<CudaState> make_state();
}

struct Context {
  Device device = Device::cpu;
  DType compute = DType::f32;  // activations and matrix weights: f32, f64 (CPU, verification) or bf16 (GPU)
  DType master = DType::f32;   // parameters, gradients, routing, keys: f32, or f64 when compute is f64
  std::unique_ptr<Arena> arena;
  std::shared_ptr<Staging> staging;
  std::shared_ptr<CudaState> cuda;

  Tensor scratch(Shape shape, DType type) { return arena->allocate(std::move(shape), type); }
  Tensor scratch(Shape shape) { return scratch(std::move(shape), compute); }
};

// "cpu" or "cuda" (throws when there is no GPU) or "auto"; precision "fp32", "f64" or "bf16". Refuses what a device
// cannot do (bf16 on the CPU, f64 on the GPU) with an error.
Device choose_device(const std::string& name);
std::unique_ptr<Context> make_context(Device device, const std::string& precision);

}  // namespace some

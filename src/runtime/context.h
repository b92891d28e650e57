// What every operation is given: the device it runs on, threads, its precisions, and scratch memory that is given back
// when the step ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/mesh.h"
#include "runtime/host.h"
#include "tensor/tensor.h"

namespace some {

// Bump allocator for activations and scratch. Memory is taken once and reused every step: no allocation in a
// steady training step. Scopes nest: memory allocated inside an ArenaScope is given back at its end.
class Arena {
 public:
  explicit Arena(Device device) : device_(std::move(device)) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Tensor allocate(Shape shape, DType type);  // contents undefined
  void reset();                              // everything given back; blocks are merged into one of the peak size
  std::size_t peak_bytes() const { return peak_; }
  // Goes up whenever memory is taken or given back: while it stays, equal allocations give equal addresses.
  std::int64_t generation() const { return generation_; }
  // While it is told to keep, what ends gives nothing back; the scope around it does later.
  void keep(bool all) { keeps_ = all; }

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
  bool keeps_ = false;
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

class Staging;  // runtime/staging.h

// Everything that is shared by the operations of one model and by nothing else: threads and log (of the Host), the
// device with its stream, scratch memory. There is no such thing for the process: models with contexts of their own may
// be used by threads of their own at the same time.
struct Context : Host {
  Device device;
  CudaState* cuda = nullptr;   // the device's, for the CUDA operations; null on the CPU
  DType compute = DType::f32;  // activations and matrix weights: f32, f64 (CPU, verification) or bf16 (GPU)
  DType master = DType::f32;   // parameters, gradients, routing, keys: f32, or f64 when compute is f64
  // Ranks that share the experts of each layer, each with a part of them (model/expert_parallel.h); alone: all.
  Group expert_group;
  Mesh mesh() const { return Mesh::of(group.size(), expert_group.size()); }
  std::unique_ptr<Arena> arena;
  std::unique_ptr<Staging> staging;

  Context();
  ~Context();
  Tensor scratch(Shape shape, DType type) { return arena->allocate(std::move(shape), type); }
  Tensor scratch(Shape shape) { return scratch(std::move(shape), compute); }
};

// What activations and matrix weights are computed in. Parameters, routing and keys have four bytes a number in the
// first two.
enum class Precision : std::uint8_t { fp32, bf16, f64 };
const char* name_of(Precision precision);
Precision precision_named(const std::string& name);  // bad_input for a name that is none

// Opens a device. What it cannot do (bf16 on the CPU, f64 on the GPU) is refused with an error.
std::unique_ptr<Context> make_context(const DeviceName& device, Precision precision, Host host = {});
// By their names, as users write them.
std::unique_ptr<Context> make_context(const std::string& device, const std::string& precision, Host host = {});

}  // namespace some

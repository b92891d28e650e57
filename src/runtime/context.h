// The context passed to every operation: device, threads, precisions, and scratch memory that is released when the step
// ends.
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

// Bump allocator for activations and scratch memory. Memory is allocated once and reused every step, so a steady
// training step allocates nothing. Scopes nest: memory allocated inside an ArenaScope is released at its end.
class Arena {
 public:
  // Whether the end of a scope releases its memory, or leaves that to an enclosing scope of another Arena that shares
  // the memory: for work that may run after its scope has ended.
  enum class Scopes : std::uint8_t { release, keep };
  explicit Arena(Device device);
  Arena(const Arena& shared, Scopes scopes) : pool_(shared.pool_), scopes_(scopes) {}  // shares its memory

  Tensor allocate(Shape shape, DType type) { return pool_->allocate(std::move(shape), type); }  // contents undefined
  void reset() { pool_->reset(); }  // releases everything and merges the blocks into one of the peak size
  std::size_t peak_bytes() const { return pool_->peak; }
  // Returns a number that grows whenever device memory is allocated or freed: as long as it is unchanged, the same
  // sequence of allocations returns the same addresses.
  std::int64_t generation() const { return pool_->generation; }

 private:
  friend class ArenaScope;
  struct Block {
    char* data;
    std::size_t size;
    std::size_t used;
  };
  struct Pool {
    explicit Pool(Device where) : device(std::move(where)) {}
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;
    Tensor allocate(Shape shape, DType type);
    void reset();

    Device device;
    std::vector<Block> blocks;
    std::size_t current = 0;
    std::size_t in_use = 0;
    std::size_t peak = 0;
    std::int64_t generation = 0;
  };
  std::shared_ptr<Pool> pool_;
  Scopes scopes_ = Scopes::release;
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

class Staging;    // runtime/staging.h
struct Deferred;  // runtime/schedule.h

// Where operations run: threads and log (of the Host), the device, its stream, and scratch memory. None of it is
// global, so models with separate contexts may be used by different threads at the same time. Contexts for work that
// runs concurrently with this one, or ahead of it, come from a Schedule (runtime/schedule.h) or a Prefetcher.
struct Context : Host {
  Device device;               // of the tensors
  CudaState* cuda = nullptr;   // the stream on which CUDA operations run, with its handles; null on the CPU
  DType compute = DType::f32;  // activations and matrix weights: f32, f64 (CPU, verification) or bf16 (GPU)
  DType master = DType::f32;   // parameters, gradients, routing, keys: f32, or f64 when compute is f64
  // Ranks that hold the experts of each layer together, each rank a part of them (model/ffn/expert_parallel.h). A group
  // of one rank holds all experts.
  Group expert_group;
  Mesh mesh() const { return Mesh::of(group.size(), expert_group.size()); }
  std::unique_ptr<Arena> arena;
  std::shared_ptr<Staging> staging;
  // Collects work that operations complete later, together with others; null: they complete it at once.
  Deferred* deferred = nullptr;

  Context();
  ~Context();
  // Returns a context that differs only in its stream and in the memory that it takes.
  std::unique_ptr<Context> on(CudaState& stream, std::unique_ptr<Arena> memory) const;
  // Copies on this context's stream, as Tensor::copy_from does on the device's.
  void copy(const Tensor& from, Tensor& to) const;
  Tensor scratch(Shape shape, DType type) { return arena->allocate(std::move(shape), type); }
  Tensor scratch(Shape shape) { return scratch(std::move(shape), compute); }
};

// Precision of activations and matrix weights. With fp32 and bf16, parameters, routing and keys use fp32.
enum class Precision : std::uint8_t { fp32, bf16, f64 };
const char* name_of(Precision precision);
Precision parse_precision(const std::string& name);  // bad_input for an unknown name

// Opens a device. Fails if the device does not support the precision (bf16 on the CPU, f64 on the GPU).
std::unique_ptr<Context> make_context(const DeviceName& device, Precision precision, Host host = {});
// The same, by the names that users write.
std::unique_ptr<Context> make_context(const std::string& device, const std::string& precision, Host host = {});

}  // namespace some

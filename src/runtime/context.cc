#include "runtime/context.h"

#include <algorithm>

#include "core/error.h"
#include "runtime/staging.h"

namespace some {
namespace {

constexpr std::size_t alignment = 256;
constexpr std::size_t min_block_bytes = std::size_t{4} << 20;
constexpr std::size_t min_lazy_block_bytes = std::size_t{16} << 20;
constexpr std::size_t max_block_growth = std::size_t{256} << 20;

}  // namespace

Arena::Arena(Device device) : pool_(std::make_shared<Pool>(std::move(device))) {}

Arena::Pool::~Pool() {
  for (const Block& block : blocks) device_release(device, block.data, block.size);
}

Tensor Arena::Pool::allocate(Shape shape, DType type) {
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(type);
  const std::size_t needed = std::max<std::size_t>(1, (bytes + alignment - 1) / alignment) * alignment;
  // Blocks after the current one are empty: their contents have been released.
  std::size_t index = current;
  while (index < blocks.size() && blocks[index].size - blocks[index].used < needed) ++index;
  if (index == blocks.size()) {
    std::size_t total = 0;
    for (const Block& block : blocks) total += block.size;
    // The first block has the size of the peak usage. On a GPU each later block doubles the total, up to a limit,
    // beyond which doubling would waste its memory. On the CPU only what is used of a block takes memory, so few large
    // blocks, which have few unused ends, take the least.
    const bool lazy = device.is_cpu();
    const std::size_t growth = lazy ? 3 * total : std::min(total, max_block_growth);
    const std::size_t size =
        std::max({needed, total == 0 ? peak : growth, lazy ? min_lazy_block_bytes : min_block_bytes});
    blocks.push_back({static_cast<char*>(device_allocate(device, size)), size, 0});
    ++generation;
  }
  current = index;
  Block& block = blocks[index];
  char* data = block.data + block.used;
  block.used += needed;
  in_use += needed;
  peak = std::max(peak, in_use);
  return Tensor::wrap(data, std::move(shape), type, device, nullptr);
}

void Arena::Pool::reset() {
  if (blocks.size() > 1) {
    // The next allocation creates one block of the peak size; until then the memory is free for others.
    for (const Block& block : blocks) device_release(device, block.data, block.size);
    blocks.clear();
    ++generation;
  } else if (!blocks.empty()) {
    blocks[0].used = 0;
  }
  current = 0;
  in_use = 0;
}

ArenaScope::ArenaScope(Arena& arena)
    : arena_(arena),
      block_(arena.pool_->current),
      used_(arena.pool_->blocks.empty() ? 0 : arena.pool_->blocks[arena.pool_->current].used),
      in_use_(arena.pool_->in_use) {}

ArenaScope::~ArenaScope() {
  if (arena_.scopes_ == Arena::Scopes::keep) return;
  Arena::Pool& pool = *arena_.pool_;
  if (in_use_ == 0) {
    pool.reset();
    return;
  }
  for (std::size_t index = block_ + 1; index < pool.blocks.size(); ++index) pool.blocks[index].used = 0;
  if (block_ < pool.blocks.size()) pool.blocks[block_].used = used_;
  pool.current = block_;
  pool.in_use = in_use_;
}

Context::Context() = default;
Context::~Context() = default;

std::unique_ptr<Context> Context::on(CudaState& stream, std::unique_ptr<Arena> memory) const {
  auto other = std::make_unique<Context>();
  static_cast<Host&>(*other) = *this;
  other->device = device;
  other->cuda = &stream;
  other->compute = compute;
  other->master = master;
  other->expert_group = expert_group;
  other->arena = std::move(memory);
  other->staging = staging;
  return other;
}

void Context::copy(const Tensor& from, Tensor& to) const {
  if (device.is_cpu() || from.device() != device || to.device() != device) return to.copy_from(from);
  if (from.shape() != to.shape() || from.dtype() != to.dtype())
    failed(Code::shape_mismatch, "cannot copy a tensor {} {} into one {} {}", some::name_of(from.dtype()),
           from.shape().text(), some::name_of(to.dtype()), to.shape().text());
  cuda::copy(cuda, to.raw(), cuda, from.raw(), from.bytes());
}

const char* name_of(Precision precision) {
  return precision == Precision::fp32 ? "fp32" : precision == Precision::bf16 ? "bf16" : "f64";
}

Precision parse_precision(const std::string& name) {
  for (const Precision one : {Precision::fp32, Precision::bf16, Precision::f64}) {
    if (name == name_of(one)) return one;
  }
  bad_input(Code::device_unknown, "unknown precision \"{}\"; use \"fp32\", \"bf16\" or \"f64\" (CPU)", name);
}

std::unique_ptr<Context> make_context(const DeviceName& device, Precision precision, Host host) {
  const bool gpu = device.kind == DeviceKind::cuda;
  auto context = std::make_unique<Context>();
  static_cast<Host&>(*context) = std::move(host);
  switch (precision) {
    case Precision::fp32: break;
    case Precision::bf16:
      // On the CPU only the operands of products are bf16 (runtime/row_products.h).
      if (gpu) context->compute = DType::bf16;
      break;
    case Precision::f64:
      if (gpu)
        bad_input(Code::precision_unusable,
                  "precision \"f64\" works on the CPU only; use \"fp32\" or \"bf16\" on the GPU");
      context->compute = context->master = DType::f64;
      break;
  }
  if (gpu) {
    context->device = Device(cuda::open(device.index));
    context->cuda = &context->device.cuda();
  }
  context->arena = std::make_unique<Arena>(context->device);
  context->staging = std::make_shared<Staging>();
  context->staging->bf16_products = !gpu && precision == Precision::bf16;
  return context;
}

std::unique_ptr<Context> make_context(const std::string& device, const std::string& precision, Host host) {
  return make_context(choose_device(device), parse_precision(precision), std::move(host));
}

}  // namespace some

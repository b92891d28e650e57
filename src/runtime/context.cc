#include "runtime/context.h"

#include <algorithm>

#include "core/error.h"
#include "runtime/staging.h"

namespace some {
namespace {

constexpr std::size_t alignment = 256;
constexpr std::size_t min_block_bytes = std::size_t{4} << 20;
constexpr std::size_t max_block_growth = std::size_t{256} << 20;

}  // namespace

Arena::~Arena() {
  for (const Block& block : blocks_) device_release(device_, block.data, block.size);
}

Tensor Arena::allocate(Shape shape, DType type) {
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(type);
  const std::size_t needed = std::max<std::size_t>(1, (bytes + alignment - 1) / alignment) * alignment;
  // Blocks after the current one are empty: their contents have been released.
  std::size_t index = current_;
  while (index < blocks_.size() && blocks_[index].size - blocks_[index].used < needed) ++index;
  if (index == blocks_.size()) {
    std::size_t total = 0;
    for (const Block& block : blocks_) total += block.size;
    // The first block has the size of the peak usage. Each later block doubles the total, up to a limit, beyond which
    // doubling would waste GPU memory.
    const std::size_t size =
        std::max({needed, total == 0 ? peak_ : std::min(total, max_block_growth), min_block_bytes});
    blocks_.push_back({static_cast<char*>(device_allocate(device_, size)), size, 0});
    ++generation_;
  }
  current_ = index;
  Block& block = blocks_[index];
  char* data = block.data + block.used;
  block.used += needed;
  in_use_ += needed;
  peak_ = std::max(peak_, in_use_);
  return Tensor::wrap(data, std::move(shape), type, device_, nullptr);
}

void Arena::reset() {
  if (blocks_.size() > 1) {
    // The next allocation creates one block of the peak size; until then the memory is free for others.
    for (const Block& block : blocks_) device_release(device_, block.data, block.size);
    blocks_.clear();
    ++generation_;
  } else if (!blocks_.empty()) {
    blocks_[0].used = 0;
  }
  current_ = 0;
  in_use_ = 0;
}

ArenaScope::ArenaScope(Arena& arena)
    : arena_(arena),
      block_(arena.current_),
      used_(arena.blocks_.empty() ? 0 : arena.blocks_[arena.current_].used),
      in_use_(arena.in_use_) {}

ArenaScope::~ArenaScope() {
  if (arena_.keeps_) return;
  if (in_use_ == 0) {
    arena_.reset();
    return;
  }
  for (std::size_t index = block_ + 1; index < arena_.blocks_.size(); ++index) arena_.blocks_[index].used = 0;
  if (block_ < arena_.blocks_.size()) arena_.blocks_[block_].used = used_;
  arena_.current_ = block_;
  arena_.in_use_ = in_use_;
}

Context::Context() = default;
Context::~Context() = default;

const char* name_of(Precision precision) {
  return precision == Precision::fp32 ? "fp32" : precision == Precision::bf16 ? "bf16" : "f64";
}

Precision parse_precision(const std::string& name) {
  for (const Precision one : {Precision::fp32, Precision::bf16, Precision::f64}) {
    if (name == name_of(one)) return one;
  }
  bad_input(Code::device_unknown, "unknown precision \"{}\"; use \"fp32\", \"bf16\" (GPU) or \"f64\" (CPU)", name);
}

std::unique_ptr<Context> make_context(const DeviceName& device, Precision precision, Host host) {
  const bool gpu = device.kind == DeviceKind::cuda;
  auto context = std::make_unique<Context>();
  static_cast<Host&>(*context) = std::move(host);
  switch (precision) {
    case Precision::fp32: break;
    case Precision::bf16:
      if (!gpu)
        bad_input(Code::precision_unusable, "precision \"bf16\" works on the GPU only; use \"fp32\" on the CPU");
      context->compute = DType::bf16;
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
  context->staging = std::make_unique<Staging>();
  return context;
}

std::unique_ptr<Context> make_context(const std::string& device, const std::string& precision, Host host) {
  return make_context(choose_device(device), parse_precision(precision), std::move(host));
}

}  // namespace some

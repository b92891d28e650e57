#include "runtime/staging.h"

#include <algorithm>

#include "core/error.h"

namespace some {

Staging::~Staging() {
  for (Slot& slot : slots_) {
    if (slot.pinned == nullptr) continue;
    try {
      slot.copied->wait();
    } catch (const Error&) {
      // The GPU is lost: nothing reads this memory any more, and the first error is the one to report.
    }
    cuda::release_pinned(slot.pinned);
  }
}

std::vector<Tensor> Staging::upload(Context& ctx, const std::vector<const std::vector<std::int32_t>*>& parts) {
  constexpr std::int64_t alignment = 64;  // in elements; kernels may load several at once
  std::int64_t count = 0;
  std::vector<std::int64_t> starts;
  for (const auto* part : parts) {
    starts.push_back(count);
    count += (static_cast<std::int64_t>(part->size()) + alignment - 1) / alignment * alignment;
  }
  const Tensor all = ctx.scratch({std::max<std::int64_t>(count, 1)}, DType::i32);
  auto* target = static_cast<std::int32_t*>(all.raw());
  Slot* slot = nullptr;
  if (ctx.device.is_cuda()) {
    slot = &slots_[next_++ % slots_.size()];
    if (slot->copied)
      slot->copied->wait();
    else
      slot->copied = std::make_unique<cuda::Event>(ctx.device);
    if (slot->size < all.bytes()) {
      if (slot->pinned != nullptr) cuda::release_pinned(slot->pinned);
      slot->size = all.bytes() + all.bytes() / 2;
      slot->pinned = cuda::allocate_pinned(ctx.device, slot->size);
    }
    target = static_cast<std::int32_t*>(slot->pinned);
  }
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::copy(parts[i]->begin(), parts[i]->end(), target + starts[i]);
    out.push_back(all.view(starts[i], {static_cast<std::int64_t>(parts[i]->size())}));
  }
  if (slot != nullptr) {
    cuda::upload_async(*ctx.cuda, slot->pinned, all.raw(), all.bytes());
    slot->copied->record(*ctx.cuda);
  }
  return out;
}

}  // namespace some

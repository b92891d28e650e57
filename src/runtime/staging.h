// Small arrays from the host to the device without making the host wait: they are put into pinned memory, copied from
// there on the device's stream, and the pinned memory is used again only when that copy has passed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/context.h"
#include "tensor/device.h"

namespace some {

class Staging {
 public:
  ~Staging();
  // One tensor a part, all in one copy; memory from the arena.
  std::vector<Tensor> upload(Context& ctx, const std::vector<const std::vector<std::int32_t>*>& parts);

 private:
  struct Slot {
    void* pinned = nullptr;
    std::size_t size = 0;
    std::unique_ptr<cuda::Event> copied;
  };
  std::array<Slot, 4> slots_;  // the host may be this many uploads ahead
  std::size_t next_ = 0;
};

}  // namespace some

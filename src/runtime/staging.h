// Asynchronous upload of small arrays from the host to the device: they are written to pinned memory and copied on the
// context's stream. The pinned memory is reused only after that copy has completed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/context.h"
#include "tensor/device.h"

namespace some {

class RowProducts;

class Staging {
 public:
  ~Staging();
  // Uploads all parts in one copy and returns one tensor per part, in memory of the arena.
  std::vector<Tensor> upload(Context& ctx, const std::vector<const std::vector<std::int32_t>*>& parts);

  const RowProducts* row_products = nullptr;  // runtime/row_products.h
  bool bf16_products = false;                 // runtime/row_products.h

 private:
  struct Slot {
    void* pinned = nullptr;
    std::size_t size = 0;
    std::unique_ptr<cuda::Event> copied;
  };
  std::array<Slot, 4> slots_;  // maximum number of uploads in flight
  std::size_t next_ = 0;
};

}  // namespace some

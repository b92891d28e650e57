// What host code puts on a GPU's stream, recorded once and put there again in one go: hundreds of launches become
// one. A recording repeats addresses and numbers: whatever changes must lie in memory, at the same place each time.
#pragma once

#include <functional>

#include "tensor/device.h"

namespace some::cuda {

class Graph {
 public:
  Graph() = default;
  ~Graph();
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;

  bool recorded() const { return executable_ != nullptr; }
  // Runs `work`, whose launches on the device's stream are recorded and not carried out. It must not take memory or
  // wait for the GPU; whatever it throws is thrown on, and nothing is recorded.
  void record(const Device& device, const std::function<void()>& work);
  void launch();  // what was recorded, on the same stream

 private:
  Device device_;
  void* executable_ = nullptr;
};

}  // namespace some::cuda

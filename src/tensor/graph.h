// CUDA graphs: the work that host code puts on a GPU's stream, captured once and launched as a whole, so that hundreds
// of launches become one. A graph repeats addresses and arguments: everything that changes between launches must be in
// memory, at the same address each time.
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
  // Runs `work` and captures its launches on the device's stream instead of executing them. `work` must not allocate
  // memory or wait for the GPU. Its exceptions are rethrown, and then nothing is captured.
  void record(const Device& device, const std::function<void()>& work);
  void launch();  // launches the captured work on the same stream

 private:
  Device device_;
  void* executable_ = nullptr;
};

}  // namespace some::cuda

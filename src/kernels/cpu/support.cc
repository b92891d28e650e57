#include "kernels/cpu/support.h"

#include <cstdlib>

namespace some::cpu {
namespace {

struct ThreadBuffer {
  void* data = nullptr;
  std::size_t size = 0;
  ~ThreadBuffer() { std::free(data); }
};
// Scratch buffers belong to a thread, not to a model: no caller may rely on contents left by an earlier one.
thread_local ThreadBuffer buffers[thread_buffer_slots];

}  // namespace

void* thread_buffer_bytes(int slot, std::size_t bytes) {
  ThreadBuffer& buffer = buffers[slot];
  if (buffer.size < bytes || buffer.data == nullptr) {
    const std::size_t size = (bytes / 4096 + 1) * 4096;
    std::free(buffer.data);
    buffer.size = 0;
    buffer.data = std::aligned_alloc(4096, size);
    if (buffer.data == nullptr) failed(Code::out_of_memory, "no memory left for {} bytes of scratch", size);
    buffer.size = size;
  }
  return buffer.data;
}

}  // namespace some::cpu

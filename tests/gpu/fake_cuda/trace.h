// Shared by the parts of the fake CUDA runtime: the trace and device memory.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <functional>
#include <mutex>
#include <string>

namespace fake_cuda {

// Serializes all entry points.
std::recursive_mutex& mutex();

// Appends one tab-separated line to the file named by SOME_CUDA_TRACE, if set: operation, object (a kernel's name, a
// copy's direction), details (sizes, stream, numbers passed by value), and buffers.
void trace(const std::string& verb, const std::string& object, const std::string& shape,
           const std::string& buffers = {});

// Names a pointer by the allocation it points into and the offset: d3+256 (device memory), h1+0 (pinned), null, host.
std::string buffer_name(const void* pointer);

struct Graph;

struct Stream {
  int number = 0;
  Graph* capture = nullptr;  // the graph that captures work on this stream
};

Stream& stream_of(cudaStream_t stream);

// Writes a line for work on a stream, and executes the work: now, or at each launch of the graph that captures it.
void enqueue(Stream& stream, const std::string& verb, const std::string& object, const std::string& shape,
             const std::string& buffers, std::function<void()> work = {});

}  // namespace fake_cuda

// What the fake CUDA runtime's parts share: the trace that it writes, and the memory that it hands out.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <functional>
#include <mutex>
#include <string>

namespace fake_cuda {

// Serializes all entry points.
std::recursive_mutex& mutex();

// Appends one line of tab-separated columns to the file named by SOME_CUDA_TRACE, if that is set: what is done, to what
// (a kernel's name, a copy's direction), how (sizes, stream, numbers passed by value), and to which buffers.
void trace(const std::string& verb, const std::string& object, const std::string& shape,
           const std::string& buffers = {});

// Names a pointer by the allocation it points into and the offset: d3+256 (device memory), h1+0 (pinned), null, host.
std::string buffer_name(const void* pointer);

struct Graph;

struct Stream {
  int number = 0;
  Graph* capture = nullptr;  // the graph that records what is put on this stream
};

Stream& stream_of(cudaStream_t stream);

// Writes a line for work put on a stream, and does the work: now, or at each launch of the graph that records it.
void enqueue(Stream& stream, const std::string& verb, const std::string& object, const std::string& shape,
             const std::string& buffers, std::function<void()> work = {});

}  // namespace fake_cuda

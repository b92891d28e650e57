// Results of the steps in flight, for the host. Kernels write to one place of a ring in pinned memory, which the host
// reads when the step has ended.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "inference/cuda/steps.h"
#include "inference/decoder.h"
#include "memory/gpu_mixture.h"

namespace some::decoding {

constexpr std::int64_t max_rows = 4096;  // maximum rows per launch; longer prompts are read in pieces
constexpr int ring_size = 8;

// Pinned host memory that the device can read and write.
class Pinned {
 public:
  Pinned(const Device& device, std::size_t bytes) : data_(cuda::allocate_pinned(device, bytes)), size_(bytes) {
    std::memset(data_, 0, bytes);
  }
  ~Pinned() { cuda::release_pinned(data_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t size() const { return size_; }

 private:
  void* data_;
  std::size_t size_;
};

// Rounds the rows of a step up, so that few sizes are recorded: 1, 2, 4, 8, 16, 32, then multiples of 64.
std::int64_t class_of(std::int64_t count);

// Output rows of a step whose results are in one place of the ring.
struct Piece {
  int ring = 0;
  std::size_t begin = 0, end = 0;           // of `wanted`
  std::size_t first_row = 0, last_row = 0;  // of the step
  bool launched = true, gathered = false;
};

struct Flight {
  std::vector<WantedRow> wanted;
  std::vector<std::int32_t> slots;  // per output row
  // Per output row: 1 if the memory's sources of the token are reported; with contexts, the tokens before it.
  std::vector<std::uint8_t> sources;
  std::vector<std::vector<TokenId>> before;
  std::vector<Piece> pieces;
  std::size_t rows = 0;
  DecodeResult result;
};

class StepResults {
 public:
  StepResults(const Device& device, const ModelConfig& config);

  // True if a report of that many rows has no room yet. make_*() allocate it, which moves memory: no step may be in
  // flight, and recorded steps become invalid.
  bool needs_routes(std::int64_t rows) const { return rows > route_rows_; }
  bool needs_states(std::int64_t rows) const { return rows > state_rows_; }
  bool needs_sources(std::int64_t rows) const { return rows > source_rows_; }
  void make_routes(std::int64_t rows);
  void make_states(std::int64_t rows);
  void make_sources(std::int64_t rows);

  // Locations that kernels write to.
  SampleResult* samples() const { return samples_.as<SampleResult>(); }
  RouteReport routes(const std::int32_t* rings) const;
  void place(StateReport& report) const;
  void place(GpuMixture::SourceRows& report) const;

  // Copies the results of a piece, whose step has ended, into those of its flight.
  void read(const Piece& piece, Flight& flight) const;

 private:
  void read_routes(const Piece& piece, DecodeResult& result) const;

  Device device_;
  int layers_, choices_, width_;
  Pinned samples_;  // [ring, max_rows]
  // [ring, rows, ...]; allocated when first reported.
  std::unique_ptr<Pinned> experts_, gates_, states_, sources_;
  std::int64_t route_rows_ = 0, state_rows_ = 0, source_rows_ = 0;
};

}  // namespace some::decoding

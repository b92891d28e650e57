// Collective operations on tensors: all-reduce, broadcast and all-to-all.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <utility>

#include "comm/group_state.h"
#include "comm/mesh.h"
#include "core/error.h"
#include "core/heartbeat.h"

namespace some {
namespace {

// Returns the size from which a tensor is summed in place; smaller tensors are packed together, because a message has
// latency and a copy does not. On a GPU a copy is faster still, and a message takes as long as copying about twenty
// megabytes (docs/scale.md).
std::size_t direct_message_bytes(const Device& device) {
  return std::size_t{device.is_cuda() ? 32U << 20 : 256U << 10};
}
// Maximum bytes in flight, which bounds the extra memory of a sum.
constexpr std::size_t max_at_once = std::size_t{64} << 20;
constexpr std::int64_t numbers_per_chunk = 1 << 16;
constexpr std::size_t max_timings = 256;

template <typename T>
void add_numbers(Threads& threads, const char* source, char* target, std::int64_t count) {
  const T* const from = reinterpret_cast<const T*>(source);
  T* const to = reinterpret_cast<T*>(target);
  parallel_chunks(threads, count, numbers_per_chunk, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) to[i] += from[i];
  });
}

char* room(Tensor& memory, const Device& at, std::size_t bytes) {
  if (!memory || memory.bytes() < bytes) {
    memory = Tensor();  // free the old memory first
    memory = Tensor::empty({static_cast<std::int64_t>((bytes + 7) / 8)}, DType::i64, at);
  }
  return static_cast<char*>(memory.raw());
}

}  // namespace

Group::State::~State() {
  if (pinned != nullptr) cuda::release_pinned(pinned);
}

char* Group::State::received(const Device& at, std::size_t bytes) {
  return room(at.is_cpu() ? received_host : received_gpu, at, bytes);
}

char* Group::State::packed(const Device& device, std::size_t bytes) {
  if (device.is_cpu()) return room(packed_host, device, bytes);
  if (gpu_link) return room(packed_gpu, device, bytes);
  if (pinned_bytes < bytes) {
    if (pinned != nullptr) cuda::release_pinned(std::exchange(pinned, nullptr));
    pinned = static_cast<char*>(cuda::allocate_pinned(device, bytes));
    pinned_bytes = bytes;
  }
  return pinned;
}

void TrafficLog::refine(bool all) {
  std::size_t done = 0;
  for (; done < in_flight.size() && (all || in_flight[done].end->passed()); ++done) {
    traffic.seconds += in_flight[done].end->milliseconds_since(*in_flight[done].begin) / 1e3;
    spare.push_back(std::move(in_flight[done]));
  }
  in_flight.erase(in_flight.begin(), in_flight.begin() + static_cast<std::ptrdiff_t>(done));
}

void Group::State::exchange(const Device& at, std::span<const Link::Message> sends,
                            std::span<const Link::Message> receives) {
  for (const Link::Message& one : sends) ledger->traffic.bytes += static_cast<std::int64_t>(one.bytes);
  ledger->traffic.exchanges += 1;
  if (at.is_cpu()) {
    beat();
    const auto begin = std::chrono::steady_clock::now();
    link->exchange(sends, receives);
    ledger->traffic.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return;
  }
  beat();
  if (ledger->in_flight.size() >= max_timings) ledger->refine(false);
  if (ledger->in_flight.size() >= max_timings) ledger->refine(true);
  TrafficLog::Timing timing;
  if (!ledger->spare.empty()) {
    timing = std::move(ledger->spare.back());
    ledger->spare.pop_back();
  }
  // Events belong to a stream; another context on the same GPU has its own.
  if (!timing.begin || timing.begin->device() != at)
    timing = {std::make_unique<cuda::Event>(at), std::make_unique<cuda::Event>(at)};
  const cuda::CudaDeviceGuard on(at.cuda());
  timing.begin->record();
  if (const std::string problem = gpu_link->exchange(cuda::stream_of(at), sends, receives); !problem.empty())
    failed(Code::ranks_unreachable,
           "ranks cannot exchange data between GPUs: {}; SOME_RANKS_THROUGH=host uses host memory instead", problem);
  timing.end->record();
  ledger->in_flight.push_back(std::move(timing));
}

void Group::State::add(const Numbers& x, const char* from, char* to, std::int64_t count) {
  if (x.at.is_cuda()) return cuda::add_numbers(x.at, x.type, from, to, count);
  switch (x.type) {
    case DType::f32: return add_numbers<float>(x.threads, from, to, count);
    case DType::f64: return add_numbers<double>(x.threads, from, to, count);
    case DType::i32: return add_numbers<std::int32_t>(x.threads, from, to, count);
    case DType::i64: return add_numbers<std::int64_t>(x.threads, from, to, count);
    case DType::bf16: break;
  }
}

void Group::State::sum(const Numbers& x) {
  if (x.type == DType::bf16) failed(Code::type_unsupported, "ranks cannot sum tensors of type {}", name_of(x.type));
  if (size == 1)
    loopback(x);
  else if (std::has_single_bit(static_cast<unsigned>(size)))
    recursive_halving_doubling(x);
  else
    reduce_scatter_all_gather(x);
}

// One rank has nothing to add. A group of one that was opened explicitly sends its numbers to itself, to test the
// transport.
void Group::State::loopback(const Numbers& x) {
  const std::size_t bytes = size_of(x.type) * static_cast<std::size_t>(x.count);
  char* const back = received(x.at, bytes);
  exchange(x.at, {0, x.data, bytes}, {0, back, bytes});
  device_copy(x.at, x.data, x.at, back, bytes);
}

// All-reduce for a power of two of ranks: reduce-scatter by recursive halving, then all-gather by recursive doubling.
// Neighbors are combined first, as in the tree: of two ranks with the same part, each sums one half of it. No rank
// sends more than 2 (R - 1) / R times the numbers, as in a ring all-reduce, but in fewer messages.
void Group::State::recursive_halving_doubling(const Numbers& x) {
  const std::size_t each = size_of(x.type);
  const auto bytes = [&](const Block& part) { return each * static_cast<std::size_t>(part.count()); };
  const auto place = [&](const Block& part) { return x.data + each * static_cast<std::size_t>(part.begin); };
  std::vector<Block> parts;  // the parts of this rank before each round
  Block held{0, x.count};
  char* const arrived = received(x.at, each * static_cast<std::size_t>((x.count + 1) / 2));
  for (int d = 1; d < size; d *= 2) {
    const std::int64_t middle = held.begin + held.count() / 2;
    const Block low{held.begin, middle}, high{middle, held.end};
    const bool keeps_low = (rank & d) == 0;
    const Block &mine = keeps_low ? low : high, &other = keeps_low ? high : low;
    exchange(x.at, {rank ^ d, place(other), bytes(other)}, {rank ^ d, arrived, bytes(mine)});
    add(x, arrived, place(mine), mine.count());
    parts.push_back(held);
    held = mine;
  }
  for (int d = size / 2; d >= 1; d /= 2) {
    const Block whole = parts.back();
    parts.pop_back();
    const Block other = held.begin == whole.begin ? Block{held.end, whole.end} : Block{whole.begin, held.begin};
    exchange(x.at, {rank ^ d, place(held), bytes(held)}, {rank ^ d, place(other), bytes(other)});
    held = whole;
  }
}

// All-reduce for any number of ranks: each rank receives one part of the numbers from all ranks, sums it in tree order
// and sends the sum to all ranks. It sends the same number of bytes, but R - 1 messages at once.
void Group::State::reduce_scatter_all_gather(const Numbers& x) {
  const std::size_t each = size_of(x.type);
  const auto part = [&](int r) { return Block{x.count * r / size, x.count * (r + 1) / size}; };
  const auto bytes = [&](const Block& block) { return each * static_cast<std::size_t>(block.count()); };
  const auto begin_of = [&](const Block& block) { return x.data + each * static_cast<std::size_t>(block.begin); };
  const Block mine = part(rank);
  char* const arrived = received(x.at, bytes(mine) * static_cast<std::size_t>(size));
  const auto place = [&](int r) {
    return r == rank ? begin_of(mine) : arrived + static_cast<std::size_t>(r) * bytes(mine);
  };
  std::vector<Link::Message> sends, receives;
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    sends.push_back({r, begin_of(part(r)), bytes(part(r))});
    receives.push_back({r, place(r), bytes(mine)});
  }
  exchange(x.at, sends, receives);
  // The right half is added to the left half in place; an unpaired rest is added last.
  for (int d = 1; d < size; d *= 2) {
    for (int r = 0; r + d < size; r += 2 * d) add(x, place(r + d), place(r), mine.count());
  }
  if (rank != 0) device_copy(x.at, begin_of(mine), x.at, place(0), bytes(mine));
  sends.clear();
  receives.clear();
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    sends.push_back({r, begin_of(mine), bytes(mine)});
    receives.push_back({r, begin_of(part(r)), bytes(part(r))});
  }
  exchange(x.at, sends, receives);
}

void Group::State::broadcast(const Device& at, char* data, std::size_t bytes) {
  for (std::size_t from = 0; from < bytes; from += max_at_once) {
    const std::size_t length = std::min(max_at_once, bytes - from);
    down(
        [&](int source) {
          receive(at, {source, data + from, length});
        },
        [&](int target) {
          send(at, {target, data + from, length});
        });
  }
}

void Group::all_reduce_sum(Threads& threads, std::span<const Tensor> tensors) const {
  if (!state_) return;
  State& state = *state_;
  std::vector<Device> devices;  // usually one
  for (const Tensor& tensor : tensors) {
    if (tensor && std::find(devices.begin(), devices.end(), tensor.device()) == devices.end())
      devices.push_back(tensor.device());
  }
  for (const DType type : {DType::f32, DType::f64, DType::i32, DType::i64, DType::bf16}) {
    for (const Device& device : devices) {
      const Device& at = state.transport_device(device);
      // Pieces waiting to be summed together, with their sources.
      struct Piece {
        char* data;
        std::size_t bytes;
      };
      std::vector<Piece> pieces;
      std::size_t waiting = 0;
      const auto numbers = [&](char* data, std::size_t bytes) {
        return State::Numbers{threads, at, type, data, static_cast<std::int64_t>(bytes / size_of(type))};
      };
      const auto sum_waiting = [&] {
        if (waiting == 0) return;
        char* const together = state.packed(device, waiting);
        std::size_t place = 0;
        for (const Piece& piece : pieces)
          device_copy(at, together + std::exchange(place, place + piece.bytes), device, piece.data, piece.bytes);
        state.sum(numbers(together, waiting));
        place = 0;
        for (const Piece& piece : pieces)
          device_copy(device, piece.data, at, together + std::exchange(place, place + piece.bytes), piece.bytes);
        pieces.clear();
        waiting = 0;
      };
      for (const Tensor& tensor : tensors) {
        if (!tensor || tensor.dtype() != type || tensor.device() != device) continue;
        for (std::size_t from = 0; from < tensor.bytes(); from += max_at_once) {
          const std::size_t bytes = std::min(max_at_once, tensor.bytes() - from);
          char* const data = static_cast<char*>(tensor.raw()) + from;
          if (at == device && bytes >= direct_message_bytes(device)) {
            state.sum(numbers(data, bytes));
            continue;
          }
          if (waiting + bytes > max_at_once) sum_waiting();
          pieces.push_back({data, bytes});
          waiting += bytes;
        }
      }
      sum_waiting();
    }
  }
}

void Group::all_reduce_with(std::span<const Tensor> tensors,
                            const std::function<void(std::span<const Tensor> later)>& merge) const {
  if (!state_) return;
  State& state = *state_;
  const auto give = [&](int to) {
    for (const Tensor& tensor : tensors) {
      const Device& at = state.transport_device(tensor.device());
      const Tensor here = at == tensor.device() ? tensor : tensor.to(at);
      state.send(at, {to, here.raw(), here.bytes()});
    }
  };
  const auto take = [&](int from) {
    std::vector<Tensor> later;
    for (const Tensor& tensor : tensors) {
      const Device& at = state.transport_device(tensor.device());
      const Tensor here = Tensor::empty(tensor.shape(), tensor.dtype(), at);
      state.receive(at, {from, here.raw(), here.bytes()});
      later.push_back(at == tensor.device() ? here : here.to(tensor.device()));
    }
    merge(later);
  };
  state.up(take, give);
  broadcast(tensors);
}

void Group::broadcast(std::span<const Tensor> tensors) const {
  if (!state_) return;
  State& state = *state_;
  for (const Tensor& tensor : tensors) {
    if (!tensor || tensor.bytes() == 0) continue;
    const Device& at = state.transport_device(tensor.device());
    Tensor here = tensor;
    if (at != tensor.device()) here = root() ? tensor.to(at) : Tensor::empty(tensor.shape(), tensor.dtype(), at);
    state.broadcast(at, static_cast<char*>(here.raw()), here.bytes());
    if (at != tensor.device() && !root()) device_copy(tensor.device(), tensor.raw(), at, here.raw(), here.bytes());
  }
}

void Group::all_to_all(const Tensor& from, std::span<const std::int64_t> sent, const Tensor& to,
                       std::span<const std::int64_t> received) const {
  const auto row_bytes = [](const Tensor& tensor) {
    return tensor.dim(0) == 0 ? 0 : tensor.bytes() / static_cast<std::size_t>(tensor.dim(0));
  };
  const auto rows_of = [](std::span<const std::int64_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  };
  const std::size_t each = std::max(row_bytes(from), row_bytes(to));
  const auto ranks = static_cast<std::size_t>(size()), self = static_cast<std::size_t>(rank());
  const bool fits = sent.size() == ranks && received.size() == ranks && rows_of(sent) == from.dim(0) &&
                    rows_of(received) == to.dim(0) && sent[self] == received[self];
  if (!fits || from.dtype() != to.dtype() || from.device() != to.device() ||
      from.bytes() != static_cast<std::size_t>(from.dim(0)) * each ||
      to.bytes() != static_cast<std::size_t>(to.dim(0)) * each)
    failed(Code::rank_transfer,
           "ranks cannot exchange rows: {} rows for {} ranks into {} from {}, or their types or lengths differ",
           from.dim(0), sent.size(), to.dim(0), received.size());
  const auto starts = [&](std::span<const std::int64_t> counts) {
    std::vector<std::size_t> out;
    std::size_t at = 0;
    for (const std::int64_t rows : counts) out.push_back(std::exchange(at, at + static_cast<std::size_t>(rows) * each));
    return out;
  };
  const std::vector<std::size_t> sent_at = starts(sent), received_at = starts(received);
  const Device& device = from.device();
  if (sent[self] > 0)
    device_copy(device, static_cast<char*>(to.raw()) + received_at[self], device,
                static_cast<char*>(from.raw()) + sent_at[self], static_cast<std::size_t>(sent[self]) * each);
  if (!state_) return;
  const Device& at = state_->transport_device(device);
  char *source = static_cast<char*>(from.raw()), *target = static_cast<char*>(to.raw());
  const bool staged = at != device;
  if (staged) {
    source = state_->packed(device, from.bytes() + to.bytes());
    target = source + from.bytes();
    device_copy(at, source, device, from.raw(), from.bytes());
  }
  std::vector<Link::Message> sends, receives;
  // Staggered, so that the first messages do not all go to the same rank.
  for (std::size_t step = 1; step < ranks; ++step) {
    const std::size_t next = (self + step) % ranks, before = (self + ranks - step) % ranks;
    if (sent[next] > 0)
      sends.push_back({static_cast<int>(next), source + sent_at[next], static_cast<std::size_t>(sent[next]) * each});
    if (received[before] > 0)
      receives.push_back(
          {static_cast<int>(before), target + received_at[before], static_cast<std::size_t>(received[before]) * each});
  }
  if (!sends.empty() || !receives.empty()) state_->exchange(at, sends, receives);
  if (!staged) return;
  for (const Link::Message& one : receives)
    device_copy(device, static_cast<char*>(to.raw()) + (static_cast<char*>(one.data) - target), at, one.data,
                one.bytes);
}

}  // namespace some

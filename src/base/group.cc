#include "base/group.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "base/cpus.h"
#include "base/device.h"
#include "base/error.h"

namespace some {
namespace {

// Larger tensors are summed where they are, smaller ones together: a message costs its latency, a copy does not.
constexpr std::size_t worth_its_own_message = std::size_t{256} << 10;
// What is on its way at once; it bounds the memory that a sum needs beside its tensors.
constexpr std::size_t most_at_once = std::size_t{64} << 20;
constexpr std::int64_t numbers_a_piece = 1 << 16;

template <typename T>
void add_numbers(Threads& threads, const T* from, T* to, std::int64_t count) {
  parallel_chunks(threads, count, numbers_a_piece, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) to[i] += from[i];
  });
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// "0,1,5": the CPUs this process may run on.
std::string allowed_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return "all";
  std::string text;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) text += fmt::format("{},", cpu);
  }
  return text;
}

// Some ranks of a link, numbered anew.
class PartLink : public Link {
 public:
  PartLink(const std::shared_ptr<Link>& whole, int rank, std::span<const int> ranks)
      : whole_(whole), ranks_(ranks.begin(), ranks.end()) {
    const auto own = std::find(ranks_.begin(), ranks_.end(), rank);
    if (own == ranks_.end()) failed("rank {} is none of those it would make a group with", rank);
    rank_ = static_cast<int>(own - ranks_.begin());
  }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  void exchange(std::span<const Message> sends, std::span<const Message> receives) override {
    const auto renamed = [&](std::span<const Message> messages) {
      std::vector<Message> out(messages.begin(), messages.end());
      for (Message& one : out) one.peer = ranks_.at(static_cast<std::size_t>(one.peer));
      return out;
    };
    whole_.lock()->exchange(renamed(sends), renamed(receives));
  }
  [[noreturn]] void end_all(int code) noexcept override {
    if (const auto whole = whole_.lock()) whole->end_all(code);
    std::_Exit(code);
  }

 private:
  std::weak_ptr<Link> whole_;  // the whole group's alone: with its leave() all parts end
  std::vector<int> ranks_;
  int rank_ = 0;
};

}  // namespace

Block block_of(std::int64_t items, int rank, int ranks) {
  const std::int64_t each = (items + ranks - 1) / ranks;
  const auto length =
      static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(each, 1))));
  return {std::min(items, rank * length), std::min(items, (rank + 1) * length)};
}

bool enough_for_all(std::int64_t items, int ranks) { return block_of(items, ranks - 1, ranks).count() > 0; }

struct Group::State {
  std::shared_ptr<Link> link;
  int rank = 0, size = 1;
  std::vector<std::string> hosts;
  int local_rank = 0, cpus = 1;
  Traffic traffic;
  std::vector<char> spare;  // what a sum receives
  // Small tensors side by side, or a part of one from a GPU: then in pinned memory, which is copied from and to faster.
  std::vector<char> packed;
  char* pinned = nullptr;
  std::size_t pinned_bytes = 0;
  void exchange(std::span<const Link::Message> sends, std::span<const Link::Message> receives) {
    const auto begin = std::chrono::steady_clock::now();
    link->exchange(sends, receives);
    traffic.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    for (const Link::Message& one : sends) traffic.bytes += static_cast<std::int64_t>(one.bytes);
    traffic.exchanges += 1;
  }
  void exchange(const Link::Message& send, const Link::Message& receive) {
    exchange(std::span(&send, 1), std::span(&receive, 1));
  }
  void send(const Link::Message& one) { exchange(std::span(&one, 1), {}); }
  void receive(const Link::Message& one) { exchange({}, std::span(&one, 1)); }

  // A tree whose root is rank 0: in round d = 1, 2, 4, ... a rank that is an odd multiple of d gives to rank - d.
  // take(from) is called where this rank is given something, give(to) where it gives; that is its last act.
  template <typename Take, typename Give>
  void up(const Take& take, const Give& give) {
    for (int d = 1; d < size; d *= 2) {
      if (rank % (2 * d) == d) return give(rank - d);
      if (rank % (2 * d) == 0 && rank + d < size) take(rank + d);
    }
  }
  // The same tree from the root to the leaves.
  template <typename Take, typename Give>
  void down(const Take& take, const Give& give) {
    for (int d = static_cast<int>(std::bit_ceil(static_cast<unsigned>(size))) / 2; d >= 1; d /= 2) {
      if (rank % (2 * d) == d) take(rank - d);
      if (rank % (2 * d) == 0 && rank + d < size) give(rank + d);
    }
  }

  char* room(std::vector<char>& buffer, std::size_t bytes) {
    if (buffer.size() < bytes) buffer.resize(bytes);
    return buffer.data();
  }
  char* staging(const Device& device, std::size_t bytes) {
    if (device.is_cpu()) return room(packed, bytes);
    if (pinned_bytes < bytes) {
      if (pinned != nullptr) cuda::release_pinned(pinned);
      pinned = static_cast<char*>(cuda::allocate_pinned(device, bytes));
      pinned_bytes = bytes;
    }
    return pinned;
  }

  template <typename T>
  void sum(Threads& threads, T* x, std::int64_t count) {
    if (std::has_single_bit(static_cast<unsigned>(size)))
      halve_and_double(threads, x, count);
    else
      by_owners(threads, x, count);
  }

  // A power of two of ranks. Neighbours first, as the tree has it: each of two ranks that hold the same part adds up
  // one half of it; in the end every rank holds its part of the sum, and they are handed round the same way back. No
  // rank sends more than twice (R - 1) / R of the numbers: as much as in a ring, in fewer messages.
  template <typename T>
  void halve_and_double(Threads& threads, T* x, std::int64_t count) {
    std::vector<Block> parts;  // what this rank held before each round
    Block held{0, count};
    T* const received = reinterpret_cast<T*>(room(spare, sizeof(T) * static_cast<std::size_t>((count + 1) / 2)));
    const auto bytes = [](const Block& part) { return sizeof(T) * static_cast<std::size_t>(part.count()); };
    for (int d = 1; d < size; d *= 2) {
      const std::int64_t middle = held.begin + held.count() / 2;
      const Block low{held.begin, middle}, high{middle, held.end};
      const bool keeps_low = (rank & d) == 0;
      const Block &mine = keeps_low ? low : high, &other = keeps_low ? high : low;
      exchange({rank ^ d, x + other.begin, bytes(other)}, {rank ^ d, received, bytes(mine)});
      add_numbers(threads, received, x + mine.begin, mine.count());
      parts.push_back(held);
      held = mine;
    }
    for (int d = size / 2; d >= 1; d /= 2) {
      const Block whole = parts.back();
      parts.pop_back();
      const Block other = held.begin == whole.begin ? Block{held.end, whole.end} : Block{whole.begin, held.begin};
      exchange({rank ^ d, x + held.begin, bytes(held)}, {rank ^ d, x + other.begin, bytes(other)});
      held = whole;
    }
  }

  // Any number of ranks: each gets one part of the numbers from everybody, adds them up by the tree and sends the sum
  // to everybody. As many bytes, but R - 1 messages at once.
  template <typename T>
  void by_owners(Threads& threads, T* x, std::int64_t count) {
    const auto part = [&](int r) { return Block{count * r / size, count * (r + 1) / size}; };
    const auto bytes = [](const Block& block) { return sizeof(T) * static_cast<std::size_t>(block.count()); };
    const Block mine = part(rank);
    T* const received = reinterpret_cast<T*>(room(spare, bytes(mine) * static_cast<std::size_t>(size)));
    const auto place = [&](int r) { return r == rank ? x + mine.begin : received + r * mine.count(); };
    std::vector<Link::Message> sends, receives;
    for (int r = 0; r < size; ++r) {
      if (r == rank) continue;
      sends.push_back({r, x + part(r).begin, bytes(part(r))});
      receives.push_back({r, place(r), bytes(mine)});
    }
    exchange(sends, receives);
    // Left and right halves meet at the left one's place; what is left over joins last.
    for (int d = 1; d < size; d *= 2) {
      for (int r = 0; r + d < size; r += 2 * d) add_numbers(threads, place(r + d), place(r), mine.count());
    }
    if (rank != 0) std::copy_n(place(0), mine.count(), x + mine.begin);
    sends.clear();
    receives.clear();
    for (int r = 0; r < size; ++r) {
      if (r == rank) continue;
      sends.push_back({r, x + mine.begin, bytes(mine)});
      receives.push_back({r, x + part(r).begin, bytes(part(r))});
    }
    exchange(sends, receives);
  }

  void sum(Threads& threads, DType type, char* data, std::size_t size) {
    const auto count = static_cast<std::int64_t>(size / size_of(type));
    switch (type) {
      case DType::f32: return sum(threads, reinterpret_cast<float*>(data), count);
      case DType::f64: return sum(threads, reinterpret_cast<double*>(data), count);
      case DType::i32: return sum(threads, reinterpret_cast<std::int32_t*>(data), count);
      case DType::i64: return sum(threads, reinterpret_cast<std::int64_t*>(data), count);
      case DType::bf16: break;
    }
    failed("ranks do not add up numbers of type {}", name_of(type));
  }
};

Group::Group(std::shared_ptr<Link> link) : state_(std::make_shared<State>()) {
  state_->link = std::move(link);
  state_->rank = state_->link->rank();
  state_->size = state_->link->size();
  const std::string cpus = allowed_cpus(), mine = host_name() + "\n" + cpus;
  int sharing = 0;
  const std::vector<std::string> all = gather(mine);
  for (int r = 0; r < size(); ++r) {
    const std::string& one = all[static_cast<std::size_t>(r)];
    state_->hosts.push_back(one.substr(0, one.find('\n')));
    state_->local_rank += r < rank() && state_->hosts.back() == mine.substr(0, mine.find('\n'));
    sharing += one == mine;
  }
  state_->cpus = std::max(1, usable_cpus() / std::max(1, sharing));
}

int Group::rank() const { return state_ ? state_->rank : 0; }
int Group::size() const { return state_ ? state_->size : 1; }
int Group::local_rank() const { return state_ ? state_->local_rank : 0; }
int Group::cpus() const { return state_ ? state_->cpus : usable_cpus(); }
Group::Traffic Group::traffic() const { return state_ ? state_->traffic : Traffic(); }

const std::string& Group::host(int rank) const {
  static const std::string here = host_name();
  return state_ ? state_->hosts.at(static_cast<std::size_t>(rank)) : here;
}

std::string Group::name() const { return state_ ? fmt::format("rank {} on {}", rank(), host(rank())) : ""; }

void Group::end_all(int code) const {
  if (state_ && state_->link) state_->link->end_all(code);
  std::_Exit(code);
}

void Group::leave() const {
  if (!state_) return;
  state_->link.reset();
  if (state_->pinned != nullptr) cuda::release_pinned(std::exchange(state_->pinned, nullptr));
}

void Group::sum(Threads& threads, std::span<const Tensor> tensors) const {
  if (!state_) return;
  State& state = *state_;
  for (const DType type : {DType::f32, DType::f64, DType::i32, DType::i64, DType::bf16}) {
    // Pieces that wait to be summed together, and where they came from.
    struct Piece {
      const Tensor* tensor;
      std::size_t from, bytes;
    };
    std::vector<Piece> pieces;
    std::size_t waiting = 0;
    char* staged = nullptr;
    const auto copy = [&](const Piece& piece, std::size_t at, bool back) {
      char *const there = static_cast<char*>(piece.tensor->raw()) + piece.from, *const here = staged + at;
      const Device& device = piece.tensor->device();
      if (back)
        device_copy(device, there, Device::cpu, here, piece.bytes);
      else
        device_copy(Device::cpu, here, device, there, piece.bytes);
    };
    const auto sum_waiting = [&] {
      if (waiting == 0) return;
      staged = state.staging(pieces[0].tensor->device(), waiting);
      std::size_t at = 0;
      for (const Piece& piece : pieces) copy(piece, std::exchange(at, at + piece.bytes), false);
      state.sum(threads, type, staged, waiting);
      at = 0;
      for (const Piece& piece : pieces) copy(piece, std::exchange(at, at + piece.bytes), true);
      pieces.clear();
      waiting = 0;
    };
    for (const Tensor& tensor : tensors) {
      if (!tensor || tensor.dtype() != type) continue;
      for (std::size_t from = 0; from < tensor.bytes(); from += most_at_once) {
        const std::size_t bytes = std::min(most_at_once, tensor.bytes() - from);
        if (tensor.device().is_cpu() && bytes >= worth_its_own_message) {
          state.sum(threads, type, static_cast<char*>(tensor.raw()) + from, bytes);
          continue;
        }
        if (waiting + bytes > most_at_once) sum_waiting();
        pieces.push_back({&tensor, from, bytes});
        waiting += bytes;
      }
    }
    sum_waiting();
  }
}

void Group::fold(std::span<const Tensor> tensors,
                 const std::function<void(std::span<const Tensor> later)>& merge) const {
  if (!state_) return;
  State& state = *state_;
  const auto give = [&](int to) {
    for (const Tensor& tensor : tensors) {
      const Tensor here = tensor.device().is_cpu() ? tensor : tensor.to(Device::cpu);
      state.send({to, here.raw(), here.bytes()});
    }
  };
  const auto take = [&](int from) {
    std::vector<Tensor> later;
    for (const Tensor& tensor : tensors) {
      Tensor here = Tensor::empty(tensor.shape(), tensor.dtype());
      state.receive({from, here.raw(), here.bytes()});
      later.push_back(tensor.device().is_cpu() ? here : here.to(tensor.device()));
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
    Tensor here = tensor;
    if (tensor.device().is_cuda())
      here = root() ? tensor.to(Device::cpu) : Tensor::empty(tensor.shape(), tensor.dtype());
    for (std::size_t from = 0; from < here.bytes(); from += most_at_once) {
      char* const data = static_cast<char*>(here.raw()) + from;
      const std::size_t bytes = std::min(most_at_once, here.bytes() - from);
      state.down(
          [&](int source) {
            state.receive({source, data, bytes});
          },
          [&](int target) {
            state.send({target, data, bytes});
          });
    }
    if (tensor.device().is_cuda() && !root())
      device_copy(tensor.device(), tensor.raw(), Device::cpu, here.raw(), here.bytes());
  }
}

void Group::broadcast(std::string& text) const {
  if (!state_) return;
  auto length = static_cast<std::int64_t>(text.size());
  broadcast(std::array{Tensor::wrap(&length, {1}, DType::i64, Device::cpu, nullptr)});
  text.resize(static_cast<std::size_t>(length));
  State& state = *state_;
  for (std::size_t from = 0; from < text.size(); from += most_at_once) {
    const std::size_t bytes = std::min(most_at_once, text.size() - from);
    state.down(
        [&](int source) {
          state.receive({source, text.data() + from, bytes});
        },
        [&](int target) {
          state.send({target, text.data() + from, bytes});
        });
  }
}

std::vector<std::string> Group::gather(const std::string& mine) const {
  if (!state_) return {mine};
  State& state = *state_;
  // One text: each rank's with its length before it, in the order of the ranks.
  const auto packed = [](const std::string& text) {
    const auto length = static_cast<std::uint64_t>(text.size());
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
  };
  std::string all = packed(mine);
  state.up(
      [&](int from) {
        std::uint64_t length = 0;
        state.receive({from, &length, sizeof length});
        const std::size_t before = all.size();
        all.resize(before + length);
        state.receive({from, all.data() + before, length});
      },
      [&](int to) {
        std::uint64_t length = all.size();
        state.send({to, &length, sizeof length});
        state.send({to, all.data(), all.size()});
      });
  broadcast(all);
  std::vector<std::string> out;
  for (std::size_t at = 0; at < all.size();) {
    std::uint64_t length = 0;
    std::memcpy(&length, all.data() + at, sizeof length);
    out.push_back(all.substr(at + sizeof length, length));
    at += sizeof length + length;
  }
  return out;
}

std::int64_t Group::highest(std::int64_t mine) const {
  if (!state_) return mine;
  // In round d everyone knows the highest of the 2d ranks up to its own.
  for (int d = 1; d < size(); d *= 2) {
    std::int64_t other = 0;
    state_->exchange({(rank() + d) % size(), &mine, sizeof mine},
                     {(rank() - d + size()) % size(), &other, sizeof other});
    mine = std::max(mine, other);
  }
  return mine;
}

void Group::exchange(const Tensor& from, std::span<const std::int64_t> sent, const Tensor& to,
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
    failed("ranks cannot exchange rows: {} rows for {} ranks into {} from {}, or their types or lengths differ",
           from.dim(0), sent.size(), to.dim(0), received.size());
  const auto starts = [&](std::span<const std::int64_t> counts) {
    std::vector<std::size_t> out;
    std::size_t at = 0;
    for (const std::int64_t rows : counts) out.push_back(std::exchange(at, at + static_cast<std::size_t>(rows) * each));
    return out;
  };
  const std::vector<std::size_t> sent_at = starts(sent), received_at = starts(received);
  device_copy(to.device(), static_cast<char*>(to.raw()) + received_at[self], from.device(),
              static_cast<char*>(from.raw()) + sent_at[self], static_cast<std::size_t>(sent[self]) * each);
  if (!state_) return;
  char *source = static_cast<char*>(from.raw()), *target = static_cast<char*>(to.raw());
  const bool staged = from.device().is_cuda();
  if (staged) {
    source = state_->staging(from.device(), from.bytes() + to.bytes());
    target = source + from.bytes();
    device_copy(Device::cpu, source, from.device(), from.raw(), from.bytes());
  }
  std::vector<Link::Message> sends, receives;
  for (std::size_t step = 1; step < ranks; ++step) {  // not everybody's first message to the same rank
    const std::size_t next = (self + step) % ranks, before = (self + ranks - step) % ranks;
    if (sent[next] > 0)
      sends.push_back({static_cast<int>(next), source + sent_at[next], static_cast<std::size_t>(sent[next]) * each});
    if (received[before] > 0)
      receives.push_back(
          {static_cast<int>(before), target + received_at[before], static_cast<std::size_t>(received[before]) * each});
  }
  state_->exchange(sends, receives);
  if (!staged) return;
  for (const Link::Message& one : receives)
    device_copy(to.device(), static_cast<char*>(to.raw()) + (static_cast<char*>(one.data) - target), Device::cpu,
                one.data, one.bytes);
}

std::vector<std::int64_t> Group::exchange(std::span<const std::int64_t> numbers) const {
  std::vector<std::int64_t> mine(numbers.begin(), numbers.end()), others(mine.size());
  const std::vector<std::int64_t> one_each(static_cast<std::size_t>(size()), 1);
  const auto as_tensor = [](std::vector<std::int64_t>& values) {
    return Tensor::wrap(values.data(), {static_cast<std::int64_t>(values.size())}, DType::i64, Device::cpu, nullptr);
  };
  exchange(as_tensor(mine), one_each, as_tensor(others), one_each);
  return others;
}

Group Group::part(std::span<const int> ranks) const {
  if (!state_ || ranks.size() == 1) return {};
  return Group(std::make_shared<PartLink>(state_->link, rank(), ranks));
}

void Group::check_alike(const Facts& facts) const {
  if (!state_) return;
  std::string mine;
  for (const auto& [name, value] : facts) mine += name + '\n' + value + '\n';
  const std::vector<std::string> all = gather(mine);
  const auto lines_of = [](const std::string& text) {
    std::vector<std::string> lines;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      lines.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    return lines;
  };
  const std::vector<std::string> first = lines_of(all[0]);
  for (int r = 1; r < size(); ++r) {
    if (all[static_cast<std::size_t>(r)] == all[0]) continue;
    const std::vector<std::string> other = lines_of(all[static_cast<std::size_t>(r)]);
    std::size_t i = 0;
    while (i < first.size() && i < other.size() && first[i] == other[i]) ++i;
    i -= i % 2;  // the name
    const auto line = [](const std::vector<std::string>& lines, std::size_t n) {
      return n < lines.size() ? lines[n] : "nothing";
    };
    bad_input("the ranks differ in {}: rank {} on {} has {}, rank 0 on {} has {}; they must be the same everywhere",
              line(i < first.size() ? first : other, i), r, host(r), line(other, i + 1), host(0), line(first, i + 1));
  }
}

}  // namespace some

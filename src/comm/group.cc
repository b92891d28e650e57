#include "comm/group.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "comm/group_state.h"
#include "core/cpus.h"
#include "core/error.h"
#include "core/heartbeat.h"
#include "tensor/device.h"

namespace some {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Returns the CPUs that this process may run on, as "0,1,5,".
std::string allowed_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return "all";
  std::string text;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) text += fmt::format("{},", cpu);
  }
  return text;
}

// Translates the ranks of messages from a subgroup to the whole group.
std::vector<Link::Message> renamed(std::span<const Link::Message> messages, const std::vector<int>& ranks) {
  std::vector<Link::Message> out(messages.begin(), messages.end());
  for (Link::Message& one : out) one.peer = ranks.at(static_cast<std::size_t>(one.peer));
  return out;
}

class SubgroupLink : public Link {
 public:
  SubgroupLink(const std::shared_ptr<Link>& whole, int rank, std::vector<int> ranks)
      : whole_(whole), ranks_(std::move(ranks)) {
    const auto own = std::find(ranks_.begin(), ranks_.end(), rank);
    if (own == ranks_.end())
      failed(Code::index_out_of_range, "rank {} is not among the ranks of the group to be created", rank);
    rank_ = static_cast<int>(own - ranks_.begin());
  }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  void exchange(std::span<const Message> sends, std::span<const Message> receives) override {
    whole_.lock()->exchange(renamed(sends, ranks_), renamed(receives, ranks_));
  }
  [[noreturn]] void abort_all(int code) noexcept override {
    if (const auto whole = whole_.lock()) whole->abort_all(code);
    std::_Exit(code);
  }

 private:
  std::weak_ptr<Link> whole_;  // owned only by the whole group: its finalize() ends all subgroups
  std::vector<int> ranks_;
  int rank_ = 0;
};

class SubgroupGpuLink : public GpuLink {
 public:
  SubgroupGpuLink(const std::shared_ptr<GpuLink>& whole, std::vector<int> ranks)
      : whole_(whole), ranks_(std::move(ranks)) {}
  std::string exchange(void* stream, std::span<const Link::Message> sends,
                       std::span<const Link::Message> receives) override {
    return whole_.lock()->exchange(stream, renamed(sends, ranks_), renamed(receives, ranks_));
  }

 private:
  std::weak_ptr<GpuLink> whole_;
  std::vector<int> ranks_;
};

}  // namespace

double all_reduce_messages(int ranks) {
  if (ranks == 1) return 0;
  return std::has_single_bit(static_cast<unsigned>(ranks)) ? 2 * std::log2(ranks) : 2;
}

double all_reduce_bytes(int ranks, double bytes) { return 2.0 * (ranks - 1) / ranks * bytes; }

Group::Group(std::shared_ptr<Link> link) : state_(std::make_shared<State>()) {
  state_->link = std::move(link);
  state_->rank = state_->link->rank();
  state_->size = state_->link->size();
  const std::string cpus = allowed_cpus(), mine = host_name() + "\n" + cpus;
  int sharing = 0;
  const std::vector<std::string> all = all_gather(mine);
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
bool Group::has_gpu_link() const { return state_ && state_->gpu_link != nullptr; }

Group::Traffic Group::traffic() const {
  if (!state_) return {};
  state_->ledger->refine(true);
  return state_->ledger->traffic;
}

const std::string& Group::host(int rank) const {
  static const std::string here = host_name();
  return state_ ? state_->hosts.at(static_cast<std::size_t>(rank)) : here;
}

std::string Group::name() const { return state_ ? fmt::format("rank {} on {}", rank(), host(rank())) : ""; }

void Group::abort_all(int code) const {
  if (state_ && state_->link) state_->link->abort_all(code);
  std::_Exit(code);
}

void Group::link_gpus(std::shared_ptr<GpuLink> link, const Device& device) const {
  if (!state_) return;
  state_->gpu_link = std::move(link);
  state_->gpu = cuda::index_of(device.cuda());
}

void Group::finalize() const {
  if (!state_) return;
  static const WatchdogPause for_good;  // no other rank waits for this one any more
  State& state = *state_;
  *state.ledger = {state.ledger->traffic, {}, {}};
  for (Tensor* memory : {&state.received_host, &state.received_gpu, &state.packed_host, &state.packed_gpu})
    *memory = Tensor();
  if (state.pinned != nullptr) cuda::release_pinned(std::exchange(state.pinned, nullptr));
  state.gpu_link.reset();
  state.link.reset();
}

void Group::broadcast(std::string& text) const {
  if (!state_) return;
  auto length = static_cast<std::int64_t>(text.size());
  broadcast(std::array{Tensor::wrap(&length, {1}, DType::i64, Device::cpu, nullptr)});
  text.resize(static_cast<std::size_t>(length));
  state_->broadcast(Device::cpu, text.data(), text.size());
}

std::vector<std::string> Group::all_gather(const std::string& mine) const {
  if (!state_) return {mine};
  State& state = *state_;
  // The gathered text consists of all texts in rank order, each preceded by its length.
  const auto packed = [](const std::string& text) {
    const auto length = static_cast<std::uint64_t>(text.size());
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
  };
  std::string all = packed(mine);
  state.up(
      [&](int from) {
        std::uint64_t length = 0;
        state.receive(Device::cpu, {from, &length, sizeof length});
        const std::size_t before = all.size();
        all.resize(before + length);
        state.receive(Device::cpu, {from, all.data() + before, length});
      },
      [&](int to) {
        std::uint64_t length = all.size();
        state.send(Device::cpu, {to, &length, sizeof length});
        state.send(Device::cpu, {to, all.data(), all.size()});
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

std::int64_t Group::all_reduce_max(std::int64_t mine) const {
  if (!state_) return mine;
  // After round d every rank knows the maximum over the 2d ranks that end with itself.
  for (int d = 1; d < size(); d *= 2) {
    std::int64_t other = 0;
    state_->exchange(Device::cpu, {(rank() + d) % size(), &mine, sizeof mine},
                     {(rank() - d + size()) % size(), &other, sizeof other});
    mine = std::max(mine, other);
  }
  return mine;
}

namespace {

// Serializes an error for other ranks: one letter for the fault, then the code name, the message and the values, each
// terminated by a zero byte.
std::string packed(const Error& error) {
  std::string out = error.fault() == Fault::input ? "i" : "f";
  const auto add = [&](std::string_view text) { out.append(text).push_back('\0'); };
  add(name_of(error.code()));
  add(error.what());
  for (const std::string& value : error.values()) add(value);
  return out;
}

Error unpacked(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 1; begin < text.size();) {
    const std::size_t end = text.find('\0', begin);
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return {text.front() == 'i' ? Fault::input : Fault::failure,
          code_named(parts[0]).value_or(Code::internal),
          parts[1],
          {parts.begin() + 2, parts.end()}};
}

}  // namespace

void Group::all_or_none(const std::function<void()>& work) const {
  if (!state_) return work();
  std::string problem;
  try {
    work();
  } catch (const Error& error) {
    problem = packed(error);
  }
  const std::vector<std::string> all = all_gather(problem);
  const auto first = std::find_if(all.begin(), all.end(), [](const std::string& one) { return !one.empty(); });
  if (first == all.end()) return;
  const bool everywhere = std::all_of(all.begin(), all.end(), [&](const std::string& one) { return one == *first; });
  const int rank = static_cast<int>(first - all.begin());
  const Error error = unpacked(*first);
  throw CollectiveError(error.fault(), error.code(),
                        (everywhere ? "" : fmt::format("rank {} on {}: ", rank, host(rank))) + error.what(),
                        error.values());
}

std::vector<std::int64_t> Group::all_to_all(std::span<const std::int64_t> numbers) const {
  std::vector<std::int64_t> mine(numbers.begin(), numbers.end()), others(mine.size());
  const std::vector<std::int64_t> one_each(static_cast<std::size_t>(size()), 1);
  const auto as_tensor = [](std::vector<std::int64_t>& values) {
    return Tensor::wrap(values.data(), {static_cast<std::int64_t>(values.size())}, DType::i64, Device::cpu, nullptr);
  };
  all_to_all(as_tensor(mine), one_each, as_tensor(others), one_each);
  return others;
}

Group Group::split(std::span<const int> ranks) const {
  if (!state_ || ranks.size() == 1) return {};
  const std::vector<int> list(ranks.begin(), ranks.end());
  Group out(std::make_shared<SubgroupLink>(state_->link, rank(), list));
  if (state_->gpu_link) out.state_->gpu_link = std::make_shared<SubgroupGpuLink>(state_->gpu_link, list);
  out.state_->ledger = state_->ledger;
  return out;
}

void Group::check_identical(const Facts& facts) const {
  if (!state_) return;
  std::string mine;
  for (const auto& [name, value] : facts) mine += name + '\n' + value + '\n';
  const std::vector<std::string> all = all_gather(mine);
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
    i -= i % 2;  // back to the line of the name
    const auto line = [](const std::vector<std::string>& lines, std::size_t n) {
      return n < lines.size() ? lines[n] : "nothing";
    };
    bad_input(Code::ranks_differ,
              "the ranks differ in {}: rank {} on {} has {}, rank 0 on {} has {}; they must be the same everywhere",
              line(i < first.size() ? first : other, i), r, host(r), line(other, i + 1), host(0), line(first, i + 1));
  }
}

}  // namespace some

// MPI backend: connects ranks. A separate library (libsome_mpi.so), loaded by comm/group_open.cc.
//
// A second thread exchanges heartbeats: every rank sends one to the next rank and listens to the previous one. So a
// rank that is not scheduled any more (its process stopped, its machine gone) is noticed even though all other ranks
// only wait for it. MPI itself notices a rank that dies.
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/launcher.h"
#include "comm/link.h"
#include "comm/watchdog.h"

namespace some {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t max_message_bytes = std::size_t{1} << 20;
constexpr double max_heartbeat_interval = 2;

double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

enum class RequestProgress { nothing, something, all };

// Polls until all requests have completed. Waiting inside MPI would occupy a whole core, which other ranks may need.
// Most messages arrive soon, so the thread first only yields, and later sleeps between polls. While data arrives it
// does neither: MPI makes progress only when it is polled, so sleeping would limit its speed.
template <typename Look>
void wait_for_requests(const LinkOptions& options, const Look& look) {
  auto begin = Clock::now();
  for (RequestProgress came = look(); came != RequestProgress::all; came = look()) {
    if (came == RequestProgress::something) {
      begin = Clock::now();
      continue;
    }
    if (options.waits != nullptr) options.waits(options.whose);
    const double waited = seconds_since(begin);
    if (waited < 0.002)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(waited < 0.1 ? 50 : 500));
  }
}

class MpiLink : public Link {
 public:
  MpiLink(const LinkOptions& options, bool with_heartbeat) : options_(options) {
    MPI_Comm_dup(MPI_COMM_WORLD, &world_);
    MPI_Comm_dup(MPI_COMM_WORLD, &pulse_);
    MPI_Comm_rank(world_, &rank_);
    MPI_Comm_size(world_, &size_);
    if (with_heartbeat && size_ > 1) watcher_ = std::thread([this] { watch(); });
  }

  ~MpiLink() override {
    // A finished rank waits for the others; its heartbeat continues.
    MPI_Request all = MPI_REQUEST_NULL;
    MPI_Ibarrier(world_, &all);
    wait_for_requests(options_, [&] {
      int done = 0;
      MPI_Test(&all, &done, MPI_STATUS_IGNORE);
      return done != 0 ? RequestProgress::all : RequestProgress::nothing;
    });
    if (watcher_.joinable()) {
      {
        const std::lock_guard lock(mutex_);
        ending_ = true;
      }
      changed_.notify_all();
      watcher_.join();
    }
    MPI_Comm_free(&pulse_);
    MPI_Comm_free(&world_);
    MPI_Finalize();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void exchange(std::span<const Message> sends, std::span<const Message> receives) override {
    requests_.clear();
    const auto each_part = [](const Message& one, const auto& act) {
      for (std::size_t from = 0; from < one.bytes; from += max_message_bytes)
        act(static_cast<char*>(one.data) + from, static_cast<int>(std::min(max_message_bytes, one.bytes - from)));
    };
    for (const Message& one : receives) {
      each_part(one, [&](char* data, int bytes) {
        MPI_Irecv(data, bytes, MPI_BYTE, one.peer, 0, world_, &requests_.emplace_back());
      });
    }
    for (const Message& one : sends) {
      each_part(one, [&](char* data, int bytes) {
        MPI_Isend(data, bytes, MPI_BYTE, one.peer, 0, world_, &requests_.emplace_back());
      });
    }
    completed_.resize(requests_.size());
    wait_for_requests(options_, [&] {
      int count = 0;
      MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, completed_.data(),
                   MPI_STATUSES_IGNORE);
      return count == MPI_UNDEFINED ? RequestProgress::all
             : count > 0            ? RequestProgress::something
                                    : RequestProgress::nothing;
    });
  }

  [[noreturn]] void abort_all(int code) noexcept override {
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);
  }

 private:
  void watch() {
    const int next = (rank_ + 1) % size_, before = (rank_ + size_ - 1) % size_;
    char beat = 0, received_beat = 0;
    MPI_Request sending = MPI_REQUEST_NULL, listening = MPI_REQUEST_NULL;
    MPI_Irecv(&received_beat, 1, MPI_BYTE, before, 0, pulse_, &listening);
    const double every = std::min(max_heartbeat_interval, options_.timeout_seconds / 8);
    SilenceTimer quiet(every, Clock::now());
    std::unique_lock lock(mutex_);
    while (!ending_) {
      lock.unlock();
      int done = 0;
      MPI_Test(&sending, &done, MPI_STATUS_IGNORE);  // an undelivered heartbeat also stands for the next one
      if (done != 0) MPI_Isend(&beat, 1, MPI_BYTE, next, 0, pulse_, &sending);
      MPI_Test(&listening, &done, MPI_STATUS_IGNORE);
      const double silence = quiet.record_poll(done != 0, Clock::now());
      if (done != 0) MPI_Irecv(&received_beat, 1, MPI_BYTE, before, 0, pulse_, &listening);
      if (silence > options_.timeout_seconds) {
        if (options_.lost != nullptr) options_.lost(options_.whose, before, silence);
        end_launcher_later();
        abort_all(1);
      }
      lock.lock();
      changed_.wait_for(lock, std::chrono::duration<double>(every), [this] { return ending_; });
    }
    lock.unlock();
    MPI_Cancel(&listening);
    MPI_Wait(&listening, MPI_STATUS_IGNORE);
    // Every rank has finished its last exchange, but the next rank may have stopped listening already. The heartbeat is
    // small and was buffered when it was sent, so freeing the request is safe.
    if (sending != MPI_REQUEST_NULL) MPI_Request_free(&sending);
  }

  const LinkOptions options_;
  MPI_Comm world_ = MPI_COMM_NULL, pulse_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  std::vector<MPI_Request> requests_;
  std::vector<int> completed_;  // indices of completed requests
  std::thread watcher_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
};

}  // namespace

extern "C" Link* some_open_link(const LinkOptions& options, std::string& problem) {
  int begun = 0, provided = MPI_THREAD_SINGLE;
  MPI_Initialized(&begun);
  if (begun != 0) {
    problem = "MPI was initialized already";
    return nullptr;
  }
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) {
    problem = "MPI_Init failed";
    return nullptr;
  }
  return new MpiLink(options, provided == MPI_THREAD_MULTIPLE);
}

}  // namespace some

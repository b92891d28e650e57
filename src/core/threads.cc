#include "core/threads.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/cpus.h"
#include "core/heartbeat.h"

namespace some {
namespace {

using Clock = std::chrono::steady_clock;
using Word = std::atomic<std::uint32_t>;
static_assert(sizeof(Word) == 4 && Word::is_always_lock_free);  // the size that futex requires

// Waits with futex directly. std::atomic::wait yields (sched_yield) before it sleeps, which on a busy machine means
// waiting until the other processes have used up their time slices.
void sleep_while(Word& word, std::uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void wake(Word& word, int sleepers) { syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, sleepers, nullptr, nullptr, 0); }

// Work that takes less time than another thread needs to start on it is not shared. A spinning thread starts at once; a
// sleeping thread must be woken.
constexpr double min_shared_nanoseconds = 5e3, min_waking_nanoseconds = 40e3;  // nanoseconds
// If other processes use the cores too, a thread that has taken a piece may be preempted for milliseconds.
constexpr double min_contended_nanoseconds = 500e3;
constexpr auto max_spin = std::chrono::microseconds(50);
// A thread that did not run for this long shares its core with another process; the second number is how long that is
// assumed to last.
constexpr auto preemption_threshold = std::chrono::microseconds(200);
constexpr auto company = std::chrono::milliseconds(100);

}  // namespace

struct Threads::Pool {
  explicit Pool(int helpers_wanted, bool may_spin) : may_spin(may_spin), helpers_wanted(helpers_wanted) {}
  ~Pool();
  void run(std::int64_t count, Piece piece, void* body);

  // The current work. Written only while no helper may enter and none is inside.
  Piece piece = nullptr;
  void* body = nullptr;
  std::int64_t pieces = 0;
  std::mutex error_mutex;
  std::exception_ptr error;
  // Recent time per piece, by function: an estimate of how long the current work will take. Only the thread that holds
  // `busy` accesses it, and only scheduling depends on it, never a result.
  struct Seen {
    Piece piece = nullptr;
    double nanoseconds = 0;  // per piece
  };
  std::array<Seen, 64> seen;

  alignas(64) std::atomic<std::int64_t> next{0};
  // The number of helpers at work, and whether more may enter. The caller waits until the last one has left.
  static constexpr std::uint32_t open = 1u << 31, caller_sleeps = 1u << 30, inside = caller_sleeps - 1;
  alignas(64) Word door{0};
  alignas(64) Word calls{0};  // incremented for each shared work, and at shutdown
  std::atomic<int> sleeping{0};
  std::atomic<bool> ended{false};
  std::atomic<bool> busy{false};

  const bool may_spin;
  // Other processes need the cores until then: no spinning, and only long work is shared.
  std::atomic<Clock::rep> contended_until{0};

  const int helpers_wanted;
  std::vector<std::thread> helpers;

 private:
  void start_helpers();
  void help();
  bool cores_contended(Clock::time_point now) const { return now.time_since_epoch().count() < contended_until.load(); }
  void mark_contended(Clock::time_point now) { contended_until.store((now + company).time_since_epoch().count()); }
  double sharing_threshold(Clock::time_point now) const {
    return cores_contended(now)  ? min_contended_nanoseconds
           : sleeping.load() > 0 ? min_waking_nanoseconds
                                 : min_shared_nanoseconds;
  }
  void share(std::int64_t left);
  void do_piece(std::int64_t i);
  std::int64_t take_pieces();
  void wait_for_helpers();
  template <typename Done>
  bool spin_until(Done&& done);
};

Threads::Pool::~Pool() {
  ended = true;
  calls.fetch_add(1);
  wake(calls, static_cast<int>(helpers.size()));
  for (std::thread& helper : helpers) helper.join();
}

// If the system refuses to start threads, the caller executes all work.
void Threads::Pool::start_helpers() {
  sigset_t all, before;
  sigfillset(&all);
  // Signals are for the threads of the calling program, so helpers block them.
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    while (static_cast<int>(helpers.size()) < helpers_wanted) helpers.emplace_back([this] { help(); });
  } catch (const std::system_error&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

template <typename Done>
bool Threads::Pool::spin_until(Done&& done) {
  if (done()) return true;
  const Clock::time_point start = Clock::now();
  if (!may_spin || cores_contended(start)) return false;
  for (Clock::time_point last = start;;) {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      relax_cpu();
    }
    const Clock::time_point now = Clock::now();
    if (now - last > preemption_threshold) mark_contended(now);
    if (now - last > preemption_threshold || now - start > max_spin) return done();
    last = now;
  }
}

void Threads::Pool::do_piece(std::int64_t i) {
  try {
    piece(body, i);
  } catch (...) {
    const std::lock_guard lock(error_mutex);
    if (!error) error = std::current_exception();
  }
}

std::int64_t Threads::Pool::take_pieces() {
  std::int64_t taken = 0;
  for (std::int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < pieces; ++taken) do_piece(i);
  return taken;
}

void Threads::Pool::help() {
  for (std::uint32_t seen = 0;;) {
    if (!spin_until([&] { return calls.load() != seen; })) {
      sleeping.fetch_add(1);
      while (calls.load() == seen) sleep_while(calls, seen);
      sleeping.fetch_sub(1);
    }
    if (ended) return;
    seen = calls.load();
    std::uint32_t state = door.load();
    while ((state & open) != 0 && !door.compare_exchange_weak(state, state + 1)) {
    }
    if ((state & open) == 0) continue;  // the other helpers were faster
    take_pieces();
    if (door.fetch_sub(1) == (caller_sleeps | 1)) wake(door, 1);
  }
}

void Threads::Pool::wait_for_helpers() {
  door.fetch_and(~open);
  if (!spin_until([&] { return (door.load() & inside) == 0; })) {
    for (std::uint32_t state = door.load(); (state & inside) != 0; state = door.load()) {
      if ((state & caller_sleeps) != 0 || door.compare_exchange_weak(state, state | caller_sleeps))
        sleep_while(door, state | caller_sleeps);
    }
  }
  door.store(0);
}

void Threads::Pool::share(std::int64_t left) {
  if (helpers.empty()) start_helpers();
  next.store(pieces - left, std::memory_order_relaxed);
  door.store(open);
  calls.fetch_add(1);
  if (const int asleep = sleeping.load(); asleep > 0)
    wake(calls, static_cast<int>(std::min<std::int64_t>(asleep, left)));
}

void Threads::Pool::run(std::int64_t count, Piece each, void* of) {
  piece = each;
  body = of;
  pieces = count;
  Seen& like_this = seen[(reinterpret_cast<std::uintptr_t>(each) >> 4) * 0x9E3779B97F4A7C15u >> 58];
  if (like_this.piece != each) like_this = {each, 0};
  const Clock::time_point start = Clock::now();
  double took = 0;  // nanoseconds for the pieces done here
  std::int64_t done = 0;
  const double worth = sharing_threshold(start);
  const auto look = [&] {
    const Clock::time_point now = Clock::now();
    took = std::chrono::duration<double, std::nano>(now - start).count();
    return now;
  };
  if (like_this.nanoseconds * static_cast<double>(count) < worth) {
    // Begins serially; if the work takes longer than estimated, it is shared after all.
    do {
      do_piece(done++);
      look();
    } while (took / static_cast<double>(done) * static_cast<double>(count - done) < worth && done < count);
  }
  if (done < count) {
    share(count - done - 1);
    do_piece(done++);
    done += take_pieces();
    const Clock::time_point alone = look();
    wait_for_helpers();
    const Clock::time_point now = Clock::now();
    // Helpers may each have had one piece left, which is not an interruption.
    if (now - alone > preemption_threshold + std::chrono::nanoseconds(static_cast<std::int64_t>(2 * took / done)))
      mark_contended(now);
  }
  // A piece that seems slower may only have been interrupted, so the estimate rises slowly and falls at once.
  const double each_took = took / static_cast<double>(done);
  like_this.nanoseconds += (each_took - like_this.nanoseconds) / (each_took < like_this.nanoseconds ? 1 : 4);
  const std::exception_ptr thrown = std::exchange(error, nullptr);
  busy.store(false);
  if (thrown) std::rethrow_exception(thrown);
}

Threads::Threads(int count) {
  const int cpus = usable_cpus();
  count_ = count > 0 ? count : cpus;
  if (count_ > 1) pool_ = std::make_unique<Pool>(count_ - 1, count_ <= cpus);
}

Threads::~Threads() = default;

void Threads::run(std::int64_t pieces, Piece piece, void* body) {
  beat();
  // A busy pool is in use by another thread, or this is a nested call.
  if (pieces <= 1 || pool_ == nullptr || pool_->busy.exchange(true)) {
    for (std::int64_t i = 0; i < pieces; ++i) piece(body, i);
    return;
  }
  pool_->run(pieces, piece, body);
}

}  // namespace some

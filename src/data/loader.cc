#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "core/error.h"
#include "data/token_data.h"

namespace some {
namespace {

// Queue length: long enough to hide a slow batch, short enough to save memory.
constexpr std::size_t ready_batches = 4;

}  // namespace

struct BatchLoader::Impl {
  Impl(TokenData given, BatchOptions wanted, int row_count, std::uint64_t run_seed, std::int64_t first,
       const BatchShare& wanted_share)
      : data(std::move(given)),
        options(wanted),
        sequences(data, std::max(1, wanted.seq_len), wanted.long_documents, Reading::training),
        rows(row_count),
        seed(run_seed),
        share(wanted_share),
        number(first) {
    if (rows < 1) bad_input(Code::setting_out_of_range, "{} is {}; it must be at least 1", "train.batch", rows);
    if (number < 0) failed(Code::index_out_of_range, "batch {} not found", number);
    per_epoch = sequences.size() / rows;
    if (per_epoch == 0)
      bad_input(Code::data_too_few,
                "the training text has {} sequences, too few for one batch of {}; lower train.batch", sequences.size(),
                rows);
    thread = std::thread([this] { work(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    thread.join();
  }

  void work() {
    try {
      std::vector<std::int64_t> order;
      std::vector<Sequence> chosen;
      std::int64_t order_epoch = -1;
      for (;; ++number) {
        const std::int64_t epoch = number / per_epoch;
        if (epoch != order_epoch) {
          order = epoch_order(sequences.size(), seed, epoch);
          order_epoch = epoch;
        }
        const auto begin = static_cast<std::size_t>(number % per_epoch * rows);
        chosen.clear();
        for (const std::int64_t one : std::span(order).subspan(begin, static_cast<std::size_t>(rows)))
          chosen.push_back(sequences[one]);
        const std::int64_t in_step = number % per_epoch % share.of;
        BatchOptions how = options;
        how.counts_only = in_step < share.begin || in_step >= share.end;
        Batch batch = make_batch(data, chosen, how);
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return stopping || ready.size() < ready_batches; });
        if (stopping) return;
        ready.push_back(std::move(batch));
        lock.unlock();
        changed.notify_all();
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
      changed.notify_all();
    }
  }

  Batch next() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return !ready.empty() || error; });
    if (ready.empty()) std::rethrow_exception(error);
    Batch batch = std::move(ready.front());
    ready.pop_front();
    lock.unlock();
    changed.notify_all();
    return batch;
  }

  const TokenData data;
  const BatchOptions options;
  const SequenceList sequences;
  const int rows;
  const std::uint64_t seed;
  const BatchShare share;
  std::int64_t per_epoch = 0;
  std::int64_t number;  // of the batch being prepared; used only by the thread

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Batch> ready;
  std::exception_ptr error;
  bool stopping = false;
  std::thread thread;
};

BatchLoader::BatchLoader(TokenData data, BatchOptions options, int rows, std::uint64_t seed, std::int64_t first_batch,
                         const BatchShare& share)
    : impl_(std::make_unique<Impl>(std::move(data), options, rows, seed, first_batch, share)) {}
BatchLoader::~BatchLoader() = default;
BatchLoader::BatchLoader(BatchLoader&&) noexcept = default;

std::int64_t BatchLoader::batches_per_epoch() const { return impl_->per_epoch; }
Batch BatchLoader::next() { return impl_->next(); }

}  // namespace some

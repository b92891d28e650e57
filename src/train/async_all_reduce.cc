#include "train/async_all_reduce.h"

#include <chrono>
#include <utility>

#include "comm/group.h"
#include "core/clock.h"

namespace some {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

AsyncAllReduce::~AsyncAllReduce() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void AsyncAllReduce::sum_over_ranks(std::vector<Tensor> tensors) {
  Bucket text_batch;
  if (ctx_.device.is_cuda()) {
    if (device_.is_cpu()) device_ = Device(some::cuda::open(some::cuda::index_of(ctx_.device.cuda())));
    const std::lock_guard lock(mutex_);
    if (extra_events_.empty()) {
      text_batch.ready = std::make_unique<some::cuda::Event>(ctx_.device);
    } else {
      text_batch.ready = std::move(extra_events_.back());
      extra_events_.pop_back();
    }
    text_batch.ready->record();
  }
  for (Tensor& tensor : tensors) {
    // A device with the same memory and the communication thread's own stream.
    if (tensor && tensor.device().is_cuda())
      tensor = Tensor::wrap(tensor.raw(), tensor.shape(), tensor.dtype(), device_, std::make_shared<Tensor>(tensor));
  }
  text_batch.tensors = std::move(tensors);
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { carry(); });
  buckets_.push_back(std::move(text_batch));
  changed_.notify_all();
}

void AsyncAllReduce::carry() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !buckets_.empty(); });
    if (ending_) return;
    Bucket& text_batch = buckets_.front();  // push_back on a deque keeps this reference valid
    const bool broken = problem_ != nullptr;
    lock.unlock();
    double seconds = 0;
    if (!broken) {
      try {
        if (text_batch.ready) text_batch.ready->wait();
        const auto begin = Clock::now();
        ctx_.group.all_reduce_sum(*ctx_.threads, text_batch.tensors);
        if (text_batch.ready) device_synchronize(device_);
        seconds = seconds_since(begin);
      } catch (...) {
        lock.lock();
        problem_ = std::current_exception();
        lock.unlock();
      }
    }
    lock.lock();
    busy_ += seconds;
    if (text_batch.ready) extra_events_.push_back(std::move(text_batch.ready));
    buckets_.pop_front();
    changed_.notify_all();
  }
}

void AsyncAllReduce::wait() {
  const auto begin = Clock::now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return buckets_.empty(); });
  waited_ += seconds_since(begin);
  if (problem_) std::rethrow_exception(std::exchange(problem_, nullptr));
}

}  // namespace some

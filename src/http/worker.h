// A single-threaded task queue for slow work, with limited length.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace some {

class Worker {
 public:
  explicit Worker(std::size_t max_waiting) : max_waiting_(max_waiting), thread_([this] { work(); }) {}
  // Discards queued tasks and waits for the running one.
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      waiting_.clear();
    }
    changed_.notify_all();
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Returns false if the queue is full.
  bool add(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_ || waiting_.size() >= max_waiting_) return false;
      waiting_.push_back(std::move(task));
    }
    changed_.notify_all();
    return true;
  }
  std::size_t waiting() const {
    const std::lock_guard lock(mutex_);
    return waiting_.size();
  }
  bool stopping() const {
    const std::lock_guard lock(mutex_);
    return stop_;
  }

 private:
  void work() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || !waiting_.empty(); });
        if (stop_) return;
        task = std::move(waiting_.front());
        waiting_.pop_front();
      }
      task();
    }
  }
  const std::size_t max_waiting_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace some

// Overlapped all-reduce: sums tensors over the ranks on a communication thread, while other tensors are still being
// computed.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/context.h"

namespace some {

class AsyncAllReduce {
 public:
  explicit AsyncAllReduce(Context& ctx) : ctx_(ctx) {}
  ~AsyncAllReduce();
  AsyncAllReduce(const AsyncAllReduce&) = delete;
  AsyncAllReduce& operator=(const AsyncAllReduce&) = delete;

  // Starts summing the tensors. Every rank must call it with the same tensors in the same order. On a GPU it first
  // waits for work already queued on the context's stream. Until wait() neither the tensors nor the group may be used
  // elsewhere.
  void sum_over_ranks(std::vector<Tensor> tensors);
  void wait();  // throws any error of the communication thread

  double busy_seconds() const { return busy_; }       // total time spent communicating; call after wait()
  double exposed_seconds() const { return waited_; }  // part of it during which wait() blocked

 private:
  struct Bucket {
    std::vector<Tensor> tensors;
    std::unique_ptr<some::cuda::Event> ready;  // GPU only
  };
  void carry();  // loop of the communication thread

  Context& ctx_;
  Device device_;  // for a GPU: a device with its own stream
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Bucket> buckets_;  // the first one is in progress
  std::vector<std::unique_ptr<some::cuda::Event>> extra_events_;
  std::exception_ptr problem_;
  bool ending_ = false;
  double busy_ = 0, waited_ = 0;
};

}  // namespace some

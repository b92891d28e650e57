// Adds tensors up over the ranks on a thread of its own, while the rest of them is still being computed.
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

  // Every rank gives the same, in the same order. On a GPU what stands on the context's stream now is waited for. Until
  // wait() the tensors are the courier's, and so is the group: nothing else may be sent.
  void add_over_ranks(std::vector<Tensor> tensors);
  void wait();  // throws what went wrong on the way

  double busy_seconds() const { return busy_; }      // it worked, so far; asked after wait()
  double waited_seconds() const { return waited_; }  // of these, those that somebody waited for

 private:
  struct Bucket {
    std::vector<Tensor> tensors;
    std::unique_ptr<some::cuda::Event> ready;  // on a GPU
  };
  void carry();  // until the end

  Context& ctx_;
  Device device_;  // of a GPU, a stream of its own
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Bucket> buckets_;  // the first one is under way
  std::vector<std::unique_ptr<some::cuda::Event>> extra_events_;
  std::exception_ptr problem_;
  bool ending_ = false;
  double busy_ = 0, waited_ = 0;
};

}  // namespace some

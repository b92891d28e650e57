// Ranks as threads of one process, for tests of group operations.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "comm/group.h"
#include "core/random.h"

namespace some {

struct Post {  // undelivered messages, by (from, to)
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<std::string>> letters;
};

class ThreadLink : public Link {
 public:
  ThreadLink(std::shared_ptr<Post> post, int rank, int size) : post_(std::move(post)), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void exchange(std::span<const Message> sends, std::span<const Message> receives) override {
    std::unique_lock lock(post_->mutex);
    for (const Message& one : sends)
      post_->letters[{rank_, one.peer}].emplace_back(static_cast<const char*>(one.data), one.bytes);
    post_->changed.notify_all();
    for (const Message& one : receives) {
      auto& waiting = post_->letters[{one.peer, rank_}];
      post_->changed.wait(lock, [&] { return !waiting.empty(); });
      ASSERT_EQ(waiting.front().size(), one.bytes);
      std::memcpy(one.data, waiting.front().data(), one.bytes);
      waiting.pop_front();
    }
  }
  [[noreturn]] void abort_all(int code) noexcept override { std::_Exit(code); }

 private:
  std::shared_ptr<Post> post_;
  int rank_, size_;
};

inline void on_ranks(int size, const std::function<void(const Group&)>& work) {
  const auto post = std::make_shared<Post>();
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] { work(Group(std::make_shared<ThreadLink>(post, r, size))); });
  for (std::thread& one : threads) one.join();
  for (const auto& [way, letters] : post->letters) EXPECT_TRUE(letters.empty());
}

inline std::vector<float> numbers(int rank, std::int64_t count) {
  const RandomStream stream = random_stream(7, fmt::format("rank.{}", rank));
  std::vector<float> out(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(stream.normal(i)) * (i % 3 == 0 ? 1e6f : 1e-3f);
  return out;
}

// The summation tree by its definition, without a group.
inline float tree_sum(const std::vector<float>& values, std::size_t begin, std::size_t end) {
  if (end - begin == 1) return values[begin];
  std::size_t half = 1;
  while (2 * half < end - begin) half *= 2;
  return tree_sum(values, begin, begin + half) + tree_sum(values, begin + half, end);
}

// True if results[rank][tensor] equal the sums over the `numbers` of all ranks; counts: elements of each tensor.
template <typename Results, typename Counts>
void expect_tree_sums(const Results& results, const Counts& counts) {
  for (std::size_t t = 0; t < counts.size(); ++t) {
    std::vector<std::vector<float>> given;
    for (std::size_t r = 0; r < results.size(); ++r) given.push_back(numbers(static_cast<int>(r), counts[t]));
    for (std::size_t i = 0; i < static_cast<std::size_t>(counts[t]); ++i) {
      std::vector<float> column;
      for (const auto& one : given) column.push_back(one[i]);
      const float expected = tree_sum(column, 0, column.size());
      for (const auto& of_rank : results)
        ASSERT_EQ(of_rank[t][i], expected) << results.size() << " ranks, tensor " << t << ", number " << i;
    }
  }
}

}  // namespace some

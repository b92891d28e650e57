// Samples on the device (inference/sampling.h): one block per row chooses a token from its logits, which stay in
// registers. Weights are integers, so their sums do not depend on the order of additions.
//
// Bytes: the logits once. Without filters, three passes over registers; each filter, and each draw by rank, is a radix
// search over the bits of the logit, two at a time.
#pragma once

#include "core/random.h"
#include "inference/cuda/rows.cuh"

namespace some::decoding {

constexpr int sample_threads = 1024;
struct SampleShared {
  std::uint64_t values[32][3], all[3];
};

// Returns the sum over all threads of the block.
template <int kCount>
SOME_DEVICE void block_sums(std::uint64_t (&values)[kCount], SampleShared& shared) {
  const int warp = thread_index() / 32, lane = thread_index() % 32;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] += shuffle_xor(values[i], offset);
  }
  block_sync();
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) shared.values[warp][i] = values[i];
  }
  block_sync();
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = lane < sample_threads / 32 ? shared.values[lane][i] : 0;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] += shuffle_xor(values[i], offset);
  }
}
SOME_DEVICE std::uint64_t block_largest(std::uint64_t value, SampleShared& shared) {
  const int warp = thread_index() / 32, lane = thread_index() % 32;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const std::uint64_t other = shuffle_xor(value, offset);
    value = other > value ? other : value;
  }
  block_sync();
  if (lane == 0) shared.values[warp][0] = value;
  block_sync();
  value = shared.values[lane][0];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const std::uint64_t other = shuffle_xor(value, offset);
    value = other > value ? other : value;
  }
  return value;
}
// Returns the sum over the threads before this one (exclusive scan).
SOME_DEVICE std::uint64_t block_before(std::uint64_t value, SampleShared& shared) {
  const int warp = thread_index() / 32, lane = thread_index() % 32;
  std::uint64_t sum = value;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const std::uint64_t other = shuffle_up(sum, offset);
    if (lane >= offset) sum += other;
  }
  block_sync();
  if (lane == 31) shared.values[warp][0] = sum;
  block_sync();
  std::uint64_t before = 0;
  for (int w = 0; w < warp; ++w) before += shared.values[w][0];
  return before + sum - value;
}

// A place in the ranking: by logit; ties by id.
struct Rank {
  std::uint32_t order;
  int token;
};
SOME_DEVICE bool within(std::uint32_t order, int token, const Rank& last) {
  return order > last.order || (order == last.order && token <= last.token);
}

// Finds the first place whose cumulative value, in the order of the ranking, is at least `target`. value(i) belongs to
// the thread's element i, with token id first + i.
template <int kElements, typename Value>
SOME_DEVICE Rank find_rank(const float (&logits)[kElements], int first, std::uint64_t target, Value&& value,
                           SampleShared& shared) {
  std::uint32_t found = 0;  // the largest order at which the cumulative value is at least `target`
  for (int bit = 30; bit >= 0; bit -= 2) {
    std::uint64_t sums[3] = {};
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const std::uint32_t order = ordered(logits[i]);
      if (order < found + (1u << bit)) continue;
      const std::uint64_t v = value(i);
      sums[0] += v;
      if (order >= found + (2u << bit)) sums[1] += v;
      if (order >= found + (3u << bit)) sums[2] += v;
    }
    block_sums(sums, shared);
    found += static_cast<std::uint32_t>((sums[0] >= target) + (sums[1] >= target) + (sums[2] >= target)) << bit;
  }
  // Orders ties by id.
  std::uint64_t sums[1] = {}, own = 0;
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    const std::uint32_t order = ordered(logits[i]);
    if (order > found) sums[0] += value(i);
    if (order == found) own += value(i);
  }
  block_sums(sums, shared);
  std::uint64_t at = sums[0] + block_before(own, shared);
  std::uint64_t place = 0;  // ties go to the lowest id
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    if (ordered(logits[i]) != found) continue;
    const std::uint64_t v = value(i), next = at + v;
    if (at < target && next >= target) place = 0xffffffffull - static_cast<std::uint64_t>(first + i);
    at = next;
  }
  return {found, static_cast<int>(0xffffffffull - block_largest(place, shared))};
}

template <int kElements>
SOME_KERNEL(sample_threads, 1)
sample_kernel(const SampleStep in) {
  SampleShared& shared = *reinterpret_cast<SampleShared*>(shared_memory());
  wait_previous();
  const int wanted = block_index(), row = in.row_of != nullptr ? in.row_of[wanted] : wanted;
  const int slot = in.slots[row];
  if (slot < 0) return;
  const int first = thread_index() * kElements;
  const float* from = in.logits + static_cast<std::int64_t>(in.logits_of_rows ? row : wanted) * in.vocab;
  const SlotSampling options = in.sampling[slot];
  float logits[kElements];
  const float lowest = float_of(0xff800000u);
  std::uint64_t wrong[1] = {0};
#pragma unroll
  for (int i = 0; i < kElements; i += 4) {
    float4 v{lowest, lowest, lowest, lowest};
    if (first + i < in.vocab) {
      v = load_written(reinterpret_cast<const float4*>(from + first + i));
      const auto odd = [](float x) { return (bits_of(x) & 0x7f800000u) == 0x7f800000u; };
      wrong[0] += odd(v.x) || odd(v.y) || odd(v.z) || odd(v.w);
    }
    logits[i] = v.x;
    logits[i + 1] = v.y;
    logits[i + 2] = v.z;
    logits[i + 3] = v.w;
  }
  const int number = in.numbers[wanted], logprobs = in.logprobs[wanted];
  const int ring = in.rings[wanted];
  SampleResult& result = in.results[ring * in.ring_stride + wanted];
  block_sums(wrong, shared);
  int token = number < 0 ? in.targets[wanted] : 0;
  float largest = 0, sum = 1;
  int tops = 0;
  if (wrong[0] == 0 && (logprobs >= 0 || number < 0)) {
    Rank last{0xffffffffu, -1};
    const int most = logprobs < 1 ? 1 : logprobs < max_logprobs ? logprobs : max_logprobs;
    for (int n = 0; n < most && n < in.vocab; ++n) {
      std::uint64_t best = 0;
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        if (first + i >= in.vocab || within(ordered(logits[i]), first + i, last)) continue;
        const std::uint64_t place = static_cast<std::uint64_t>(ordered(logits[i])) << 32 |
                                    (0xffffffffu - static_cast<std::uint32_t>(first + i));
        best = place > best ? place : best;
      }
      best = block_largest(best, shared);
      last = Rank{static_cast<std::uint32_t>(best >> 32),
                  static_cast<int>(0xffffffffu - static_cast<std::uint32_t>(best))};
      if (n == 0) largest = unordered(last.order);
      if (n < logprobs && thread_index() == 0) {
        result.top_tokens[n] = last.token;
        result.top_logits[n] = unordered(last.order);
      }
      tops = logprobs < 1 ? 0 : n + 1;
    }
    // Sums integers in units of 2^-32 of the largest weight.
    std::uint64_t total[1] = {0};
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      total[0] +=
          static_cast<std::uint64_t>(exp2_fast(times(add(logits[i], -largest), 1.4426950408889634f)) * 4294967296.0f);
    block_sums(total, shared);
    sum = static_cast<float>(static_cast<double>(total[0]) / 4294967296.0);
  }

  if (number >= 0 && wrong[0] == 0) {
    for (int n = 0; n < options.biases; ++n) {
      const LogitBias one = in.biases[static_cast<std::int64_t>(slot) * in.max_biases + n];
#pragma unroll
      for (int i = 0; i < kElements; ++i)
        if (first + i == one.token) logits[i] = add(logits[i], one.bias);
    }
    if (options.penalizes != 0) {
      const std::uint32_t* counts = in.counts + static_cast<std::int64_t>(slot) * in.vocab;
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        if (first + i >= in.vocab) continue;
        const std::uint32_t count = counts[first + i], drawn = count >> 1;
        if (count != 0)
          logits[i] = logits[i] > 0 ? logits[i] / options.repetition : times(logits[i], options.repetition);
        if (drawn != 0)
          logits[i] = add(logits[i], -times_add(static_cast<float>(drawn), options.frequency, options.presence));
      }
    }
    std::uint64_t best = 0;
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const std::uint64_t place =
          static_cast<std::uint64_t>(ordered(logits[i])) << 32 | (0xffffffffu - static_cast<std::uint32_t>(first + i));
      best = place > best ? place : best;
    }
    best = block_largest(best, shared);
    token = static_cast<int>(0xffffffffu - static_cast<std::uint32_t>(best));
    if (options.greedy == 0) {
      const float top = unordered(static_cast<std::uint32_t>(best >> 32));
      std::uint64_t weights[kElements], total[1] = {0};
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        const float weight = exp2_fast(times(add(logits[i], -top), options.inverse_temperature));
        weights[i] = weight >= options.min_p ? static_cast<std::uint64_t>(weight * 4294967296.0f) : 0;
        total[0] += weights[i];
      }
      const bool by_rank = (options.top_k > 0 && options.top_k < in.vocab) || options.top_p < 1.0f;
      const auto weight_of = [&](int i) { return weights[i]; };
      const auto keep = [&](const Rank& last) {
        total[0] = 0;
#pragma unroll
        for (int i = 0; i < kElements; ++i) {
          if (!within(ordered(logits[i]), first + i, last)) weights[i] = 0;
          total[0] += weights[i];
        }
      };
      if (options.top_k > 0 && options.top_k < in.vocab)
        keep(find_rank(
            logits, first, static_cast<std::uint64_t>(options.top_k), [](int) { return std::uint64_t{1}; }, shared));
      if (options.top_p < 1.0f) {
        std::uint64_t sums[1] = {total[0]};
        block_sums(sums, shared);
        std::uint64_t target =
            static_cast<std::uint64_t>(static_cast<double>(options.top_p) * static_cast<double>(sums[0]));
        target = target < 1 ? 1 : target;
        keep(find_rank(logits, first, target, weight_of, shared));
      }
      const std::uint64_t own = total[0];
      block_sums(total, shared);
      // Returns a random number of 24 bits, as RandomStream::uniform does.
      const std::uint64_t random = RandomStream{options.key}.bits32(static_cast<std::uint64_t>(number)) >> 8;
      const std::uint64_t target = (total[0] >> 24) * random + (((total[0] & 0xffffffu) * random) >> 24) + 1;
      if (by_rank) {
        token = find_rank(logits, first, target, weight_of, shared).token;
      } else {
        std::uint64_t at = block_before(own, shared), place = 0;
#pragma unroll
        for (int i = 0; i < kElements; ++i) {
          const std::uint64_t next = at + weights[i];
          if (at < target && next >= target) place = static_cast<std::uint64_t>(first + i) + 1;
          at = next;
        }
        token = static_cast<int>(block_largest(place, shared)) - 1;
      }
    }
  }
  if (thread_index() != 0) return;
  result.token = token;
  result.finite = wrong[0] == 0;
  result.logit = from[token];
  result.largest = largest;
  result.sum = sum;
  result.tops = tops;
  in.rings[wanted] = (ring + 1) % in.ring_size;
  if (number < 0 || wrong[0] != 0) return;
  in.last_drawn[slot] = token;
  if (options.penalizes != 0) in.counts[static_cast<std::int64_t>(slot) * in.vocab + token] += 2;
  if (!in.advance) return;
  in.tokens[row] = token;
  in.positions[row] += 1;
  in.numbers[wanted] = number + 1;
}

SOME_KERNEL(threads, 2) token_kernel(const TokenStep in) {
  wait_previous();
  const int row = block_index() * threads + thread_index();
  if (row < in.rows && in.slots[row] >= 0 && in.tokens[row] < 0) in.tokens[row] = in.last_drawn[in.slots[row]];
}

}  // namespace some::decoding

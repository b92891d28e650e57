// Samples on the device (inference/sampling.h): one block per row chooses a token from its logits, which stay in
// registers. Weights are integers, so their sums do not depend on the order of additions.
//
// Bytes: the logits once. Without filters, three passes over registers; each filter, and each draw by rank, is a radix
// search over the bits of the logit, two at a time.
#pragma once

#include "core/random.h"
#include "inference/cuda/rows.cuh"

namespace some::decoding {

constexpr int sample_threads = 512, sample_warps = sample_threads / 32;
constexpr int kept_biases = 16;  // loaded before the previous kernel has ended; more are read later
constexpr int bins = sample_threads, bins_per_octave = 16;  // of weights; smaller ones than 2^-32 are 0

// A place in the ranking: by logit; ties by id.
struct Rank {
  std::uint32_t order;
  int token;
};

struct SampleShared {
  std::uint64_t values[sample_warps][3];
  // Weights of the bins, in two parts whose sums fit, and the sum of the bins before each one.
  std::uint32_t high[bins], low[bins];
  std::uint64_t before[bins];
  // Tokens of one bin.
  std::uint32_t orders[bins];
  std::int32_t tokens[bins];
  std::uint64_t weights[bins];
  std::int32_t count, bin, token;
  LogitBias biases[kept_biases];
  Rank found;
  std::uint64_t sum;
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
  for (int i = 0; i < kCount; ++i) values[i] = lane < sample_warps ? shared.values[lane][i] : 0;
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
  value = lane < sample_warps ? shared.values[lane][0] : 0;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const std::uint64_t other = shuffle_xor(value, offset);
    value = other > value ? other : value;
  }
  return value;
}
// The sum over the threads before this one (exclusive scan), and over all.
struct Sums {
  std::uint64_t before, all;
};
SOME_DEVICE Sums block_scan(std::uint64_t value, SampleShared& shared) {
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
  std::uint64_t all = lane < sample_warps ? shared.values[lane][0] : 0, warps_before = lane < warp ? all : 0;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    warps_before += shuffle_xor(warps_before, offset);
    all += shuffle_xor(all, offset);
  }
  return {warps_before + sum - value, all};
}

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
  std::uint64_t at = sums[0] + block_scan(own, shared).before;
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

// The bin of a logit: not lower for a lower logit. by: inverse temperature times log2(e).
SOME_DEVICE int bin_of(float logit, float top, float by) {
  const float octaves = times(add(top, -logit), by) * bins_per_octave;
  return octaves < static_cast<float>(bins - 1) ? static_cast<int>(octaves) : bins - 1;
}

// Sums the values of all tokens by bin. Returns the sum of all.
template <int kElements, typename Value>
SOME_DEVICE std::uint64_t fill_bins(const float (&logits)[kElements], float top, float by, Value&& value,
                                    SampleShared& shared) {
  const int own = thread_index();
  block_sync();
  shared.high[own] = shared.low[own] = 0;
  block_sync();
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    const std::uint64_t v = value(i);
    if (v == 0) continue;
    const int bin = bin_of(logits[i], top, by);
    add_atomic(shared.high + bin, static_cast<std::uint32_t>(v >> 16));
    add_atomic(shared.low + bin, static_cast<std::uint32_t>(v & 0xffffu));
  }
  block_sync();
  const Sums sums = block_scan((static_cast<std::uint64_t>(shared.high[own]) << 16) + shared.low[own], shared);
  shared.before[own] = sums.before;
  return sums.all;
}

// As find_rank, after fill_bins of the same values. shared.sum: the cumulative value of the place.
template <int kElements, typename Value>
SOME_DEVICE Rank find_in_bins(const float (&logits)[kElements], int first, float top, float by, std::uint64_t target,
                              Value&& value, SampleShared& shared) {
  const int own = thread_index();
  const std::uint64_t before = shared.before[own],
                      sum = (static_cast<std::uint64_t>(shared.high[own]) << 16) + shared.low[own];
  if (own == 0) shared.count = 0;
  if (before < target && before + sum >= target) shared.bin = own;
  block_sync();
  const int bin = shared.bin;
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    const std::uint64_t v = value(i);
    if (v == 0 || bin_of(logits[i], top, by) != bin) continue;
    const int at = count_atomic(&shared.count);
    if (at >= bins) continue;
    shared.orders[at] = ordered(logits[i]);
    shared.tokens[at] = first + i;
    shared.weights[at] = v;
  }
  block_sync();
  const int count = shared.count;
  const std::uint64_t earlier = shared.before[bin];
  if (count > bins) {  // many tokens with nearly the same logit
    const Rank found = find_rank(logits, first, target, value, shared);
    std::uint64_t sums[1] = {0};
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      if (within(ordered(logits[i]), first + i, found)) sums[0] += value(i);
    block_sums(sums, shared);
    if (own == 0) shared.sum = sums[0];
    block_sync();
    return found;
  }
  if (own < count) {
    const Rank mine{shared.orders[own], shared.tokens[own]};
    std::uint64_t at = earlier;
    for (int j = 0; j < count; ++j)
      if (j != own && within(shared.orders[j], shared.tokens[j], mine)) at += shared.weights[j];
    if (at < target && at + shared.weights[own] >= target) {
      shared.found = mine;
      shared.sum = at + shared.weights[own];
    }
  }
  block_sync();
  return shared.found;
}

// kBlocks: per multiprocessor. One has registers for all logits of a thread, two wait for one another's loads.
template <int kElements, int kBlocks>
SOME_KERNEL(sample_threads, kBlocks)
sample_kernel(const SampleStep in) {
  SampleShared& shared = *reinterpret_cast<SampleShared*>(shared_memory());
  // Only the logits are results of the previous kernel.
  const int wanted = block_index(), row = in.row_of != nullptr ? in.row_of[wanted] : wanted, slot = in.slots[row];
  const int number = in.numbers[wanted], logprobs = in.logprobs[wanted], ring = in.rings[wanted],
            target_token = in.targets[wanted], position = in.positions[row];
  const SlotSampling options = slot < 0 ? SlotSampling{} : in.sampling[slot];
  if (thread_index() < options.biases && thread_index() < kept_biases)
    shared.biases[thread_index()] = in.biases[static_cast<std::int64_t>(slot) * in.max_biases + thread_index()];
  wait_previous();
  if (slot < 0) return;
  const int first = thread_index() * kElements;
  const float* from = in.logits + static_cast<std::int64_t>(in.logits_of_rows ? row : wanted) * in.vocab;
  float logits[kElements];
  const float lowest = float_of(0xff800000u);
  bool wrong = false;
#pragma unroll
  for (int i = 0; i < kElements; i += 4) {
    float4 v{lowest, lowest, lowest, lowest};
    if (first + i < in.vocab) {
      v = load_written(reinterpret_cast<const float4*>(from + first + i));
      const auto odd = [](float x) { return (bits_of(x) & 0x7f800000u) == 0x7f800000u; };
      wrong = wrong || odd(v.x) || odd(v.y) || odd(v.z) || odd(v.w);
    }
    logits[i] = v.x;
    logits[i + 1] = v.y;
    logits[i + 2] = v.z;
    logits[i + 3] = v.w;
  }
  SampleResult& result = in.results[ring * in.ring_stride + wanted];
  wrong = block_any(wrong);
  int token = number < 0 ? target_token : 0;
  float largest = 0, sum = 1;
  int tops = 0;
  if (!wrong && (logprobs >= 0 || number < 0)) {
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

  if (number >= 0 && !wrong) {
    for (int n = 0; n < options.biases; ++n) {
      const LogitBias one =
          n < kept_biases ? shared.biases[n] : in.biases[static_cast<std::int64_t>(slot) * in.max_biases + n];
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
      const float by = options.inverse_temperature;
      const bool by_rank = (options.top_k > 0 && options.top_k < in.vocab) || options.top_p < 1.0f;
      // Computed again where it is needed: there are no registers to keep it. Filters ban the others.
      const auto weight_of = [&](int i) {
        const float weight = exp2_fast(times(add(logits[i], -top), by));
        return weight >= options.min_p ? static_cast<std::uint64_t>(weight * 4294967296.0f) : std::uint64_t{0};
      };
      if (options.top_k > 0 && options.top_k < in.vocab) {
        const auto each = [&](int i) { return static_cast<std::uint64_t>(first + i < in.vocab); };
        fill_bins(logits, top, by, each, shared);
        const Rank last = find_in_bins(logits, first, top, by, static_cast<std::uint64_t>(options.top_k), each, shared);
#pragma unroll
        for (int i = 0; i < kElements; ++i)
          if (!within(ordered(logits[i]), first + i, last)) logits[i] = lowest;
      }
      // A random number of 24 bits, as RandomStream::uniform.
      const std::uint64_t random = RandomStream{options.key}.bits32(static_cast<std::uint64_t>(number)) >> 8;
      const auto drawn = [&](std::uint64_t all) {
        return (all >> 24) * random + (((all & 0xffffffu) * random) >> 24) + 1;
      };
      if (by_rank) {
        std::uint64_t all = fill_bins(logits, top, by, weight_of, shared);
        if (options.top_p < 1.0f) {
          const auto target = static_cast<std::uint64_t>(static_cast<double>(options.top_p) * static_cast<double>(all));
          find_in_bins(logits, first, top, by, target < 1 ? 1 : target, weight_of, shared);
          all = shared.sum;
        }
        // A draw among the first places needs no more than the bins of all.
        token = find_in_bins(logits, first, top, by, drawn(all), weight_of, shared).token;
      } else {
        std::uint64_t own = 0;
#pragma unroll
        for (int i = 0; i < kElements; ++i) own += weight_of(i);
        const Sums sums = block_scan(own, shared);
        const std::uint64_t target = drawn(sums.all);
        std::uint64_t at = sums.before;
#pragma unroll
        for (int i = 0; i < kElements; ++i) {
          const std::uint64_t next = at + weight_of(i);
          if (at < target && next >= target) shared.token = first + i;
          at = next;
        }
        block_sync();
        token = shared.token;
      }
    }
  }
  if (thread_index() != 0) return;
  // Two writes of 16 bytes to memory of the host.
  uint4* const target = reinterpret_cast<uint4*>(&result);
  target[0] = uint4{static_cast<std::uint32_t>(token), wrong ? 0u : 1u, logprobs >= 0 ? bits_of(from[token]) : 0u,
                    bits_of(largest)};
  target[1] = uint4{bits_of(sum), static_cast<std::uint32_t>(tops), 0, 0};
  in.rings[wanted] = (ring + 1) % in.ring_size;
  if (number < 0 || wrong) return;
  in.last_drawn[slot] = token;
  if (options.penalizes != 0) in.counts[static_cast<std::int64_t>(slot) * in.vocab + token] += 2;
  if (!in.advance) return;
  in.tokens[row] = token;
  in.positions[row] = position + 1;
  in.numbers[wanted] = number + 1;
}

SOME_KERNEL(threads, 2) token_kernel(const TokenStep in) {
  wait_previous();
  const int row = block_index() * threads + thread_index();
  if (row < in.rows && in.slots[row] >= 0 && in.tokens[row] < 0) in.tokens[row] = in.last_drawn[in.slots[row]];
}

}  // namespace some::decoding

#include "ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/support.h"

namespace some::cpu {
namespace {

// Scores exist only for one block of queries and one block of keys at a time. A key block is a whole number of query
// blocks, so that the first key of any block that a query visits never comes after the query.
constexpr std::int64_t query_block = 64, key_block = 256;

struct Span {
  std::int64_t sequence_begin, sequence_end, query_begin, query_end;
};

std::vector<Span> cut_sequences(const Sequences& sequences, bool by_query_block) {
  const std::int32_t* offsets = sequences.offsets.data<std::int32_t>();
  std::vector<Span> spans;
  for (std::int64_t s = 0; s < sequences.count; ++s) {
    const std::int64_t begin = offsets[s], end = offsets[s + 1];
    const std::int64_t step = by_query_block ? query_block : std::max<std::int64_t>(1, end - begin);
    for (std::int64_t query = begin; query < end; query += step) {
      spans.push_back({begin, end, query, std::min(end, query + step)});
    }
  }
  return spans;
}

template <typename T>
struct Heads {  // pointers into the packed projection of one head
  Heads(T* qkv, std::int64_t d, int heads, std::int64_t head)
      : query(qkv + head * (d / heads)), key(query + d), value(key + d), stride(3 * d), size(d / heads) {}
  T* query;
  T* key;
  T* value;
  std::int64_t stride, size;
};

// Returns how many of the keys [key_begin, key_end) are visible to the query at `token`.
std::int64_t visible(std::int64_t token, std::int64_t key_begin, std::int64_t key_end, bool causal) {
  return (causal ? std::min(key_end, token + 1) : key_end) - key_begin;
}

template <typename T>
void forward_block(const Span& span, const Heads<const T>& head, bool causal, T* out, std::int64_t d, T* lse) {
  const std::int64_t rows = span.query_end - span.query_begin, size = head.size;
  const T scale = T(1) / std::sqrt(static_cast<T>(size));
  T* scores = thread_buffer<T>(0, query_block * key_block);
  T* sums = thread_buffer<T>(1, query_block * (size + 2));
  T* highest = sums + query_block * size;
  T* weight = highest + query_block;
  std::fill(highest, highest + rows, -std::numeric_limits<T>::infinity());
  std::fill(weight, weight + rows, T(0));
  const std::int64_t last = causal ? span.query_end : span.sequence_end;
  for (std::int64_t begin = span.sequence_begin; begin < last; begin += key_block) {
    const std::int64_t end = std::min(last, begin + key_block), keys = end - begin;
    gemm_serial(Product<T>{false, true, rows, keys, size, scale, head.query + span.query_begin * head.stride,
                           head.stride, head.key + begin * head.stride, head.stride, T(0), scores, keys});
    for (std::int64_t row = 0; row < rows; ++row) {
      T* line = scores + row * keys;
      const std::int64_t seen = visible(span.query_begin + row, begin, end, causal);
      const T before = highest[row];
      const T now = std::max(before, largest(line, seen));
      const T shrink = fast_exp(before - now);
      weight[row] = weight[row] * shrink + exp_sum(line, seen, now);
      highest[row] = now;
      std::fill(line + seen, line + keys, T(0));
      if (begin != span.sequence_begin) {
        for (std::int64_t i = 0; i < size; ++i) sums[row * size + i] *= shrink;
      }
    }
    gemm_serial(Product<T>{false, false, rows, size, keys, T(1), scores, keys, head.value + begin * head.stride,
                           head.stride, begin == span.sequence_begin ? T(0) : T(1), sums, size});
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    const T inverse = T(1) / weight[row];
    T* target = out + (span.query_begin + row) * d;
    for (std::int64_t i = 0; i < size; ++i) target[i] = sums[row * size + i] * inverse;
    lse[span.query_begin + row] = highest[row] + std::log(weight[row]);
  }
}

// Computes the gradients of one head of one sequence. With P the attention weights and D = rowsum(dout * out): dV = P^T
// dout, dS = P (dout V^T - D), dQ = scale dS K, dK = scale dS^T Q. Query blocks are processed in order, so dK and dV
// are summed in a fixed order.
template <typename T>
void backward_sequence(const Span& span, const Heads<const T>& head, const Heads<T>& gradient, bool causal,
                       const T* out, const T* dout, std::int64_t d, const T* lse) {
  const std::int64_t size = head.size, stride = head.stride;
  const T scale = T(1) / std::sqrt(static_cast<T>(size));
  T* weights = thread_buffer<T>(0, query_block * key_block);
  T* changes = thread_buffer<T>(1, query_block * key_block);
  T* products = thread_buffer<T>(2, query_block);
  for (std::int64_t token = span.sequence_begin; token < span.sequence_end; ++token) {
    std::fill_n(gradient.key + token * stride, size, T(0));
    std::fill_n(gradient.value + token * stride, size, T(0));
  }
  for (std::int64_t query = span.sequence_begin; query < span.sequence_end; query += query_block) {
    const std::int64_t query_end = std::min(span.sequence_end, query + query_block), rows = query_end - query;
    for (std::int64_t row = 0; row < rows; ++row) {
      products[row] = dot(dout + (query + row) * d, out + (query + row) * d, size);
    }
    const std::int64_t last = causal ? query_end : span.sequence_end;
    for (std::int64_t begin = span.sequence_begin; begin < last; begin += key_block) {
      const std::int64_t end = std::min(last, begin + key_block), keys = end - begin;
      gemm_serial(Product<T>{false, true, rows, keys, size, scale, head.query + query * stride, stride,
                             head.key + begin * stride, stride, T(0), weights, keys});
      gemm_serial(Product<T>{false, true, rows, keys, size, T(1), dout + query * d, d, head.value + begin * stride,
                             stride, T(0), changes, keys});
      for (std::int64_t row = 0; row < rows; ++row) {
        T* weight = weights + row * keys;
        T* change = changes + row * keys;
        const std::int64_t seen = visible(query + row, begin, end, causal);
        const T total = lse[query + row], product = products[row];
#pragma omp simd
        for (std::int64_t i = 0; i < seen; ++i) {
          weight[i] = fast_exp(weight[i] - total);
          change[i] = weight[i] * (change[i] - product);
        }
        std::fill(weight + seen, weight + keys, T(0));
        std::fill(change + seen, change + keys, T(0));
      }
      gemm_serial(Product<T>{true, false, keys, size, rows, T(1), weights, keys, dout + query * d, d, T(1),
                             gradient.value + begin * stride, stride});
      gemm_serial(Product<T>{true, false, keys, size, rows, scale, changes, keys, head.query + query * stride, stride,
                             T(1), gradient.key + begin * stride, stride});
      gemm_serial(Product<T>{false, false, rows, size, keys, scale, changes, keys, head.key + begin * stride, stride,
                             begin == span.sequence_begin ? T(0) : T(1), gradient.query + query * stride, stride});
    }
  }
}

// Calls body(span, head) for every span and head.
template <typename Body>
void for_each_head(Context& ctx, const std::vector<Span>& spans, int heads, Body&& body) {
  parallel_for(*ctx.threads, static_cast<std::int64_t>(spans.size()) * heads,
               [&](std::int64_t i) { body(spans[static_cast<std::size_t>(i / heads)], i % heads); });
}

template <typename T>
void cached(Context& ctx, const Tensor& qkv, const Tensor& slots, const Tensor& positions, int heads, Tensor& cache,
            Tensor& out) {
  const std::int64_t rows = qkv.dim(0), d = qkv.dim(1) / 3, size = d / heads, capacity = cache.dim(1);
  const std::int32_t* slot = slots.data<std::int32_t>();
  const std::int32_t* position = positions.data<std::int32_t>();
  const T* in = qkv.data<T>();
  T* stored = cache.data<T>();
  T* result = out.data<T>();
  const T scale = T(1) / std::sqrt(static_cast<T>(size));
  for (std::int64_t n = 0; n < rows; ++n) {
    if (slot[n] < 0 || slot[n] >= cache.dim(0) || position[n] < 0 || position[n] >= capacity) {
      failed(Code::index_out_of_range, "attention cache {} has no slot {} with position {}", cache.shape().text(),
             slot[n], position[n]);
    }
    std::copy_n(in + n * 3 * d + d, 2 * d, stored + (slot[n] * capacity + position[n]) * 2 * d);
  }
  // A piece of work is one token with some of its heads: with all of them if there are enough tokens, because keys and
  // values of a position are then read as one piece of memory.
  constexpr std::int64_t enough_rows = 8, ahead = 8;
  const std::int64_t groups = rows >= enough_rows ? 1 : heads, together = heads / groups, width = together * size;
  parallel_for(*ctx.threads, rows * groups, [&](std::int64_t i) {
    const std::int64_t n = i / groups, first = i % groups * width, seen = position[n] + 1;
    const T* query = in + n * 3 * d + first;
    const T* key = stored + slot[n] * capacity * 2 * d + first;
    const T* value = key + d;
    T* scores = thread_buffer<T>(0, together * seen);
    const auto prefetch = [&](const T* from) {
      for (std::int64_t j = 0; j < width; j += 64 / static_cast<std::int64_t>(sizeof(T))) __builtin_prefetch(from + j);
    };
    for (std::int64_t p = 0; p < seen; ++p) {
      if (p + ahead < seen) prefetch(key + (p + ahead) * 2 * d);
      for (std::int64_t head = 0; head < together; ++head)
        scores[head * seen + p] = scale * dot(query + head * size, key + p * 2 * d + head * size, size);
    }
    for (std::int64_t head = 0; head < together; ++head) softmax(scores + head * seen, seen);
    T* target = result + n * d + first;
    std::fill_n(target, width, T(0));
    for (std::int64_t p = 0; p < seen; ++p) {
      if (p + ahead < seen) prefetch(value + (p + ahead) * 2 * d);
      for (std::int64_t head = 0; head < together; ++head)
        add_scaled(scores[head * seen + p], value + p * 2 * d + head * size, target + head * size, size);
    }
  });
}

template <typename T>
void turn(Context& ctx, Tensor& qkv, const Tensor& positions, int heads, bool inverse) {
  const std::int64_t rows = qkv.dim(0), d = qkv.dim(1) / 3, size = d / heads, pairs = size / 2;
  if (rows == 0) return;
  const std::int32_t* position = positions.data<std::int32_t>();
  T* data = qkv.data<T>();
  // Angles depend only on the position: one table of cosines and sines, computed each time because it is cheap.
  const std::int64_t count = *std::max_element(position, position + rows) + 1;
  ArenaScope scope(*ctx.arena);
  T* table = ctx.scratch({count, pairs, 2}).template data<T>();
  parallel_chunks(*ctx.threads, count, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      for (std::int64_t i = 0; i < pairs; ++i) {
        const double angle =
            static_cast<double>(p) * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(size));
        table[(p * pairs + i) * 2] = static_cast<T>(std::cos(angle));
        table[(p * pairs + i) * 2 + 1] = static_cast<T>(inverse ? -std::sin(angle) : std::sin(angle));
      }
    }
  });
  parallel_chunks(*ctx.threads, rows, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* angles = table + position[row] * pairs * 2;
      for (std::int64_t head = 0; head < 2 * heads; ++head) {  // queries, then keys
        T* x = data + row * 3 * d + head * size;
        for (std::int64_t i = 0; i < pairs; ++i) {
          const T cosine = angles[2 * i], sine = angles[2 * i + 1];
          const T first = x[2 * i], second = x[2 * i + 1];
          x[2 * i] = first * cosine - second * sine;
          x[2 * i + 1] = first * sine + second * cosine;
        }
      }
    }
  });
}

}  // namespace

void attention_forward(Context& ctx, const Tensor& qkv, const Sequences& sequences, int heads, bool causal, Tensor& out,
                       Tensor& lse) {
  with_precision(ctx, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t d = qkv.dim(1) / 3, tokens = qkv.dim(0);
    for_each_head(ctx, cut_sequences(sequences, true), heads, [&](const Span& span, std::int64_t head) {
      forward_block<T>(span, Heads<const T>(qkv.data<T>(), d, heads, head), causal, out.data<T>() + head * (d / heads),
                       d, lse.data<T>() + head * tokens);
    });
  });
}

void attention_backward(Context& ctx, const Tensor& dout, const Tensor& qkv, const Tensor& out, const Tensor& lse,
                        const Sequences& sequences, int heads, bool causal, Tensor& dqkv) {
  with_precision(ctx, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t d = qkv.dim(1) / 3, tokens = qkv.dim(0);
    for_each_head(ctx, cut_sequences(sequences, false), heads, [&](const Span& span, std::int64_t head) {
      const std::int64_t column = head * (d / heads);
      backward_sequence<T>(span, Heads<const T>(qkv.data<T>(), d, heads, head),
                           Heads<T>(dqkv.data<T>(), d, heads, head), causal, out.data<T>() + column,
                           dout.data<T>() + column, d, lse.data<T>() + head * tokens);
    });
  });
}

void rope(Context& ctx, Tensor& qkv, const Tensor& positions, int heads, bool inverse) {
  with_precision(ctx, [&](auto zero) { turn<decltype(zero)>(ctx, qkv, positions, heads, inverse); });
}

void attention_cached(Context& ctx, const Tensor& qkv, const Tensor& slots, const Tensor& positions, int heads,
                      Tensor& cache, Tensor& out) {
  with_precision(ctx, [&](auto zero) { cached<decltype(zero)>(ctx, qkv, slots, positions, heads, cache, out); });
}

}  // namespace some::cpu

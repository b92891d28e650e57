#pragma once

#include <omp.h>

#include <algorithm>
#include <exception>

namespace some {

template <typename Body>
void parallel_for(std::int64_t pieces, Body&& body) {
  if (pieces <= 0) return;
  if (pieces == 1 || omp_in_parallel() || threads() == 1) {
    for (std::int64_t i = 0; i < pieces; ++i) body(i);
    return;
  }
  std::exception_ptr error;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads())
  for (std::int64_t i = 0; i < pieces; ++i) {
    try {
      body(i);
    } catch (...) {
#pragma omp critical(some_parallel_error)
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

template <typename Body>
void parallel_chunks(std::int64_t n, std::int64_t grain, Body&& body) {
  const std::int64_t pieces = (n + grain - 1) / grain;
  parallel_for(pieces, [&](std::int64_t i) { body(i * grain, std::min(n, (i + 1) * grain)); });
}

}  // namespace some

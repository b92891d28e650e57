// Kernels that only move numbers: reports of a step for the host besides its tokens, and the inputs of Model::decode.
#pragma once

#include "inference/cuda/rows.cuh"

namespace some::decoding {

SOME_KERNEL(threads, 2) row_places_kernel(const RowPlaces in) {
  wait_previous();
  const int row = block_index() * threads + thread_index();
  if (row >= in.rows) return;
  const bool valid = in.slots[row] >= 0;
  const std::int32_t slot = valid ? in.slots[row] : in.spare, position = valid ? in.positions[row] : 0;
  in.own_slots[row] = slot;
  in.own_positions[row] = position;
  if (in.past == 0) return;
  const std::int32_t place = static_cast<std::int32_t>(slot * in.capacity) + position;
  in.places[row] = place;
  for (int j = 0; j <= in.past; ++j) in.before[row * (in.past + 1) + j] = position >= j ? place - j : -1;
}

SOME_KERNEL(threads, 2) row_report_kernel(const RowReport in) {
  wait_previous();
  const int item = block_index() * threads + thread_index(), row = item / in.report.choices,
            choice = item % in.report.choices;
  if (row < in.rows) report_route(in.report, row, choice, in.indices[item], in.gates[item]);
}

SOME_KERNEL(threads, 2) state_report_kernel(const StateReport in) {
  wait_previous();
  const int item = block_index() * threads + thread_index(), wanted = item / in.width, column = item % in.width;
  if (wanted >= in.wanted) return;
  const std::int64_t row = in.row_of != nullptr ? in.row_of[wanted] : wanted;
  const std::uint32_t bits = in.states[row * in.width + column].bits;
  in.result[(in.rings[wanted] * in.rows + wanted) * in.width + column] = float_of(bits << 16);
}

}  // namespace some::decoding

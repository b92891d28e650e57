#include "inference/cuda/step_results.h"

#if SOME_HAVE_CUDA

#include <algorithm>
#include <cmath>

namespace some::decoding {

std::int64_t class_of(std::int64_t count) {
  std::int64_t rows = 1;
  while (rows < count && rows < few_rows) rows *= 2;
  return count > few_rows ? (count + 63) / 64 * 64 : rows;
}

StepResults::StepResults(const Device& device, const ModelConfig& config)
    : device_(device),
      layers_(config.layers),
      choices_(config.top_k),
      width_(config.d_model),
      samples_(device, sizeof(SampleResult) * ring_size * static_cast<std::size_t>(max_rows)) {}

void StepResults::make_routes(std::int64_t rows) {
  route_rows_ = rows;
  const std::size_t entries = static_cast<std::size_t>(ring_size * rows * layers_ * choices_);
  experts_ = std::make_unique<Pinned>(device_, entries * sizeof(std::int32_t));
  gates_ = std::make_unique<Pinned>(device_, entries * sizeof(float));
}

void StepResults::make_states(std::int64_t rows) {
  state_rows_ = rows;
  states_ = std::make_unique<Pinned>(device_, static_cast<std::size_t>(ring_size * rows * width_) * sizeof(float));
}

void StepResults::make_sources(std::int64_t rows) {
  source_rows_ = rows;
  sources_ =
      std::make_unique<Pinned>(device_, static_cast<std::size_t>(ring_size * rows) * sizeof(GpuMixture::Sources));
}

RouteReport StepResults::routes(const std::int32_t* rings) const {
  return {experts_->as<std::int32_t>(), gates_->as<float>(), rings, route_rows_, 0, layers_, choices_};
}

void StepResults::place(StateReport& report) const {
  report.rows = state_rows_;
  report.result = states_->as<float>();
}

void StepResults::place(GpuMixture::SourceRows& report) const {
  report.ring_rows = source_rows_;
  report.ring_size = ring_size;
  report.sources = sources_->as<GpuMixture::Sources>();
}

void StepResults::read_routes(const Piece& piece, DecodeResult& result) const {
  const auto each = static_cast<std::size_t>(layers_ * choices_);
  const std::size_t from = static_cast<std::size_t>(piece.ring * route_rows_) * each,
                    count = (piece.last_row - piece.first_row) * each, to = piece.first_row * each;
  std::copy_n(experts_->as<std::int32_t>() + from, count, result.experts.data() + to);
  std::copy_n(gates_->as<float>() + from, count, result.gates.data() + to);
}

void StepResults::read(const Piece& piece, Flight& flight) const {
  if (flight.result.top_k > 0) read_routes(piece, flight.result);
  const SampleResult* sample = samples() + piece.ring * max_rows;
  for (std::size_t i = piece.begin; i < piece.end; ++i, ++sample) {
    const WantedRow& want = flight.wanted[i];
    DecodedRow& out = flight.result.wanted[i];
    const auto row = static_cast<std::int64_t>(i - piece.begin);
    out.token = sample->token;
    out.finite = sample->finite != 0;
    if (want.kind == WantedRow::Kind::state) {
      const float* const from = states_->as<float>() + (piece.ring * state_rows_ + row) * width_;
      out.state.assign(from, from + width_);
      continue;
    }
    if (!out.finite) continue;
    if (flight.sources[i] != 0) {
      const GpuMixture::Sources& from = sources_->as<GpuMixture::Sources>()[piece.ring * source_rows_ + row];
      const double probability = out.memory.probability = static_cast<double>(from.probability);
      if (probability > 0) {
        out.memory.slots = static_cast<double>(from.of_slots) / probability;
        for (std::int32_t n = 0; n < from.count; ++n)
          out.memory.of_slots.push_back(
              {from.slots[n], from.entries[n], static_cast<double>(from.weights[n]) / probability});
      }
    }
    if (want.logprobs < 0) continue;
    const double base = static_cast<double>(sample->largest) + std::log(static_cast<double>(sample->sum));
    out.logprob = static_cast<double>(sample->logit) - base;
    for (int n = 0; n < sample->tops; ++n)
      out.top.push_back({sample->top_tokens[n], static_cast<double>(sample->top_logits[n]) - base});
  }
}

}  // namespace some::decoding

#endif

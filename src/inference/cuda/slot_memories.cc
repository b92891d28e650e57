#include "inference/cuda/slot_memories.h"

#if SOME_HAVE_CUDA

#include <algorithm>

namespace some::decoding {

void SlotMemories::open(std::int32_t slot, const SlotSequence& sequence) {
  Slot& now = slots_[static_cast<std::size_t>(slot)];
  Mixed* const before = now.joined;
  now = {};
  Context& ctx = model_.context();
  const Memory* const memory = sequence.memory;
  if (memory != nullptr && GpuMixture::supports(ctx, *memory)) {
    auto found = mixtures_.find(memory);
    if (found == mixtures_.end())
      found = mixtures_.try_emplace(memory, ++made_, ctx, *memory, std::ssize(slots_), model_.config().vocab).first;
    now.own = now.joined = &found->second;
  } else if (memory != nullptr) {
    now.needs_host = memory->store.reach > 0 || memory->settings.contexts > 0;
  }
  now.has_tokens = memory != nullptr && memory->settings.contexts > 0;
  now.contexts = sequence.contexts;
  if (before != nullptr && before != now.own) before->mixture.set_weights(slot, {});
  if (now.own == nullptr) return;
  if (now.own->mixture.has_contexts())
    now.own->mixture.set_mixture(slot, sequence.contexts);
  else
    now.own->mixture.set_weights(slot, sequence.mixture);
}

void SlotMemories::close(std::int32_t slot) {
  Slot& now = slots_[static_cast<std::size_t>(slot)];
  Mixed* const joined = now.joined;
  now = {};
  now.joined = joined;
}

bool SlotMemories::forget(const Memory& memory) {
  const auto found = mixtures_.find(&memory);
  if (found == mixtures_.end()) return false;
  for (Slot& slot : slots_) {
    if (slot.joined == &found->second) slot.joined = slot.own = nullptr;
  }
  mixtures_.erase(found);
  return true;
}

void SlotMemories::set_last(std::int32_t slot, TokenId token) {
  std::vector<TokenId>& tokens = slots_[static_cast<std::size_t>(slot)].tokens;
  if (!tokens.empty() && tokens.back() == some::last_drawn) tokens.back() = token;
}

void SlotMemories::choose(const DecodeBatch& batch, const Piece& piece, StepShape& shape) {
  chosen_.clear();
  for (std::size_t i = piece.begin; i < piece.end; ++i) {
    const WantedRow& want = batch.wanted[i];
    Mixed* const own = of(batch.slots[static_cast<std::size_t>(want.row)]).own;
    if (own == nullptr || want.kind == WantedRow::Kind::state) continue;
    shape.sources = shape.sources || want.sources > 0;
    shape.contexts = shape.contexts || own->mixture.has_contexts();
    if (std::find(chosen_.begin(), chosen_.end(), own) != chosen_.end()) continue;
    chosen_.push_back(own);
    shape.memory = chosen_.size() == 1 ? own->number : several_memories;
  }
}

void SlotMemories::find_contexts(const DecodeBatch& batch, const Piece& piece, const StepShape& shape,
                                 const StepOutput& output, Flight& flight) {
  flight.before.resize(flight.wanted.size());
  for (Mixed* const one : chosen_) {
    if (!one->mixture.has_contexts()) continue;
    std::vector<GpuMixture::ContextRow> rows;
    for (std::size_t i = piece.begin; i < piece.end; ++i) {
      const std::int32_t slot = flight.slots[i];
      if (of(slot).own != one || flight.wanted[i].kind == WantedRow::Kind::state) continue;
      const auto row = static_cast<std::size_t>(flight.wanted[i].row);
      const std::size_t end = static_cast<std::size_t>(batch.positions[row]) + 1,
                        count = std::min<std::size_t>(end, longest_context);
      const std::span<const TokenId> before = tokens(slot).subspan(end - count, count);
      if (flight.sources[i] != 0) flight.before[i].assign(before.begin(), before.end());
      rows.push_back(
          {static_cast<std::int64_t>(output.of_rows ? row - piece.first_row : i - piece.begin), slot, before});
    }
    one->mixture.find_contexts(output.of_rows ? shape.rows : shape.wanted, rows);
  }
}

void SlotMemories::mix(const GpuMixture::Rows& rows) {
  for (Mixed* const one : chosen_) one->mixture.mix(rows);
}

void SlotMemories::report(const GpuMixture::SourceRows& rows) {
  for (Mixed* const one : chosen_) one->mixture.report(rows);
}

std::vector<ContextContribution> SlotMemories::contexts_of(std::int32_t slot, std::span<const TokenId> before,
                                                           TokenId token) const {
  const Slot& now = of(slot);
  if (now.own == nullptr) return {};
  return context_contributions(now.own->memory, now.contexts, before, token);
}

}  // namespace some::decoding

#endif

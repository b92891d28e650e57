#include "memory/reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "comm/all_gather_rows.h"
#include "core/error.h"
#include "core/heartbeat.h"
#include "memory/mixture.h"
#include "ops/elementwise.h"
#include "runtime/prefetcher.h"
#include "runtime/staging.h"

namespace some {
namespace {

constexpr std::int64_t tokens_at_once_cpu = 2048, tokens_at_once_gpu = 8192;

// Returns places in the arena. The host does not wait for the device, which is still busy with the model.
Tensor upload_places(Context& ctx, std::int64_t text, std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < count; ++i) places.push_back(packed({text, first + i}));
  std::vector<std::int32_t> halves(2 * places.size());
  std::memcpy(halves.data(), places.data(), places.size() * sizeof(std::int64_t));
  const Tensor uploaded = ctx.staging->upload(ctx, {&halves})[0];
  return Tensor::wrap(uploaded.raw(), {count}, DType::i64, ctx.device, nullptr);
}

std::vector<std::int32_t> read_ids(const Tensor& tensor) {
  const Tensor host = tensor.device().is_cpu() ? tensor : tensor.to(Device::cpu);
  return {host.data<std::int32_t>(), host.data<std::int32_t>() + host.elements()};
}

}  // namespace

std::int64_t windows_at_once(const Context& ctx, const ModelConfig& config) {
  const std::int64_t tokens = ctx.device.is_cpu() ? tokens_at_once_cpu : tokens_at_once_gpu;
  return std::max<std::int64_t>(1, tokens / config.seq_len);
}

std::int64_t add_window(Batch& batch, std::span<const std::int32_t> tokens, std::int64_t first, std::int64_t last,
                        std::int64_t context, std::optional<std::int32_t> border) {
  if (batch.offsets.empty()) batch.offsets.push_back(0);
  const auto begins_document = [&](std::int64_t i) {
    return border && tokens[static_cast<std::size_t>(i - 1)] == *border;
  };
  std::int64_t begin = first - 1;
  while (begin > 0 && first - 1 - begin < context && !begins_document(begin)) --begin;
  for (std::int64_t i = begin; i + 1 < last; ++i) {
    if (i > begin && begins_document(i)) {
      batch.offsets.push_back(static_cast<std::int32_t>(batch.tokens.size()));
      batch.longest = std::max(batch.longest, i - begin);
      begin = i;
    }
    batch.tokens.push_back(tokens[static_cast<std::size_t>(i)]);
    batch.targets.push_back(i + 1 >= first ? tokens[static_cast<std::size_t>(i + 1)] : -1);
    batch.positions.push_back(static_cast<std::int32_t>(i - begin));
  }
  batch.offsets.push_back(static_cast<std::int32_t>(batch.tokens.size()));
  batch.longest = std::max(batch.longest, last - 1 - begin);
  batch.predicted += last - first;
  return batch.size() - (last - first);
}

// Windows of one forward pass; each is a sequence with its own context before it.
struct MemoryReader::Pass {
  struct Window {
    std::int64_t first, last;  // targets
    std::int64_t begin, end;   // rows of the batch that predict them
  };
  Batch batch;
  std::vector<Window> windows;
};

struct MemoryReader::Answer {
  const Pass* pass;
  Tensor targets, losses, states;  // rows of the batch
};

// The passes run between two synchronizations of the ranks. The model does not wait for updates: each rank computes one
// pass of the round. Then every rank updates its memory from all passes, so that all ranks have the memory that a
// single rank would have.
struct MemoryReader::Round {
  std::vector<Pass> passes;
  std::vector<Answer> answers;  // of these passes
  std::int64_t end() const { return passes.back().windows.back().last; }
};

MemoryReader::MemoryReader(Model& model, Memory* memory, bool learn, std::optional<std::int32_t> border)
    : model_(model),
      memory_(memory),
      learn_(learn && memory != nullptr),
      border_(memory != nullptr ? memory->settings.border : border) {
  if (memory_ != nullptr && !learn_) {
    shares_ = memory_->store.shares.clone();
    mixture_ = memory_->mixture;
  }
}

std::vector<double> MemoryReader::shares() const {
  if (memory_ == nullptr) return {};
  return read_vector(learn_ ? memory_->store.shares : shares_);
}

MemoryReader::Pass MemoryReader::pass_of(std::span<const std::int32_t> tokens, const ReadSpan& span_read,
                                         std::int64_t at) const {
  const std::int64_t context = model_.config().seq_len - span_read.window;
  Pass pass;
  for (std::int64_t first = at; first < span_read.end && std::ssize(pass.windows) < span_read.together;) {
    const std::int64_t last = std::min(span_read.end, first + span_read.window);
    const std::int64_t row = add_window(pass.batch, tokens, first, last, context, border_);
    pass.windows.push_back({first, last, row, row + last - first});
    first = last;
  }
  return pass;
}

std::int64_t MemoryReader::read(std::span<const std::int32_t> tokens, const ReadSpan& span_read,
                                const PassObserver& observe) {
  return for_each_pass(tokens, span_read, [&](Context& ctx, const Answer& answer, const auto& given) {
    const auto [results, told] = learn_pass(ctx, tokens, span_read, answer, given);
    return !observe || observe(results, told);
  });
}

bool MemoryReader::reassign(std::span<const std::int32_t> tokens, const ReadSpan& span_read, Store& store,
                            const std::function<bool(std::int64_t)>& observe) {
  return for_each_pass(tokens, span_read, [&](Context& ctx, const Answer& answer, const auto& given) {
           const Pass& pass = *answer.pass;
           const std::int64_t start = pass.windows.front().first;
           const Tensor places = upload_places(ctx, span_read.text, start, pass.windows.back().last - start);
           Tensor queries = ctx.scratch(answer.states.shape(), ctx.master);
           make_queries(ctx, answer.states, memory_->store.mean, queries);
           for (const Pass::Window& window : pass.windows) {
             const ArenaScope scope(*ctx.arena);
             const Tensor own = queries.rows(window.begin, window.end);
             const Tensor targets = answer.targets.rows(window.begin, window.end);
             Tensor assigned_slots = ctx.scratch({window.last - window.first}, DType::i32);
             assign_slots(ctx, memory_->store, memory_->settings, own, targets, assigned_slots);
             insert_assigned(ctx, own, targets, places.rows(window.first - start, window.last - start), assigned_slots,
                             store);
           }
           given();
           return !observe || observe(pass.windows.back().last - start);
         }) == span_read.end;
}

MemoryReader::Round MemoryReader::round_from(Context& ctx, std::span<const std::int32_t> tokens,
                                             const ReadSpan& span_read, std::int64_t at) {
  beat();
  Round round;
  while (at < span_read.end && std::ssize(round.passes) < ctx.group.size()) {
    round.passes.push_back(pass_of(tokens, span_read, at));
    at = round.end();
  }
  round.answers = run_passes(ctx, round.passes);
  return round;
}

// Calls work for every pass, until it returns false. Returns the end of what was processed.
std::int64_t MemoryReader::for_each_pass(std::span<const std::int32_t> tokens, const ReadSpan& span_read,
                                         const Work& work) {
  if (span_read.window < 1 || span_read.window > model_.config().seq_len)
    bad_input(Code::window_out_of_range, "a window of {} tokens: this model reads 1 to model.seq_len = {} at once",
              span_read.window, model_.config().seq_len);
  if (span_read.begin >= span_read.end) return span_read.end;
  Context& ctx = model_.context();
  const Group& group = ctx.group;
  // An update is many small kernels, which leave most of a GPU to the model.
  std::optional<Prefetcher> ahead;
  if (Prefetcher::possible(ctx) && group.alone()) ahead.emplace(ctx);
  ctx.arena->reset();
  for (Round now = round_from(ctx, tokens, span_read, span_read.begin);;) {
    std::optional<Round> next;
    const auto given = [&] {
      if (ahead && now.end() < span_read.end) next = round_from(ahead->ahead(), tokens, span_read, now.end());
    };
    if (ahead) ahead->fork();
    for (const Answer& answer : now.answers) {
      const bool go_on = work(ahead ? ahead->current() : ctx, answer, given);
      // If one rank is to stop, all ranks stop.
      if (group.all_reduce_max(go_on ? 0 : 1) != 0) return answer.pass->windows.back().last;
    }
    if (now.end() == span_read.end) return span_read.end;
    if (ahead) {
      ahead->join();
    } else {
      ctx.arena->reset();
      next = round_from(ctx, tokens, span_read, now.end());
    }
    now = std::move(*next);
  }
}

// Returns the model's results for each pass, whichever rank computed it.
std::vector<MemoryReader::Answer> MemoryReader::run_passes(Context& ctx, const std::vector<Pass>& round) {
  const Group& group = ctx.group;
  std::vector<Answer> out;
  if (group.alone()) {
    const DeviceBatch batch = upload(ctx, round[0].batch);
    Answer& one = out.emplace_back(Answer{&round[0], batch.targets, {}, {}});
    one.losses = model_.evaluate(ctx, batch, {}, {.states = &one.states});
    return out;
  }
  const auto self = static_cast<std::size_t>(group.rank());
  std::vector<std::int64_t> counts(static_cast<std::size_t>(group.size()), 0);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < round.size(); ++i) total += counts[i] = round[i].batch.size();
  Tensor losses = ctx.scratch({0}, ctx.master), states = ctx.scratch({0, model_.config().d_model});
  if (self < round.size())
    losses = model_.evaluate(ctx, upload(ctx, round[self].batch), {}, {.states = &states});
  else if (ctx.mesh().group_has_pass(group.rank(), std::ssize(round)))
    model_.serve_pass(false);  // other ranks with a pass may need the experts that this rank holds
  Tensor all_losses = ctx.scratch({total}, ctx.master), all_states = ctx.scratch({total, model_.config().d_model});
  all_gather_rows(group, losses, counts, all_losses);
  all_gather_rows(group, states, counts, all_states);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < round.size(); ++i) {
    const std::int64_t last = first + counts[i];
    out.push_back(
        {&round[i], upload(ctx, round[i].batch).targets, all_losses.rows(first, last), all_states.rows(first, last)});
    first = last;
  }
  return out;
}

// Mixes in the memory's predictions and updates the memory.
std::pair<std::vector<WindowResult>, std::vector<SlotAssignment>> MemoryReader::learn_pass(
    Context& ctx, std::span<const std::int32_t> tokens, const ReadSpan& span_read, const Answer& answer,
    const std::function<void()>& given) {
  const Pass& pass = *answer.pass;
  Tensor nll = answer.losses, frozen = nll, assignments;
  const bool counts = memory_ != nullptr && memory_->settings.contexts > 0;
  std::vector<Matches> all_found;                                // read by the mixing
  const bool waits = learn_ && memory_->store.partitions() > 1;  // the host waits for every update, to split partitions
  if (memory_ != nullptr) {
    const MemorySettings& settings = memory_->settings;
    Store& store = memory_->store;
    frozen = ctx.scratch(nll.shape(), ctx.master);
    convert(ctx, nll, frozen);
    assignments = ctx.scratch(nll.shape(), DType::i32);
    const Tensor places = learn_ ? upload_places(ctx, span_read.text, pass.windows.front().first,
                                                 pass.windows.back().last - pass.windows.front().first)
                                 : Tensor();
    Tensor all_queries = ctx.scratch(answer.states.shape(), ctx.master);  // all rows: one launch
    make_queries(ctx, answer.states, store.mean, all_queries);
    if (waits) given();
    std::vector<Rows> windows;
    for (const Pass::Window& window : pass.windows) windows.push_back({window.begin, window.end});
    all_found = make_matches(ctx, store, settings, all_queries, windows);
    for (std::size_t i = 0; i < pass.windows.size(); ++i) {
      const Pass::Window& window = pass.windows[i];
      const Tensor targets = answer.targets.rows(window.begin, window.end);
      const Tensor queries = all_queries.rows(window.begin, window.end);
      Tensor losses = nll.rows(window.begin, window.end);
      if (counts)
        search(ctx, store, settings, queries, targets, all_found[i]);
      else
        search_and_mix_concurrently(ctx, mixing_, store, settings, queries, targets, all_found[i],
                                    learn_ ? store.shares : shares_, losses);
      if (!learn_) continue;
      const ArenaScope scope(*ctx.arena);
      const std::int64_t from = window.first - pass.windows.front().first;
      Tensor became = assignments.rows(window.begin, window.end);
      learn(ctx, settings, queries, targets, places.rows(from, from + window.last - window.first), all_found[i], store,
            became);
    }
    finish_mixing(ctx, mixing_);
    for (std::size_t i = 0; !learn_ && i < pass.windows.size(); ++i)
      assignments.rows(pass.windows[i].begin, pass.windows[i].end).copy_from(all_found[i].nearest);
  }
  if (!waits) given();
  const std::vector<double> alone = read_vector(frozen);
  const std::vector<double> mixed = counts               ? mix_contexts(tokens, span_read, pass, alone, all_found)
                                    : memory_ != nullptr ? read_vector(nll)
                                                         : alone;
  const std::vector<std::int32_t> became = memory_ != nullptr ? read_ids(assignments) : std::vector<std::int32_t>();
  std::vector<WindowResult> results;
  std::vector<SlotAssignment> told;
  for (const Pass::Window& window : pass.windows) {
    WindowResult result;
    result.tokens = window.last - window.first;
    for (std::int64_t row = window.begin; row < window.end; ++row) {
      const auto r = static_cast<std::size_t>(row);
      result.frozen += alone[r];
      result.mixed += mixed[r];
      if (memory_ == nullptr) continue;
      SlotAssignment assignment;
      if (became[r] != no_slot) assignment = {slot_of_assignment(became[r]), (became[r] & inserted_flag) != 0};
      told.push_back(assignment);
      if (!learn_ || assignment.slot == no_slot) continue;
      result.hits += !assignment.born;
      result.births += assignment.born;
      result.lost += (became[r] & evicted_flag) != 0;
    }
    if (!std::isfinite(result.frozen) || !std::isfinite(result.mixed))
      failed(Code::loss_not_finite,
             "the loss is {}: the model's numbers are not finite, so this checkpoint is unusable",
             std::isfinite(result.frozen) ? result.mixed : result.frozen);
    results.push_back(result);
  }
  return {std::move(results), std::move(told)};
}

// Mixes model, states and contexts on the host and counts the contexts, token after token; on a GPU the model's next
// pass runs meanwhile. Returns the losses of the rows.
std::vector<double> MemoryReader::mix_contexts(std::span<const std::int32_t> tokens, const ReadSpan& span_read,
                                               const Pass& pass, const std::vector<double>& alone,
                                               std::span<const Matches> found) {
  ContextStore& contexts = memory_->contexts;
  ContextMixture& mixture = learn_ ? memory_->mixture : mixture_;
  const int longest = contexts.settings().longest;
  std::vector<double> losses = alone, states(memory_->settings.beta.size());
  for (std::size_t i = 0; i < pass.windows.size(); ++i) {
    const Pass::Window& window = pass.windows[i];
    const std::vector<double> target_prob = read_vector(found[i].target_prob);
    const auto count = static_cast<std::size_t>(window.last - window.first);
    for (std::size_t n = 0; n < count; ++n) {
      const std::int64_t t = window.first + static_cast<std::int64_t>(n);
      const auto row = static_cast<std::size_t>(window.begin) + n;
      const std::int32_t target = tokens[static_cast<std::size_t>(t)];
      for (std::size_t s = 0; s < states.size(); ++s) states[s] = target_prob[s * count + n];
      const auto before = context_before(tokens, t, longest, border_);
      losses[row] = mix_position(contexts, mixture, before, target, alone[row], states);
      if (learn_) contexts.learn(before, target, packed({span_read.text, t}));
    }
  }
  return losses;
}

std::int64_t learn_text(Model& model, Memory& memory, const std::string& name, std::span<const std::int32_t> tokens,
                        std::int64_t end, const PassObserver& observe) {
  std::int64_t text = -1;
  for (std::size_t i = 0; i < memory.texts.size(); ++i) {
    if (memory.texts[i].name == name) text = static_cast<std::int64_t>(i);
  }
  if (text < 0) {
    text = static_cast<std::int64_t>(memory.texts.size());
    memory.texts.push_back({name, {}});
  }
  return learn_text(model, memory, text, tokens, end, observe);
}

std::int64_t learn_text(Model& model, Memory& memory, std::int64_t text, std::span<const std::int32_t> tokens,
                        std::int64_t end, const PassObserver& observe) {
  std::vector<std::int32_t>& known = memory.texts[static_cast<std::size_t>(text)].tokens;
  // A prefix of what was read counts as the same text: it has been read already.
  const auto both = static_cast<std::ptrdiff_t>(std::min(known.size(), tokens.size()));
  if (!std::equal(known.begin(), known.begin() + both, tokens.begin()))
    bad_input(Code::text_changed,
              "{} differs from the text of this name that the memory has read; use another name, or forget the "
              "old one first ('some memory forget')",
              memory.texts[static_cast<std::size_t>(text)].name);
  if (known.empty() && !tokens.empty()) known.push_back(tokens[0]);  // it is never predicted
  const auto begin = static_cast<std::int64_t>(known.size());
  end = std::min(end, static_cast<std::int64_t>(tokens.size()));
  if (begin >= end) return begin;
  ReadSpan reading{text, begin, end, memory.settings.window, windows_at_once(model.context(), model.config())};
  // Reading that was stopped between two passes continues as one reading, as if it had not been stopped.
  const bool goes_on = !memory.history.empty() && memory.history.back().kind == HistoryEntry::Kind::read && [&] {
    const ReadSpan& before = memory.history.back().reading;
    return before.text == text && before.end == begin && before.window == reading.window &&
           before.together == reading.together && (before.end - before.begin) % (before.window * before.together) == 0;
  }();
  if (!goes_on) {
    HistoryEntry entry;
    entry.reading = {text, begin, begin, reading.window, reading.together};
    memory.history.push_back(entry);
  }
  MemoryReader reader(model, &memory, true);
  return reader.read(tokens, reading,
                     [&](std::span<const WindowResult> windows, std::span<const SlotAssignment> assignments) {
                       std::int64_t& done = memory.history.back().reading.end;
                       std::int64_t more = 0;
                       for (const WindowResult& window : windows) more += window.tokens;
                       known.insert(known.end(), tokens.begin() + done, tokens.begin() + done + more);
                       done += more;
                       return !observe || observe(windows, assignments);
                     });
}

std::int64_t refinement_passes(const Memory& memory) {
  return !memory.history.empty() && memory.history.back().kind == HistoryEntry::Kind::refine
             ? memory.history.back().passes
             : 0;
}

namespace {

// Collects all readings in their order, including those of merged memories.
void collect_readings(const std::vector<HistoryEntry>& history, std::vector<ReadSpan>& readings) {
  for (const HistoryEntry& entry : history) {
    if (entry.kind == HistoryEntry::Kind::read) readings.push_back(entry.reading);
    collect_readings(entry.others, readings);
  }
}

}  // namespace

bool refine(Model& model, Memory& memory, const std::function<bool(std::int64_t, std::int64_t)>& observe) {
  std::vector<ReadSpan> readings;
  collect_readings(memory.history, readings);
  std::int64_t total = 0, done = 0;
  for (const ReadSpan& reading : readings) total += reading.end - reading.begin;
  Context& ctx = model.context();
  Store store = make_store(ctx, memory.settings, memory.store.mean);
  MemoryReader reader(model, &memory, false);
  for (const ReadSpan& reading : readings) {
    const bool whole = reader.reassign(memory.texts[static_cast<std::size_t>(reading.text)].tokens, reading, store,
                                       [&](std::int64_t tokens) {
                                         done += tokens;
                                         return !observe || observe(done, total);
                                       });
    if (!whole) return false;
  }
  replace_store(ctx, std::move(store), memory.store);
  const std::int64_t rounds = refinement_passes(memory);
  if (rounds == 0) memory.history.emplace_back().kind = HistoryEntry::Kind::refine;
  memory.history.back().passes = rounds + 1;
  return true;
}

Tensor mean_state(Model& model, std::span<const std::int32_t> tokens, std::int64_t most,
                  std::optional<std::int32_t> border) {
  Context& ctx = model.context();
  const std::int64_t count = std::min(most, static_cast<std::int64_t>(tokens.size()));
  if (count < 1) bad_input(Code::data_nothing_to_predict, "no text to compute the mean hidden state from");
  const std::int64_t length = model.config().seq_len, width = model.config().d_model;
  const std::int64_t together = windows_at_once(ctx, model.config());
  std::vector<double> sum(static_cast<std::size_t>(width), 0.0);
  for (std::int64_t at = 0; at < count;) {
    Batch batch;
    batch.offsets.push_back(0);
    for (std::int64_t row = 0; row < together && at < count; ++row) {
      std::int64_t last = std::min(count, at + length);
      if (border) {
        const auto end = std::find(tokens.begin() + at, tokens.begin() + last, *border);
        last = std::min(last, static_cast<std::int64_t>(end - tokens.begin()) + 1);
      }
      for (std::int64_t i = at; i < last; ++i) {
        batch.tokens.push_back(tokens[static_cast<std::size_t>(i)]);
        batch.targets.push_back(-1);
        batch.positions.push_back(static_cast<std::int32_t>(i - at));
      }
      batch.offsets.push_back(static_cast<std::int32_t>(batch.tokens.size()));
      batch.longest = std::max(batch.longest, last - at);
      at = last;
    }
    ctx.arena->reset();
    Tensor states;
    model.evaluate(upload(ctx, batch), {}, {.states = &states});
    const std::vector<double> rows = read_vector(states);
    for (std::size_t i = 0; i < rows.size(); ++i) sum[i % sum.size()] += rows[i];
  }
  Tensor mean = Tensor::empty({width}, DType::f64);
  for (std::int64_t c = 0; c < width; ++c)
    mean.data<double>()[c] = sum[static_cast<std::size_t>(c)] / static_cast<double>(count);
  return mean;
}

namespace {

bool is_reading_of(const HistoryEntry& entry, std::int64_t text) {
  return entry.kind == HistoryEntry::Kind::read && entry.reading.text == text;
}

struct TokensRead {
  std::int64_t once = 0, in_all = 0;  // refinement reads all previous readings again
};
// Returns the number of tokens that a history reads, without one text.
TokensRead tokens_of(const std::vector<HistoryEntry>& history, std::int64_t without) {
  TokensRead sum;
  bool refined = true;  // nothing was read since the last refinement
  for (const HistoryEntry& entry : history) {
    const bool refines = entry.kind == HistoryEntry::Kind::refine, left_out = is_reading_of(entry, without);
    TokensRead more = tokens_of(entry.others, without);
    if (entry.kind == HistoryEntry::Kind::read && !left_out)
      more.once = more.in_all = entry.reading.end - entry.reading.begin;
    sum.once += more.once;
    sum.in_all += more.in_all + (refined ? 0 : entry.passes * sum.once);
    refined = refines || (refined && left_out);
  }
  return sum;
}

// Replays a history in an empty memory, without the readings of one text. Texts keep their indices until the end.
void replay_history(Model& model, Memory& memory, const std::vector<HistoryEntry>& history, std::int64_t without,
                    const std::function<void(std::int64_t)>& done) {
  Context& ctx = model.context();
  for (const HistoryEntry& entry : history) {
    switch (entry.kind) {
      case HistoryEntry::Kind::read:
        if (is_reading_of(entry, without)) break;
        MemoryReader(model, &memory, true)
            .read(memory.texts[static_cast<std::size_t>(entry.reading.text)].tokens, entry.reading,
                  [&](std::span<const WindowResult> windows, std::span<const SlotAssignment>) {
                    for (const WindowResult& window : windows) done(window.tokens);
                    return true;
                  });
        memory.history.push_back(entry);
        break;
      case HistoryEntry::Kind::merge: {
        Memory other = make_memory(ctx, entry.settings, model.config(), memory.store.mean);
        other.model = memory.model;
        other.texts = memory.texts;
        replay_history(model, other, entry.others, without, done);
        merge(ctx, memory, other);
        break;
      }
      case HistoryEntry::Kind::prune: prune(ctx, memory, entry.min_count); break;
      case HistoryEntry::Kind::refine:
        // Skips a refinement that would not have run if the text had never been read.
        if (memory.history.empty() || memory.history.back().kind == HistoryEntry::Kind::refine) break;
        for (std::int64_t i = 0; i < entry.passes; ++i) {
          refine(model, memory, [&, before = std::int64_t{0}](std::int64_t so_far, std::int64_t) mutable {
            done(so_far - std::exchange(before, so_far));
            return true;
          });
        }
        break;
    }
  }
}

void renumber(std::vector<HistoryEntry>& history, std::int64_t gone) {
  for (HistoryEntry& entry : history) {
    if (entry.reading.text > gone) --entry.reading.text;
    renumber(entry.others, gone);
  }
}

}  // namespace

Memory memory_without_text(Model& model, const Memory& memory, std::int64_t text,
                           const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const std::int64_t total = tokens_of(memory.history, text).in_all;
  std::int64_t so_far = 0;
  Memory left = make_memory(model.context(), memory.settings, model.config(), memory.store.mean);
  left.model = memory.model;
  left.tokenizer = memory.tokenizer;
  left.run = memory.run;
  left.texts = memory.texts;
  replay_history(model, left, memory.history, text, [&](std::int64_t tokens) {
    so_far += tokens;
    if (progress) progress(so_far, total);
  });
  left.texts.erase(left.texts.begin() + text);
  renumber(left.history, text);
  // Places contain text indices.
  for (Tensor* places : {&left.store.born, &left.store.hit}) {
    Tensor host = places->to(Device::cpu);
    for (std::int64_t m = 0; m < host.elements(); ++m) {
      std::int64_t& one = host.data<std::int64_t>()[m];
      if (one == no_place) continue;
      const Place place = unpacked(one);
      if (place.text > text) one = packed({place.text - 1, place.offset});
    }
    places->copy_from(host);
  }
  left.contexts.move_places([&](std::int64_t one) {
    if (one == no_place) return no_place;
    const Place place = unpacked(one);
    return place.text > text ? packed({place.text - 1, place.offset}) : one;
  });
  return left;
}

}  // namespace some

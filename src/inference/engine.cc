#include "inference/engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/system_memory.h"
#include "evaluation/evaluate.h"
#include "memory/predictions.h"

namespace some {
namespace {

// Maximum number of scored rows per step, because each has a whole row of logits.
constexpr std::int64_t max_scored_rows = 256;

}  // namespace

const char* name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::eos: return "eos";
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::context: return "context";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::failed: return "failed";
  }
  return "failed";
}

std::size_t sequence_begin(std::size_t length, std::int64_t seq_len) {
  const auto whole = static_cast<std::size_t>(seq_len), step = std::max<std::size_t>(1, whole / 2);
  return length < whole ? 0 : ((length - whole) / step + 1) * step;
}

void check(const SequenceRequest& request) {
  check(request.sampling);
  if (request.prompt.empty()) bad_input(Code::prompt_empty, "the prompt has no tokens; use at least one word");
  if (request.max_tokens < 0 || (request.max_tokens == 0 && request.prompt_logprobs < 0 && !request.embed))
    bad_input(Code::option_invalid, "{} {}: must be >= 1", "--max-tokens", request.max_tokens);
  for (const std::string& stop : request.stop) {
    if (stop.empty()) bad_input(Code::option_invalid, "{} \"{}\": must not be empty", "--stop", stop);
  }
  if (request.embed && (request.max_tokens != 0 || request.prompt_logprobs >= 0))
    bad_input(Code::option_conflict, "max_tokens must be 0 for an embedding");
  if (request.prompt_logprobs >= 0 && request.memory != nullptr)
    bad_input(Code::option_conflict, "log probabilities of a prompt cannot be combined with a memory");
}

struct Engine::Sequence {
  explicit Sequence(TextStream stream) : text(std::move(stream)) {}
  SequenceId id = 0;
  SequenceRequest request;
  std::vector<TokenId> tokens;  // prompt and new tokens
  TextStream text;
  std::int32_t slot = -1;
  std::uint64_t joined = 0;
  // The rows submitted next. `target`: the next token to predict. The slot's cache holds the tokens begin to begin +
  // filled; `read` tokens have been in it so far.
  std::size_t target = 0, begin = 0, filled = 0, read = 0;
  std::size_t in_flight = 0;  // submitted draws not yet collected
  std::size_t unscored = 0;   // submitted prompt rows not yet collected
  bool finished = false;
  std::vector<PromptToken> scores;
  std::optional<PromptToken> eos;
  std::vector<double> state_sum;
  std::vector<TokenRoutes> routes;

  std::size_t prompt() const { return request.prompt.size(); }
  // End of the tokens to predict.
  std::size_t end(std::int64_t capacity) const {
    if (request.embed) return prompt() + 1;
    std::size_t end = prompt() + static_cast<std::size_t>(request.max_tokens);
    if (!request.slide) end = std::min(end, static_cast<std::size_t>(capacity));
    return end;
  }
};

// A submitted step.
struct Engine::Flight {
  struct Row {
    std::shared_ptr<Sequence> sequence;
    std::size_t index;  // of the row's token, or of the wanted row's target
  };
  std::vector<Row> wanted;
  std::vector<Row> routed;         // of every row, if routing is reported
  std::vector<WantedRow> request;  // of the batch
  std::vector<std::uint8_t> again;
};

Engine::Engine(Model& model, const Tokenizer& tokenizer, const EngineOptions& options)
    : model_(model), tokenizer_(tokenizer), options_(options), capacity_(model.config().seq_len) {
  if (capacity_ < 2)
    bad_input(Code::model_unsuitable,
              "this run has a context of one token (model.seq_len = 1) and cannot continue a text");
  if (options.max_sequences < 1 || options.max_waiting < 1 || options.prompt_chunk < -1)
    bad_input(Code::option_invalid, "{} {}: must be >= 1", "max_sequences", options.max_sequences);
  const double budget = options.cache_bytes > 0           ? options.cache_bytes
                        : model.context().device.is_cpu() ? memory_limit()
                                                          : 0;
  const double one = cache_bytes_per_slot(model, capacity_);
  std::int64_t slots = options.max_sequences;
  if (budget > 0) slots = std::min(slots, static_cast<std::int64_t>(budget / one));
  if (slots < 1)
    bad_input(Code::memory_insufficient,
              "the KV cache of one text requires {:.1f} GiB of memory, but {:.1f} are available", one / (1 << 30),
              budget / (1 << 30));
  DecoderOptions decoder = options.decoder;
  decoder.slots = slots;
  decoder.capacity = capacity_;
  decoder_ = options.make_decoder(model, decoder);
  if (options_.prompt_chunk < 0) options_.prompt_chunk = decoder_->prompt_rows();
  active_.resize(static_cast<std::size_t>(slots));
  statistics_.slots = slots;
  statistics_.positions = slots * capacity_;
  statistics_.cache_bytes = static_cast<double>(decoder_->cache_bytes());
}

Engine::~Engine() = default;

SequenceId Engine::add(SequenceRequest request) {
  check(request);
  for (const TokenId token : request.prompt) {
    if (token < 0 || token >= model_.config().vocab)
      bad_input(Code::token_out_of_range, "token {} is outside the vocabulary of {}", token, model_.config().vocab);
  }
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  if (!request.slide && length + (request.max_tokens > 0 ? 1 : 0) > capacity_)
    bad_input(Code::text_too_long,
              "the prompt has {} tokens, but the model reads at most model.seq_len = {}; shorten it", length,
              capacity_);
  auto sequence = std::make_shared<Sequence>(TextStream(tokenizer_, request.stop));
  // Padding tokens are never generated.
  request.sampling.logit_bias.emplace_back(tokenizer_.pad_id(), -INFINITY);
  if (!request.stop_at_eos) request.sampling.logit_bias.emplace_back(tokenizer_.eos_id(), -INFINITY);
  sequence->tokens = request.prompt;
  sequence->target = request.embed || request.prompt_logprobs >= 0 ? 1 : request.prompt.size();
  if (request.prompt_logprobs >= 0) sequence->scores.resize(request.prompt.size());
  if (request.prompt_logprobs >= 0 || request.embed) {
    sequence->unscored = request.prompt.size() - (request.embed ? 0 : 1);
  }
  sequence->request = std::move(request);
  SequenceId id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (std::ssize(waiting_) >= options_.max_waiting) {
      ++statistics_.refused;
      bad_input(Code::server_busy, "{} requests are waiting already; try again later", waiting_.size());
    }
    id = sequence->id = next_id_++;
    ++statistics_.added;
    waiting_.push_back(std::move(sequence));
  }
  changed_.notify_all();
  return id;
}

void Engine::cancel(SequenceId id) {
  {
    const std::lock_guard lock(mutex_);
    cancels_.push_back(id);
  }
  changed_.notify_all();
}

bool Engine::idle() const {
  const std::lock_guard lock(mutex_);
  return waiting_.empty() && statistics_.active == 0;
}

void Engine::wait(std::chrono::milliseconds longest) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, longest, [&] { return !waiting_.empty() || statistics_.active > 0 || !cancels_.empty(); });
}

void Engine::memory_changed(const Memory& memory) { decoder_->memory_changed(memory); }

EngineStatistics Engine::statistics() const {
  const std::lock_guard lock(mutex_);
  EngineStatistics out = statistics_;
  out.waiting = std::ssize(waiting_);
  return out;
}

void Engine::finish(const std::shared_ptr<Sequence>& sequence, FinishReason reason, std::exception_ptr error) {
  sequence->finished = true;
  if (sequence->slot >= 0) {
    decoder_->close(sequence->slot);
    active_[static_cast<std::size_t>(sequence->slot)] = nullptr;
  }
  {
    const std::lock_guard lock(mutex_);
    statistics_.active -= sequence->slot >= 0 ? 1 : 0;
    ++(reason == FinishReason::cancelled ? statistics_.cancelled
       : reason == FinishReason::failed  ? statistics_.failed
                                         : statistics_.finished);
  }
  if (!sequence->request.on_finish) return;
  FinishedSequence out;
  out.id = sequence->id;
  out.reason = reason;
  out.tokens.assign(sequence->tokens.begin() + static_cast<std::ptrdiff_t>(sequence->prompt()), sequence->tokens.end());
  out.rest = sequence->text.finish();
  out.text = sequence->text.text();
  if (sequence->text.stopped()) out.stop = sequence->request.stop[*sequence->text.stopped()];
  out.prompt_tokens = static_cast<std::int64_t>(sequence->prompt());
  for (const double sum : sequence->state_sum)
    out.embedding.push_back(static_cast<float>(sum / static_cast<double>(sequence->prompt())));
  out.eos = std::move(sequence->eos);
  out.routes = std::move(sequence->routes);
  out.error = std::move(error);
  sequence->request.on_finish(out);
}

bool Engine::apply_cancels() {
  std::vector<SequenceId> cancels;
  std::vector<std::shared_ptr<Sequence>> found;
  {
    const std::lock_guard lock(mutex_);
    cancels.swap(cancels_);
    if (cancels.empty()) return false;
    std::sort(cancels.begin(), cancels.end());
    const auto is_cancelled = [&](const std::shared_ptr<Sequence>& one) {
      return one != nullptr && std::binary_search(cancels.begin(), cancels.end(), one->id);
    };
    std::copy_if(active_.begin(), active_.end(), std::back_inserter(found), is_cancelled);
    std::copy_if(waiting_.begin(), waiting_.end(), std::back_inserter(found), is_cancelled);
    waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), is_cancelled), waiting_.end());
  }
  for (const auto& one : found) finish(one, FinishReason::cancelled);
  return !found.empty();
}

// Assigns free slots to waiting sequences, in order of arrival.
void Engine::admit() {
  for (std::size_t slot = 0; slot < active_.size(); ++slot) {
    if (active_[slot]) continue;
    std::shared_ptr<Sequence> sequence;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) return;
      sequence = std::move(waiting_.front());
      waiting_.pop_front();
      ++statistics_.active;
    }
    sequence->slot = static_cast<std::int32_t>(slot);
    sequence->joined = joined_++;
    active_[slot] = sequence;
    const SequenceRequest& request = sequence->request;
    SlotSequence own{request.sampling, {}, request.memory, {}, {}};
    if (request.sampling.penalizes()) own.prompt = request.prompt;
    if (request.memory != nullptr && request.memory->settings.contexts > 0)
      own.contexts = context_mixture_after(model_, *request.memory, request.prompt);
    else if (request.memory != nullptr)
      own.mixture =
          mixture_weights(request.memory->settings, mixture_weights_after(model_, *request.memory, request.prompt));
    decoder_->open(sequence->slot, own);
  }
}

// Adds at most `most` rows of a sequence to the step. Returns the number added.
std::int64_t Engine::add_rows(const std::shared_ptr<Sequence>& sequence, std::int64_t most, DecodeBatch& batch,
                              Flight& flight) {
  Sequence& own = *sequence;
  const SequenceRequest& request = own.request;
  std::int64_t rows = 0, scored = 0;
  while (rows < most && own.target < own.end(capacity_)) {
    const std::size_t begin = sequence_begin(own.target, capacity_), known = own.tokens.size();
    const bool moves = begin != own.begin;
    const std::size_t at = moves ? begin : own.begin + own.filled;
    // The token of a row is known, or it is the last one sampled.
    if (at >= known && (at != known + own.in_flight - 1 || own.in_flight == 0)) break;
    // A step may contain each position of a slot once, so rows of the next window are submitted with the next step.
    if (moves && (own.in_flight > 1 || rows > 0)) break;
    if (moves) {
      own.begin = begin;
      own.filled = 0;
    }
    const bool reread = at < own.read;
    batch.add(at < known ? own.tokens[at] : last_drawn, own.slot, static_cast<std::int32_t>(own.filled), reread);
    if (batch.routes) flight.routed.push_back({sequence, at});
    ++rows;
    ++own.filled;
    own.read = std::max(own.read, at + 1);
    if (at + 1 != own.target) continue;
    WantedRow want;
    want.row = static_cast<std::int32_t>(batch.rows()) - 1;
    if (request.embed) {
      want.kind = WantedRow::Kind::state;
    } else if (own.target < own.prompt()) {
      want.kind = WantedRow::Kind::score;
      want.target = own.tokens[own.target];
      want.logprobs = request.prompt_logprobs;
    } else {
      want.number = static_cast<std::int64_t>(own.target - own.prompt());
      want.logprobs = request.logprobs;
      want.sources = request.sources;
    }
    batch.wanted.push_back(want);
    flight.wanted.push_back({sequence, own.target});
    ++own.target;
    if (want.kind == WantedRow::Kind::draw) {
      ++own.in_flight;
      break;  // the next row requires the token sampled by this one
    }
    if (++scored == max_scored_rows) break;
  }
  return rows;
}

bool Engine::plan(DecodeBatch& batch, Flight& flight) {
  batch.routes =
      std::any_of(active_.begin(), active_.end(), [](const auto& one) { return one && one->request.routes; });
  // Prompts share the rows of prompt_chunk in order of arrival; sequences that need only one row always receive it.
  std::vector<std::int64_t> most(active_.size(), 0);
  std::vector<std::size_t> reading;
  for (std::size_t slot = 0; slot < active_.size(); ++slot) {
    if (!active_[slot]) continue;
    const Sequence& own = *active_[slot];
    const std::size_t begin = sequence_begin(own.target, capacity_);
    const std::size_t from = begin != own.begin ? begin : own.begin + own.filled;
    const bool one = from + 1 >= own.target && own.target >= own.prompt();
    if (one)
      most[slot] = 1;
    else
      reading.push_back(slot);
  }
  std::sort(reading.begin(), reading.end(),
            [&](std::size_t a, std::size_t b) { return active_[a]->joined < active_[b]->joined; });
  std::int64_t left = options_.prompt_chunk > 0 ? options_.prompt_chunk : INT64_MAX;
  for (const std::size_t slot : reading) {
    const Sequence& own = *active_[slot];
    const std::size_t begin = sequence_begin(own.target, capacity_);
    const std::size_t from = begin != own.begin ? begin : own.begin + own.filled;
    const std::size_t to = own.target < own.prompt() ? own.end(capacity_) : own.target;
    most[slot] = std::min<std::int64_t>(left, static_cast<std::int64_t>(to - std::min(to, from)));
    left -= most[slot];
  }
  for (std::size_t slot = 0; slot < active_.size(); ++slot) {
    if (active_[slot]) add_rows(active_[slot], most[slot], batch, flight);
  }
  flight.request = batch.wanted;
  if (batch.routes) flight.again = batch.again;
  return batch.rows() > 0;
}

void Engine::drawn(const std::shared_ptr<Sequence>& sequence, DecodedRow& row) {
  const SequenceRequest& request = sequence->request;
  --sequence->in_flight;
  if (request.stop_at_eos && row.token == tokenizer_.eos_id()) {
    if (request.logprobs >= 0) sequence->eos = PromptToken{row.logprob, std::move(row.top), {}};
    return finish(sequence, FinishReason::eos);
  }
  if (std::find(request.stop_tokens.begin(), request.stop_tokens.end(), row.token) != request.stop_tokens.end())
    return finish(sequence, FinishReason::stop);
  TokenEvent event;
  event.id = sequence->id;
  event.token = row.token;
  event.number = static_cast<std::int64_t>(sequence->tokens.size() - sequence->prompt());
  sequence->tokens.push_back(row.token);
  event.text = sequence->text.add(row.token);
  event.logprob = row.logprob;
  event.top = std::move(row.top);
  event.memory = std::move(row.memory);
  event.routes = std::exchange(sequence->routes, {});
  {
    const std::lock_guard lock(mutex_);
    ++statistics_.generated_tokens;
  }
  if (request.on_token) request.on_token(event);
  if (sequence->text.stopped()) return finish(sequence, FinishReason::stop);
  const std::size_t length = sequence->tokens.size();
  if (length - sequence->prompt() >= static_cast<std::size_t>(request.max_tokens))
    return finish(sequence, FinishReason::length);
  if (!request.slide && length >= static_cast<std::size_t>(capacity_)) finish(sequence, FinishReason::context);
}

void Engine::scored(const std::shared_ptr<Sequence>& sequence, std::size_t index, DecodedRow& row) {
  if (sequence->request.embed) {
    sequence->state_sum.resize(row.state.size());
    for (std::size_t i = 0; i < row.state.size(); ++i) sequence->state_sum[i] += static_cast<double>(row.state[i]);
  } else {
    sequence->scores[index] = {row.logprob, std::move(row.top), std::move(row.memory)};
  }
  if (--sequence->unscored == 0) {
    if (!sequence->scores.empty() && sequence->request.on_prompt) sequence->request.on_prompt(sequence->scores);
    sequence->scores = {};
    if (sequence->request.max_tokens == 0) finish(sequence, FinishReason::length);
  }
}

void Engine::process(Flight& flight, DecodeResult result) {
  const std::size_t per_row = static_cast<std::size_t>(result.top_k) * static_cast<std::size_t>(model_.config().layers);
  for (std::size_t row = 0; per_row > 0 && row < flight.routed.size(); ++row) {
    const auto& [sequence, index] = flight.routed[row];
    if (sequence->finished || !sequence->request.routes || flight.again[row] != 0) continue;
    TokenRoutes& one = sequence->routes.emplace_back();
    one.index = static_cast<std::int64_t>(index);
    one.token = sequence->tokens[index];
    one.top_k = result.top_k;
    const auto at = static_cast<std::ptrdiff_t>(row * per_row), end = at + static_cast<std::ptrdiff_t>(per_row);
    one.experts.assign(result.experts.begin() + at, result.experts.begin() + end);
    one.gates.assign(result.gates.begin() + at, result.gates.begin() + end);
  }
  for (std::size_t i = 0; i < flight.wanted.size(); ++i) {
    const auto& [sequence, index] = flight.wanted[i];
    if (sequence->finished) continue;
    if (!result.wanted[i].finite)
      finish(sequence, FinishReason::failed,
             std::make_exception_ptr(make_error(Fault::failure, Code::loss_not_finite,
                                                "the model's logits are not finite, so this checkpoint is unusable; "
                                                "use an earlier one with --checkpoint STEP")));
    else if (flight.request[i].kind == WantedRow::Kind::draw)
      drawn(sequence, result.wanted[i]);
    else
      scored(sequence, index, result.wanted[i]);
  }
}

bool Engine::step() {
  const auto started = std::chrono::steady_clock::now();
  bool worked = apply_cancels();
  admit();
  // A one-token prompt that is only scored has nothing to predict.
  for (const auto& one : std::vector(active_)) {
    if (!one || one->target < one->end(capacity_) || one->in_flight > 0 || one->unscored > 0) continue;
    if (one->request.on_prompt && one->request.prompt_logprobs >= 0) one->request.on_prompt(one->scores);
    finish(one, FinishReason::length);
    worked = true;
  }
  DecodeBatch batch;
  Flight flight;
  const bool planned = plan(batch, flight);
  if (planned) {
    std::int64_t reread = 0, prompt = 0, used = 0;
    for (const std::uint8_t one : batch.again) reread += one;
    prompt = static_cast<std::int64_t>(batch.rows()) - reread;
    for (const WantedRow& one : batch.wanted) prompt -= one.kind == WantedRow::Kind::draw && one.number > 0 ? 1 : 0;
    for (const auto& one : active_) used += one ? static_cast<std::int64_t>(one->filled) : 0;
    {
      const std::lock_guard lock(mutex_);
      ++statistics_.steps;
      statistics_.rows = static_cast<std::int64_t>(batch.rows());
      statistics_.reread_tokens += reread;
      statistics_.prompt_tokens += prompt;
      statistics_.positions_used = used;
    }
    decoder_->submit(batch);
    flights_.push_back(std::move(flight));
  }
  if (flights_.empty()) return worked;
  if (!planned || std::ssize(flights_) >= decoder_->max_in_flight()) {
    DecodeResult result = decoder_->collect();
    Flight done = std::move(flights_.front());
    flights_.pop_front();
    process(done, std::move(result));
  }
  const std::lock_guard lock(mutex_);
  statistics_.busy_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return true;
}

void Engine::run() {
  while (step()) {
  }
}

}  // namespace some

// The part of a ModelService that accepts requests, on the threads of the HTTP server.
#include <fmt/format.h>
#include <sys/random.h>

#include <ctime>

#include "core/error.h"
#include "serve/model_service_parts.h"

namespace some {
namespace {

std::uint64_t random_number() {
  std::uint64_t out = 0;
  if (getrandom(&out, sizeof out, 0) != sizeof out)
    out = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return out;
}

std::string new_id(const char* kind) {
  return fmt::format("{}-{:016x}{:08x}", kind, random_number(), random_number() >> 32);
}

}  // namespace

std::shared_ptr<Admission> ModelService::admit(std::int64_t numbers, std::size_t holder) {
  if (stop_ || end_all_) failed(Code::server_busy, "the server is stopping");
  auto out = std::make_shared<Admission>();
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<std::atomic<std::int64_t>>& own = of_holders_[holder];
    if (!own) own = std::make_shared<std::atomic<std::int64_t>>(0);
    out->take(requests_, 1);
    out->take(own, 1);
    out->take(numbers_, numbers);
    if (settings_.max_requests_per_key > 0 && *own > static_cast<std::int64_t>(settings_.max_requests_per_key))
      bad_input(Code::server_busy, "{} requests of this client are in progress already; wait for their responses",
                settings_.max_requests_per_key);
  }
  if (*requests_ > static_cast<std::int64_t>(settings_.max_requests))
    failed(Code::server_busy, "{} requests are in progress already; try again later", settings_.max_requests);
  if (*numbers_ > settings_.max_numbers && *numbers_ > numbers)
    failed(Code::server_busy, "the accepted requests use all memory reserved for requests; try again later");
  return out;
}

std::vector<std::vector<TokenId>> ModelService::encode(const std::vector<Prompt>& prompts,
                                                       const std::string& field) const {
  std::shared_ptr<Loaded> loaded;
  {
    const std::lock_guard lock(mutex_);
    loaded = newest_;
  }
  std::vector<std::vector<TokenId>> out;
  std::int64_t tokens = 0;
  for (const Prompt& one : prompts) {
    out.push_back(std::holds_alternative<std::string>(one) ? loaded->run.tokenizer.encode(std::get<std::string>(one))
                                                           : std::get<std::vector<TokenId>>(one));
    if (out.back().empty())
      bad_input(Code::request_invalid, "{}: text {} has no tokens; use at least one word", field, out.size());
    for (const TokenId id : out.back()) {
      if (id >= loaded->run.recipe.model.vocab)
        bad_input(Code::request_invalid, "{}: token {} is outside the vocabulary of {}", field, id,
                  loaded->run.recipe.model.vocab);
    }
    tokens += std::ssize(out.back());
    if (tokens > settings_.limits.prompt_tokens)
      bad_input(Code::request_invalid, "{}: must be at most {} tokens in all", field, settings_.limits.prompt_tokens);
  }
  return out;
}

void ModelService::submit(std::shared_ptr<Job> job) {
  {
    const std::lock_guard lock(mutex_);
    if (stop_) failed(Code::server_busy, "the server is stopping");
    inbox_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void ModelService::generate(GenerationRequest request, std::size_t holder, const Answer& answer) {
  std::shared_ptr<Loaded> loaded;
  {
    const std::lock_guard lock(mutex_);
    loaded = newest_;
  }
  if (request.some.experts && loaded->run.recipe.model.ffn != Ffn::some)
    bad_input(Code::request_invalid, "{}: the model {} has no experts", "some.experts", settings_.name);
  if (request.some.memory && !loaded->memory)
    bad_input(Code::request_invalid, "{}: the model {} has no memory; name a session, or create one with 'some read'",
              request.some.sources ? "some.sources" : "some.memory", settings_.name);
  auto prompts = encode(request.prompts, request.chat ? "messages" : "prompt");
  std::int64_t tokens = 0;
  for (const auto& one : prompts) tokens += std::ssize(one);
  const std::int64_t reported = 1 + request.logprobs.value_or(0);
  const std::int64_t numbers = request.n * (tokens + std::ssize(prompts) * request.max_tokens) * reported;
  if (numbers > 2 * settings_.limits.reported_numbers)
    bad_input(Code::request_invalid, "{}: n times (prompt tokens + max_tokens) times (1 + logprobs) must be at most {}",
              "max_tokens", 2 * settings_.limits.reported_numbers);
  auto job = std::make_shared<Job>();
  job->admission = admit(numbers, holder);
  job->holder = holder;
  job->session = request.some.session;
  if (request.some.learn) {
    job->learned = request.chat ? loaded->run.tokenizer.encode(request.learned_text) : prompts[0];
    if (prompts.size() > 1) bad_input(Code::request_invalid, "{}: requires a single prompt", "learn");
  }
  if (!request.seeded) request.sampling.seed = random_number();
  ReplyHead head{new_id(request.chat ? "chatcmpl" : "cmpl"), settings_.name,
                 fmt::format("some-step-{}", loaded->run.step), static_cast<std::int64_t>(std::time(nullptr))};
  job->reply =
      std::make_shared<Reply>(std::move(request), std::move(prompts), std::move(head), loaded->run.tokenizer, answer);
  submit(std::move(job));
}

void ModelService::embed(EmbeddingRequest request, std::size_t holder, const Answer& answer) {
  auto inputs = encode(request.inputs, "input");
  std::int64_t width = 0;
  {
    const std::lock_guard lock(mutex_);
    width = newest_->run.recipe.model.d_model;
  }
  if (request.dimensions && *request.dimensions != width)
    bad_input(Code::request_invalid, "{}: must be {}, the width of the model", "dimensions", width);
  std::int64_t tokens = std::ssize(inputs) * width;
  for (const auto& one : inputs) tokens += std::ssize(one);
  auto job = std::make_shared<Job>();
  job->admission = admit(tokens, holder);
  job->embedding = std::make_shared<EmbeddingReply>(std::move(request), std::move(inputs), settings_.name, answer);
  submit(std::move(job));
}

void ModelService::with_sessions(std::size_t holder, const std::string& name, bool changes, SessionWork work) {
  auto job = std::make_shared<Job>();
  job->admission = admit(1, holder);
  job->work = std::move(work);
  job->changes = changes;
  job->holder = holder;
  job->session = name;
  submit(std::move(job));
}

void ModelService::end_all() {
  end_all_ = true;
  changed_.notify_all();
}

}  // namespace some

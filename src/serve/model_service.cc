#include "serve/model_service.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <ctime>

#include "core/clock.h"
#include "core/error.h"
#include "core/files/folders.h"
#include "runs/checkpoint.h"
#include "serve/errors.h"
#include "train/remember.h"

namespace some {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr std::size_t max_outputs = 65536;   // outputs waiting for the writer
constexpr std::int64_t passage_tokens = 12;  // on each side

std::uint64_t random_number() {
  std::uint64_t out = 0;
  if (getrandom(&out, sizeof out, 0) != sizeof out)
    out = static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
  return out;
}

std::string new_id(const char* kind) {
  return fmt::format("{}-{:016x}{:08x}", kind, random_number(), random_number() >> 32);
}

std::string base64(const std::vector<float>& numbers) {
  static constexpr char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float)), out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t j = 0; j < 3; ++j)
      three = three << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j) out += i + j <= bytes.size() ? letters[three >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

Error ended_error(const char* why) { return {Fault::failure, Code::server_busy, why}; }

}  // namespace

// A model with its engine.
struct ModelService::Loaded {
  explicit Loaded(OpenedRun opened) : run(std::move(opened)) {}
  OpenedRun run;
  std::unique_ptr<Engine> engine;
  EngineOptions engine_options;
  std::optional<Memory> memory;  // of the run
  std::int64_t generation = 0;
  std::int64_t created = 0;

  void make_engine() {
    engine.reset();
    engine = std::make_unique<Engine>(*run.model, run.tokenizer, engine_options);
  }
};

// Response to an embeddings request. Used by the writer thread.
class ModelService::EmbeddingReply {
 public:
  EmbeddingReply(EmbeddingRequest request, std::vector<std::vector<TokenId>> inputs, std::string model, Answer answer)
      : request_(std::move(request)),
        inputs_(std::move(inputs)),
        model_(std::move(model)),
        answer_(std::move(answer)),
        found_(inputs_.size()),
        left_(inputs_.size()) {}
  const std::vector<std::vector<TokenId>>& inputs() const { return inputs_; }
  const EmbeddingRequest& request() const { return request_; }
  bool is_open() const { return answer_.is_open(); }
  bool is_over() const { return over_; }
  int status() const { return status_; }

  bool finished(std::size_t index, const FinishedSequence& sequence) {
    if (over_) return true;
    if (sequence.reason == FinishReason::failed || sequence.reason == FinishReason::cancelled) {
      try {
        if (sequence.error) std::rethrow_exception(sequence.error);
        fail(ended_error("the server ended the request; try again later"));
      } catch (const Error& error) {
        fail(error);
      } catch (const std::exception& error) {
        fail(Error(Fault::failure, Code::internal, error.what()));
      }
      return true;
    }
    found_[index] = sequence.embedding;
    if (--left_ > 0) return false;
    over_ = true;
    std::int64_t tokens = 0;
    for (const auto& one : inputs_) tokens += std::ssize(one);
    Json data = Json::array();
    for (std::size_t i = 0; i < found_.size(); ++i)
      data.push_back({{"object", "embedding"},
                      {"index", i},
                      {"embedding", request_.base64 ? Json(base64(found_[i])) : Json(found_[i])}});
    Response response;
    response.body = shared_text(dumped({{"object", "list"},
                                        {"data", std::move(data)},
                                        {"model", model_},
                                        {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}}) +
                                "\n");
    answer_.respond(std::move(response));
    return true;
  }
  void fail(const Error& error) {
    if (over_) return;
    over_ = true;
    status_ = status_of(error);
    answer_.respond(error_response(error));
  }

 private:
  EmbeddingRequest request_;
  std::vector<std::vector<TokenId>> inputs_;
  std::string model_;
  Answer answer_;
  std::vector<std::vector<float>> found_;
  std::size_t left_;
  bool over_ = false;
  int status_ = 200;
};

// A request waiting for the model thread.
struct ModelService::Job {
  std::shared_ptr<Reply> reply;  // set for a generation request; the next two are for embeddings and for sessions
  std::shared_ptr<EmbeddingReply> embedding;
  SessionWork work;
  bool changes = false;  // name of the session
  std::size_t holder = 0;
  std::string session;
  std::vector<TokenId> learned;
  std::shared_ptr<Admission> admission;
  Clock::time_point started = Clock::now();

  const char* endpoint() const {
    return embedding ? "/v1/embeddings" : reply->request().chat ? "/v1/chat/completions" : "/v1/completions";
  }
  bool is_open() const { return embedding ? embedding->is_open() : !reply || reply->is_open(); }
  void fail(const Error& error) const {
    if (embedding) embedding->fail(error);
    if (reply) reply->fail(error);
  }
};

// A request in progress in the engine.
struct ModelService::Running {
  std::shared_ptr<Job> job;
  std::shared_ptr<Loaded> loaded;
  std::vector<SequenceId> ids;
  std::size_t left = 0;  // unfinished sequences
  Session* session = nullptr;
  Memory* memory = nullptr;
  std::optional<SourceFinder> sources;
  bool first_token = false, ended = false;
  std::optional<Error> error;  // reason why the server ended it
};

// An output of the engine for the writer.
struct ModelService::Output {
  std::shared_ptr<Job> job;
  std::size_t choice = 0;
  std::variant<std::monostate, std::vector<PromptToken>, std::pair<TokenEvent, std::optional<TokenSources>>,
               FinishedSequence, Error>
      what;  // monostate: start of the response
};

ModelService::ModelService(ModelSettings settings, Answered answered, Log log)
    : settings_(std::move(settings)),
      answered_(std::move(answered)),
      log_(std::move(log)),
      sessions_(settings_.sessions, [this](const Memory& memory) { loaded_.front()->engine->memory_changed(memory); }) {
  newest_ = load(find_checkpoint(settings_.folder, settings_.open.checkpoint).step);
  loaded_.push_front(newest_);
  thread_ = std::thread([this] { run(); });
  writer_ = std::thread([this] { write_outputs(); });
  const std::string& which = settings_.open.checkpoint;
  if (settings_.reload.count() > 0 && (which == "latest" || which == "best"))
    loader_ = std::thread([this] { follow_checkpoints(); });
}

ModelService::~ModelService() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (loader_.joinable()) loader_.join();
  thread_.join();
  {
    const std::lock_guard lock(output_mutex_);
    outputs_end_ = true;
  }
  output_changed_.notify_all();
  writer_.join();
}

std::shared_ptr<ModelService::Loaded> ModelService::load(std::int64_t step) {
  OpenOptions open = settings_.open;
  open.checkpoint = std::to_string(step);
  auto out = std::make_shared<Loaded>(open_run(settings_.folder, open));
  out->engine_options = settings_.engine;
  out->engine_options.max_sequences = settings_.max_sequences > 0     ? settings_.max_sequences
                                      : out->run.ctx->device.is_cpu() ? 32
                                                                      : 256;
  out->make_engine();
  out->created = static_cast<std::int64_t>(std::time(nullptr));
  const std::string memory = out->run.paths.memory();
  if (file_exists(memory)) {
    try {
      out->memory = open_memory(out->run, memory);
    } catch (const Error& error) {
      log_.warning(error.code(), "{}: the memory of the run cannot be used: {}", settings_.name, error.what());
    }
  }
  return out;
}

// Polls for a newer checkpoint and loads it.
void ModelService::follow_checkpoints() {
  for (std::int64_t refused = -1;;) {
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, settings_.reload, [&] { return stop_.load(); })) return;
      if (next_) continue;  // the model thread has not taken the last one yet
    }
    std::int64_t step = -1;
    try {
      step = find_checkpoint(settings_.folder, settings_.open.checkpoint).step;
      std::int64_t current = 0;
      {
        const std::lock_guard lock(mutex_);
        current = newest_->run.step;
      }
      if (step == current || step == refused) continue;
      const auto loaded = load(step);
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      loaded->generation = newest_->generation + 1;
      newest_ = next_ = loaded;
      ++reloads_;
      log_.info("{}: now serving step {}", settings_.name, step);
    } catch (const std::exception& error) {
      // Training may remove a checkpoint while it is being read.
      refused = step;
      log_.warning(Code::checkpoint_unreadable, "{}: cannot load step {}, still serving the earlier one: {}",
                   settings_.name, step, error.what());
    }
    changed_.notify_all();
  }
}

Json ModelService::description() const {
  std::shared_ptr<Loaded> loaded;
  {
    const std::lock_guard lock(mutex_);
    loaded = newest_;
  }
  const ModelConfig& model = loaded->run.recipe.model;
  const bool has_experts = model.ffn == Ffn::some;
  return {{"id", settings_.name},
          {"object", "model"},
          {"created", loaded->created},
          {"owned_by", "some"},
          {"some",
           {{"step", loaded->run.step},
            {"seq_len", model.seq_len},
            {"vocab", model.vocab},
            {"layers", model.layers},
            {"d_model", model.d_model},
            {"experts", has_experts ? model.experts : 0},
            {"top_k", has_experts ? model.top_k : 0},
            {"memory", loaded->memory.has_value()},
            {"max_tokens", settings_.limits.max_tokens},
            {"tokens_hold_blanks", loaded->run.tokenizer.kind() == TokenizerKind::bytelevel}}}};
}

// --- requests, on the threads of the HTTP server ---

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

// --- the thread of the model ---

void ModelService::run() {
  bool worked = false;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (!worked && !stop_) {
        // Requests waiting for a session, and clients that may disconnect, are checked again soon.
        const auto pause = std::chrono::milliseconds(running_.empty() && pending_.empty() ? 1000 : 5);
        changed_.wait_for(lock, pause, [&] { return stop_ || end_all_ || !inbox_.empty() || next_; });
      }
      pending_.insert(pending_.end(), inbox_.begin(), inbox_.end());
      inbox_.clear();
      if (next_) loaded_.push_front(std::exchange(next_, nullptr));
      sessions_open_ = static_cast<std::int64_t>(sessions_.size());
    }
    if (stop_ || end_all_) {
      for (const auto& job : pending_) outputs_.push_back({job, 0, ended_error("the server is stopping")});
      pending_.clear();
      for (const auto& one : running_) end(*one, ended_error("the server is stopping"));
    }
    accept_jobs();
    look_after_requests();
    const std::int64_t before = std::ssize(outputs_);
    step_engines();
    worked = std::ssize(outputs_) != before || !running_.empty();
    push_outputs();
    // An older model is released when its last request is finished.
    for (auto it = std::next(loaded_.begin()); it != loaded_.end();) {
      const bool used =
          std::any_of(running_.begin(), running_.end(), [&](const auto& one) { return one->loaded == *it; });
      if (used) {
        ++it;
        continue;
      }
      const EngineStatistics last = (*it)->engine->statistics();
      const std::lock_guard lock(mutex_);
      gone_.steps += last.steps;
      gone_.prompt_tokens += last.prompt_tokens;
      gone_.generated_tokens += last.generated_tokens;
      gone_.reread_tokens += last.reread_tokens;
      gone_.busy_seconds += last.busy_seconds;
      it = loaded_.erase(it);
    }
    if (stop_ && running_.empty() && pending_.empty()) return;
  }
}

// Starts the jobs that can start, in order; jobs waiting for a session do not block others.
void ModelService::accept_jobs() {
  std::vector<std::pair<std::size_t, std::string>> waiting;
  for (auto it = pending_.begin(); it != pending_.end();) {
    const std::shared_ptr<Job> job = *it;
    const std::pair<std::size_t, std::string> place{job->holder, job->session};
    const bool behind = !job->session.empty() && std::find(waiting.begin(), waiting.end(), place) != waiting.end();
    Started started = Started::session_busy;
    if (!behind) {
      try {
        started = start(job);
      } catch (const Error& error) {
        outputs_.push_back({job, 0, error});
        started = Started::yes;
      } catch (const std::exception& error) {
        outputs_.push_back({job, 0, Error(Fault::failure, Code::internal, error.what())});
        started = Started::yes;
      }
    }
    if (started == Started::yes) {
      it = pending_.erase(it);
      continue;
    }
    // Starts nothing new until the model is free for this job.
    if (started == Started::model_busy) return;
    waiting.push_back(place);
    ++it;
  }
}

// True if no step is in flight, so that the memory may use the model. A decoder with several steps in flight is free
// when it has no work left.
bool ModelService::model_is_free() {
  Engine& engine = *loaded_.front()->engine;
  if (engine.decoder().max_in_flight() <= 1) return true;
  if (!engine.idle()) return false;
  while (engine.step()) {
  }
  return true;
}

ModelService::Started ModelService::start(const std::shared_ptr<Job>& job) {
  if (!job->is_open() || Clock::now() - job->started > settings_.timeout) {
    outputs_.push_back({job, 0, ended_error("the request waited longer than this server allows (--timeout)")});
    return Started::yes;
  }
  const bool changes = job->changes || !job->learned.empty();
  const Session* session = job->session.empty() ? nullptr : sessions_.find(job->holder, job->session);
  // A session created with an earlier model is read again first.
  const bool refits = session != nullptr && session->memory && session->generation != loaded_.front()->generation &&
                      (changes || !job->work);
  if ((changes || refits) && session != nullptr && session->users > 0) return Started::session_busy;
  if ((changes || refits) && !model_is_free()) return Started::model_busy;
  if (job->work) {
    Loaded& loaded = *loaded_.front();
    job->work(sessions_, loaded.run, loaded.generation);
  } else if (job->embedding) {
    start_embedding(job);
  } else {
    start_generation(job);
  }
  return Started::yes;
}

void ModelService::start_generation(const std::shared_ptr<Job>& job) {
  auto running = std::make_shared<Running>();
  running->job = job;
  running->loaded = loaded_.front();
  Loaded& loaded = *running->loaded;
  const GenerationRequest& request = job->reply->request();
  if (!job->session.empty()) {
    if (!job->learned.empty()) {
      Session& session = sessions_.open(job->holder, job->session);
      try {
        sessions_.learn(session, loaded.run, loaded.generation, job->learned);
      } catch (...) {
        if (!session.memory) sessions_.remove(session);
        throw;
      }
    }
    running->session = sessions_.find(job->holder, job->session);
    if (running->session != nullptr) {
      sessions_.fit(*running->session, loaded.run, loaded.generation);
      if (running->session->memory) running->memory = &*running->session->memory;
    }
  } else if (request.some.memory && loaded.memory) {
    running->memory = &*loaded.memory;
  }
  if (running->memory != nullptr && request.some.sources)
    running->sources.emplace(*running->memory, running->loaded->run.tokenizer);
  outputs_.push_back({job, 0, std::monostate()});
  if (running->session != nullptr) ++running->session->users;
  running_.push_back(running);
  add_choices(running);
}

// Adds the sequences of a request to the engine. If one is rejected, the earlier ones are cancelled.
void ModelService::add_choices(const std::shared_ptr<Running>& running) {
  const std::shared_ptr<Job>& job = running->job;
  const GenerationRequest& request = job->reply->request();
  running->left = job->reply->choices();
  for (std::size_t i = 0; i < job->reply->choices(); ++i) {
    SequenceRequest one;
    one.prompt = job->reply->prompt_of(i);
    one.sampling = request.sampling;
    one.sampling.stream = i;
    one.max_tokens = request.max_tokens;
    one.stop = request.stop;
    if (request.logprobs) one.logprobs = *request.logprobs;
    if (request.echo && request.logprobs) one.prompt_logprobs = *request.logprobs;
    one.routes = request.some.experts;
    one.memory = running->memory;
    if (running->memory != nullptr && request.some.sources) one.sources = max_sources;
    const auto finish = [this, running, i](FinishedSequence sequence) {
      if (running->error && !sequence.error) sequence.error = std::make_exception_ptr(*running->error);
      outputs_.push_back({running->job, i, std::move(sequence)});
      sequence_ended(running);
    };
    if (request.max_tokens == 0 && !request.logprobs) {  // echo of the prompt only, nothing to generate
      FinishedSequence nothing;
      nothing.reason = FinishReason::length;
      finish(nothing);
      continue;
    }
    const bool wanted = job->reply->wants_tokens();
    one.on_token = [this, running, i, wanted](const TokenEvent& event) {
      if (!running->first_token) {
        running->first_token = true;
        const std::lock_guard lock(mutex_);
        first_token_.add(seconds_since(running->job->started));
      }
      if (!wanted) return;
      std::optional<TokenSources> sources;
      if (running->job->reply->request().some.sources) {
        sources = running->sources ? running->sources->find(event.memory, max_sources, passage_tokens) : TokenSources();
      }
      outputs_.push_back({running->job, i, std::pair(event, std::move(sources))});
    };
    if (one.prompt_logprobs >= 0)
      one.on_prompt = [this, running, i](const std::vector<PromptToken>& tokens) {
        outputs_.push_back({running->job, i, tokens});
      };
    one.on_finish = finish;
    try {
      running->ids.push_back(running->loaded->engine->add(std::move(one)));
    } catch (const Error& error) {
      FinishedSequence refused;
      refused.reason = FinishReason::failed;
      refused.error = std::make_exception_ptr(error);
      running->left = running->ids.size() + 1;
      for (const SequenceId id : running->ids) running->loaded->engine->cancel(id);
      finish(refused);
      return;
    }
  }
}

void ModelService::start_embedding(const std::shared_ptr<Job>& job) {
  auto running = std::make_shared<Running>();
  running->job = job;
  running->loaded = loaded_.front();
  running->left = job->embedding->inputs().size();
  running_.push_back(running);
  for (std::size_t i = 0; i < job->embedding->inputs().size(); ++i) {
    SequenceRequest one;
    one.prompt = job->embedding->inputs()[i];
    one.max_tokens = 0;
    one.embed = true;
    one.on_finish = [this, running, i](const FinishedSequence& sequence) {
      FinishedSequence copy = sequence;
      if (running->error && !copy.error) copy.error = std::make_exception_ptr(*running->error);
      outputs_.push_back({running->job, i, std::move(copy)});
      sequence_ended(running);
    };
    running->ids.push_back(running->loaded->engine->add(std::move(one)));
  }
}

void ModelService::sequence_ended(const std::shared_ptr<Running>& running) {
  if (--running->left > 0) return;
  if (running->session != nullptr) --running->session->users;
  running->ended = true;
}

// Cancels the sequences of a request; they finish at the next step.
void ModelService::end(Running& running, const Error& error) {
  if (running.error) return;
  running.error = error;
  for (const SequenceId id : running.ids) running.loaded->engine->cancel(id);
}

// Ends requests of disconnected clients and requests that exceed the time limit.
void ModelService::look_after_requests() {
  running_.remove_if([](const auto& one) { return one->ended; });
  for (const auto& one : running_) {
    if (!one->job->is_open())
      end(*one, ended_error("the client disconnected"));
    else if (Clock::now() - one->job->started > settings_.timeout)
      end(*one, ended_error("the request took longer than this server allows (--timeout)"));
  }
}

void ModelService::step_engines() {
  for (const auto& loaded : loaded_) {
    try {
      loaded->engine->step();
      if (!running_.empty()) failures_ = 0;
    } catch (const std::exception& error) {
      ++failures_;
      log_.warning(Code::internal, "{}: the engine failed and was restarted: {}", settings_.name, error.what());
      for (const auto& one : running_) {
        if (one->loaded != loaded || one->ended) continue;
        outputs_.push_back({one->job, 0, Error(Fault::failure, Code::internal, error.what())});
        if (one->session != nullptr) --one->session->users;
        one->ended = true;
      }
      try {
        const std::lock_guard lock(mutex_);  // other threads read its statistics
        loaded->make_engine();
      } catch (const std::exception& again) {
        failures_ = 3;
        log_.warning(Code::internal, "{}: {}", settings_.name, again.what());
      }
    }
  }
  running_.remove_if([](const auto& one) { return one->ended; });
}

// --- the writer ---

void ModelService::push_outputs() {
  if (outputs_.empty()) return;
  std::unique_lock lock(output_mutex_);
  // If the writer is slower than the engine, the engine waits, so that memory stays bounded.
  output_changed_.wait(lock, [&] { return written_count_ < max_outputs; });
  written_count_ += outputs_.size();
  written_.push_back(std::exchange(outputs_, {}));
  lock.unlock();
  output_changed_.notify_all();
}

void ModelService::count_answer(const std::string& endpoint, int status, Clock::time_point started) {
  answered_(endpoint, status);
  const std::lock_guard lock(mutex_);
  whole_.add(seconds_since(started));
}

void ModelService::write_outputs() {
  for (;;) {
    std::vector<std::vector<Output>> all;
    {
      std::unique_lock lock(output_mutex_);
      output_changed_.wait(lock, [&] { return outputs_end_ || !written_.empty(); });
      if (written_.empty()) return;
      all.swap(written_);
      written_count_ = 0;
    }
    output_changed_.notify_all();
    std::vector<std::shared_ptr<Reply>> streams;  // responses with new data
    for (std::vector<Output>& some : all) {
      for (Output& one : some) {
        const std::shared_ptr<Job> job = std::move(one.job);
        if (!job->reply && !job->embedding) continue;
        if (job->reply ? job->reply->is_over() : job->embedding->is_over()) continue;
        const bool there = job->is_open();
        if (auto* error = std::get_if<Error>(&one.what)) {
          job->fail(*error);
        } else if (auto* finished = std::get_if<FinishedSequence>(&one.what)) {
          if (job->embedding)
            job->embedding->finished(one.choice, *finished);
          else
            job->reply->finished(one.choice, *finished);
        } else if (auto* token = std::get_if<std::pair<TokenEvent, std::optional<TokenSources>>>(&one.what)) {
          job->reply->token(one.choice, token->first, std::move(token->second));
        } else if (auto* prompt = std::get_if<std::vector<PromptToken>>(&one.what)) {
          job->reply->prompt_read(one.choice, *prompt);
        } else {
          job->reply->begin();
        }
        if (job->reply ? job->reply->is_over() : job->embedding->is_over()) {
          const int status = job->reply ? job->reply->status() : job->embedding->status();
          count_answer(job->endpoint(), there ? status : 499, job->started);
        } else if (job->reply && job->reply->request().stream) {
          if (streams.empty() || streams.back() != job->reply) streams.push_back(job->reply);
        }
      }
      some.clear();
    }
    for (const auto& reply : streams) reply->flush();  // one more call is cheap: it finds nothing new
  }
}

// --- metrics ---

const std::vector<ModelService::MetricName>& ModelService::metric_names() {
  static const std::vector<MetricName> all = {
      {"some_prompt_tokens_total", "counter", "prompt tokens read"},
      {"some_generated_tokens_total", "counter", "tokens generated"},
      {"some_engine_steps_total", "counter", "engine steps"},
      {"some_engine_busy_seconds_total", "counter", "seconds spent in engine steps"},
      {"some_requests_accepted", "gauge", "accepted requests not yet answered"},
      {"some_sequences_active", "gauge", "sequences in the batch"},
      {"some_sequences_waiting", "gauge", "sequences waiting for a slot"},
      {"some_cache_used_ratio", "gauge", "used fraction of the KV cache"},
      {"some_checkpoint_step", "gauge", "training step of the served checkpoint"},
      {"some_checkpoint_reloads_total", "counter", "newer checkpoints loaded"},
      {"some_sessions", "gauge", "sessions with a memory"},
      {"some_first_token_seconds", "histogram", "seconds from a request to its first token"},
      {"some_request_seconds", "histogram", "seconds from a request to its complete response"},
  };
  return all;
}

void ModelService::write_metric(std::string& out, std::size_t metric) const {
  const std::lock_guard lock(mutex_);
  const EngineStatistics now = newest_->engine->statistics();
  const std::string labels = label("model", settings_.name);
  const std::string name = metric_names().at(metric).name;
  const std::map<std::string, double> values = {
      {"some_prompt_tokens_total", static_cast<double>(now.prompt_tokens + gone_.prompt_tokens)},
      {"some_generated_tokens_total", static_cast<double>(now.generated_tokens + gone_.generated_tokens)},
      {"some_engine_steps_total", static_cast<double>(now.steps + gone_.steps)},
      {"some_engine_busy_seconds_total", now.busy_seconds + gone_.busy_seconds},
      {"some_requests_accepted", static_cast<double>(requests_->load())},
      {"some_sequences_active", static_cast<double>(now.active)},
      {"some_sequences_waiting", static_cast<double>(now.waiting)},
      {"some_cache_used_ratio",
       static_cast<double>(now.positions_used) / static_cast<double>(std::max<std::int64_t>(1, now.positions))},
      {"some_checkpoint_step", static_cast<double>(newest_->run.step)},
      {"some_checkpoint_reloads_total", static_cast<double>(reloads_)},
      {"some_sessions", static_cast<double>(sessions_open_)},
  };
  if (name == "some_first_token_seconds")
    first_token_.write(out, name, labels);
  else if (name == "some_request_seconds")
    whole_.write(out, name, labels);
  else
    out += fmt::format("{}{{{}}} {}\n", name, labels, values.at(name));
}

}  // namespace some

#include "serve/model_service.h"

#include <algorithm>
#include <ctime>

#include "core/clock.h"
#include "core/error.h"
#include "core/files/folders.h"
#include "runs/checkpoint.h"
#include "serve/model_service_parts.h"
#include "train/remember.h"

namespace some {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr std::int64_t passage_tokens = 12;  // on each side

}  // namespace

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

}  // namespace some

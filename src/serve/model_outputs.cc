// The writer thread of a ModelService, and its metrics.
#include <fmt/format.h>

#include <algorithm>

#include "core/clock.h"
#include "core/error.h"
#include "serve/model_service_parts.h"

namespace some {
namespace {

constexpr std::size_t max_outputs = 65536;  // outputs waiting for the writer

}  // namespace

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

void ModelService::count_answer(const std::string& endpoint, int status,
                                std::chrono::steady_clock::time_point started) {
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

#include "serve/sessions.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/files.h"
#include "memory/reader.h"
#include "plot/escape_html.h"
#include "serve/api.h"
#include "train/remember.h"

namespace some {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t tokens_of(const Session& session) {
  std::int64_t all = 0;
  if (session.memory) {
    for (const MemoryText& text : session.memory->texts) all += std::ssize(text.tokens);
  }
  return all;
}

std::string name_of_text(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  constexpr std::size_t most = 40;
  const std::string text = tokenizer.decode(std::span(tokens).first(std::min<std::size_t>(tokens.size(), most)));
  std::string begin;
  for (const char c : text) begin += c == '\n' || c == '\r' || c == '\t' ? ' ' : c;
  if (begin.size() > most) {
    std::size_t end = most;  // not inside a character
    while (end > 0 && (static_cast<unsigned char>(begin[end]) & 0xC0) == 0x80) --end;
    begin = begin.substr(0, end) + "...";
  }
  // The hash distinguishes texts with the same beginning.
  return fmt::format("{} ({})", valid_text(begin),
                     hex(hash_bytes(tokens.data(), tokens.size() * sizeof(TokenId))).substr(0, 8));
}

}  // namespace

nlohmann::json session_json(const Session& session) {
  nlohmann::json texts = nlohmann::json::array();
  if (session.memory) {
    for (const MemoryText& text : session.memory->texts)
      texts.push_back({{"number", texts.size() + 1}, {"name", text.name}, {"tokens", text.tokens.size()}});
  }
  return {{"id", session.name},
          {"object", "some.session"},
          {"texts", texts},
          {"tokens", tokens_of(session)},
          {"slots", session.memory ? session.memory->store.slots() : 0},
          {"slots_in_use", session.slots_in_use}};
}

Session* Sessions::find(std::size_t holder, const std::string& name) {
  for (Session& one : all_) {
    if (one.holder == holder && one.name == name) return &one;
  }
  return nullptr;
}

Session& Sessions::open(std::size_t holder, const std::string& name) {
  if (Session* found = find(holder, name)) return *found;
  if (all_.size() >= limits_.sessions) {
    const auto now = Clock::now();
    const auto oldest = std::min_element(all_.begin(), all_.end(), [](const Session& a, const Session& b) {
      return (a.users > 0) != (b.users > 0) ? b.users > 0 : a.used < b.used;
    });
    if (oldest->users > 0 || now - oldest->used < limits_.idle)
      bad_input(Code::server_busy,
                "the server has reached its limit of {} sessions; delete one that is not needed (DELETE "
                "/v1/some/sessions/ID)",
                limits_.sessions);
    remove(*oldest);
  }
  Session& out = all_.emplace_back();
  out.holder = holder;
  out.name = name;
  out.used = Clock::now();
  return out;
}

void Sessions::remove(const Session& session) {
  if (session.memory) changed_(*session.memory);
  all_.remove_if([&](const Session& one) { return &one == &session; });
}

void Sessions::replace(Session& session, std::optional<Memory> memory, std::int64_t generation) {
  if (session.memory) changed_(*session.memory);
  session.memory = std::move(memory);
  session.generation = generation;
  session.slots_in_use = session.memory ? slots_in_use(*session.memory) : 0;
  if (session.memory) changed_(*session.memory);
}

std::int64_t Sessions::tokens() const {
  std::int64_t all = 0;
  for (const Session& one : all_) all += tokens_of(one);
  return all;
}

nlohmann::json Sessions::list(std::size_t holder) const {
  nlohmann::json out = nlohmann::json::array();
  for (const Session& one : all_) {
    if (one.holder == holder) out.push_back(session_json(one));
  }
  return out;
}

Memory Sessions::empty_memory(OpenedRun& run, std::int64_t generation, const std::vector<TokenId>& tokens) {
  MemorySettings settings = default_memory_settings(run);
  settings.slots = limits_.slots;
  settings.partitions = 1;
  settings.refinement_passes = 0;
  if (!base_ || base_generation_ != generation) {
    try {
      base_ = new_memory(run, settings);
    } catch (const Error&) {
      // The training text is not available here, so the mean is computed from the first text.
      base_ = make_memory(*run.ctx, settings, run.recipe.model, mean_state(*run.model, tokens, std::ssize(tokens)));
      bind_to_model(*base_, *run.model, run.tokenizer, run.paths.folder);
    }
    base_generation_ = generation;
  }
  Memory out = make_memory(*run.ctx, base_->settings, run.recipe.model, base_->store.mean);
  out.model = base_->model;
  out.tokenizer = base_->tokenizer;
  out.run = base_->run;
  return out;
}

void Sessions::fit(Session& session, OpenedRun& run, std::int64_t generation) {
  session.used = Clock::now();
  if (!session.memory || session.generation == generation) return;
  const std::vector<MemoryText> texts = session.memory->texts;
  if (texts.empty()) return replace(session, std::nullopt, generation);
  Memory fresh = empty_memory(run, generation, texts[0].tokens);
  for (const MemoryText& text : texts)
    learn_text(*run.model, fresh, text.name, text.tokens, std::ssize(text.tokens), {});
  replace(session, std::move(fresh), generation);
}

bool Sessions::learn(Session& session, OpenedRun& run, std::int64_t generation, const std::vector<TokenId>& tokens) {
  if (tokens.size() < 2) return false;  // a single token has nothing to predict
  fit(session, run, generation);
  const std::string name = name_of_text(run.tokenizer, tokens);
  if (session.memory) {
    const auto& texts = session.memory->texts;
    if (std::any_of(texts.begin(), texts.end(), [&](const MemoryText& one) { return one.tokens == tokens; }))
      return false;
  }
  if (tokens_of(session) + std::ssize(tokens) > limits_.tokens)
    bad_input(Code::text_too_long,
              "session {} has learned {} tokens of at most {}: {} more do not fit; delete one of its texts (DELETE "
              "/v1/some/sessions/{}/texts/N)",
              session.name, tokens_of(session), limits_.tokens, tokens.size(), session.name);
  if (!session.memory) replace(session, empty_memory(run, generation, tokens), generation);
  learn_text(*run.model, *session.memory, name, tokens, std::ssize(tokens), {});
  session.slots_in_use = slots_in_use(*session.memory);
  changed_(*session.memory);
  return true;
}

void Sessions::forget(Session& session, OpenedRun& run, std::int64_t generation, std::int64_t text) {
  fit(session, run, generation);
  if (!session.memory || text < 1 || text > std::ssize(session.memory->texts))
    bad_input(Code::request_unknown, "session {} has no text {}", session.name, text);
  replace(session, memory_without_text(*run.model, *session.memory, text - 1, {}), generation);
}

}  // namespace some

#include "serve/reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "serve/errors.h"
#include "text/utf8.h"

namespace some {
namespace {

using Json = nlohmann::json;

std::size_t characters_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

double rounded(double value, double digits) { return std::round(value * digits) / digits; }

// JSON has no infinity; this is the lowest value that OpenAI reports.
double finite(double logprob) { return std::max(logprob, -9999.0); }

Json bytes_of(std::string_view text) {
  Json out = Json::array();
  for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  return out;
}

}  // namespace

std::string shown_word(const Tokenizer& tokenizer, TokenId id) {
  if (tokenizer.is_special(id)) return tokenizer.token(id);
  const std::string_view bytes = tokenizer.token_bytes(id);
  if (!find_invalid_utf8(bytes)) return std::string(bytes);
  std::string out = "bytes:";
  for (const char c : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return out;
}

Reply::Reply(GenerationRequest request, std::vector<std::vector<TokenId>> prompts, ReplyHead head, Tokenizer tokenizer,
             Answer answer)
    : request_(std::move(request)),
      prompts_(std::move(prompts)),
      head_(std::move(head)),
      tokenizer_(std::move(tokenizer)),
      answer_(std::move(answer)),
      choices_(prompts_.size() * static_cast<std::size_t>(request_.n)),
      open_choices_(choices_.size()) {
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    choice.logprobs = fresh_logprobs();
    // A whitespace tokenizer puts a space before every token except the first of a text.
    choice.first = request_.echo;
    if (!request_.echo) continue;
    for (const TokenId id : prompt_of(i)) {
      choice.text += piece(id, choice.first);
      choice.first = false;
    }
    choice.certain = choice.text.size();
    choice.has_news = true;
    // Without log probabilities, positions are not needed.
    if (!request_.logprobs) continue;
    choice.first = true;
  }
}

// Returns the text of a token, as TextStream (inference/text_stream.h) writes it.
std::string Reply::piece(TokenId id, bool first) const {
  if (tokenizer_.is_special(id)) return {};
  std::string out = tokenizer_.kind() == TokenizerKind::whitespace && !first ? " " : "";
  return out += tokenizer_.token_bytes(id);
}

std::string Reply::word(TokenId id) const { return shown_word(tokenizer_, id); }

Json Reply::fresh_logprobs() const {
  if (!request_.logprobs) return nullptr;
  if (request_.chat) return {{"content", Json::array()}, {"refusal", nullptr}};
  return {{"tokens", Json::array()},
          {"token_logprobs", Json::array()},
          {"top_logprobs", *request_.logprobs > 0 ? Json::array() : Json()},
          {"text_offset", Json::array()}};
}

void Reply::add_entry(Choice& choice, TokenId id, std::optional<double> logprob, const std::vector<TokenLogprob>& top) {
  const std::string text = piece(id, choice.first);
  choice.entries.push_back({id, logprob, top, choice.bytes, choice.characters});
  choice.bytes += text.size();
  choice.characters += characters_of(text);
  choice.first = false;
}

// Reports the tokens whose text begins within the first `certain` bytes, or all of them.
void Reply::report_entries(Choice& choice, std::size_t certain, bool all) {
  std::size_t done = 0;
  for (; done < choice.entries.size(); ++done) {
    const Entry& entry = choice.entries[done];
    if (!all && entry.begin >= certain) break;
    const auto count = static_cast<std::size_t>(*request_.logprobs);
    if (request_.chat) {
      Json top = Json::array();
      for (std::size_t i = 0; i < std::min(count, entry.top.size()); ++i)
        top.push_back({{"token", word(entry.top[i].token)},
                       {"logprob", finite(entry.top[i].logprob)},
                       {"bytes", bytes_of(tokenizer_.token_bytes(entry.top[i].token))}});
      choice.logprobs["content"].push_back({{"token", word(entry.id)},
                                            {"logprob", finite(entry.logprob.value_or(0))},
                                            {"bytes", bytes_of(tokenizer_.token_bytes(entry.id))},
                                            {"top_logprobs", top}});
      continue;
    }
    choice.logprobs["tokens"].push_back(word(entry.id));
    choice.logprobs["token_logprobs"].push_back(entry.logprob ? Json(finite(*entry.logprob)) : Json());
    choice.logprobs["text_offset"].push_back(entry.characters);
    if (count == 0) continue;
    Json top;
    if (entry.logprob) {
      top = Json::object();
      // Several tokens can have the same text; the most likely one is reported.
      for (std::size_t i = 0; i < std::min(count, entry.top.size()); ++i)
        top.emplace(word(entry.top[i].token), finite(entry.top[i].logprob));
      top.emplace(word(entry.id), finite(*entry.logprob));
    }
    choice.logprobs["top_logprobs"].push_back(std::move(top));
  }
  choice.entries.erase(choice.entries.begin(), choice.entries.begin() + static_cast<std::ptrdiff_t>(done));
  choice.has_news = choice.has_news || done > 0;
}

void Reply::add_routes(Choice& choice, const std::vector<TokenRoutes>& routes) {
  for (const TokenRoutes& one : routes) {
    const auto k = static_cast<std::size_t>(std::max(1, one.top_k));
    Json layers = Json::array();
    for (std::size_t at = 0; at + k <= one.experts.size(); at += k) {
      Json chosen = Json::array();
      for (std::size_t i = at; i < at + k; ++i)
        chosen.push_back({one.experts[i], rounded(static_cast<double>(one.gates[i]), 1e4)});
      layers.push_back(std::move(chosen));
    }
    choice.experts.push_back({{"index", one.index}, {"token", word(one.token)}, {"layers", std::move(layers)}});
    choice.has_news = true;
  }
}

void Reply::begin() {
  if (!request_.stream || over_) return;
  stream_ = answer_.stream("text/event-stream; charset=utf-8");
  if (!stream_) over_ = true;
}

void Reply::prompt_read(std::size_t index, const std::vector<PromptToken>& tokens) {
  Choice& choice = choices_[index];
  if (!request_.echo || !request_.logprobs) return;
  const std::vector<TokenId>& prompt = prompt_of(index);
  for (std::size_t i = 0; i < prompt.size(); ++i)
    add_entry(choice, prompt[i], i > 0 ? std::optional(tokens[i].logprob) : std::nullopt, tokens[i].top);
  report_entries(choice, choice.certain, true);
}

void Reply::token(std::size_t index, const TokenEvent& event, std::optional<TokenSources> sources) {
  Choice& choice = choices_[index];
  if (over_ || choice.over) return;
  ++completion_tokens_;
  choice.certain += event.text.size();
  choice.text += event.text;
  choice.has_news = choice.has_news || !event.text.empty();
  if (request_.logprobs) {
    add_entry(choice, event.token, event.logprob, event.top);
    report_entries(choice, choice.certain, false);
  }
  add_routes(choice, event.routes);
  if (!sources) return;
  Json one = to_json(*sources);
  one["index"] = std::ssize(prompt_of(index)) + event.number;
  one["token"] = word(event.token);
  choice.sources.push_back(std::move(one));
  choice.has_news = true;
}

bool Reply::finished(std::size_t index, const FinishedSequence& sequence) {
  Choice& choice = choices_[index];
  if (over_ || choice.over) return over_;
  if (sequence.reason == FinishReason::failed || sequence.reason == FinishReason::cancelled) {
    try {
      if (sequence.error) std::rethrow_exception(sequence.error);
      fail(make_error(Fault::failure, Code::server_busy, "the server ended the request; try again later"));
    } catch (const Error& error) {
      fail(error);
    } catch (const std::exception& error) {
      fail(Error(Fault::failure, Code::internal, error.what()));
    }
    return true;
  }
  if (wants_tokens()) {
    choice.text += sequence.rest;
    choice.certain += sequence.rest.size();
  } else {
    choice.text += sequence.text;
    completion_tokens_ += std::ssize(sequence.tokens);
  }
  // Clients that score texts expect the token that ended the text among the tokens of a completion.
  if (request_.logprobs && !request_.chat && sequence.eos)
    add_entry(choice, tokenizer_.eos_id(), sequence.eos->logprob, sequence.eos->top);
  // Tokens of a stop string and later ones are not part of the choice.
  if (request_.logprobs) report_entries(choice, choice.certain, sequence.stop.empty());
  choice.entries.clear();
  add_routes(choice, sequence.routes);
  const bool stopped = sequence.reason == FinishReason::eos || sequence.reason == FinishReason::stop;
  choice.reason = stopped ? "stop" : "length";
  choice.over = true;
  choice.has_news = true;
  if (--open_choices_ > 0) return false;
  if (request_.stream) {
    flush();
    if (request_.include_usage) {
      Json last = body();
      last["choices"] = Json::array();
      last["usage"] = usage();
      send_event(last);
    }
    unsent_ += "data: [DONE]\n\n";
    if (stream_) {
      stream_->send(shared_text(std::move(unsent_)));
      stream_->finish();
    }
  } else {
    Json all = body();
    Json& list = all["choices"] = Json::array();
    for (std::size_t i = 0; i < choices_.size(); ++i) list.push_back(choice_json(i, choices_[i]));
    all["usage"] = usage();
    Response response;
    response.body = shared_text(dumped(all) + "\n");
    answer_.respond(std::move(response));
  }
  over_ = true;
  return true;
}

Json Reply::body() const {
  const char* kind = !request_.chat ? "text_completion" : request_.stream ? "chat.completion.chunk" : "chat.completion";
  return {{"id", head_.id},
          {"object", kind},
          {"created", head_.created},
          {"model", head_.model},
          {"system_fingerprint", head_.fingerprint}};
}

Json Reply::usage() const {
  std::int64_t read = 0;
  for (const auto& one : prompts_) read += std::ssize(one);
  return {
      {"prompt_tokens", read}, {"completion_tokens", completion_tokens_}, {"total_tokens", read + completion_tokens_}};
}

// Returns and clears what was not sent yet.
Json Reply::choice_json(std::size_t index, Choice& choice) const {
  Json out{{"index", index},
           {"logprobs", request_.logprobs ? std::exchange(choice.logprobs, fresh_logprobs()) : Json()},
           {"finish_reason", choice.reason.empty() ? Json() : Json(choice.reason)}};
  std::string text = std::exchange(choice.text, "");
  if (!request_.chat) {
    out["text"] = std::move(text);
  } else if (!request_.stream) {
    out["message"] = {{"role", "assistant"}, {"content", std::move(text)}, {"refusal", nullptr}};
  } else {
    Json delta = Json::object();
    if (!choice.started) delta["role"] = "assistant";
    if (!text.empty() || !choice.started) delta["content"] = std::move(text);
    out["delta"] = std::move(delta);
  }
  if (request_.some.experts || request_.some.sources) {
    Json& some = out["some"] = Json::object();
    if (request_.some.experts) some["experts"] = std::exchange(choice.experts, Json::array());
    if (request_.some.sources) some["sources"] = std::exchange(choice.sources, Json::array());
  }
  return out;
}

void Reply::flush() {
  if (!stream_ || over_) return;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    if (!choice.has_news) continue;
    const auto send_choice = [&] {
      Json chunk = body();
      chunk["choices"] = Json::array({choice_json(i, choice)});
      send_event(chunk);
      choice.started = true;
    };
    // As with OpenAI, a chat begins with the role and ends with an empty delta.
    if (request_.chat && choice.over && (!choice.text.empty() || !choice.started)) {
      const std::string reason = std::exchange(choice.reason, "");
      send_choice();
      choice.reason = reason;
    }
    send_choice();
    choice.has_news = false;
  }
  if (!unsent_.empty()) stream_->send(shared_text(std::exchange(unsent_, "")));
}

void Reply::send_event(const Json& value) {
  if (request_.include_usage && !value.contains("usage")) {
    Json with = value;
    with["usage"] = nullptr;
    unsent_ += "data: " + dumped(with) + "\n\n";
    return;
  }
  unsent_ += "data: " + dumped(value) + "\n\n";
}

void Reply::fail(const Error& error) {
  if (over_) return;
  over_ = true;
  status_ = status_of(error);
  if (stream_) {
    unsent_ += "data: " + dumped({{"error", error_object(error)}}) + "\n\n";
    stream_->send(shared_text(std::exchange(unsent_, "")));
    stream_->finish();
    return;
  }
  answer_.respond(error_response(error));
}

}  // namespace some

// The response to one request, built while its sequences generate: one JSON object, or a stream of server-sent events.
// Used by one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/pages/token_sources.h"
#include "http/http.h"
#include "inference/engine.h"
#include "serve/api.h"

namespace some {

// Fields shared by all choices of a response.
struct ReplyHead {
  std::string id, model, fingerprint;
  std::int64_t created = 0;
};

class Reply {
 public:
  // prompts: the encoded prompts; choice i continues prompt i / n.
  Reply(GenerationRequest request, std::vector<std::vector<TokenId>> prompts, ReplyHead head, Tokenizer tokenizer,
        Answer answer);

  const GenerationRequest& request() const { return request_; }
  const std::vector<std::vector<TokenId>>& prompts() const { return prompts_; }
  std::size_t choices() const { return choices_.size(); }
  const std::vector<TokenId>& prompt_of(std::size_t choice) const {
    return prompts_[choice / static_cast<std::size_t>(request_.n)];
  }
  // True if the client is connected. May be called from any thread.
  bool is_open() const { return answer_.is_open(); }

  // True if token() must be called for every token; otherwise finished sequences suffice.
  bool wants_tokens() const {
    return request_.stream || request_.logprobs || request_.some.experts || request_.some.sources;
  }
  // Begins the stream of a streamed response.
  void begin();
  void prompt_read(std::size_t choice, const std::vector<PromptToken>& tokens);
  void token(std::size_t choice, const TokenEvent& event, std::optional<TokenSources> sources);
  // Returns true if this was the last choice, which completes the response.
  bool finished(std::size_t choice, const FinishedSequence& sequence);
  // Sends new data, in as few events as possible. Streams only.
  void flush();
  // Ends the response with an error, unless it is complete.
  void fail(const Error& error);
  bool is_over() const { return over_; }
  int status() const { return status_; }  // of the response
  std::int64_t completion_tokens() const { return completion_tokens_; }

 private:
  // A token and the position of its text, held until that text is certain to be part of the choice.
  struct Entry {
    TokenId id = 0;
    std::optional<double> logprob;  // empty for the first token of a text
    std::vector<TokenLogprob> top;
    std::size_t begin = 0;  // offset in the choice's text
    std::size_t characters = 0;
  };
  struct Choice {
    std::size_t bytes = 0;       // bytes of all tokens so far
    std::size_t characters = 0;  // characters of all tokens so far
    std::size_t certain = 0;     // bytes of text reported so far
    bool first = true;           // true before the first token
    std::vector<Entry> entries;  // tokens not reported yet
    std::string text;            // text not sent yet, or all of it
    nlohmann::json logprobs, experts = nlohmann::json::array(), sources = nlohmann::json::array();
    bool has_news = false, started = false, over = false;
    std::string reason;
  };
  std::string piece(TokenId id, bool first) const;
  std::string word(TokenId id) const;
  void add_entry(Choice& choice, TokenId id, std::optional<double> logprob, const std::vector<TokenLogprob>& top);
  void report_entries(Choice& choice, std::size_t certain, bool all);
  void add_routes(Choice& choice, const std::vector<TokenRoutes>& routes);
  nlohmann::json fresh_logprobs() const;
  nlohmann::json choice_json(std::size_t index, Choice& choice) const;
  nlohmann::json body() const;
  nlohmann::json usage() const;
  void send_event(const nlohmann::json& value);

  GenerationRequest request_;
  std::vector<std::vector<TokenId>> prompts_;
  ReplyHead head_;
  Tokenizer tokenizer_;
  Answer answer_;
  std::shared_ptr<Stream> stream_;
  std::vector<Choice> choices_;
  std::size_t open_choices_ = 0;
  std::int64_t completion_tokens_ = 0;
  std::string unsent_;
  bool over_ = false;
  int status_ = 200;
};

// Returns a token as displayed by clients: its text, or "bytes:\xHH..." if its bytes are not whole characters.
std::string shown_word(const Tokenizer& tokenizer, TokenId id);

}  // namespace some

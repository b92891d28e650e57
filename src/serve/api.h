// Requests of the OpenAI-compatible interface: converts JSON to structs and checks every field. Nothing here depends on
// a model; prompts stay text until the thread that handles requests encodes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/error.h"
#include "inference/sampling.h"

namespace some {

// Limits of one request. Together with the limit on concurrent requests they bound the server's memory.
struct ApiLimits {
  std::int64_t max_tokens = 4096;           // new tokens per choice
  std::int64_t prompt_tokens = 65536;       // over all prompts of a request
  std::int64_t choices = 128;               // prompts * n
  std::int64_t reported_numbers = 1 << 22;  // tokens * (1 + logprobs) of a request
};
inline constexpr int max_logprobs = 20, max_stops = 16;
inline constexpr std::size_t max_stop_bytes = 1000, max_name_bytes = 256, max_session_bytes = 64;

// How the messages of a chat become one text that the model continues (docs/serve.md).
enum class ChatTemplate : std::uint8_t {
  plain,     // messages begin on a new line; an answer directly continues the text before it
  dialogue,  // "User: ..." and "Assistant: ..." lines
};
std::optional<ChatTemplate> chat_template_named(std::string_view name);

using Prompt = std::variant<std::string, std::vector<TokenId>>;

// Extensions of OpenAI's interface, in the field "some" of a request.
struct Extensions {
  bool experts = false;  // report the experts of every token, with gates, per layer
  bool sources = false;  // report the memory slots of every new token, with their passages
  bool memory = false;   // mix in the memory of the run
  bool learn = false;    // let the memory of the session learn from the prompt first
  std::string session;   // mix in the memory of this session; empty: none
};

struct GenerationRequest {
  bool chat = false;
  std::string model;  // empty: the server's only model
  std::vector<Prompt> prompts;
  std::string learned_text;  // for chats: the last user message, from which a session learns
  SamplingOptions sampling;
  bool seeded = false;
  std::int64_t max_tokens = 16;
  int n = 1;
  bool echo = false;
  std::optional<int> logprobs;  // report the n most likely tokens at each position
  std::vector<std::string> stop;
  bool stream = false, include_usage = false;
  Extensions some;
};

struct EmbeddingRequest {
  std::string model;
  std::vector<Prompt> inputs;
  bool base64 = false;
  std::optional<std::int64_t> dimensions;
};

// The functions below throw bad_input for a body that is not a valid request. The first value of the error is the name
// of the field, if any.
GenerationRequest parse_completion(std::string_view body, const ApiLimits& limits);
GenerationRequest parse_chat(std::string_view body, const ApiLimits& limits, ChatTemplate chat_template);
EmbeddingRequest parse_embedding(std::string_view body, const ApiLimits& limits);

// True for 1 to 64 characters A-Z a-z 0-9 . _ -, of which the first is not a dot.
bool is_session_name(std::string_view name);

}  // namespace some

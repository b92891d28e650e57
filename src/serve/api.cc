#include "serve/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/files/json.h"

namespace some {
namespace {

using Json = nlohmann::json;

// Fields without effect here. Clients send them by default, so their values are not checked.
constexpr std::array ignored = {"user",
                                "metadata",
                                "store",
                                "service_tier",
                                "safety_identifier",
                                "prompt_cache_key",
                                "prompt_cache_retention",
                                "parallel_tool_calls",
                                "verbosity"};

template <typename... Args>
[[noreturn]] void refuse(const std::string& field, fmt::format_string<Args...> format, Args&&... args) {
  const std::string what = fmt::format(format, std::forward<Args>(args)...);
  bad_input(Code::request_invalid, "{}: {}", field, what);
}

// The fields of an object. null counts as missing, as OpenAI's clients expect. Unused fields are rejected.
class Fields {
 public:
  explicit Fields(const Json& object, std::string prefix = "") : object_(object), prefix_(std::move(prefix)) {}

  const Json* find(const std::string& name) {
    known_.push_back(name);
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  std::string full(const std::string& name) const { return prefix_ + name; }

  bool flag(const std::string& name, bool usual = false) {
    const Json* value = find(name);
    if (value == nullptr) return usual;
    if (!value->is_boolean()) refuse(full(name), "must be true or false, not {}", describe(*value));
    return value->get<bool>();
  }
  std::optional<double> number(const std::string& name, double low, double high) {
    const Json* value = find(name);
    if (value == nullptr) return {};
    if (!value->is_number()) refuse(full(name), "must be a number, not {}", describe(*value));
    const double out = value->get<double>();
    if (!(out >= low && out <= high)) refuse(full(name), "must be from {} to {} (got {})", low, high, out);
    return out;
  }
  std::optional<std::int64_t> integer(const std::string& name, std::int64_t low, std::int64_t high) {
    const Json* value = find(name);
    if (value == nullptr) return {};
    if (!value->is_number_integer()) refuse(full(name), "must be an integer, not {}", describe(*value));
    const bool huge =
        value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
    if (huge || value->get<std::int64_t>() < low || value->get<std::int64_t>() > high)
      refuse(full(name), "must be from {} to {} (got {})", low, high, describe(*value));
    return value->get<std::int64_t>();
  }
  std::string text(const std::string& name, std::size_t most) {
    const Json* value = find(name);
    if (value == nullptr) return "";
    if (!value->is_string()) refuse(full(name), "must be a string, not {}", describe(*value));
    const auto& out = value->get_ref<const std::string&>();
    if (out.size() > most) refuse(full(name), "must be at most {} bytes (got {})", most, out.size());
    return out;
  }
  // Accepts only values that have no effect.
  void only(const std::string& name, const std::vector<Json>& neutral, const char* why) {
    const Json* value = find(name);
    if (value == nullptr || std::find(neutral.begin(), neutral.end(), *value) != neutral.end()) return;
    refuse(full(name), "{}", why);
  }
  void refuse_unknown() const {
    for (const auto& [name, value] : object_.items()) {
      if (std::find(known_.begin(), known_.end(), name) == known_.end())
        refuse(full(name.substr(0, 100)), "not a field of this request");
    }
  }

 private:
  const Json& object_;
  std::string prefix_;
  std::vector<std::string> known_;
};

Json parse_object(std::string_view body) {
  Json all = parse_json(body, "request");
  if (!all.is_object()) bad_input(Code::request_invalid, "the request must be a JSON object, not {}", describe(all));
  return all;
}

std::vector<TokenId> token_list(const Json& list, const std::string& field) {
  std::vector<TokenId> out;
  out.reserve(list.size());
  for (const Json& one : list) {
    if (!one.is_number_unsigned() || one.get<std::uint64_t>() > INT32_MAX)
      refuse(field, "must be token ids >= 0, not {}", describe(one));
    out.push_back(static_cast<TokenId>(one.get<std::uint64_t>()));
  }
  if (out.empty()) refuse(field, "must not be an empty list of tokens");
  return out;
}

// Parses a text, a list of texts, a list of token ids, or a list of such lists.
std::vector<Prompt> prompts_of(Fields& fields, const std::string& name, const ApiLimits& limits) {
  const Json* value = fields.find(name);
  if (value == nullptr) refuse(name, "is required: a string, a list of strings, or token ids");
  std::vector<Prompt> out;
  if (value->is_string()) {
    out.emplace_back(value->get<std::string>());
  } else if (value->is_array() && !value->empty() && value->front().is_number()) {
    out.emplace_back(token_list(*value, name));
  } else if (value->is_array() && !value->empty()) {
    if (static_cast<std::int64_t>(value->size()) > limits.choices)
      refuse(name, "must be at most {} prompts (got {})", limits.choices, value->size());
    for (const Json& one : *value) {
      if (one.type() != value->front().type()) refuse(name, "must be all strings or all lists of token ids");
      if (one.is_string())
        out.emplace_back(one.get<std::string>());
      else if (one.is_array())
        out.emplace_back(token_list(one, name));
      else
        refuse(name, "must be strings or lists of token ids, not {}", describe(one));
    }
  } else {
    refuse(name, "must be a string, a list of strings, or token ids, not {}", describe(*value));
  }
  std::int64_t tokens = 0;
  for (const Prompt& one : out) {
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&one)) tokens += std::ssize(*ids);
    if (const auto* text = std::get_if<std::string>(&one); text != nullptr && text->empty())
      refuse(name, "must not be empty");
  }
  if (tokens > limits.prompt_tokens)
    refuse(name, "must be at most {} tokens in total (got {})", limits.prompt_tokens, tokens);
  return out;
}

std::vector<std::string> stops_of(Fields& fields) {
  const Json* value = fields.find("stop");
  std::vector<std::string> out;
  if (value == nullptr) return out;
  if (!value->is_string() && !value->is_array())
    refuse("stop", "must be a string or a list of strings, not {}", describe(*value));
  if (value->is_array() && value->size() > max_stops)
    refuse("stop", "must be at most {} strings (got {})", max_stops, value->size());
  const Json list = value->is_array() ? *value : Json::array({*value});
  for (const Json& one : list) {
    if (!one.is_string()) refuse("stop", "must be a string or a list of strings, not {}", describe(one));
    const auto text = one.get<std::string>();
    if (text.empty() || text.size() > max_stop_bytes)
      refuse("stop", "must be strings of 1 to {} bytes", max_stop_bytes);
    out.push_back(text);
  }
  return out;
}

Extensions extensions_of(Fields& fields) {
  Extensions out;
  // "learn" is also accepted at the top level, and the session may be set in OpenAI's field "user".
  const bool learn = fields.flag("learn");
  const std::string user = [&] {
    const Json* value = fields.find("user");
    return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
  }();
  if (const Json* value = fields.find("some")) {
    if (!value->is_object()) refuse("some", "must be an object, not {}", describe(*value));
    Fields own(*value, "some.");
    out.experts = own.flag("experts");
    out.sources = own.flag("sources");
    out.memory = own.flag("memory");
    out.learn = own.flag("learn");
    out.session = own.text("session", max_session_bytes);
    own.refuse_unknown();
    if (!out.session.empty() && !is_session_name(out.session))
      refuse("some.session", "must be 1 to {} of the characters A-Z a-z 0-9 . _ -", max_session_bytes);
  }
  out.learn = out.learn || learn;
  if (out.learn && out.session.empty()) {
    if (!is_session_name(user))
      refuse("learn", "requires a session to learn for: set some.session, or user, to 1 to {} of A-Z a-z 0-9 . _ -",
             max_session_bytes);
    out.session = user;
  }
  if (out.memory && !out.session.empty())
    refuse("some.memory", "must not be combined with a session, which has its own memory");
  // Reported sources come from the memory of the session or, without a session, of the run.
  if (out.sources && out.session.empty()) out.memory = true;
  return out;
}

std::vector<std::pair<TokenId, double>> biases_of(Fields& fields) {
  std::vector<std::pair<TokenId, double>> out;
  const Json* value = fields.find("logit_bias");
  if (value == nullptr) return out;
  if (!value->is_object()) refuse("logit_bias", "must be an object of token ids and biases, not {}", describe(*value));
  if (value->size() > 1024) refuse("logit_bias", "must have at most 1024 tokens (got {})", value->size());
  for (const auto& [name, bias] : value->items()) {
    const bool digits = !name.empty() && name.size() < 10 &&
                        std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits) refuse("logit_bias", "keys must be token ids");
    if (!bias.is_number() || !(std::abs(bias.get<double>()) <= 100))
      refuse("logit_bias", "biases must be from -100 to 100");
    // A bias of -100 bans a token, as in OpenAI's documentation.
    out.emplace_back(static_cast<TokenId>(std::stol(name)),
                     bias.get<double>() == -100 ? -std::numeric_limits<double>::infinity() : bias.get<double>());
  }
  return out;
}

// Parses the fields shared by completions and chats.
void read_common(Fields& fields, GenerationRequest& out) {
  out.model = fields.text("model", max_name_bytes);
  out.sampling.temperature = fields.number("temperature", 0, 2).value_or(1);
  out.sampling.top_p = fields.number("top_p", 0, 1).value_or(1);
  // OpenAI accepts 0, which means the most likely token.
  out.sampling.top_p = std::max(out.sampling.top_p, 1e-9);
  out.sampling.top_k = static_cast<int>(fields.integer("top_k", 0, 1 << 24).value_or(0));
  out.sampling.min_p = fields.number("min_p", 0, 1).value_or(0);
  out.sampling.presence_penalty = fields.number("presence_penalty", -2, 2).value_or(0);
  out.sampling.frequency_penalty = fields.number("frequency_penalty", -2, 2).value_or(0);
  out.sampling.repetition_penalty = fields.number("repetition_penalty", 0.01, 100).value_or(1);
  out.sampling.logit_bias = biases_of(fields);
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX)) {
    out.seeded = true;
    out.sampling.seed = static_cast<std::uint64_t>(*seed);
  }
  out.stop = stops_of(fields);
  out.stream = fields.flag("stream");
  if (const Json* value = fields.find("stream_options")) {
    if (!value->is_object()) refuse("stream_options", "must be an object, not {}", describe(*value));
    if (!out.stream) refuse("stream_options", "requires stream");
    Fields own(*value, "stream_options.");
    out.include_usage = own.flag("include_usage");
    own.flag("include_obfuscation");
    own.refuse_unknown();
  }
  out.some = extensions_of(fields);
  for (const char* name : ignored) fields.find(name);
}

void refuse_scores_with_memory(const GenerationRequest& request) {
  if (request.echo && request.logprobs && (request.some.memory || !request.some.session.empty()))
    refuse("logprobs",
           "must not be combined with echo and a memory: log probabilities of a prompt are those of the model");
}

std::int64_t limit_of_tokens(Fields& fields, const std::string& name, std::int64_t usual, std::int64_t least,
                             const ApiLimits& limits) {
  const auto asked = fields.integer(name, INT64_MIN, INT64_MAX);
  if (!asked) return std::min(usual, limits.max_tokens);
  if (*asked < least) refuse(name, "must be >= {} (got {})", least, *asked);
  if (*asked > limits.max_tokens)
    refuse(name, "must be at most {}, the limit of this server (got {})", limits.max_tokens, *asked);
  return *asked;
}

void check_amount(const GenerationRequest& request, const ApiLimits& limits) {
  const std::int64_t choices = std::ssize(request.prompts) * request.n;
  if (choices > limits.choices) refuse("n", "prompts times n must be at most {} (got {})", limits.choices, choices);
  if (choices * request.max_tokens * (1 + request.logprobs.value_or(0)) > limits.reported_numbers)
    refuse("max_tokens", "choices times max_tokens times (1 + logprobs) must be at most {}", limits.reported_numbers);
}

std::string content_of(const Json& message, const std::string& field) {
  const auto found = message.find("content");
  if (found == message.end() || found->is_null()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) refuse(field, "must be a string or a list of text parts, not {}", describe(*found));
  std::string out;
  for (const Json& part : *found) {
    const bool is_text = part.is_object() && part.value("type", Json()) == Json("text") && part.contains("text") &&
                         part.at("text").is_string();
    if (!is_text) refuse(field, "must have parts of type text only: the models of this server read text");
    out += part.at("text").get<std::string>();
  }
  return out;
}

struct Message {
  enum class Role { system, user, assistant } role;
  std::string content;
};

std::vector<Message> messages_of(Fields& fields) {
  const Json* value = fields.find("messages");
  if (value == nullptr || !value->is_array() || value->empty())
    refuse("messages", "must be a list of at least one message");
  std::vector<Message> out;
  for (std::size_t i = 0; i < value->size(); ++i) {
    const Json& one = (*value)[i];
    const std::string place = fmt::format("messages[{}]", i);
    if (!one.is_object()) refuse(place, "must be an object, not {}", describe(one));
    const Json role = one.value("role", Json());
    Message::Role kind{};
    if (role == "system" || role == "developer")
      kind = Message::Role::system;
    else if (role == "user")
      kind = Message::Role::user;
    else if (role == "assistant")
      kind = Message::Role::assistant;
    else
      refuse(place + ".role", "must be system, developer, user or assistant, not {}", describe(role));
    out.push_back({kind, content_of(one, place + ".content")});
  }
  return out;
}

std::string plain_text(const std::vector<Message>& messages) {
  std::string out;
  for (const Message& one : messages) {
    if (one.role != Message::Role::assistant && !out.empty() && out.back() != '\n') out += '\n';
    out += one.content;
  }
  return out;
}

std::string dialogue_text(const std::vector<Message>& messages) {
  std::string out;
  for (const Message& one : messages) {
    const char* name = one.role == Message::Role::user        ? "User: "
                       : one.role == Message::Role::assistant ? "Assistant: "
                                                              : "";
    out += name + one.content + "\n";
  }
  return out + "Assistant:";
}

}  // namespace

std::optional<ChatTemplate> chat_template_named(std::string_view name) {
  if (name == "plain") return ChatTemplate::plain;
  if (name == "dialogue") return ChatTemplate::dialogue;
  return {};
}

bool is_session_name(std::string_view name) {
  if (name.empty() || name.size() > max_session_bytes || name[0] == '.') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  });
}

GenerationRequest parse_completion(std::string_view body, const ApiLimits& limits) {
  const Json all = parse_object(body);
  Fields fields(all);
  GenerationRequest out;
  read_common(fields, out);
  out.prompts = prompts_of(fields, "prompt", limits);
  out.n = static_cast<int>(fields.integer("n", 1, limits.choices).value_or(1));
  out.echo = fields.flag("echo");
  out.max_tokens = limit_of_tokens(fields, "max_tokens", 16, out.echo ? 0 : 1, limits);
  if (const auto logprobs = fields.integer("logprobs", 0, max_logprobs)) out.logprobs = static_cast<int>(*logprobs);
  if (const auto best_of = fields.integer("best_of", 1, 1000); best_of && *best_of != out.n)
    refuse("best_of", "is not supported: choose among n choices by their logprobs instead");
  refuse_scores_with_memory(out);
  fields.only("suffix", {Json("")}, "is not supported: the models of this server continue text at its end");
  fields.refuse_unknown();
  check_amount(out, limits);
  return out;
}

GenerationRequest parse_chat(std::string_view body, const ApiLimits& limits, ChatTemplate chat_template) {
  const Json all = parse_object(body);
  Fields fields(all);
  GenerationRequest out;
  out.chat = true;
  read_common(fields, out);
  const std::vector<Message> messages = messages_of(fields);
  const std::string text = chat_template == ChatTemplate::plain ? plain_text(messages) : dialogue_text(messages);
  if (text.empty()) refuse("messages", "must not be empty");
  out.prompts.emplace_back(text);
  if (chat_template == ChatTemplate::dialogue && out.stop.empty()) out.stop = {"\nUser:"};
  for (const Message& one : messages) {
    if (one.role == Message::Role::user) out.learned_text = one.content;
  }
  out.n = static_cast<int>(fields.integer("n", 1, limits.choices).value_or(1));
  // If both are set, the newer name takes precedence.
  const std::int64_t older = limit_of_tokens(fields, "max_tokens", 256, 1, limits);
  out.max_tokens = limit_of_tokens(fields, "max_completion_tokens", older, 1, limits);
  const auto top = fields.integer("top_logprobs", 0, max_logprobs);
  if (fields.flag("logprobs"))
    out.logprobs = static_cast<int>(top.value_or(0));
  else if (top && *top > 0)
    refuse("top_logprobs", "requires logprobs");
  const char* no_tools = "is not supported: the models of this server only continue text";
  fields.only("tools", {Json::array()}, no_tools);
  fields.only("functions", {Json::array()}, no_tools);
  fields.only("tool_choice", {Json("none"), Json("auto")}, no_tools);
  fields.only("function_call", {Json("none"), Json("auto")}, no_tools);
  fields.only("response_format", {Json{{"type", "text"}}}, "must be text: other formats cannot be enforced");
  fields.only("modalities", {Json::array({"text"})}, "must be text only");
  for (const char* name : {"audio", "prediction", "web_search_options", "reasoning_effort"})
    fields.only(name, {}, "is not supported");
  fields.refuse_unknown();
  check_amount(out, limits);
  return out;
}

EmbeddingRequest parse_embedding(std::string_view body, const ApiLimits& limits) {
  const Json all = parse_object(body);
  Fields fields(all);
  EmbeddingRequest out;
  out.model = fields.text("model", max_name_bytes);
  out.inputs = prompts_of(fields, "input", limits);
  out.dimensions = fields.integer("dimensions", 1, INT32_MAX);
  const std::string format = fields.text("encoding_format", 16);
  if (format != "" && format != "float" && format != "base64") refuse("encoding_format", "must be float or base64");
  out.base64 = format == "base64";
  for (const char* name : ignored) fields.find(name);
  fields.refuse_unknown();
  return out;
}

}  // namespace some

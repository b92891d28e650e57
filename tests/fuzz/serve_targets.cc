// Requests to the server (serve/api.h): accepted requests must be within its limits, and all others must be rejected
// with one line that names the field or the request.
#include <cmath>

#include "core/error.h"
#include "fuzz/fuzz.h"
#include "serve/api.h"

namespace some::fuzz {
namespace {

class RequestTarget : public Target {
 public:
  std::string name() const override { return "request"; }
  std::string origin() const override { return ""; }

  std::string make(Dice& dice) override {
    const nlohmann::json common{{"model", "m"},
                                {"max_tokens", 7},
                                {"temperature", 0.5},
                                {"top_p", 0.9},
                                {"top_k", 3},
                                {"presence_penalty", 1},
                                {"frequency_penalty", -1},
                                {"seed", 3},
                                {"n", 2},
                                {"stop", {"a", "b"}},
                                {"stream", true},
                                {"stream_options", {{"include_usage", true}}},
                                {"logit_bias", {{"5", -100}, {"7", 0.5}}},
                                {"user", "ann"},
                                {"some", {{"experts", true}, {"sources", true}, {"learn", true}, {"session", "s"}}}};
    nlohmann::json request = common;
    switch (dice.below(4)) {
      case 0: request.update({{"prompt", "Once"}, {"logprobs", 2}, {"best_of", 2}}); break;
      case 1: request.update({{"prompt", {{1, 2}, {3}}}, {"echo", dice.one_in(2)}}); break;
      case 2:
        request.update({{"messages",
                         {{{"role", "system"}, {"content", "x"}},
                          {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "y"}}}}},
                          {{"role", "assistant"}, {"content", nullptr}}}},
                        {"logprobs", true},
                        {"top_logprobs", 3},
                        {"tools", nlohmann::json::array()}});
        break;
      default: request = {{"input", {"a", "b"}}, {"encoding_format", "base64"}, {"dimensions", 4}, {"model", "m"}};
    }
    for (std::size_t i = dice.below(4); i > 0; --i) damage_json(request, dice);
    std::string text = written(request);
    if (dice.one_in(3))
      damage_text(text, dice, {"{", "}", "[", "]", "null", "-1", "1e300", "1e999", "\\ud800", "\xff", "\""});
    return text;
  }

  void read(const std::string& input) override {
    const ApiLimits limits;
    // A request has one kind, so it is rejected if no kind accepts it.
    std::optional<Error> refused;
    bool accepted = false;
    const auto tried = [&](auto&& parse) {
      try {
        check(parse());
        accepted = true;
      } catch (const Error& error) {
        if (error.fault() != Fault::input)
          throw std::logic_error("an invalid request is reported as an internal failure");
        if (!refused) refused = error;
      }
    };
    tried([&] { return parse_completion(input, limits); });
    tried([&] { return parse_chat(input, limits, ChatTemplate::plain); });
    tried([&] { return parse_chat(input, limits, ChatTemplate::dialogue); });
    try {
      const EmbeddingRequest request = parse_embedding(input, limits);
      if (request.inputs.empty()) throw std::logic_error("a request without an input was accepted");
      accepted = true;
    } catch (const Error& error) {
      refused = error;
    }
    if (!accepted) throw Error(*refused);
  }

 private:
  static void check(const GenerationRequest& request) {
    const ApiLimits limits;
    const auto wrong = [](bool is_wrong, const char* what) {
      if (is_wrong) throw std::logic_error(what);
    };
    wrong(request.prompts.empty(), "a request without a prompt was accepted");
    wrong(request.max_tokens < 0 || request.max_tokens > limits.max_tokens, "max_tokens");
    wrong(std::ssize(request.prompts) * request.n > limits.choices, "choices");
    wrong(request.logprobs && (*request.logprobs < 0 || *request.logprobs > max_logprobs), "logprobs");
    wrong(!(request.sampling.temperature >= 0 && request.sampling.temperature <= 2), "temperature");
    wrong(!request.some.session.empty() && !is_session_name(request.some.session), "session");
    wrong(request.some.learn && request.some.session.empty(), "learning without a session");
    some::check(request.sampling);
  }
};

}  // namespace

void add_serve_targets(std::vector<std::unique_ptr<Target>>& targets, const std::string&) {
  targets.push_back(std::make_unique<RequestTarget>());
}

}  // namespace some::fuzz

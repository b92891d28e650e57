// The server end to end, with a raw client: responses, streams, sessions, reload, stop, load, and clients that
// disconnect, stall or send invalid data.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "analysis/tiny_run.h"
#include "core/system_memory.h"
#include "evaluation/evaluate.h"
#include "expect_error.h"
#include "http/client.h"
#include "inference/engine.h"
#include "inference/generate.h"
#include "runs/checkpoint.h"
#include "serve/api_server.h"
#include "train/trainer.h"

namespace some {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr const char* key = "0123456789abcdef-a";
constexpr const char* other_key = "0123456789abcdef-b";

std::string request_bytes(const std::string& method, const std::string& path, const std::string& body,
                          const std::string& more = "") {
  return fmt::format(
      "{} {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}", method,
      path, body.size(), more, body);
}

struct Answered {
  int status = 0;
  std::string head;
  Json json;
};

// A long request: the end-of-text token is banned.
Json endless(std::int64_t tokens) {
  return {{"model", "tiny"}, {"prompt", "Once"}, {"max_tokens", tokens}, {"logit_bias", {{"2", -100}}}};
}

Json with(Json base, const Json& changes) {
  base.update(changes);
  return base;
}

// Returns the events of a stream, without "[DONE]".
std::vector<Json> events_of(const std::string& text, bool* done = nullptr) {
  std::vector<Json> out;
  if (done != nullptr) *done = false;
  for (std::size_t at = text.find("data: "); at != std::string::npos; at = text.find("data: ", at + 1)) {
    const std::string line = text.substr(at + 6, text.find("\n\n", at) - at - 6);
    if (line == "[DONE]") {
      if (done != nullptr) *done = true;
    } else {
      out.push_back(Json::parse(line));
    }
  }
  return out;
}

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * 4096;
}

class Serve : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    train_tiny(*folder_);
  }
  static void TearDownTestSuite() { delete folder_; }

  static ApiServerSettings settings_of(const std::string& run) {
    ApiServerSettings out;
    ModelSettings one;
    one.name = "tiny";
    one.folder = run;
    one.open = {"latest", on_cpu, {}, make_host(2)};
    one.reload = milliseconds(0);
    out.models.push_back(one);
    out.http.requests_per_second = out.http.request_burst = 1e6;
    out.http.body_bytes = 1 << 20;
    return out;
  }
  void start() { start(settings_of(*folder_ / "run")); }
  void start(ApiServerSettings settings) {
    settings.http.port = 0;
    server_.reset();
    server_.emplace(std::move(settings), Log([this](const LogMessage& message) {
                      const std::lock_guard lock(mutex_);
                      log_.push_back(message);
                    }));
  }
  int port() const { return server_->port(); }

  Answered ask(const std::string& method, const std::string& path, const Json& body = Json(),
               const std::string& more = "") const {
    Client client(port());
    client.send(request_bytes(method, path, body.is_null() ? "" : body.dump(), more));
    const Client::Answer answer = client.answer();
    return {answer.status, answer.head, answer.body.empty() ? Json() : Json::parse(answer.body, nullptr, false)};
  }
  Answered complete(Json body) const {
    if (!body.contains("model")) body["model"] = "tiny";
    if (!body.contains("prompt")) body["prompt"] = "Once upon a time";
    return ask("POST", "/v1/completions", body);
  }
  std::vector<Json> stream(Json body, bool* done = nullptr) const {
    body["model"] = "tiny";
    body["stream"] = true;
    Client client(port());
    client.send(
        request_bytes("POST", body.contains("messages") ? "/v1/chat/completions" : "/v1/completions", body.dump()));
    client.read_enough([](const std::string&) { return false; });
    EXPECT_TRUE(client.ended());
    return events_of(client.all(), done);
  }
  double metric(const std::string& name) const {
    Client client(port());
    client.send(request_bytes("GET", "/metrics", ""));
    const std::string text = client.answer().body;
    const std::size_t at = text.find("\n" + name);
    return at == std::string::npos ? NAN : std::stod(text.substr(text.find(' ', at)));
  }
  template <typename Done>
  static bool soon(const Done& done) {
    for (int i = 0; i < 3000; ++i) {
      if (done()) return true;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return false;
  }

  static TemporaryFolder* folder_;
  std::mutex mutex_;
  std::vector<LogMessage> log_;
  std::optional<ApiServer> server_;
};
TemporaryFolder* Serve::folder_ = nullptr;

TEST_F(Serve, WritesWhatGenerateWrites) {
  start();
  OpenedRun run = open_tiny(*folder_ / "run");
  GenerateOptions options;
  options.temperature = 0;
  options.max_tokens = 40;
  const std::string prompt = "One day a little fox";
  const Generated wanted = generate(*run.model, run.tokenizer, {prompt}, options).front();
  const Answered got = complete({{"prompt", prompt}, {"max_tokens", 40}, {"temperature", 0}});
  ASSERT_EQ(got.status, 200) << got.json;
  const Json& choice = got.json["choices"][0];
  // JSON contains only text: bytes that are not characters are replaced.
  const std::string valid = Json::parse(Json(wanted.text).dump(-1, ' ', false, Json::error_handler_t::replace));
  EXPECT_EQ(prompt + choice["text"].get<std::string>(), valid);
  EXPECT_EQ(choice["finish_reason"], wanted.stopped == "length" ? "length" : "stop");
  EXPECT_EQ(got.json["usage"]["prompt_tokens"], wanted.prompt.size());
  EXPECT_EQ(got.json["usage"]["completion_tokens"], wanted.tokens.size());
  EXPECT_EQ(got.json["object"], "text_completion");
  EXPECT_EQ(got.json["model"], "tiny");
  // The same seed gives the same text, another seed a different one.
  const auto drawn = [&](int seed) {
    return complete({{"prompt", prompt}, {"seed", seed}}).json["choices"][0]["text"];
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
}

TEST_F(Serve, AStreamIsTheSameText) {
  start();
  const Json body{{"prompt", "The fox"}, {"max_tokens", 30}, {"seed", 5}, {"logprobs", 2}, {"n", 2}, {"echo", true}};
  const Json whole = complete(body).json;
  Json asked = body;
  asked["stream_options"] = {{"include_usage", true}};
  bool done = false;
  const std::vector<Json> events = stream(asked, &done);
  EXPECT_TRUE(done);
  ASSERT_GE(events.size(), 3U);
  EXPECT_EQ(events.back()["usage"], whole["usage"]);
  EXPECT_TRUE(events.back()["choices"].empty());
  for (std::size_t i = 0; i < 2; ++i) {
    std::string text;
    Json reason, tokens = Json::array(), offsets = Json::array();
    for (const Json& event : events) {
      if (event["choices"].empty() || event["choices"][0]["index"] != i) continue;
      const Json& choice = event["choices"][0];
      EXPECT_TRUE(event["usage"].is_null());
      EXPECT_TRUE(reason.is_null()) << "nothing comes after the end";
      text += choice["text"].get<std::string>();
      reason = choice["finish_reason"];
      for (const Json& one : choice["logprobs"]["tokens"]) tokens.push_back(one);
      for (const Json& one : choice["logprobs"]["text_offset"]) offsets.push_back(one);
    }
    const Json& choice = whole["choices"][i];
    EXPECT_EQ(text, choice["text"]);
    EXPECT_EQ(reason, choice["finish_reason"]);
    EXPECT_EQ(tokens, choice["logprobs"]["tokens"]);
    EXPECT_EQ(offsets, choice["logprobs"]["text_offset"]);
    EXPECT_EQ(text.rfind("The fox", 0), 0U);
  }
  EXPECT_NE(whole["choices"][0]["text"], whole["choices"][1]["text"]);
}

TEST_F(Serve, AChatHasItsOwnFormat) {
  start();
  const Json body{{"model", "tiny"},  {"messages", {{{"role", "user"}, {"content", "The fox"}}}},
                  {"max_tokens", 8},  {"temperature", 0},
                  {"logprobs", true}, {"top_logprobs", 2}};
  const Json whole = ask("POST", "/v1/chat/completions", body).json;
  EXPECT_EQ(whole["object"], "chat.completion");
  EXPECT_EQ(whole["choices"][0]["message"]["role"], "assistant");
  const std::string text = whole["choices"][0]["message"]["content"];
  EXPECT_EQ(text, complete({{"prompt", "The fox"}, {"max_tokens", 8}, {"temperature", 0}}).json["choices"][0]["text"]);
  ASSERT_FALSE(whole["choices"][0]["logprobs"]["content"].empty());
  for (const Json& one : whole["choices"][0]["logprobs"]["content"]) {
    EXPECT_EQ(one["top_logprobs"].size(), 2U);
    EXPECT_EQ(one["top_logprobs"][0]["logprob"], one["logprob"]) << "greedy";
  }
  const std::vector<Json> events = stream(body);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events.back()["choices"][0]["delta"], Json::object());
  std::string streamed;
  for (const Json& event : events) streamed += event["choices"][0]["delta"].value("content", "");
  EXPECT_EQ(streamed, text);
}

TEST_F(Serve, AStopStringIsLeftOut) {
  start();
  const Json whole = complete({{"max_tokens", 60}, {"temperature", 0}, {"logprobs", 0}}).json["choices"][0];
  const std::string text = whole["text"];
  ASSERT_GT(text.size(), 20U);
  const std::string stop = text.substr(10, 3);
  const std::string kept = text.substr(0, text.find(stop));
  const Json stopped =
      complete({{"max_tokens", 60}, {"temperature", 0}, {"stop", stop}, {"logprobs", 0}}).json["choices"][0];
  EXPECT_EQ(stopped["text"], kept);
  EXPECT_EQ(stopped["finish_reason"], "stop");
  for (const Json& offset : stopped["logprobs"]["text_offset"]) EXPECT_LT(offset.get<std::size_t>(), kept.size());
  std::string streamed;
  for (const Json& event :
       stream({{"prompt", "Once upon a time"}, {"max_tokens", 60}, {"temperature", 0}, {"stop", {stop}}}))
    streamed += event["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(streamed, kept);
}

// Like an evaluation harness: sends the validation text as tokens, and sums the log probabilities of the echo.
TEST_F(Serve, EchoAgreesWithEvaluation) {
  start();
  OpenedRun run = open_tiny(*folder_ / "run");
  DataConfig config = run.recipe.data;
  config.tokenizer = run.paths.tokenizer();
  const TokenData data = load_corpora(*run.ctx, config, run.recipe.seed, run.paths.read_only_cache(), {}).valid;
  EvaluateOptions how = evaluate_options(run.recipe, run.tokenizer);
  how.max_documents = 6;
  how.long_documents = LongDocuments::split;
  const Evaluation wanted = evaluate(*run.model, data, how);
  double sum = 0;
  std::int64_t count = 0;
  std::size_t longest = 0;
  for (std::int64_t i = 0; i < 6; ++i) {
    const std::vector<std::int32_t> ids = data.ids(i);
    longest = std::max(longest, ids.size());
    const Json choice =
        complete({{"prompt", ids}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 1}}).json["choices"][0];
    const Json& logprobs = choice["logprobs"];
    ASSERT_EQ(logprobs["token_logprobs"].size(), ids.size());
    EXPECT_TRUE(logprobs["token_logprobs"][0].is_null() && logprobs["top_logprobs"][0].is_null());
    for (std::size_t t = 1; t < ids.size(); ++t) {
      sum -= logprobs["token_logprobs"][t].get<double>();
      ++count;
      const std::string word = logprobs["tokens"][t];
      ASSERT_TRUE(logprobs["top_logprobs"][t].contains(word)) << "the token is among the likely ones";
    }
  }
  EXPECT_GT(longest, static_cast<std::size_t>(run.recipe.model.seq_len))
      << "some texts must be read in several sequences";
  EXPECT_EQ(count, wanted.tokens);
  EXPECT_NEAR(sum / static_cast<double>(count), wanted.loss, 1e-4);
  // One extra token, as lm-evaluation-harness requests; it does not belong to the prompt, even if the text ends there.
  const Json more =
      complete({{"prompt", data.ids(0)}, {"max_tokens", 1}, {"echo", true}, {"logprobs", 1}, {"temperature", 0}}).json;
  EXPECT_EQ(more["choices"][0]["logprobs"]["tokens"].size(), data.ids(0).size() + 1);
}

TEST_F(Serve, EmbeddingsAreMeansOfStates) {
  start();
  OpenedRun run = open_tiny(*folder_ / "run");
  const Json answer = ask("POST", "/v1/embeddings", {{"model", "tiny"}, {"input", {"The fox", "A river"}}}).json;
  ASSERT_EQ(answer["data"].size(), 2U) << answer;
  EXPECT_EQ(answer["data"][1]["index"], 1);
  const std::vector<TokenId> ids = run.tokenizer.encode("The fox");
  Model::Cache cache = run.model->make_cache(1, run.recipe.model.seq_len);
  std::vector<std::int32_t> slots(ids.size(), 0), positions, wanted;
  for (std::size_t i = 0; i < ids.size(); ++i) positions.push_back(static_cast<std::int32_t>(i));
  wanted = positions;
  Tensor states;
  run.ctx->arena->reset();
  run.model->decode(cache, ids, slots, positions, wanted, StepSettings{}, {{}, &states});
  const std::vector<double> all = read_vector(states);
  const std::size_t width = all.size() / ids.size();
  ASSERT_EQ(answer["data"][0]["embedding"].size(), width);
  for (std::size_t d = 0; d < width; ++d) {
    double mean = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) mean += all[i * width + d] / static_cast<double>(ids.size());
    EXPECT_NEAR(answer["data"][0]["embedding"][d].get<double>(), mean, 1e-5);
  }
  const Json packed =
      ask("POST", "/v1/embeddings", {{"model", "tiny"}, {"input", "The fox"}, {"encoding_format", "base64"}}).json;
  EXPECT_EQ(packed["data"][0]["embedding"].get<std::string>().size(), (width * 4 + 2) / 3 * 4);
  EXPECT_EQ(ask("POST", "/v1/embeddings", {{"model", "tiny"}, {"input", "x"}, {"dimensions", 3}}).status, 400);
}

TEST_F(Serve, ExpertsAreReported) {
  start();
  const Json answer =
      complete({{"prompt", "The fox"}, {"max_tokens", 4}, {"seed", 1}, {"some", {{"experts", true}}}}).json;
  const Json& experts = answer["choices"][0]["some"]["experts"];
  const std::size_t read = answer["usage"]["prompt_tokens"].get<std::size_t>();
  ASSERT_GE(experts.size(), read);
  for (std::size_t i = 0; i < experts.size(); ++i) {
    EXPECT_EQ(experts[i]["index"], i);
    EXPECT_EQ(experts[i]["layers"].size(), 2U);
    double gates = 0;
    for (const Json& chosen : experts[i]["layers"][0]) gates += chosen[1].get<double>();
    EXPECT_NEAR(gates, 1, 1e-3);
  }
}

TEST_F(Serve, ASessionLearnsAndForgets) {
  ApiServerSettings settings = settings_of(*folder_ / "run");
  settings.keys = ApiKeys({key, other_key});
  start(settings);
  const std::string mine = fmt::format("Authorization: Bearer {}\r\n", key),
                    theirs = fmt::format("Authorization: Bearer {}\r\n", other_key);
  const auto say = [&](const std::string& text, const Json& some, const std::string& who) {
    return ask("POST", "/v1/completions",
               {{"model", "tiny"}, {"prompt", text}, {"max_tokens", 6}, {"temperature", 0}, {"some", some}}, who);
  };
  const std::string fact = "The red key of the old mill lies under the third stone near the river.";
  ASSERT_EQ(say(fact, {{"learn", true}, {"session", "ann"}}, mine).status, 200);
  ASSERT_EQ(say("Another text that is learned.", {{"learn", true}, {"session", "ann"}}, mine).status, 200);
  const Json got = say("The red key of the old mill lies", {{"session", "ann"}, {"sources", true}}, mine).json;
  const Json& sources = got["choices"][0]["some"]["sources"];
  ASSERT_FALSE(sources.empty()) << got;
  EXPECT_GT(sources[0]["share"], 0.3);
  ASSERT_FALSE(sources[0]["passages"].empty());
  EXPECT_NE(sources[0]["passages"][0]["text"].get<std::string>().find("The red key"), std::string::npos);
  EXPECT_NE(sources[0]["passages"][0]["after"].get<std::string>().find("under the third"), std::string::npos) << got;

  const Json list = ask("GET", "/v1/some/sessions", Json(), mine).json;
  ASSERT_EQ(list["data"].size(), 1U);
  EXPECT_EQ(list["data"][0]["texts"].size(), 2U);
  // Another key has its own sessions, even under the same name.
  EXPECT_TRUE(ask("GET", "/v1/some/sessions", Json(), theirs).json["data"].empty());
  EXPECT_EQ(ask("GET", "/v1/some/sessions/ann", Json(), theirs).status, 404);
  EXPECT_EQ(ask("DELETE", "/v1/some/sessions/ann", Json(), theirs).status, 404);
  const Json stranger = say("The red key of the old mill lies", {{"session", "ann"}, {"sources", true}}, theirs).json;
  for (const Json& one : stranger["choices"][0]["some"]["sources"]) EXPECT_EQ(one["share"], 0);

  // Nothing of the forgotten first text is left; the second one stays.
  const Json left = ask("DELETE", "/v1/some/sessions/ann/texts/1", Json(), mine).json;
  ASSERT_EQ(left["texts"].size(), 1U) << left;
  const Json after = say("The red key of the old mill lies", {{"session", "ann"}, {"sources", true}}, mine).json;
  EXPECT_EQ(after.dump().find("The red key"), std::string::npos) << after;
  EXPECT_EQ(ask("DELETE", "/v1/some/sessions/ann/texts/7", Json(), mine).status, 404);
  EXPECT_EQ(ask("DELETE", "/v1/some/sessions/ann", Json(), mine).json["deleted"], true);
  EXPECT_EQ(ask("GET", "/v1/some/sessions/ann", Json(), mine).status, 404);
  EXPECT_EQ(ask("DELETE", "/v1/some/sessions", Json(), mine).status, 405);
}

TEST_F(Serve, SessionsAndTheirTextsAreLimited) {
  ApiServerSettings settings = settings_of(*folder_ / "run");
  settings.models[0].sessions.sessions = 2;
  settings.models[0].sessions.tokens = 40;
  start(settings);
  const auto learn = [&](const std::string& session, const std::string& text) {
    return complete({{"prompt", text}, {"max_tokens", 1}, {"some", {{"learn", true}, {"session", session}}}}).status;
  };
  EXPECT_EQ(learn("a", "Once upon a time"), 200);
  EXPECT_EQ(learn("b", "Once upon a time"), 200);
  EXPECT_EQ(learn("c", "Once upon a time"), 429);
  EXPECT_EQ(
      learn("a",
            "A long text about a river, a mill, a fox, a stone, a key, a boat, a house and the sea and much more."),
      400);
  EXPECT_EQ(ask("DELETE", "/v1/some/sessions/b").status, 200);
  EXPECT_EQ(learn("c", "Once upon a time"), 200);
}

TEST_F(Serve, KeysAreRequiredWhereThereAreSome) {
  ApiServerSettings settings = settings_of(*folder_ / "run");
  settings.keys = ApiKeys({key});
  start(settings);
  EXPECT_EQ(ask("GET", "/health").status, 200);
  EXPECT_EQ(ask("GET", "/").status, 200);
  for (const char* path : {"/v1/models", "/metrics", "/v1/some/sessions", "/v1/nothing"})
    EXPECT_EQ(ask("GET", path).status, 401) << path;
  const Answered refused = complete({});
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.json["error"]["code"], "invalid_api_key");
  EXPECT_NE(refused.head.find("WWW-Authenticate: Bearer"), std::string::npos);
  EXPECT_EQ(ask("GET", "/v1/models", Json(), "Authorization: Bearer 0123456789abcdef-x\r\n").status, 401);
  EXPECT_EQ(ask("GET", "/v1/models", Json(), fmt::format("Authorization: Bearer {}\r\n", key)).status, 200);
  ApiServerSettings open = settings_of(*folder_ / "run");
  open.http.host = "0.0.0.0";
  EXPECT_ERROR(ApiServer(open), Code::address_unusable, "0.0.0.0");
}

TEST_F(Serve, WrongRequestsAreRefusedInOneFormat) {
  start();
  const auto refused = [&](const Answered& answer, int status) {
    EXPECT_EQ(answer.status, status) << answer.json;
    EXPECT_TRUE(answer.json["error"]["message"].is_string()) << answer.json;
    EXPECT_TRUE(answer.json["error"].contains("type") && answer.json["error"].contains("code"));
  };
  refused(complete({{"model", "gpt-4"}}), 404);
  refused(complete({{"max_tokens", 1000000}}), 400);
  refused(complete({{"prompt", {400000}}}), 400);
  refused(complete({{"some", {{"memory", true}}}}), 400);
  refused(complete({{"some", {{"sources", true}}}}), 400);
  refused(complete({{"prompt", std::vector<int>(70000, 5)}}), 400);
  refused(ask("POST", "/v1/completions", "text"), 400);
  refused(ask("GET", "/v1/completions"), 405);
  refused(ask("POST", "/v1/models", Json::object()), 405);
  refused(ask("GET", "/v1/nothing"), 404);
  refused(ask("GET", "/v1/models/other"), 404);
  refused(ask("GET", "/v1/some/sessions/%2e%2e%2fetc"), 404);
  refused(ask("GET", "/v1/some/sessions/a/b/c/d"), 404);
  refused(ask("PUT", "/v1/models"), 405);
  refused(complete({{"prompt", std::string(2 << 20, 'x')}}), 413);
  EXPECT_EQ(ask("GET", "/v1/models/tiny").json["some"]["step"], 6);
  EXPECT_EQ(ask("POST", "/v1/completions", {{"prompt", "Once"}, {"max_tokens", 1}}).status, 200) << "the only model";
}

TEST_F(Serve, TooMuchIsRefusedWithATimeToComeBack) {
  ApiServerSettings settings = settings_of(*folder_ / "run");
  settings.models[0].max_requests = 4;
  settings.models[0].max_requests_per_key = 3;
  settings.models[0].limits.max_tokens = 1 << 18;
  start(settings);
  std::vector<std::unique_ptr<Client>> clients;
  const Json body = endless(200000);
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Client>(port()));
    clients.back()->send(request_bytes("POST", "/v1/completions", body.dump()));
  }
  ASSERT_TRUE(soon([&] { return metric("some_requests_accepted") == 3; }));
  const Answered refused = complete({{"max_tokens", 1}});
  EXPECT_EQ(refused.status, 429);
  EXPECT_NE(refused.head.find("Retry-After: 1"), std::string::npos);
  EXPECT_EQ(refused.json["error"]["type"], "rate_limit_error");
  // Clients that disconnect make room, for streamed and other responses.
  clients.clear();
  EXPECT_TRUE(soon([&] { return metric("some_requests_accepted") == 0; }));
  EXPECT_TRUE(soon([&] { return metric("some_sequences_active") == 0; }));
  EXPECT_EQ(complete({{"max_tokens", 1}}).status, 200);
  Client streamed(port());
  Json more = body;
  more["stream"] = true;
  streamed.send(request_bytes("POST", "/v1/completions", more.dump()));
  ASSERT_TRUE(streamed.read_until("data: "));
  EXPECT_EQ(metric("some_requests_accepted"), 1);
}

TEST_F(Serve, AReaderThatStallsIsGivenUp) {
  ApiServerSettings settings = settings_of(*folder_ / "run");
  settings.models[0].limits.max_tokens = 1 << 18;
  settings.http.max_pending_bytes = 64 << 10;
  start(settings);
  Client slow(port(), 4096);
  slow.send(
      request_bytes("POST", "/v1/completions", with(endless(200000), {{"stream", true}, {"logprobs", 5}}).dump()));
  EXPECT_TRUE(soon([&] { return metric("some_generated_tokens_total") > 0; }));
  EXPECT_TRUE(soon([&] { return metric("some_requests_accepted") == 0; })) << "it reads nothing, so it is dropped";
}

TEST_F(Serve, ARequestMayTakeOnlySoLong) {
  ApiServerSettings settings = settings_of(*folder_ / "run");
  settings.models[0].limits.max_tokens = 1 << 18;
  settings.models[0].timeout = milliseconds(300);
  start(settings);
  const Answered ended = complete(endless(200000));
  EXPECT_EQ(ended.status, 503);
  const std::vector<Json> events = stream(endless(200000));
  EXPECT_TRUE(events.back().contains("error")) << events.back();
}

TEST_F(Serve, AStopLetsRequestsFinishAndThenEndsThem) {
  ApiServerSettings settings = settings_of(*folder_ / "run");
  settings.models[0].limits.max_tokens = 1 << 18;
  start(settings);
  Client shorter(port()), longer(port()), after(port());
  shorter.send(request_bytes("POST", "/v1/completions", endless(300).dump()));
  longer.send(request_bytes("POST", "/v1/completions", with(endless(200000), {{"stream", true}}).dump()));
  ASSERT_TRUE(longer.read_until("data: "));
  ASSERT_EQ(after.get("/health").status, 200);
  std::int64_t ended = 0;
  const auto begin = Clock::now();
  std::thread stopping([&] { ended = server_->stop(milliseconds(1500)); });
  const auto answer = shorter.answer();
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(after.get("/health").status, 503);
  after.send(request_bytes("POST", "/v1/completions", Json{{"prompt", "Once"}}.dump()));
  EXPECT_EQ(after.answer().status, 503);
  EXPECT_FALSE(Client(port()).connected());
  EXPECT_TRUE(longer.read_enough([](const std::string&) { return false; }));
  stopping.join();
  EXPECT_EQ(ended, 1);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
  EXPECT_TRUE(events_of(longer.all()).back().contains("error"));
}

TEST_F(Serve, ANewerCheckpointIsServedWithoutLosingRequests) {
  const TemporaryFolder folder;
  const std::string copy = folder / "run";
  fs::copy(*folder_ / "run", copy, fs::copy_options::recursive);
  ApiServerSettings settings = settings_of(copy);
  settings.models[0].reload = milliseconds(20);
  settings.models[0].limits.max_tokens = 1 << 18;
  start(settings);
  const auto step = [&] { return ask("GET", "/v1/models/tiny").json["some"]["step"].get<int>(); };
  EXPECT_EQ(step(), 6);
  EXPECT_EQ(complete({{"some", {{"learn", true}, {"session", "ann"}}}}).status, 200);
  Client running(port());
  running.send(request_bytes("POST", "/v1/completions", endless(1500).dump()));
  ASSERT_TRUE(soon([&] { return metric("some_requests_accepted") == 1; }));
  // The same run, trained further in another place.
  const std::string longer = folder / "longer";
  fs::copy(*folder_ / "run", longer, fs::copy_options::recursive);
  resume_run(longer, {{"train.max_steps=12"}, std::nullopt}, {});
  fs::rename(longer + "/checkpoints/step-12", copy + "/checkpoints/step-12");
  std::ofstream(copy + "/latest") << "12\n";
  ASSERT_TRUE(soon([&] { return step() == 12; })) << (log_.empty() ? "" : log_.back().text);
  const auto answer = running.answer();
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(Json::parse(answer.body)["system_fingerprint"], "some-step-6");
  EXPECT_EQ(complete({{"max_tokens", 2}}).json["system_fingerprint"], "some-step-12");
  const Json sources = complete({{"some", {{"session", "ann"}, {"sources", true}}}}).json;
  EXPECT_NE(sources.dump().find("Once upon"), std::string::npos) << "the session's text was read again";
  // An unreadable checkpoint changes nothing.
  fs::create_directories(copy + "/checkpoints/step-70");
  std::ofstream(copy + "/checkpoints/step-70/model.safetensors") << "nonsense";
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(step(), 12);
  EXPECT_EQ(complete({{"max_tokens", 2}}).status, 200);
}

TEST_F(Serve, ThePageIsSafe) {
  start();
  Client client(port());
  const auto page = client.get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_NE(page.head.find("Content-Security-Policy: default-src 'none'"), std::string::npos) << page.head;
  EXPECT_NE(page.body.find("\"view\":\"talk\""), std::string::npos);
}

// 200 clients at the same time, some of which disconnect, stall or send invalid data. Every other request is answered
// completely. SOME_LOAD_SECONDS: duration.
TEST_F(Serve, ServesManyClientsAndLosesNothing) {
  const char* asked = std::getenv("SOME_LOAD_SECONDS");
  const double seconds = asked != nullptr ? std::atof(asked) : 2;
  // A model whose steps take longer than its requests, and the engine's own speed for comparison.
  const TemporaryFolder folder;
  train_tiny(folder,
             {"model.d_model=256", "model.layers=4", "model.heads=4", "train.max_steps=1", "train.save_keys_every=1"});
  ApiServerSettings settings = settings_of(folder / "run");
  settings.http.max_connections = settings.http.max_connections_per_address = 800;
  settings.models[0].open.host = make_host(1);
  const Json body{
      {"model", "tiny"}, {"prompt", "Once upon a time there was"}, {"max_tokens", 32}, {"logit_bias", {{"2", -100}}}};
  const auto measure_engine = [&] {
    OpenedRun run = open_run(folder / "run", {"latest", on_cpu, {}, make_host(1)});
    EngineOptions options;
    options.max_sequences = 32;
    Engine engine(*run.model, run.tokenizer, options);
    std::int64_t tokens = 0;
    const auto begin = Clock::now();
    const auto add = [&] {
      SequenceRequest one;
      one.prompt = run.tokenizer.encode("Once upon a time there was");
      one.max_tokens = 32;
      one.stop_at_eos = false;
      one.on_finish = [&](const FinishedSequence& sequence) { tokens += std::ssize(sequence.tokens); };
      engine.add(one);
    };
    while (Clock::now() - begin < std::chrono::duration<double>(std::min(seconds, 5.0) / 2)) {
      while (engine.statistics().waiting < 8) add();
      engine.step();
    }
    return static_cast<double>(tokens) / std::chrono::duration<double>(Clock::now() - begin).count();
  };
  const double before = measure_engine();
  start(settings);
  const std::size_t memory_before = resident_bytes();
  std::atomic<std::int64_t> whole{0}, tokens{0}, lost{0}, refused{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> clients;
  const auto begin = Clock::now();
  for (int number = 0; number < 200; ++number) {
    clients.emplace_back([&, number] {
      Json own = body;
      own["seed"] = number;
      if (number % 2 == 1) own["stream"] = true;
      while (!stop) {
        if (number % 20 == 7) {  // disconnects
          Client client(port());
          client.send(request_bytes("POST", "/v1/completions", own.dump()));
          std::this_thread::sleep_for(milliseconds(number));
          continue;
        }
        if (number % 20 == 8) {  // sends invalid data
          Client client(port());
          client.send(request_bytes("POST", "/v1/completions", "{\"prompt\": [[]"));
          if (client.answer().status != 400) ++lost;
          std::this_thread::sleep_for(milliseconds(20));
          continue;
        }
        if (number % 20 == 9) {  // stalls in the middle of a request
          Client client(port());
          client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Le");
          std::this_thread::sleep_for(milliseconds(200));
          continue;
        }
        Client client(port());
        client.send(request_bytes("POST", "/v1/completions", own.dump()));
        if (own.contains("stream")) {
          client.read_enough([](const std::string&) { return false; }, milliseconds(120000));
          bool done = false;
          const std::vector<Json> events = events_of(client.all(), &done);
          const bool finished = done && !events.empty() && events.back()["choices"][0]["finish_reason"] == "length";
          finished ? ++whole : ++lost;
          if (finished) tokens += 32;
          continue;
        }
        const Client::Answer answer = client.answer();
        if (answer.status == 503) {
          ++refused;
          std::this_thread::sleep_for(milliseconds(100));
        } else if (answer.status == 200 && Json::parse(answer.body)["usage"]["completion_tokens"] == 32) {
          ++whole;
          tokens += 32;
        } else {
          ++lost;
        }
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const std::size_t memory_after = resident_bytes();
  const double rate = static_cast<double>(tokens) / std::chrono::duration<double>(Clock::now() - begin).count();
  const double generated =
      metric("some_generated_tokens_total") / std::chrono::duration<double>(Clock::now() - begin).count();
  stop = true;
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(lost, 0);
  EXPECT_GT(whole, 0);
  EXPECT_TRUE(soon([&] { return metric("some_requests_accepted") == 0 && metric("some_sequences_active") == 0; }));
  // Includes the threads and responses of 200 clients.
  EXPECT_LT(memory_after, memory_before + (256U << 20));
  server_.reset();
  const double engine = (before + measure_engine()) / 2;
  const std::string told = fmt::format(
      "{} answers, {} refused, {:.0f} tokens/s answered, {:.0f} written; the engine alone {:.0f}; {} MB more",
      whole.load(), refused.load(), rate, generated, engine,
      (memory_after - std::min(memory_before, memory_after)) >> 20);
  std::printf("%s\n", told.c_str());
  RecordProperty("load", told);
  // On a busy machine the clients' threads take time from the engine, so the bound applies only to an idle machine.
  EXPECT_GT(generated, (asked != nullptr ? 0.8 : 0.3) * engine) << told;
}

}  // namespace
}  // namespace some

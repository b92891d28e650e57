// The server end to end: responses, streams, sessions and reload.
#include <filesystem>

#include "evaluation/evaluate.h"
#include "inference/generate.h"
#include "runs/checkpoint.h"
#include "serve_fixture.h"
#include "train/trainer.h"

namespace some {
namespace {

namespace fs = std::filesystem;

class Serve : public ServeTest {};

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

}  // namespace
}  // namespace some

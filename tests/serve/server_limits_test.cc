// Requests that the server refuses; many clients at once, and clients that disconnect, stall or send invalid data.
#include <atomic>
#include <cstdlib>
#include <memory>

#include "core/system_memory.h"
#include "expect_error.h"
#include "inference/engine.h"
#include "serve_fixture.h"

namespace some {
namespace {

class ServeLimits : public ServeTest {};

TEST_F(ServeLimits, KeysAreRequiredWhereThereAreSome) {
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

TEST_F(ServeLimits, WrongRequestsAreRefusedInOneFormat) {
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

TEST_F(ServeLimits, TooMuchIsRefusedWithATimeToComeBack) {
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

TEST_F(ServeLimits, AReaderThatStallsIsGivenUp) {
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

TEST_F(ServeLimits, ARequestMayTakeOnlySoLong) {
  ApiServerSettings settings = settings_of(*folder_ / "run");
  settings.models[0].limits.max_tokens = 1 << 18;
  settings.models[0].timeout = milliseconds(300);
  start(settings);
  const Answered ended = complete(endless(200000));
  EXPECT_EQ(ended.status, 503);
  const std::vector<Json> events = stream(endless(200000));
  EXPECT_TRUE(events.back().contains("error")) << events.back();
}

TEST_F(ServeLimits, AStopLetsRequestsFinishAndThenEndsThem) {
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

// 200 clients at the same time, some of which disconnect, stall or send invalid data. Every other request is answered
// completely. SOME_LOAD_SECONDS: duration.
TEST_F(ServeLimits, ServesManyClientsAndLosesNothing) {
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

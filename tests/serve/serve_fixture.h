// A server of a tiny run with a raw client, for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "analysis/tiny_run.h"
#include "http/client.h"
#include "serve/api_server.h"

namespace some {

using Json = nlohmann::json;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

inline constexpr const char* key = "0123456789abcdef-a";
inline constexpr const char* other_key = "0123456789abcdef-b";

inline std::string request_bytes(const std::string& method, const std::string& path, const std::string& body,
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
inline Json endless(std::int64_t tokens) {
  return {{"model", "tiny"}, {"prompt", "Once"}, {"max_tokens", tokens}, {"logit_bias", {{"2", -100}}}};
}

inline Json with(Json base, const Json& changes) {
  base.update(changes);
  return base;
}

// Returns the events of a stream, without "[DONE]".
inline std::vector<Json> events_of(const std::string& text, bool* done = nullptr) {
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

inline std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * 4096;
}

// A server of a tiny run, and raw requests to it.
class ServeTest : public testing::Test {
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

  static inline TemporaryFolder* folder_ = nullptr;
  std::mutex mutex_;
  std::vector<LogMessage> log_;
  std::optional<ApiServer> server_;
};

}  // namespace some

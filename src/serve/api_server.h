// `some serve`: the models of one or more runs behind an OpenAI-compatible HTTP interface, and a page to chat in.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/log.h"
#include "http/http.h"
#include "serve/api_keys.h"
#include "serve/model_service.h"

namespace some {

struct ApiServerSettings {
  std::vector<ModelSettings> models;  // with different names
  ServerSettings http;
  ApiKeys keys;
  ChatTemplate chat_template = ChatTemplate::plain;
  std::size_t max_waiting_bytes = 64 << 20;  // of requests that were received and not yet parsed
};

class ApiServer {
 public:
  // Opens the runs and starts serving. bad_input for an address that other machines can reach if there are no keys.
  explicit ApiServer(ApiServerSettings settings, const Log& log = {});
  ~ApiServer();  // ends all requests
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;

  int port() const;
  std::string address() const;
  // Refuses new requests, lets the accepted ones finish for at most `limit`, and then ends them with an error. Returns
  // how many had to be ended.
  std::int64_t stop(std::chrono::milliseconds limit);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace some

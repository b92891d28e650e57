// `some serve`: serves the models of one or more runs through an OpenAI-compatible HTTP interface, and a chat page.
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
  std::size_t max_waiting_bytes = 64 << 20;  // total size of requests received but not yet parsed
};

class ApiServer {
 public:
  // Opens the runs and starts serving. bad_input for an address reachable from other machines if there are no keys.
  explicit ApiServer(ApiServerSettings settings, const Log& log = {});
  ~ApiServer();  // ends all requests
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;

  int port() const;
  std::string address() const;
  // Rejects new requests, waits at most `limit` for accepted ones, then ends the rest with an error. Returns the number
  // that were ended.
  std::int64_t stop(std::chrono::milliseconds limit);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace some

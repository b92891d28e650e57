// An HTTP server for many clients on one thread, shared by the board and by `some serve`. The handler decides what is
// served; the server enforces limits, timeouts, handling of slow readers, and access rules. Only server.cc depends on
// the underlying library.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace some {

using SharedText = std::shared_ptr<const std::string>;
inline SharedText shared_text(std::string text) { return std::make_shared<const std::string>(std::move(text)); }

enum class Method { get, post, remove };

struct Request {
  Method method = Method::get;
  std::string path;                          // as sent, up to the question mark; never used as a file path
  std::map<std::string, std::string> query;  // decoded
  std::string body;  // of a POST: JSON by its content type, sent by a page of this server or by another program
  std::string if_none_match;
  std::string authorization;                        // the header field
  std::string board_key;                            // the header field X-Board-Key
  std::string value(const std::string& key) const;  // value of a query parameter; empty if missing
};

struct Response {
  int status = 200;
  std::string type = "application/json";
  SharedText body;
  std::string etag;     // identifies the inputs of the body; a request that has it receives no body
  std::string policy;   // content security policy; empty: nothing may be loaded
  int retry_after = 0;  // seconds after which a rejected client may retry; 0: not stated (1 for status 429)
  std::vector<std::pair<std::string, std::string>> fields = {};  // more header fields
};
Response text_response(int status, const std::string& words);

// A streamed response. May be used from any thread.
class Stream {
 public:
  virtual ~Stream() = default;
  // Returns false if the reader disconnected or was dropped for being too slow; later data is discarded.
  virtual bool send(const SharedText& bytes) = 0;
  virtual void finish() = 0;  // closes after pending data was sent
  virtual bool is_open() const = 0;
};

// Answers a request: once, from any thread. A request that is never answered receives an error.
class Answer {
 public:
  class Target;
  explicit Answer(std::shared_ptr<Target> target) : target_(std::move(target)) {}
  void respond(Response response) const;
  // Begins a streamed response; null if the request was answered before.
  std::shared_ptr<Stream> stream(const std::string& type) const;
  // False if the client is known to have disconnected. Detected before a response is sent only with
  // ServerSettings::notice_leaving.
  bool is_open() const;

 private:
  std::shared_ptr<Target> target_;
};
class Answer::Target {
 public:
  virtual ~Target() = default;
  virtual void respond(Response response) = 0;
  virtual std::shared_ptr<Stream> stream(const std::string& type) = 0;
  virtual bool is_open() const = 0;
};

// Called on the server's thread: slow work must be answered later, from a thread of the handler.
using Handler = std::function<void(const Request&, Answer)>;

struct ServerSettings {
  std::string host = "127.0.0.1";
  int port = 0;       // 0: any free port
  std::string token;  // access token in the address; empty: none required
  // Without a token only host names of this machine are accepted, unless the handler authenticates clients itself.
  bool any_host = false;
  bool removes = false;         // DELETE is passed to the handler
  bool notice_leaving = false;  // drops a client that disconnects, even half, while it waits for its response
  std::size_t max_connections = 600;
  std::size_t max_connections_per_address = 500;
  std::size_t header_bytes = 8 << 10, body_bytes = 64 << 10;
  std::size_t max_pending_bytes = 1 << 20;  // limit of unsent data of a stream with a slow reader
  std::chrono::milliseconds read_time{20000}, write_time{20000};
  double requests_per_second = 200, request_burst = 2000;  // rate limit per address (token bucket)
  // Builds the response to a request that the server itself rejects; empty: text_response.
  std::function<Response(int status, const std::string& words)> refusal;
};

// Compares in time that does not depend on the position of a difference, which prevents timing attacks.
bool equal_secrets(std::string_view given, std::string_view wanted);
// Decodes a component of an address; returns false if a percent sign is not followed by two hexadecimal digits.
bool decode_component(std::string_view text, std::string& out);

bool is_loopback(const std::string& host);  // true for an address or name reachable only from this machine

// The port is already in use by another program.
class AddressTaken : public Error {
 public:
  AddressTaken(const std::string& host, int port);
};

class Server {
 public:
  // Starts listening; throws (bad_input) if the address is not available.
  Server(ServerSettings settings, Handler handler);
  ~Server();  // closes every connection
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  int port() const;
  std::size_t connections() const;
  // Returns the number of requests not completely answered.
  std::size_t unanswered() const;
  // Stops listening. Open connections stay, and their requests are still passed to the handler.
  void refuse_connections();

 private:
  class Running;
  std::shared_ptr<Running> running_;
};

}  // namespace some

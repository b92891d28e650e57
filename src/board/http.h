// An HTTP server of few threads and many viewers. What is served is the handler's business; here is what every server
// has to see to: limits, time limits, slow readers, and whom an answer may be given at all. Only http_server.cc knows
// the library behind it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "core/error.h"

namespace some {

using SharedText = std::shared_ptr<const std::string>;
inline SharedText shared_text(std::string text) { return std::make_shared<const std::string>(std::move(text)); }

enum class Method { get, post };

struct Request {
  Method method = Method::get;
  std::string path;                          // as it was sent, up to the question mark: never a path of a file
  std::map<std::string, std::string> query;  // decoded
  std::string body;                          // of a post: JSON by its content type, and from a page of this server
  std::string if_none_match;
  std::string value(const std::string& key) const;  // of the query; empty where there is none
};

struct Response {
  int status = 200;
  std::string type = "application/json";
  SharedText body;
  std::string etag;    // what the body was made of; a request that knows it is answered without the body
  std::string policy;  // content security policy; empty: nothing may be loaded
};
Response text_response(int status, const std::string& words);

// A response that goes on until it is finished. From any thread.
class Stream {
 public:
  virtual ~Stream() = default;
  // False: the reader has gone, or was so slow that it was given up; nothing more will reach it.
  virtual bool send(const SharedText& bytes) = 0;
  virtual void finish() = 0;  // after what was sent
  virtual bool is_open() const = 0;
};

// How a request is answered: once, from any thread. A request that is never answered gets an error.
class Answer {
 public:
  class Target;
  explicit Answer(std::shared_ptr<Target> target) : target_(std::move(target)) {}
  void respond(Response response) const;
  std::shared_ptr<Stream> stream(const std::string& type) const;

 private:
  std::shared_ptr<Target> target_;
};
class Answer::Target {
 public:
  virtual ~Target() = default;
  virtual void respond(Response response) = 0;
  virtual std::shared_ptr<Stream> stream(const std::string& type) = 0;
};

// Called by the server's own thread: whatever takes long is answered later, by a thread of the handler's.
using Handler = std::function<void(const Request&, Answer)>;

struct ServerSettings {
  std::string host = "127.0.0.1";
  int port = 0;       // 0: any free one
  std::string token;  // empty: none is asked for, and only names of this machine are answered to
  std::size_t max_connections = 600;
  std::size_t max_of_an_address = 500;
  std::size_t header_bytes = 8 << 10, body_bytes = 64 << 10;
  std::size_t waiting_bytes = 1 << 20;  // of a stream whose reader is slow
  std::chrono::milliseconds read_time{20000}, write_time{20000};
  double requests_a_second = 200, requests_at_once = 2000;  // of an address
};

bool is_loopback(const std::string& host);  // an address or name that only this machine reaches

// Another program listens at the port already.
class AddressTaken : public Error {
 public:
  AddressTaken(const std::string& host, int port);
};

class Server {
 public:
  // Listens from here on; bad_input where the address is not to be had.
  Server(ServerSettings settings, Handler handler);
  ~Server();  // ends every connection
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  int port() const;
  std::size_t connections() const;

 private:
  class Running;
  std::shared_ptr<Running> running_;
};

}  // namespace some

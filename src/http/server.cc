// The server of http.h on Boost.Beast. One thread handles all connections, so connections need no locks; work from
// other threads is posted to it.
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "core/error.h"
#include "core/system_error.h"
#include "http/http.h"

namespace some {
namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = net::ip::tcp;
using Clock = std::chrono::steady_clock;

namespace {

using Fields = std::map<std::string, std::string>;

bool read_query(std::string_view text, std::map<std::string, std::string>& out) {
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    if (part.empty()) continue;
    const std::size_t equals = std::min(part.find('='), part.size());
    std::string key, value;
    if (!decode_component(part.substr(0, equals), key) ||
        !decode_component(part.substr(std::min(part.size(), equals + 1)), value))
      return false;
    out[key] = value;
  }
  return true;
}

std::string without_port(std::string_view host) {
  const std::size_t colon = host.rfind(':');
  const bool brackets_close_after = colon != std::string_view::npos && host.find(']', colon) != std::string_view::npos;
  if (colon == std::string_view::npos || brackets_close_after) return std::string(host);
  return std::string(host.substr(0, colon));
}

constexpr const char* nothing_loads = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

// Returns the security headers: only pages of this server may use the response.
Fields guard_fields(const std::string& policy) {
  return {{"Content-Security-Policy", policy.empty() ? nothing_loads : policy},
          {"X-Content-Type-Options", "nosniff"},
          {"X-Frame-Options", "DENY"},
          {"Referrer-Policy", "no-referrer"},
          {"Cross-Origin-Resource-Policy", "same-origin"},
          {"Cross-Origin-Opener-Policy", "same-origin"},
          {"Cache-Control", "no-cache"}};
}

struct Bucket {
  double left = 0;
  Clock::time_point when;
};

class Session;

class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(ServerSettings settings, Handler handler)
      : settings_(std::move(settings)), handler_(std::move(handler)), acceptor_(io_), pause_(io_) {
    boost::system::error_code error;
    const std::string name = settings_.host == "localhost" ? "127.0.0.1" : settings_.host;
    const auto address = net::ip::make_address(name, error);
    if (error)
      bad_input(Code::address_unusable, "{} {}: must be an address of this machine, such as 127.0.0.1 or 0.0.0.0",
                "--host", settings_.host);
    const tcp::endpoint endpoint(address, static_cast<unsigned short>(settings_.port));
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(net::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(net::socket_base::max_listen_connections, error);
    if (error == net::error::address_in_use) throw AddressTaken(settings_.host, settings_.port);
    if (error == net::error::access_denied)
      bad_input(Code::address_unusable, "cannot listen on {}:{}: {}; use another --port >= 1024", settings_.host,
                settings_.port, reason_of(error.value()));
    if (error)
      bad_input(Code::address_unusable,
                "cannot listen on {}:{}: {}; use an address of this machine for --host, such as 127.0.0.1 or 0.0.0.0",
                settings_.host, settings_.port, reason_of(error.value()));
    port_ = acceptor_.local_endpoint().port();
  }

  void start() {
    accept();
    thread_ = std::thread([this] { io_.run(); });
  }
  void stop();
  void refuse_connections() {
    net::post(io_, [self = shared_from_this()] {
      self->stopping_ = true;
      boost::system::error_code ignored;
      self->acceptor_.close(ignored);
      self->pause_.cancel();
    });
  }

  int port() const { return port_; }
  net::io_context& io() { return io_; }
  const ServerSettings& settings() const { return settings_; }
  const Handler& handler() const { return handler_; }
  void left(const std::shared_ptr<Session>& session);
  // Returns true if the address is within its rate limit.
  bool may_ask(const std::string& address) {
    if (buckets_.size() > 4096) {
      std::erase_if(buckets_, [&](const auto& entry) { return refilled(entry.second) >= settings_.request_burst; });
      if (buckets_.size() > 4096) buckets_.clear();
    }
    const auto [found, is_new] = buckets_.try_emplace(address, Bucket{settings_.request_burst, Clock::now()});
    Bucket& bucket = found->second;
    bucket.left = refilled(bucket);
    bucket.when = Clock::now();
    if (bucket.left < 1) return false;
    bucket.left -= 1;
    return true;
  }
  std::size_t connections() const { return count_.load(); }
  std::size_t unanswered() const { return unanswered_.load(); }
  void count_unanswered(bool more) { more ? ++unanswered_ : --unanswered_; }
  Response refusal(int status, const std::string& words) const {
    return settings_.refusal ? settings_.refusal(status, words) : text_response(status, words);
  }

 private:
  void accept();
  void take(tcp::socket socket);
  bool make_room(const std::string& address);
  double refilled(const Bucket& bucket) const {
    const double seconds = std::chrono::duration<double>(Clock::now() - bucket.when).count();
    return std::min(settings_.request_burst, bucket.left + seconds * settings_.requests_per_second);
  }

  ServerSettings settings_;
  Handler handler_;
  net::io_context io_{1};
  tcp::acceptor acceptor_;
  net::steady_timer pause_;
  int port_ = 0;
  bool stopping_ = false;
  std::set<std::shared_ptr<Session>> sessions_;
  std::map<std::string, std::size_t> of_address_;
  std::map<std::string, Bucket> buckets_;
  std::atomic<std::size_t> count_{0}, unanswered_{0};
  std::thread thread_;
};

// A connection: successive requests, or one that became a stream.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(std::shared_ptr<Core> server, tcp::socket socket, std::string address)
      : server_(std::move(server)),
        stream_(std::move(socket)),
        buffer_(server_->settings().header_bytes + server_->settings().body_bytes),
        address_(std::move(address)) {}

  const std::string& address() const { return address_; }
  Core& server() { return *server_; }
  // True if no request is in progress, so that the connection may be closed for another one.
  bool idle() const { return idle_; }
  Clock::time_point last_used() const { return last_used_; }

  void read() {
    idle_ = true;
    last_used_ = Clock::now();
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(server_->settings().header_bytes));
    parser_->body_limit(server_->settings().body_bytes);
    // deadline for the whole request, so that slowly trickling requests are dropped
    stream_.expires_after(server_->settings().read_time);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](beast::error_code error, std::size_t) { self->was_read(error); });
  }

  void close() {
    if (!open_.exchange(false)) return;
    answered();
    boost::system::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
    stream_.close();
    server_->left(shared_from_this());
  }

  void write(Response response) {
    waits_ = false;
    if (!open_) return;
    response_ = std::move(response);
    if (!response_.body) response_.body = shared_text("");
    const bool known = response_.status == 200 && !response_.etag.empty() && response_.etag == if_none_match_;
    if (known) response_.body = shared_text("");
    message_ = {};
    message_.version(11);
    message_.result(known ? 304U : static_cast<unsigned>(response_.status));
    for (const auto& [name, value] : guard_fields(response_.policy)) message_.set(name, value);
    message_.set(http::field::content_type, response_.type);
    if (!response_.etag.empty()) message_.set(http::field::etag, response_.etag);
    if (response_.status == 405)
      message_.set(http::field::allow, server_->settings().removes ? "GET, HEAD, POST, DELETE" : "GET, HEAD, POST");
    if (response_.status == 429 && response_.retry_after == 0) response_.retry_after = 1;
    if (response_.retry_after > 0) message_.set(http::field::retry_after, std::to_string(response_.retry_after));
    for (const auto& [name, value] : response_.fields) message_.set(name, value);
    message_.keep_alive(keep_alive_);
    if (!known) message_.content_length(response_.body->size());
    if (!head_only_ && !known) message_.body() = {response_.body->data(), response_.body->size()};
    stream_.expires_after(server_->settings().write_time);
    serializer_.emplace(message_);
    serializer_->split(false);
    const auto done = [self = shared_from_this()](beast::error_code error, std::size_t) {
      if (error) return self->close();
      self->answered();
      if (!self->keep_alive_) return self->part();
      self->read();
    };
    if (head_only_ || known)
      http::async_write_header(stream_, *serializer_, done);
    else
      http::async_write(stream_, *serializer_, done);
  }

  // Closes gracefully: discards remaining input for a moment, so that the client can read what was sent.
  void part() {
    boost::system::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(std::chrono::seconds(2));
    pass_over(64);
  }

  // --- streaming ---

  static SharedText stream_head(const std::string& type) {
    std::string head = "HTTP/1.1 200 OK\r\nContent-Type: " + type + "\r\nConnection: close\r\n";
    for (const auto& [name, value] : guard_fields("")) head += name + ": " + value + "\r\n";
    return shared_text(head + "\r\n");
  }

  // Queues data in order; may be called from any thread. (Posts from several threads are unordered: they only wake the
  // server's thread.) Returns false if the reader is over its limit of unsent data and is dropped.
  bool deliver(const SharedText& bytes) {
    const bool slow = (waiting_ += bytes->size()) > server_->settings().max_pending_bytes;
    {
      const std::lock_guard lock(inbox_mutex_);
      if (!slow) inbox_.push_back(bytes);
    }
    net::post(server_->io(), [self = shared_from_this(), slow] {
      if (slow)
        self->close();
      else
        self->take_delivered();
    });
    return !slow;
  }
  void finish_delivering() {
    {
      const std::lock_guard lock(inbox_mutex_);
      delivered_all_ = true;
    }
    net::post(server_->io(), [self = shared_from_this()] { self->take_delivered(); });
  }

  bool is_open() const { return open_; }

 private:
  void was_read(beast::error_code error) {
    idle_ = false;
    if (error == http::error::end_of_stream || error == beast::error::timeout || error == net::error::operation_aborted)
      return close();
    keep_alive_ = false;
    head_only_ = false;
    if_none_match_.clear();
    if (error == http::error::header_limit || error == http::error::buffer_overflow)
      return write(server_->refusal(431, "the header of the request is too long"));
    if (error == http::error::body_limit) return write(server_->refusal(413, "the request is too long"));
    if (error.category() == http::make_error_code(http::error::bad_method).category())
      return write(server_->refusal(400, "bad request"));
    if (error) return close();
    const http::request<http::string_body> message = parser_->release();
    keep_alive_ = message.keep_alive();
    head_only_ = message.method() == http::verb::head;
    dispatch(message);
  }

  static std::string field(const http::request<http::string_body>& message, http::field name) {
    const auto value = message[name];
    return {value.data(), value.size()};
  }

  void dispatch(const http::request<http::string_body>& message);

  void pass_over(int times) {
    stream_.async_read_some(net::buffer(ignored_),
                            [self = shared_from_this(), times](beast::error_code error, std::size_t) {
                              if (error || times == 0) return self->close();
                              self->pass_over(times - 1);
                            });
  }

  void listen_for_the_end() {
    stream_.async_read_some(net::buffer(ignored_), [self = shared_from_this()](beast::error_code error, std::size_t) {
      if (error) return self->close();
      self->listen_for_the_end();  // input from a stream's reader is discarded
    });
  }

  void answered() {
    if (counted_) server_->count_unanswered(counted_ = false);
  }

  // Drops a client that disconnects while it waits for a response. Reads nothing: an early next request stays in the
  // buffer and ends the watch.
  void notice_leaving() {
    if (watched_) return;
    watched_ = true;
    stream_.socket().async_wait(tcp::socket::wait_read, [self = shared_from_this()](boost::system::error_code error) {
      self->watched_ = false;
      if (error || !self->open_ || !self->waits_) return;
      char byte = 0;
      const ssize_t got = ::recv(self->stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      if (got > 0) return;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return self->notice_leaving();
      self->close();
    });
  }

  void take_delivered() {
    std::deque<SharedText> more;
    {
      const std::lock_guard lock(inbox_mutex_);
      more.swap(inbox_);
      ends_ = delivered_all_;
    }
    if (!open_) return;
    if (!streaming_) {
      streaming_ = true;
      waits_ = false;
      boost::system::error_code ignored;
      // Also bounds the kernel's send buffer for slow readers.
      stream_.socket().set_option(net::socket_base::send_buffer_size(64 << 10), ignored);
      stream_.expires_never();
      listen_for_the_end();
    }
    const bool writing = !queue_.empty();
    queue_.insert(queue_.end(), more.begin(), more.end());
    if (!writing && !queue_.empty()) return write_queue();
    if (ends_ && queue_.empty()) close();
  }

  void write_queue() {
    stream_.expires_after(server_->settings().write_time);
    net::async_write(stream_, net::buffer(*queue_.front()),
                     [self = shared_from_this()](beast::error_code error, std::size_t) {
                       if (error) return self->close();
                       if (!self->open_) return;
                       self->waiting_ -= std::min(self->waiting_.load(), self->queue_.front()->size());
                       self->queue_.pop_front();
                       if (!self->queue_.empty()) return self->write_queue();
                       if (self->ends_) return self->close();
                       // The deadline applies to writing only: waiting for the reader to disconnect may last as long as
                       // the response.
                       self->stream_.expires_never();
                     });
  }

  std::shared_ptr<Core> server_;
  std::atomic<bool> open_{true};
  std::atomic<std::size_t> waiting_{0};
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  bool idle_ = false;
  Clock::time_point last_used_;
  std::string address_;
  std::optional<http::request_parser<http::string_body>> parser_;
  bool keep_alive_ = true, head_only_ = false;
  std::string if_none_match_;
  Response response_;  // must outlive the write
  http::response<http::span_body<const char>> message_;
  std::optional<http::response_serializer<http::span_body<const char>>> serializer_;
  std::mutex inbox_mutex_;
  std::deque<SharedText> inbox_;
  bool delivered_all_ = false;
  std::deque<SharedText> queue_;  // queue of data to write; the first entry is being written
  bool streaming_ = false, ends_ = false;
  bool waits_ = false, watched_ = false;  // waiting for a response; a watch for a disconnect is pending
  bool counted_ = false;                  // true while counted as unanswered
  std::array<char, 4096> ignored_{};
};

// A request awaiting its answer, and the stream it may become.
class Pending : public Answer::Target {
 public:
  explicit Pending(std::shared_ptr<Session> session) : session_(std::move(session)) {}
  ~Pending() override {
    if (!answered_) respond(session_->server().refusal(500, "nothing answered"));
  }
  void respond(Response response) override {
    if (answered_.exchange(true)) return;
    net::post(session_->server().io(),
              [session = session_, response = std::move(response)]() mutable { session->write(std::move(response)); });
  }
  std::shared_ptr<Stream> stream(const std::string& type) override {
    if (answered_.exchange(true)) return nullptr;
    session_->deliver(Session::stream_head(type));
    return std::make_shared<Going>(session_);
  }
  bool is_open() const override { return session_->is_open(); }

 private:
  class Going : public Stream {
   public:
    explicit Going(std::shared_ptr<Session> session) : session_(std::move(session)) {}
    ~Going() override { finish(); }
    bool send(const SharedText& bytes) override { return session_->is_open() && session_->deliver(bytes); }
    void finish() override { session_->finish_delivering(); }
    bool is_open() const override { return session_->is_open(); }

   private:
    std::shared_ptr<Session> session_;
  };
  std::shared_ptr<Session> session_;
  std::atomic<bool> answered_{false};
};

void Session::dispatch(const http::request<http::string_body>& message) {
  if (!server_->may_ask(address_)) return write(server_->refusal(429, "too many requests; retry in a second"));
  const ServerSettings& settings = server_->settings();
  const std::string host = field(message, http::field::host);
  // Prevents DNS rebinding: another site's name that resolves to this machine would let that site read everything.
  if (settings.token.empty() && !settings.any_host && !is_loopback(without_port(host)))
    return write(server_->refusal(421, "the host name must be one of this machine"));
  Request request;
  const std::string target(message.target().data(), message.target().size());
  const std::size_t question = std::min(target.find('?'), target.size());
  request.path = target.substr(0, question);
  if (target.empty() || target[0] != '/' ||
      !read_query(std::string_view(target).substr(std::min(target.size(), question + 1)), request.query))
    return write(server_->refusal(400, "bad address"));
  if (!settings.token.empty() && !equal_secrets(request.value("token"), settings.token))
    return write(server_->refusal(403, "the address must contain the token that the program printed at startup"));
  request.if_none_match = if_none_match_ = field(message, http::field::if_none_match);
  request.authorization = field(message, http::field::authorization);
  request.board_key = std::string(message["X-Board-Key"].data(), message["X-Board-Key"].size());
  const http::verb method = message.method();
  if (method == http::verb::post || (method == http::verb::delete_ && settings.removes)) {
    request.method = method == http::verb::post ? Method::post : Method::remove;
    const std::string origin = field(message, http::field::origin), type = field(message, http::field::content_type);
    const std::string from(message["Sec-Fetch-Site"].data(), message["Sec-Fetch-Site"].size());
    if ((!origin.empty() && origin != "http://" + host && !(settings.any_host && origin == "https://" + host)) ||
        (!from.empty() && from != "same-origin"))
      return write(server_->refusal(403, "requests from pages of other sites are rejected"));
    if (method == http::verb::post) {
      // Parameters ("; charset=utf-8") are ignored: JSON is UTF-8.
      if (!beast::iequals(type.substr(0, type.find_first_of("; ")), "application/json"))
        return write(server_->refusal(415, "must be application/json"));
      request.body = message.body();
    }
  } else if (method != http::verb::get && method != http::verb::head) {
    return write(server_->refusal(405, settings.removes ? "use GET, POST or DELETE" : "use GET or POST"));
  }
  waits_ = true;
  if (!counted_) server_->count_unanswered(counted_ = true);
  if (settings.notice_leaving) notice_leaving();
  try {
    server_->handler()(request, Answer(std::make_shared<Pending>(shared_from_this())));
  } catch (const std::exception&) {
    // The destructor of an unanswered request sends an error.
  }
}

void Core::accept() {
  acceptor_.async_accept([self = shared_from_this()](boost::system::error_code error, tcp::socket socket) {
    if (self->stopping_) return;
    if (!error) {
      self->take(std::move(socket));
      return self->accept();
    }
    // Temporary failure such as running out of file descriptors.
    self->pause_.expires_after(std::chrono::milliseconds(100));
    self->pause_.async_wait([self](boost::system::error_code) {
      if (!self->stopping_) self->accept();
    });
  });
}

void Core::take(tcp::socket socket) {
  boost::system::error_code error;
  const auto peer = socket.remote_endpoint(error);
  if (error) return;
  const std::string address = peer.address().to_string();
  if (!make_room(address)) return;  // closes the socket
  socket.set_option(tcp::no_delay(true), error);
  const auto session = std::make_shared<Session>(shared_from_this(), std::move(socket), address);
  sessions_.insert(session);
  of_address_[address] += 1;
  count_ = sessions_.size();
  session->read();
}

// Makes room for a connection of this address; returns false if that is impossible. At the limit of an address, one of
// its own idle connections is closed; at the limit of the server, an idle one of the address with the most connections,
// which must have more than this one. So idle connections of others, or of another program on the same machine, cannot
// lock anyone out.
bool Core::make_room(const std::string& address) {
  const auto count_of = [&](const std::string& of) {
    const auto found = of_address_.find(of);
    return found == of_address_.end() ? std::size_t{0} : found->second;
  };
  const bool crowded = sessions_.size() >= settings_.max_connections;
  std::string from = address;
  if (count_of(address) < settings_.max_connections_per_address) {
    if (!crowded) return true;
    const auto most = std::max_element(of_address_.begin(), of_address_.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most->second > count_of(address)) from = most->first;
  }
  std::shared_ptr<Session> oldest;
  for (const std::shared_ptr<Session>& session : sessions_) {
    if (session->address() != from || !session->idle()) continue;
    if (!oldest || session->last_used() < oldest->last_used()) oldest = session;
  }
  if (!oldest) return false;
  oldest->close();
  return true;
}

void Core::left(const std::shared_ptr<Session>& session) {
  if (sessions_.erase(session) == 0) return;
  const auto found = of_address_.find(session->address());
  if (--found->second == 0) of_address_.erase(found);
  count_ = sessions_.size();
}

void Core::stop() {
  net::post(io_, [self = shared_from_this()] {
    self->stopping_ = true;
    boost::system::error_code ignored;
    self->acceptor_.close(ignored);
    self->pause_.cancel();
    const auto all = self->sessions_;
    for (const auto& session : all) session->close();
  });
  thread_.join();
}

}  // namespace

class Server::Running : public Core {
 public:
  using Core::Core;
};

Server::Server(ServerSettings settings, Handler handler)
    : running_(std::make_shared<Running>(std::move(settings), std::move(handler))) {
  running_->start();
}
Server::~Server() { running_->stop(); }
int Server::port() const { return running_->port(); }
std::size_t Server::connections() const { return running_->connections(); }
std::size_t Server::unanswered() const { return running_->unanswered(); }
void Server::refuse_connections() { running_->refuse_connections(); }

}  // namespace some

#include "board/board.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <filesystem>
#include <mutex>
#include <set>

#include "board/answers.h"
#include "board/ask.h"
#include "board/causal.h"
#include "board/changes.h"
#include "board/page.h"
#include "core/error.h"
#include "core/files/files.h"
#include "core/files/json.h"
#include "core/system_error.h"
#include "http/worker.h"

namespace some {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t max_cached_bytes = 64 << 20;
constexpr std::size_t max_waiting = 16;
constexpr auto pulse = std::chrono::seconds(10);

std::string random_token() {
  std::array<unsigned char, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    failed(Code::system_failed, "cannot generate an access token: {}", last_reason());
  std::string out;
  for (const unsigned char byte : bytes) out += fmt::format("{:02x}", byte);
  return out;
}

std::string dump(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Response json_response(const nlohmann::json& value, int status = 200) {
  Response response;
  response.status = status;
  response.body = shared_text(dump(value));
  return response;
}

Response refusal(const Error& error, int status) { return json_response({{"error", json_of(error)}}, status); }
Response refusal(const Error& error) { return refusal(error, error.fault() == Fault::input ? 400 : 500); }
Response refusal(Code code, const std::string& message, int status) {
  return refusal(Error(Fault::input, code, message), status);
}

// Cache of response bodies by ETag: many viewers request the same data.
class Made {
 public:
  SharedText find(const std::string& key) const {
    const std::lock_guard lock(mutex_);
    const auto found = bodies_.find(key);
    return found == bodies_.end() ? nullptr : found->second;
  }
  void keep(const std::string& key, const SharedText& body) {
    const std::lock_guard lock(mutex_);
    if (!bodies_.emplace(key, body).second) return;
    order_.push_back(key);
    bytes_ += key.size() + body->size();
    while (bytes_ > max_cached_bytes) {
      const auto oldest = bodies_.find(order_.front());
      bytes_ -= oldest->first.size() + oldest->second->size();
      bodies_.erase(oldest);
      order_.pop_front();
    }
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, SharedText> bodies_;
  std::deque<std::string> order_;
  std::size_t bytes_ = 0;
};

}  // namespace

class Board::BoardImpl {
 public:
  BoardImpl(BoardSettings settings, const Log& log) : settings_(prepared(std::move(settings))), log_(log) {
    if (!settings_.read_only && is_loopback(settings_.server.host)) key_ = random_token();
    page_ = shared_text(board_page(settings_.watch.folders, settings_.read_only, !key_.empty()));
    page_tag_ = fmt::format("\"{}\"", hex(hash_bytes(page_->data(), page_->size())));
    watch_.emplace(
        settings_.watch, [this](const nlohmann::json& news) { tell(news); }, [this] { keep_alive(); });
    slow_.emplace(max_waiting);
    if (!settings_.read_only) asking_.emplace(settings_.device, settings_.threads);
    server_.emplace(settings_.server, [this](const Request& request, const Answer& answer) { serve(request, answer); });
  }
  ~BoardImpl() {
    server_.reset();
    slow_.reset();
    asking_.reset();
    watch_.reset();
  }

  const Server& server() const { return *server_; }
  const Watch& watch() const { return *watch_; }
  const BoardSettings& settings() const { return settings_; }
  const std::string& key() const { return key_; }
  std::size_t viewers() const {
    const std::lock_guard lock(streams_mutex_);
    return streams_.size();
  }

 private:
  static BoardSettings prepared(BoardSettings settings) {
    if (!is_loopback(settings.server.host) && settings.server.token.empty()) settings.server.token = random_token();
    return settings;
  }

  // --- messages to viewers ---

  void tell(const nlohmann::json& news) { send_all(shared_text("event: news\ndata: " + dump(news) + "\n\n")); }

  void send_all(const SharedText& message) {
    const std::lock_guard lock(streams_mutex_);
    std::erase_if(streams_, [&](const auto& stream) { return !stream->send(message); });
  }

  // Sends an empty comment, which keeps connections open and detects viewers that disconnected silently.
  void keep_alive() {
    if (Clock::now() - pulse_ < pulse) return;
    pulse_ = Clock::now();
    send_all(shared_text(":\n\n"));
  }

  void follow(const Answer& answer) {
    const auto stream = answer.stream("text/event-stream");
    if (!stream) return;
    stream->send(shared_text("retry: 1000\nevent: hello\ndata: {}\n\n"));
    const std::lock_guard lock(streams_mutex_);
    streams_.push_back(stream);
  }

  // --- requests of viewers ---

  void serve(const Request& request, const Answer& answer) {
    try {
      if (request.method == Method::post)
        return request.path == "/api/ask" ? ask(request, answer) : act(request, answer);
      if (request.path == "/") return answer.respond(page());
      if (request.path == "/events") return follow(answer);
      for (const Question& question : questions()) {
        if (request.path != question.path) continue;
        if (!question.slow) return answer.respond(made(question, request));
        return later(answer, [this, &question, request] { return made(question, request); });
      }
      // Not cached, because the trash folders may change independently.
      if (request.path == "/api/trash") return later(answer, [this] { return json_response(trash(*watch_)); });
      answer.respond(refusal(Code::request_unknown, "not found", 404));
    } catch (const Error& error) {
      answer.respond(refusal(error));
    }
  }

  // Changes of runs, and experiments, which read the texts of runs. Other sites do not have the key, nor do other users
  // of this machine, who can open the page as well.
  void act(const Request& request, const Answer& answer) {
    using Change = nlohmann::json (*)(const Watch&, const nlohmann::json&);
    static const std::map<std::string, Change> changes = {{"/api/labels", change_labels},
                                                          {"/api/labels/many", change_many_labels},
                                                          {"/api/delete", delete_runs},
                                                          {"/api/restore", restore_runs}};
    const bool ablates = request.path == "/api/ablate", compares = request.path == "/api/routes";
    const auto change = changes.find(request.path);
    if (change == changes.end() && !ablates && !compares)
      return answer.respond(refusal(Code::request_unknown, "not found", 404));
    if (key_.empty())
      return answer.respond(refusal(Code::request_forbidden, "this board permits no changes and no experiments", 403));
    if (!equal_secrets(request.board_key, key_))
      return answer.respond(refusal(Code::request_forbidden,
                                    "this page has read access only; open the full address that 'some board' printed",
                                    403));
    if (ablates) return answer_ablate(*watch_, *asking_, request, answer);
    if (compares) return answer_routes(*watch_, *asking_, request, answer);
    const nlohmann::json body = parse_json(request.body, "request");
    later(answer, [this, change = change->second, body] { return json_response(change(*watch_, body)); });
  }

  void ask(const Request& request, const Answer& answer) {
    if (!asking_)
      return answer.respond(refusal(Code::request_forbidden, "the board is read-only: prompts are disabled", 403));
    Asked asked = parse_generate_request(request.body);
    const auto run = watch_->find(asked.run);
    if (!run) return answer.respond(refusal(Code::run_not_found, "run not found", 404));
    if (asking_->waiting() >= max_questions)
      return answer.respond(refusal(Code::board_busy, "too many prompts are waiting; try again soon", 503));
    asking_->answer(run, std::move(asked), answer.stream("application/x-ndjson"));
  }

  // Answers slow requests from a separate thread.
  void later(const Answer& answer, std::function<Response()> make) {
    const bool taken = slow_->add([answer, make = std::move(make)] {
      try {
        answer.respond(make());
      } catch (const Error& error) {
        answer.respond(refusal(error));
      } catch (const std::exception& error) {
        answer.respond(refusal(Code::internal, error.what(), 500));
      }
    });
    if (!taken) answer.respond(refusal(Code::board_busy, "too many computations are running; try again soon", 503));
  }

  Response page() const {
    Response response;
    response.type = "text/html; charset=utf-8";
    response.policy = content_policy(embedded_assets(), true) + "; frame-ancestors 'none'";
    response.etag = page_tag_;
    response.body = page_;
    return response;
  }

  // Returns the cached response if none of its inputs changed. The key of the cache is all of them, each with its
  // length, so no value of a request can imitate another request; the tag is a hash, which only its sender compares.
  Response made(const Question& question, const Request& request) {
    std::string key;
    const auto add = [&](std::string_view part) { key += fmt::format("{}:{}", part.size(), part); };
    add(request.path);
    for (const auto& [name, value] : request.query) {
      if (name == "token") continue;
      add(name);
      add(value);
    }
    add("");  // ends the query
    for (const auto& run : question.of_all ? watch_->runs() : requested_runs(*watch_, request)) {
      add(run->id());
      add(fmt::to_string(run->version()));
    }
    Response response;
    response.etag = fmt::format("\"{}\"", hex(hash_bytes(key.data(), key.size())));
    if (response.etag == request.if_none_match) return response;
    response.body = made_.find(key);
    if (response.body) return response;
    response.body = shared_text(question.answer(*watch_, request));
    made_.keep(key, response.body);
    return response;
  }

  BoardSettings settings_;
  std::string key_;  // empty: no changes
  Log log_;
  SharedText page_;
  std::string page_tag_;
  mutable std::mutex streams_mutex_;
  std::vector<std::shared_ptr<Stream>> streams_;
  Clock::time_point pulse_ = Clock::now();
  Made made_;
  std::optional<Worker> slow_;
  std::optional<GenerationService> asking_;
  std::optional<Watch> watch_;
  std::optional<Server> server_;
};

Board::Board(BoardSettings settings, const Log& log) : rooms_(std::make_unique<BoardImpl>(std::move(settings), log)) {}
Board::~Board() = default;
int Board::port() const { return rooms_->server().port(); }
std::size_t Board::viewers() const { return rooms_->viewers(); }
const Watch& Board::watch() const { return rooms_->watch(); }

std::string Board::address(const std::string& run) const {
  const ServerSettings& server = rooms_->settings().server;
  std::string host = server.host;
  if (host == "0.0.0.0" || host == "::") host = "HOST";  // placeholder: any name by which this machine is reachable
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  std::string out = fmt::format("http://{}:{}/", host, port());
  if (!server.token.empty()) out += "?token=" + server.token;
  std::string place;
  if (!run.empty()) place = "runs=" + id_of(run);
  if (const std::string& key = rooms_->key(); !key.empty()) place += (place.empty() ? "key=" : "&key=") + key;
  return place.empty() ? out : out + "#" + place;
}

}  // namespace some

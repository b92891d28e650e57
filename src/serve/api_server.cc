#include "serve/api_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <thread>

#include "core/error.h"
#include "core/files/files.h"
#include "http/worker.h"
#include "plot/document.h"
#include "serve/chat_page.h"
#include "serve/errors.h"

namespace some {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::size_t max_parsing = 4096;

struct Route {
  const char* path;
  Method method;
};
constexpr std::array<Route, 7> routes = {{{"/", Method::get},
                                          {"/health", Method::get},
                                          {"/metrics", Method::get},
                                          {"/v1/models", Method::get},
                                          {"/v1/completions", Method::post},
                                          {"/v1/chat/completions", Method::post},
                                          {"/v1/embeddings", Method::post}}};
constexpr const char* sessions_endpoint = "/v1/some/sessions";

Response json_response(const Json& value) {
  Response response;
  response.body = shared_text(dumped(value) + "\n");
  return response;
}

[[noreturn]] void unknown_address(const std::string& path) {
  bad_input(Code::request_unknown, "{}: not an address of this server", path.substr(0, 200));
}

// Returns the rest of a path after a prefix, split at slashes and decoded; empty if the path does not have the prefix.
std::optional<std::vector<std::string>> parts_after(const std::string& prefix, const std::string& path) {
  if (path != prefix && path.rfind(prefix + "/", 0) != 0) return {};
  std::vector<std::string> out;
  for (std::size_t begin = prefix.size(); begin < path.size();) {
    const std::size_t end = std::min(path.find('/', begin + 1), path.size());
    std::string part;
    if (!decode_component(std::string_view(path).substr(begin + 1, end - begin - 1), part) || part.empty())
      unknown_address(path);
    out.push_back(std::move(part));
    begin = end;
  }
  return out;
}

}  // namespace

class ApiServer::Impl {
 public:
  Impl(ApiServerSettings settings, const Log& log) : settings_(prepared(std::move(settings))) {
    page_ = shared_text(chat_page(settings_.keys.required()));
    page_tag_ = fmt::format("\"{}\"", hex(hash_bytes(page_->data(), page_->size())));
    const auto answered = [this](const std::string& endpoint, int status) { counts_.add(endpoint, status); };
    for (const ModelSettings& one : settings_.models)
      models_.push_back(std::make_unique<ModelService>(one, answered, log));
    parser_.emplace(max_parsing);
    http_.emplace(settings_.http, [this](const Request& request, const Answer& answer) { serve(request, answer); });
  }
  ~Impl() {
    stopping_ = true;
    http_.reset();  // no more requests arrive; responses still in progress are discarded
    parser_.reset();
    models_.clear();
  }

  int port() const { return http_->port(); }
  const ApiServerSettings& settings() const { return settings_; }

  std::int64_t stop(std::chrono::milliseconds limit) {
    stopping_ = true;
    http_->refuse_connections();
    wait_for_answers(limit);
    const std::int64_t ended = accepted();
    for (const auto& model : models_) model->end_all();
    wait_for_answers(std::chrono::seconds(5));
    return ended;
  }

 private:
  static ApiServerSettings prepared(ApiServerSettings settings) {
    ServerSettings& http = settings.http;
    if (!is_loopback(http.host) && !settings.keys.required())
      bad_input(Code::address_unusable,
                "{} {}: other machines can reach this address, so API keys are required; use --api-keys FILE", "--host",
                http.host);
    http.any_host = settings.keys.required();
    http.removes = true;
    http.notice_leaving = true;
    http.refusal = refused_response;
    std::set<std::string> names;
    for (const ModelSettings& one : settings.models) {
      if (!names.insert(one.name).second) bad_input(Code::name_taken, "two runs have the name {}", one.name);
    }
    return settings;
  }

  std::int64_t accepted() const {
    std::int64_t all = 0;
    for (const auto& model : models_) all += model->accepted();
    return all;
  }

  void wait_for_answers(std::chrono::milliseconds limit) const {
    const auto end = Clock::now() + limit;
    while ((accepted() > 0 || http_->unanswered() > 0) && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

  // --- requests, on the thread of the HTTP server ---

  void respond(const char* endpoint, const Answer& answer, Response response) {
    counts_.add(endpoint, response.status);
    answer.respond(std::move(response));
  }

  void serve(const Request& request, const Answer& answer) {
    const char* endpoint = "other";
    try {
      serve(request, answer, endpoint);
    } catch (const Error& error) {
      respond(endpoint, answer, error_response(error));
    } catch (const std::exception& error) {
      respond(endpoint, answer, error_response(Error(Fault::failure, Code::internal, error.what())));
    }
  }

  void serve(const Request& request, const Answer& answer, const char*& endpoint) {
    const std::string& path = request.path;
    const auto route = std::find_if(routes.begin(), routes.end(), [&](const Route& one) { return path == one.path; });
    const bool known = route != routes.end();
    if (known) endpoint = route->path;
    if (known && request.method != route->method)
      return respond(endpoint, answer, refused_response(405, route->method == Method::get ? "use GET" : "use POST"));
    if (path == "/") return respond(endpoint, answer, page());
    if (path == "/health") return respond(endpoint, answer, health());
    // All other paths reveal information about the models.
    const std::optional<std::size_t> holder = settings_.keys.holder(request.authorization);
    if (!holder)
      bad_input(Code::api_key_invalid, "{}",
                request.authorization.empty() ? "an API key is required: send the field Authorization: Bearer KEY"
                                              : "the API key is unknown");
    if (path == "/metrics") return respond(endpoint, answer, metrics());
    if (path == "/v1/models") return respond(endpoint, answer, json_response(model_list()));
    if (known) return parse_later(endpoint, request, *holder, answer);
    if (const auto parts = parts_after("/v1/models", path); parts && request.method == Method::get) {
      endpoint = "/v1/models/ID";
      std::string name;  // of a run, which may be a path
      for (const std::string& part : *parts) name += (name.empty() ? "" : "/") + part;
      return respond(endpoint, answer, json_response(model(name).description()));
    }
    if (const auto parts = parts_after("/v1/some/sessions", path)) {
      endpoint = sessions_endpoint;
      return sessions(request, *parts, *holder, answer);
    }
    unknown_address(path);
  }

  ModelService& model(const std::string& name) {
    if (name.empty() && models_.size() == 1) return *models_[0];
    for (const auto& one : models_) {
      if (one->name() == name) return *one;
    }
    std::string names;
    for (const auto& one : models_) names += (names.empty() ? "" : ", ") + one->name();
    if (name.empty()) bad_input(Code::request_invalid, "{}: is required: one of {}", "model", names);
    bad_input(Code::run_not_found, "model {} not found; use one of {}", name.substr(0, 200), names);
  }

  // Parses and encodes on another thread: a long prompt must not delay other connections.
  void parse_later(const char* endpoint, const Request& request, std::size_t holder, const Answer& answer) {
    if (stopping_) failed(Code::server_busy, "the server is stopping");
    const std::size_t bytes = request.body.size();
    if ((waiting_bytes_ += bytes) > settings_.max_waiting_bytes) {
      waiting_bytes_ -= bytes;
      failed(Code::server_busy, "too many requests are waiting to be read; try again later");
    }
    const bool taken = parser_->add([this, endpoint, body = request.body, holder, answer] {
      try {
        parse(endpoint, body, holder, answer);
      } catch (const Error& error) {
        respond(endpoint, answer, error_response(error));
      } catch (const std::exception& error) {
        respond(endpoint, answer, error_response(Error(Fault::failure, Code::internal, error.what())));
      }
      waiting_bytes_ -= body.size();
    });
    if (taken) return;
    waiting_bytes_ -= bytes;
    failed(Code::server_busy, "too many requests are waiting to be read; try again later");
  }

  void parse(std::string_view endpoint, const std::string& body, std::size_t holder, const Answer& answer) {
    const ApiLimits& limits = settings_.models[0].limits;
    if (endpoint == "/v1/embeddings") {
      EmbeddingRequest request = parse_embedding(body, limits);
      ModelService& to = model(request.model);
      return to.embed(std::move(request), holder, answer);
    }
    GenerationRequest request = endpoint == "/v1/completions" ? parse_completion(body, limits)
                                                              : parse_chat(body, limits, settings_.chat_template);
    ModelService& to = model(request.model);
    to.generate(std::move(request), holder, answer);
  }

  // GET: lists all sessions of the key, or one. DELETE: forgets one, or one of its texts. With several models the query
  // must name one of them.
  void sessions(const Request& request, const std::vector<std::string>& parts, std::size_t holder,
                const Answer& answer) {
    ModelService& of = model(request.value("model"));
    const std::string name = parts.empty() ? "" : parts[0];
    const bool of_text = parts.size() == 3 && parts[1] == "texts";
    if (parts.size() > 1 && !of_text) unknown_address(request.path);
    if (!name.empty() && !is_session_name(name))
      bad_input(Code::request_unknown, "session {} not found", name.substr(0, 100));
    const bool removes = request.method == Method::remove;
    if (request.method == Method::post || (removes && name.empty()) || (of_text && !removes))
      return respond(sessions_endpoint, answer,
                     refused_response(405, "use GET to list sessions, DELETE to forget one"));
    std::int64_t text = 0;
    if (of_text) {
      const auto [end, error] = std::from_chars(parts[2].data(), parts[2].data() + parts[2].size(), text);
      if (error != std::errc() || end != parts[2].data() + parts[2].size())
        bad_input(Code::request_unknown, "session {} has no text {}", name, parts[2].substr(0, 100));
    }
    of.with_sessions(holder, name, removes, [=, this](Sessions& all, OpenedRun& run, std::int64_t generation) {
      try {
        if (name.empty())
          return respond(sessions_endpoint, answer, json_response({{"object", "list"}, {"data", all.list(holder)}}));
        Session* session = all.find(holder, name);
        if (session == nullptr) bad_input(Code::request_unknown, "session {} not found", name);
        if (!removes) return respond(sessions_endpoint, answer, json_response(session_json(*session)));
        if (of_text)
          all.forget(*session, run, generation, text);
        else
          all.remove(*session);
        Json out{{"id", name}, {"object", "some.session"}, {"deleted", true}};
        if (of_text) out = session_json(*session);
        respond(sessions_endpoint, answer, json_response(out));
      } catch (const Error& error) {
        respond(sessions_endpoint, answer, error_response(error));
      }
    });
  }

  Json model_list() const {
    Json list = Json::array();
    for (const auto& one : models_) list.push_back(one->description());
    return {{"object", "list"}, {"data", std::move(list)}};
  }

  Response health() const {
    const bool healthy = std::all_of(models_.begin(), models_.end(), [](const auto& one) { return one->healthy(); });
    Response response = json_response({{"status", stopping_ ? "stopping"
                                                  : healthy ? "ok"
                                                            : "failed"},
                                       {"models", models_.size()}});
    if (stopping_ || !healthy) response.status = 503;
    return response;
  }

  Response metrics() const {
    std::string out;
    for (std::size_t i = 0; i < ModelService::metric_names().size(); ++i) {
      const auto& [name, type, help] = ModelService::metric_names()[i];
      describe_metric(out, name, type, help);
      for (const auto& one : models_) one->write_metric(out, i);
    }
    counts_.write(out);
    describe_metric(out, "some_http_connections", "gauge", "open connections");
    out += fmt::format("some_http_connections {}\n", http_->connections());
    Response response;
    response.type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = shared_text(std::move(out));
    return response;
  }

  Response page() const {
    Response response;
    response.type = "text/html; charset=utf-8";
    response.policy = content_policy(embedded_assets(), true) + "; frame-ancestors 'none'";
    response.etag = page_tag_;
    response.body = page_;
    return response;
  }

  ApiServerSettings settings_;
  SharedText page_;
  std::string page_tag_;
  RequestCounts counts_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::size_t> waiting_bytes_{0};
  std::vector<std::unique_ptr<ModelService>> models_;
  std::optional<Worker> parser_;
  std::optional<Server> http_;
};

ApiServer::ApiServer(ApiServerSettings settings, const Log& log)
    : impl_(std::make_unique<Impl>(std::move(settings), log)) {}
ApiServer::~ApiServer() = default;
int ApiServer::port() const { return impl_->port(); }
std::int64_t ApiServer::stop(std::chrono::milliseconds limit) { return impl_->stop(limit); }

std::string ApiServer::address() const {
  std::string host = impl_->settings().http.host;
  if (host == "0.0.0.0" || host == "::") host = "HOST";  // placeholder: any name by which this machine is reachable
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  return fmt::format("http://{}:{}/", host, port());
}

}  // namespace some

// `some serve`: an OpenAI-compatible server for one or more runs, until a signal ends it.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <thread>

#include "cli/model_flags.h"
#include "cli/places.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "runs/run.h"
#include "serve/api_server.h"

namespace some {
namespace {

struct ServeFlags {
  std::vector<std::string> runs;
  std::string host = "127.0.0.1", checkpoint = "latest", device = "auto", precision, api_keys, chat_template = "plain";
  int port = 8000, threads = 0;
  std::int64_t batch = 0, max_tokens = 4096, max_requests = 256, max_per_key = 0, sessions = 256, session_slots = 1024;
  double timeout = 600, grace = 10, reload = 5;
  bool json = false;
};

constexpr const char* keys_variable = "SOME_API_KEYS";

std::chrono::milliseconds milliseconds_of(const std::string& option, double seconds, double least) {
  if (!(seconds >= least && seconds <= 1e6))
    bad_input(Code::option_invalid, "{} {}: must be from {} to 1000000 seconds", option, seconds, least);
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

// Returns the last part of each folder's path, or the whole path if two runs have the same last part.
std::vector<std::string> model_names(const std::vector<std::string>& folders) {
  std::map<std::string, int> uses;
  std::vector<std::string> out;
  const auto last_part = [](const std::string& folder) {
    auto path = std::filesystem::path(folder).lexically_normal();
    if (path.filename().empty()) path = path.parent_path();
    if (path == "." || path == "..") path = std::filesystem::absolute(path).lexically_normal().parent_path();
    return path.filename().empty() ? folder : path.filename().string();
  };
  for (const std::string& folder : folders) uses[last_part(folder)] += 1;
  for (const std::string& folder : folders) {
    const std::string name = last_part(folder);
    out.push_back(uses[name] > 1 ? folder : name);
  }
  return out;
}

ApiKeys keys_of(const ServeFlags& options) {
  if (!options.api_keys.empty()) return ApiKeys::from_file(options.api_keys);
  const char* own = std::getenv(keys_variable);
  return own != nullptr && *own != '\0' ? ApiKeys::from_text(own, keys_variable) : ApiKeys();
}

ApiServerSettings settings_of(const ServeFlags& options) {
  ApiServerSettings out;
  out.http.host = options.host;
  out.http.port = options.port;
  out.http.max_connections = 800;
  out.http.max_connections_per_address = 800;  // behind a proxy all clients have one address
  out.http.body_bytes = 1 << 20;
  out.http.max_pending_bytes = 4 << 20;
  out.http.write_time = std::chrono::seconds(60);
  out.http.requests_per_second = 10000;
  out.http.request_burst = 20000;
  out.keys = keys_of(options);
  const auto chat_template = chat_template_named(options.chat_template);
  if (!chat_template)
    bad_input(Code::option_invalid, "{} {}: must be plain or dialogue", "--chat-template", options.chat_template);
  out.chat_template = *chat_template;
  const std::vector<std::string> names = model_names(options.runs);
  for (std::size_t i = 0; i < options.runs.size(); ++i) {
    ModelSettings one;
    one.name = names[i];
    one.folder = options.runs[i];
    one.open = {options.checkpoint, device_choice(options.device), parse_optional_precision(options.precision),
                make_host(options.threads, terminal_log())};
    one.max_sequences = options.batch;
    one.limits.max_tokens = options.max_tokens;
    one.sessions.sessions = static_cast<std::size_t>(options.sessions);
    one.sessions.slots = options.session_slots;
    one.max_requests = static_cast<std::size_t>(options.max_requests);
    one.max_requests_per_key = static_cast<std::size_t>(options.max_per_key);
    one.timeout = milliseconds_of("--timeout", options.timeout, 0.1);
    one.reload = milliseconds_of("--reload", options.reload, 0);
    out.models.push_back(std::move(one));
  }
  return out;
}

void run(const ServeFlags& options) {
  const auto grace = milliseconds_of("--grace", options.grace, 0);
  ApiServerSettings settings = settings_of(options);
  watch_signals();
  ApiServer server(settings, terminal_log());
  nlohmann::json models = nlohmann::json::array();
  for (const ModelSettings& one : settings.models) models.push_back(one.name);
  if (options.json)
    print_json({{"address", server.address()}, {"port", server.port()}, {"models", models}});
  else
    fmt::print("{}\n", server.address());
  std::fflush(stdout);
  print_line("serving {}; base URL for clients: {}v1; Ctrl-C ends it",
             models.size() == 1 ? models[0].get<std::string>() : fmt::format("{} runs", models.size()),
             server.address());
  while (received_signal() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::int64_t ended = server.stop(grace);
  if (ended > 0) print_line("{} requests were ended after {} s (--grace)", ended, options.grace);
}

void set_up_serve(Command& command) {
  auto options = std::make_shared<ServeFlags>();
  command.add_option("RUNS", options->runs, "runs, by name (in runs) or folder; each becomes a model of this name")
      ->run_folder()
      ->required();
  command.add_option("--port", options->port, "port; 0 = any free one")->range(0, 65535)->capture_default_str();
  command
      .add_option("--host", options->host,
                  "address to listen on; if other machines can reach it, API keys are required")
      ->capture_default_str();
  command.add_option("--api-keys", options->api_keys,
                     "file of API keys, one per line (default: environment variable SOME_API_KEYS, if set)");
  command
      .add_option("--checkpoint", options->checkpoint,
                  "checkpoint: latest or best (reloaded when they change), or a step number")
      ->capture_default_str();
  command.add_option("--reload", options->reload, "seconds between checks for a newer checkpoint; 0 = never")
      ->capture_default_str();
  command
      .add_option("--chat-template", options->chat_template,
                  "chat template: plain, or dialogue (User: ... Assistant: ...)")
      ->capture_default_str();
  command
      .add_option("--batch", options->batch, "maximum number of concurrent sequences; 0 = 32 on a CPU, 256 on a GPU")
      ->range(0, 65536)
      ->capture_default_str();
  command.add_option("--max-tokens", options->max_tokens, "maximum number of new tokens per choice")
      ->range(1, 1 << 20)
      ->capture_default_str();
  command
      .add_option("--max-requests", options->max_requests,
                  "maximum number of requests per run, running and waiting; beyond it, status 503")
      ->range(1, 65536)
      ->capture_default_str();
  command
      .add_option("--max-requests-per-key", options->max_per_key,
                  "maximum number of requests per API key; beyond it, status 429; 0 = no limit")
      ->range(0, 65536)
      ->capture_default_str();
  command.add_option("--sessions", options->sessions, "maximum number of sessions with a memory, per run")
      ->range(0, 65536)
      ->capture_default_str();
  command.add_option("--session-slots", options->session_slots, "memory slots per session")
      ->range(16, 1 << 20)
      ->capture_default_str();
  command.add_option("--timeout", options->timeout, "maximum duration of a request in seconds")->capture_default_str();
  command.add_option("--grace", options->grace, "seconds for accepted requests to finish after SIGTERM")
      ->capture_default_str();
  command.add_option("--device", options->device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  command.add_option("--precision", options->precision, "fp32, bf16 or f64 (CPU); default: as trained");
  command.add_option("--threads", options->threads, "CPU threads per run; 0 = all available")
      ->range(0, max_threads)
      ->capture_default_str();
  command.add_json(options->json);
  command.callback([options] { run(*options); });
}

}  // namespace

CommandSpec serve_command() {
  return {
      .name = "serve",
      .group = CommandGroup::train_and_use,
      .summary = "serve runs through an OpenAI-compatible HTTP interface, with a chat page",
      .examples = {{"serve runs/tiny", "http://127.0.0.1:8000/v1; stop with Ctrl-C"},
                   {"serve runs/tiny --host 0.0.0.0 --api-keys keys.txt", "for other machines, with API keys"}},
      .json = "the address of the server",
      .set_up = set_up_serve,
  };
}

}  // namespace some

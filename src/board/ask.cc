#include "board/ask.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "analysis/read.h"
#include "analysis/trace.h"
#include "core/error.h"
#include "core/files/json.h"
#include "plot/escape_html.h"
#include "runs/checkpoint.h"

namespace some {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t max_opened = 2, longest_prompt = 16000;
constexpr int max_tokens = 400;
constexpr auto longest_answer = std::chrono::minutes(3);

void send(Stream& stream, const nlohmann::json& line) {
  stream.send(shared_text(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"));
}

// One array per token, of one array per layer, of pairs of expert and gate.
nlohmann::json to_json(const std::vector<TokenRoutes>& routes) {
  nlohmann::json tokens = nlohmann::json::array();
  for (const TokenRoutes& one : routes) {
    nlohmann::json layers = nlohmann::json::array();
    const auto k = static_cast<std::size_t>(one.top_k);
    for (std::size_t first = 0; first < one.experts.size(); first += k) {
      nlohmann::json chosen = nlohmann::json::array();
      for (std::size_t i = first; i < first + k; ++i)
        chosen.push_back({one.experts[i], std::round(static_cast<double>(one.gates[i]) * 1000) / 1000});
      layers.push_back(std::move(chosen));
    }
    tokens.push_back(std::move(layers));
  }
  return tokens;
}

// Throws if the run contains symbolic links: the readers that open a model would follow them.
void refuse_links(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(folder, error)) {
    if (entry.is_symlink())
      bad_input(Code::link_broken, "the run contains a symbolic link ({}), which is not followed",
                entry.path().filename().string());
  }
  if (error) bad_input(Code::folder_unreadable, "the run folder cannot be listed");
}

// Applies the request's routing changes to the model, and restores its configuration on destruction.
class Changed {
 public:
  Changed(OpenedRun& run, const Asked& asked) : model_(*run.model), before_(model_.config()) {
    const ModelConfig& config = before_;
    if ((asked.experts_a_token || asked.off) && config.ffn != Ffn::some)
      bad_input(Code::experts_missing, "this model has no experts to disable");
    if (asked.experts_a_token && *asked.experts_a_token > config.experts)
      bad_input(Code::expert_out_of_range, "top-k must not exceed the number of experts, {}", config.experts);
    const int k = asked.experts_a_token.value_or(config.top_k);
    if (asked.off) {
      if (asked.off->layer >= config.layers || asked.off->expert >= config.experts)
        bad_input(Code::expert_out_of_range, "expert {} not found in layer {}", asked.off->expert, asked.off->layer);
      if (config.routing != RoutingKind::keys)
        bad_input(Code::model_unsuitable, "this model does not choose experts by keys, so none can be disabled");
      if (k >= config.experts)
        bad_input(Code::model_unsuitable, "every token uses all {} experts, so none can be disabled", config.experts);
    }
    if (k != config.top_k) {
      ModelConfig other = config;
      other.top_k = k;
      model_.change_settings(other);
    }
    if (!asked.off) return;
    KeyState& keys = layer_keys(asked.off->layer);
    layer_ = asked.off->layer;
    bias_ = keys.choice_bias;
    Tensor bias = bias_ ? bias_.to(Device::cpu).clone() : Tensor::zeros({config.experts}, keys.keys.dtype());
    const auto place = static_cast<std::size_t>(asked.off->expert);
    if (bias.dtype() == DType::f64)
      bias.data<double>()[place] = -1e30;
    else
      bias.data<float>()[place] = -1e30F;
    keys.choice_bias = bias.to(model_.context().device);
  }
  ~Changed() {
    if (layer_) layer_keys(*layer_).choice_bias = bias_;
    if (model_.config().top_k != before_.top_k) {
      try {
        model_.change_settings(before_);
      } catch (const Error&) {
        // The previous settings are known to be valid.
      }
    }
  }
  Changed(const Changed&) = delete;
  Changed& operator=(const Changed&) = delete;

 private:
  KeyState& layer_keys(int layer) { return model_.layers().at(static_cast<std::size_t>(layer)).keys; }
  Model& model_;
  ModelConfig before_;
  std::optional<int> layer_;
  Tensor bias_;
};

}  // namespace

Asked parse_generate_request(const std::string& body) {
  const JsonObject all(parse_json(body, "question"), "question");
  Asked asked;
  asked.run = all.need<std::string>("run");
  asked.prompt = all.need<std::string>("prompt");
  if (asked.prompt.size() > longest_prompt)
    bad_input(Code::text_too_long, "prompt: must be at most {} bytes", longest_prompt);
  asked.how.temperature = all.get<double>("temperature", 0.8, 0.0, 10.0);
  asked.how.top_k = all.get<int>("top_k", 0, 0, 1000000);
  asked.how.top_p = all.get<double>("top_p", 1.0, 1e-6, 1.0);
  asked.how.seed = all.get<std::uint64_t>("seed", 0);
  asked.how.max_tokens = all.get<int>("max_tokens", 60, 1, max_tokens);
  if (all.has("experts_a_token")) asked.experts_a_token = all.need<int>("experts_a_token", 1, 4096);
  if (all.has("off")) {
    const JsonObject off = all.object("off");
    asked.off = Asked::Off{off.need<int>("layer", 0, 100000), off.need<int>("expert", 0, 100000000)};
  }
  asked.memory = all.get<bool>("memory", false);
  check(asked.how);
  return asked;
}

GenerationService::GenerationService(const DeviceChoice& device, int threads)
    : device_(device), threads_(threads), worker_(max_questions) {}

GenerationService::Opened& GenerationService::open(const RunLog& run) {
  refuse_links(run.folder());
  const std::int64_t step = find_checkpoint(run.folder(), "latest").step;
  const auto found = std::find_if(opened_.begin(), opened_.end(),
                                  [&](const Opened& one) { return one.id == run.id() && one.step == step; });
  if (found != opened_.end()) {
    opened_.splice(opened_.begin(), opened_, found);
    return opened_.front();
  }
  opened_.remove_if([&](const Opened& one) { return one.id == run.id(); });
  while (opened_.size() >= max_opened) opened_.pop_back();
  OpenOptions options;
  options.checkpoint = std::to_string(step);
  options.device = device_;
  options.host = make_host(threads_);
  opened_.push_front({run.id(), step, open_run(run.folder(), options), "", 0, std::nullopt});
  return opened_.front();
}

Memory* GenerationService::memory_of(Opened& opened, const RunLog& run) {
  const std::string file = run.memory();
  if (file.empty()) bad_input(Code::memory_missing, "this run has no memory; 'some read' creates one");
  struct stat now {};
  if (::lstat(file.c_str(), &now) != 0) bad_input(Code::memory_missing, "the memory of this run was removed");
  const std::int64_t time = now.st_mtim.tv_sec * 1000000000 + now.st_mtim.tv_nsec;
  if (!opened.memory || opened.memory_file != file || opened.memory_time != time)
    opened.memory.emplace(open_memory(opened.run, file));
  opened.memory_file = file;
  opened.memory_time = time;
  return &*opened.memory;
}

void GenerationService::answer(const std::shared_ptr<RunLog>& run, Asked asked, const std::shared_ptr<Stream>& stream) {
  const auto question = std::make_shared<Asked>(std::move(asked));
  queue(stream, [this, run, question](Stream& to) { write(*run, *question, to); });
}

void GenerationService::experiment(std::vector<std::shared_ptr<RunLog>> runs, const std::shared_ptr<Stream>& stream,
                                   Experiment experiment) {
  queue(stream, [this, runs = std::move(runs), experiment = std::move(experiment)](Stream& to) {
    std::vector<OpenedRun*> opened;
    for (const auto& run : runs) opened.push_back(&open(*run).run);  // an experiment may open as many models as this
    const Talk talk{[&](const nlohmann::json& line) { send(to, line); },
                    [&] { return !to.is_open() || worker_.stopping(); }};
    talk.send({{"kind", "progress"}, {"done", 0}, {"total", 0}});
    const nlohmann::json report = experiment(opened, talk);
    if (to.is_open()) talk.send({{"kind", "end"}, {"step", opened[0]->step}, {"report", report}});
  });
}

void GenerationService::queue(const std::shared_ptr<Stream>& stream, std::function<void(Stream&)> task) {
  if (!stream) return;
  send(*stream, {{"kind", "waiting"}});
  const bool taken = worker_.add([task = std::move(task), stream] {
    if (!stream->is_open()) return;
    try {
      task(*stream);
    } catch (const Error& error) {
      send(*stream, {{"kind", "error"}, {"error", json_of(error)}});
    } catch (const std::exception& error) {
      send(*stream, {{"kind", "error"}, {"error", json_of(Error(Fault::failure, Code::internal, error.what()))}});
    }
    stream->finish();
  });
  if (!taken) {
    const Error busy(Fault::input, Code::board_busy, "too many prompts are waiting; try again soon");
    send(*stream, {{"kind", "error"}, {"error", json_of(busy)}});
  }
}

void GenerationService::write(const RunLog& run, Asked& asked, Stream& stream) {
  Opened& opened = open(run);
  OpenedRun& model = opened.run;
  Memory* memory = asked.memory ? memory_of(opened, run) : nullptr;
  const Changed changed(model, asked);
  const std::vector<TokenId> prompt = model.tokenizer.encode(asked.prompt);
  nlohmann::json words = nlohmann::json::array();
  const auto word = [&](TokenId id) { return valid_text(model.tokenizer.token_bytes(id)); };
  for (const TokenId id : prompt) words.push_back(word(id));
  send(stream, {{"kind", "begin"},
                {"step", opened.step},
                {"prompt", words},
                {"tokens_hold_blanks", model.tokenizer.kind() == TokenizerKind::bytelevel}});
  const bool has_experts = model.recipe.model.ffn == Ffn::some;
  asked.how.routes = has_experts;
  const auto started = std::chrono::steady_clock::now();
  asked.how.stop = [&] {
    return !stream.is_open() || worker_.stopping() || std::chrono::steady_clock::now() - started > longest_answer;
  };
  asked.how.memory = memory;
  std::optional<SourceFinder> finder;
  if (memory != nullptr) {
    finder.emplace(*memory, model.tokenizer);
    asked.how.sources = max_sources;
  }
  const std::vector<Generated> written =
      generate(*model.model, model.tokenizer, {asked.prompt}, asked.how, [&](std::size_t, const TokenEvent& event) {
        if (!event.routes.empty()) send(stream, {{"kind", "read"}, {"tokens", to_json(event.routes)}});
        nlohmann::json line{{"kind", "token"}, {"text", word(event.token)}};
        if (finder) {
          line["sources"] = to_json(finder->find(event.memory, max_sources, words_around_source));
          line["probability"] = event.memory.probability;
        }
        send(stream, line);
      });
  if (!stream.is_open()) return;
  nlohmann::json end{{"kind", "end"}, {"text", valid_text(written[0].text)}, {"stopped", written[0].stopped}};
  if (has_experts) {
    std::vector<TokenId> ids = written[0].prompt;
    ids.insert(ids.end(), written[0].tokens.begin(), written[0].tokens.end());
    // Traces only the end of a text longer than the model's context.
    const auto most = static_cast<std::size_t>(model.recipe.model.seq_len);
    const std::size_t cut = ids.size() > most ? ids.size() - most : 0;
    ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(cut));
    Trace trace = trace_tokens(model, ids, parse_layers("", model.recipe.model), memory);
    trace.prompt_tokens = written[0].prompt.size() > cut ? written[0].prompt.size() - cut : 0;
    trace.stopped = written[0].stopped;
    end["trace"] = to_json(trace, model);
    end["trace"].erase("run");
  }
  send(stream, end);
}

}  // namespace some

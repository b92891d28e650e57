// some.Run: a trained model with its queries.
#include <algorithm>
#include <mutex>
#include <optional>

#include "analysis/assignments.h"
#include "analysis/inspect.h"
#include "analysis/read.h"
#include "analysis/trace.h"
#include "bindings/python/common.h"
#include "core/error.h"
#include "evaluation/evaluate.h"
#include "evaluation/json.h"
#include "exchange/recipe_json.h"
#include "experts/hadamard.h"
#include "inference/generate.h"
#include "memory/memory_file.h"
#include "model/library_spec.h"
#include "runtime/machine.h"

namespace some::python {
namespace {

using namespace some;

using Ids = std::vector<std::int32_t>;

Batch batch_of(const std::vector<Ids>& rows) {
  Batch batch;
  batch.offsets = {0};
  for (const Ids& row : rows) {
    for (std::size_t t = 0; t < row.size(); ++t) {
      batch.tokens.push_back(row[t]);
      batch.targets.push_back(t + 1 < row.size() ? row[t + 1] : -1);
      batch.positions.push_back(static_cast<std::int32_t>(t));
    }
    batch.offsets.push_back(static_cast<std::int32_t>(batch.tokens.size()));
    batch.longest = std::max(batch.longest, static_cast<std::int64_t>(row.size()));
  }
  batch.predicted = batch.size() - batch.rows();
  return batch;
}

// A memory setting accepted by `read`, by its name in Python.
struct MemorySetting {
  const char* name;
  void (*set)(MemoryOverrides& choices, py::handle value);
};
const MemorySetting memory_settings[] = {
    {"slots", [](MemoryOverrides& to, py::handle value) { to.slots = value.cast<std::int64_t>(); }},
    {"window", [](MemoryOverrides& to, py::handle value) { to.window = value.cast<std::int64_t>(); }},
    {"threshold", [](MemoryOverrides& to, py::handle value) { to.threshold = value.cast<double>(); }},
    {"decay", [](MemoryOverrides& to, py::handle value) { to.decay = value.cast<double>(); }},
    {"switch_rate", [](MemoryOverrides& to, py::handle value) { to.switch_rate = value.cast<double>(); }},
    {"beta", [](MemoryOverrides& to, py::handle value) { to.beta = value.cast<std::vector<double>>(); }},
    {"values", [](MemoryOverrides& to, py::handle value) { to.values = value.cast<std::int64_t>(); }},
    {"merge_evicted", [](MemoryOverrides& to, py::handle value) { to.merge_evicted = value.cast<bool>(); }},
    {"partitions", [](MemoryOverrides& to, py::handle value) { to.partitions = value.cast<std::int64_t>(); }},
    {"nprobe", [](MemoryOverrides& to, py::handle value) { to.nprobe = value.cast<std::int64_t>(); }},
    {"contexts", [](MemoryOverrides& to, py::handle value) { to.contexts = value.cast<std::int64_t>(); }},
    {"context_entries", [](MemoryOverrides& to, py::handle value) { to.context_entries = value.cast<std::int64_t>(); }},
    {"documents", [](MemoryOverrides& to, py::handle value) { to.documents = value.cast<bool>(); }},
};

MemoryOverrides choices_from(const py::dict& settings) {
  MemoryOverrides choices;
  for (const auto& [key, value] : settings) {
    const auto name = py::str(key).cast<std::string>();
    const auto found = std::find_if(std::begin(memory_settings), std::end(memory_settings),
                                    [&](const MemorySetting& one) { return one.name == name; });
    if (found == std::end(memory_settings)) {
      std::string known;
      for (const MemorySetting& one : memory_settings) known += (known.empty() ? "" : ", ") + std::string(one.name);
      bad_input(Code::setting_unknown, "read: unknown setting {}; known settings: {}", name, known);
    }
    found->set(choices, value);
  }
  return choices;
}

class Run {
 private:
  template <typename Body>
  decltype(auto) with(Body&& body) {
    return work(mutex_, body);
  }

 public:
  Run(const std::string& folder, const std::string& checkpoint, const std::string& device, const std::string& precision,
      int threads) {
    const Host host = python_host(threads);
    work([&] {
      run_.emplace(open_run(folder, {checkpoint, device_choice(device), parse_optional_precision(precision), host}));
    });
  }

  std::string folder() const { return run_->paths.folder; }
  std::int64_t step() const { return run_->step; }
  int layers() const { return run_->recipe.model.layers; }
  py::object recipe() const { return to_python(recipe_to_json(run_->recipe)); }
  std::string repr() const { return fmt::format("<some.Run {} at step {}>", folder(), step()); }

  Ids encode(const std::string& text) const { return run_->tokenizer.encode(text); }
  py::object decode(const Ids& ids, bool skip_specials) const {
    return to_python(run_->tokenizer.decode(ids, {.skip_specials = skip_specials}));
  }
  std::size_t vocabulary() const { return run_->tokenizer.vocab_size(); }
  TokenId end_of_text() const { return run_->tokenizer.eos_id(); }

  py::object logits(const py::object& ids) {
    const bool one = py::len(ids) > 0 && !py::hasattr(ids[py::int_(0)], "__len__");
    const std::vector<Ids> rows = one ? std::vector<Ids>{ids.cast<Ids>()} : ids.cast<std::vector<Ids>>();
    for (const Ids& row : rows) {
      if (row.empty()) bad_input(Code::prompt_empty, "logits: a row of ids is empty");
      if (static_cast<int>(row.size()) > run_->recipe.model.seq_len)
        bad_input(Code::text_too_long, "logits: a row has {} ids, but the model reads at most model.seq_len = {}",
                  row.size(), run_->recipe.model.seq_len);
    }
    if (rows.empty()) return py::list();
    const Tensor all = with([&] {
      run_->ctx->arena->reset();
      return run_->model->logits(upload(*run_->ctx, batch_of(rows)), {}).to(Device::cpu);
    });
    py::list out;
    std::int64_t begin = 0;
    for (const Ids& row : rows) {
      const auto end = begin + static_cast<std::int64_t>(row.size());
      out.append(to_array(all.rows(begin, end)));
      begin = end;
    }
    return one ? py::object(out[0]) : py::object(out);
  }

  py::object generate(const py::object& prompt, double temperature, int top_k, double top_p, std::uint64_t seed,
                      std::int64_t max_tokens, bool stop_at_end, const std::optional<std::string>& memory,
                      py::object on_token, double min_p, double repetition_penalty, double presence_penalty,
                      double frequency_penalty, const std::vector<std::string>& stop) {
    const bool one = py::isinstance<py::str>(prompt);
    const auto prompts =
        one ? std::vector<std::string>{prompt.cast<std::string>()} : prompt.cast<std::vector<std::string>>();
    const Callback tell(std::move(on_token));
    Interrupt interrupt;
    GenerateOptions options;
    options.temperature = temperature;
    options.top_k = top_k;
    options.top_p = top_p;
    options.min_p = min_p;
    options.repetition_penalty = repetition_penalty;
    options.presence_penalty = presence_penalty;
    options.frequency_penalty = frequency_penalty;
    options.stop_strings = stop;
    options.seed = seed;
    options.max_tokens = max_tokens;
    options.stop_at_eos = stop_at_end;
    options.stop = [&] { return interrupt.asked(); };
    const std::vector<Generated> texts = work(interrupt, mutex_, [&] {
      std::optional<Memory> knows;
      if (memory) options.memory = &knows.emplace(open_memory(*run_, *memory));
      TokenObserver observe;
      if (tell)
        observe = [&](std::size_t number, const TokenEvent& event) {
          tell(interrupt,
               {{"prompt", number}, {"token", event.token}, {"text", run_->tokenizer.token_bytes(event.token)}});
        };
      return some::generate(*run_->model, run_->tokenizer, prompts, options, observe);
    });
    nlohmann::json out = nlohmann::json::array();
    for (std::size_t i = 0; i < texts.size(); ++i)
      out.push_back({{"prompt", prompts[i]},
                     {"text", texts[i].text},
                     {"tokens", texts[i].tokens},
                     {"stopped", texts[i].stopped}});
    return to_python(one ? out[0] : out);
  }

  py::object evaluate(const std::string& data, std::int64_t max_documents, const std::optional<std::string>& memory) {
    return to_python(with([&] {
      const AnalysisText text = load_analysis_text(*run_, data, max_documents);
      EvaluateOptions how = evaluate_options(run_->recipe, run_->tokenizer);
      how.max_documents = max_documents;
      std::optional<Memory> knows;
      if (memory) {
        how.memory = &knows.emplace(open_memory(*run_, *memory));
        warn_about_overlap(*run_, *knows, text.data, max_documents, text.source);
      }
      const Evaluation evaluation = some::evaluate(*run_->model, text.data, how);
      nlohmann::json out = to_json(evaluation, how);
      out["data"] = text.source;
      out["layers"] = to_json(layer_measures(*run_->model, evaluation.layers, {}));
      return out;
    }));
  }

  py::object trace(const py::object& text, const std::optional<std::vector<int>>& layers) {
    const bool words = py::isinstance<py::str>(text);
    const std::string given = words ? text.cast<std::string>() : "";
    const Ids ids = words ? Ids{} : text.cast<Ids>();
    const std::vector<int> wanted = layers ? *layers : parse_layers("", run_->recipe.model);
    return to_python(with(
        [&] { return to_json(words ? trace_text(*run_, given, wanted) : trace_tokens(*run_, ids, wanted), *run_); }));
  }

  py::object inspect(const std::string& data, std::int64_t max_documents) {
    InspectOptions options;
    options.data = data;
    options.max_documents = max_documents;
    options.maps = false;
    return to_python(with([&] { return to_json(inspect_run(*run_, options)); }));
  }

  py::object read(const std::vector<std::string>& texts, const std::string& memory, const py::dict& settings,
                  std::int64_t max_documents, std::int64_t tokens, std::int64_t original_tokens) {
    Interrupt interrupt;
    ReadOptions options;
    options.texts = texts;
    options.memory = memory;
    options.max_documents = max_documents;
    options.tokens = tokens;
    options.original_tokens = original_tokens;
    options.stop = [&] { return interrupt.asked(); };
    options.choices = choices_from(settings);
    return to_python(work(interrupt, mutex_, [&] { return to_json(read_texts(*run_, options)); }));
  }

  py::array keys(int layer) {
    return to_array(with([&] { return store(layer).keys.clone(); }));
  }
  py::array usage(int layer) {
    return to_array(with([&] { return store(layer).usage.clone(); }));
  }
  py::tuple experts(int layer) {
    const Layer& own = with([&]() -> const Layer& {
      store(layer);
      return run_->model->layers()[static_cast<std::size_t>(layer)];
    });
    if (own.experts.hadamard) {  // transforms without stored matrices
      const ExpertWeights written =
          with([&] { return write_out_hadamard(*run_->ctx, library_spec(run_->model->config()), layer); });
      return py::make_tuple(to_array(written.w1),
                            written.w2 ? py::object(to_array(written.w2)) : py::object(py::none()));
    }
    const auto matrix = [](const Param& param) -> py::object {
      return param.compute ? py::object(to_array(param.compute)) : py::object(py::none());
    };
    return py::make_tuple(matrix(own.experts.w1), matrix(own.experts.w2));
  }
  py::dict tensors() {
    const NamedTensors all = with([&] { return model_tensors(*run_->model); });
    py::dict out;
    for (const auto& [name, tensor] : all) out[py::str(name)] = to_array(tensor);
    return out;
  }

 private:
  KeyState& store(int layer) {
    require_experts(*run_, "keys");
    require_layer(run_->recipe.model, layer);
    return run_->model->layers()[static_cast<std::size_t>(layer)].keys;
  }
  std::optional<OpenedRun> run_;
  std::recursive_mutex mutex_;  // recursive: a callback may call methods of its run
};

}  // namespace

void add_run(py::module_& module) {
  using py::arg;
  py::class_<Run>(module, "Run", "A trained model, opened with some.open(FOLDER).")
      .def(py::init([](const py::object& folder, const std::string& checkpoint, const std::string& device,
                       const std::string& precision, int threads) {
             return std::make_unique<Run>(to_path(folder), checkpoint, device, precision, threads);
           }),
           arg("folder"), arg("checkpoint") = "latest", arg("device") = "auto", arg("precision") = "",
           arg("threads") = 0)
      .def("__repr__", &Run::repr)
      .def_property_readonly("folder", &Run::folder, "The run folder.")
      .def_property_readonly("step", &Run::step, "Step of the checkpoint.")
      .def_property_readonly("layers", &Run::layers, "Transformer blocks.")
      .def_property_readonly("recipe", &Run::recipe, "Every setting of the run: {table: {name: value}}.")
      .def_property_readonly("vocabulary", &Run::vocabulary, "Size of the vocabulary.")
      .def_property_readonly("end_of_text", &Run::end_of_text, "The id of [EOS].")
      .def("encode", &Run::encode, arg("text"), "Returns the token ids of a text.")
      .def("decode", &Run::decode, arg("ids"), arg("skip_specials") = true, "Returns the text of token ids.")
      .def("logits", &Run::logits, arg("ids"),
           "Returns the logits [positions, vocabulary] of a row of ids as a NumPy array, or of several rows as a list "
           "of arrays.")
      .def("generate", &Run::generate, arg("prompt"), arg("temperature") = 0.8, arg("top_k") = 0, arg("top_p") = 1.0,
           arg("seed") = 0, arg("max_tokens") = 200, arg("stop_at_end") = true, arg("memory") = py::none(),
           arg("on_token") = py::none(), py::kw_only(), arg("min_p") = 0.0, arg("repetition_penalty") = 1.0,
           arg("presence_penalty") = 0.0, arg("frequency_penalty") = 0.0, arg("stop") = std::vector<std::string>{},
           "Continues a prompt, or each of several: {prompt, text, tokens, stopped}. The text ends before the first of "
           "the strings in stop. on_token is called with {prompt, token, text} for each new token.")
      .def("evaluate", &Run::evaluate, arg("data") = "", arg("max_documents") = 0, arg("memory") = py::none(),
           "Returns loss, perplexity, bits per byte and the measures of every layer, as in `some eval --json`.")
      .def("trace", &Run::trace, arg("text"), arg("layers") = py::none(),
           "Returns the experts of each token of a text or of ids, as in `some trace --json`.")
      .def("measures", &Run::inspect, arg("data") = "", arg("max_documents") = 200,
           "Returns measures of every layer's experts and keys, as in `some inspect --json`.")
      .def("read", &Run::read, arg("texts"), arg("memory") = "", arg("settings") = py::dict(), arg("max_documents") = 0,
           arg("tokens") = 0, arg("original_tokens") = 20000,
           "Reads texts into a memory (a file; \"\" = not saved) and returns its gain, as in `some read --json`. "
           "settings: those of [memory], such as slots, window, threshold, decay, beta; and documents.")
      .def("keys", &Run::keys, arg("layer"), "Returns the keys of a layer, [experts, query size].")
      .def("usage", &Run::usage, arg("layer"), "Returns the usage of each expert of a layer, [experts].")
      .def("experts", &Run::experts, arg("layer"),
           "Returns the expert matrices (w1, w2) of a layer; None if the layer has none. Hadamard experts are "
           "converted to matrices.")
      .def("tensors", &Run::tensors, "Returns copies of all parameters and key stores by their names in checkpoints.");
  // `some.open` is an alias of the class.
  module.attr("open") = module.attr("Run");
}

}  // namespace some::python

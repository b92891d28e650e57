// some.Trainer: trains a recipe, completely or step by step.
#include <mutex>
#include <optional>

#include "analysis/assignments.h"
#include "bindings/python/common.h"
#include "core/error.h"
#include "evaluation/json.h"
#include "exchange/recipe_json.h"
#include "lab/queue.h"
#include "lab/series.h"
#include "runs/metrics.h"

namespace some::python {
namespace {

// Builds a recipe from Python dictionaries: settings by table, applied to a base recipe if `base` names one.
Recipe recipe_from(const nlohmann::json& tables, const std::string& base) {
  if (base.empty()) return recipe_from_json(tables, "recipe");
  return load_recipe(base, settings_from_json(tables, "recipe"));
}

nlohmann::json result_json(const TrainResult& result) {
  nlohmann::json out{
      {"steps", result.steps}, {"finished", result.stopped_by == 0}, {"stopped_early", result.stopped_early}};
  if (result.final_evaluation) {
    out["loss"] = result.final_evaluation->loss;
    out["perplexity"] = result.final_evaluation->perplexity();
    out["bits_per_byte"] = result.final_evaluation->bits_per_byte;
  }
  if (result.memory) out["memory"] = to_json(*result.memory);
  return out;
}

class PyTrainer {
 private:
  Trainer& open() {
    if (!trainer_)
      bad_input(Code::run_finished, "this trainer was closed; some.Trainer.resume(FOLDER) resumes the run");
    return *trainer_;
  }
  template <typename Body>
  auto with(Body&& body) {
    Trainer& trainer = open();
    return work(interrupt_, mutex_, [&] { return body(trainer); });
  }

 public:
  PyTrainer(const py::dict& settings, const std::string& base, const std::string& folder,
            const std::optional<std::string>& from, const std::string& checkpoint, py::object on_step,
            py::object on_evaluation)
      : step_(std::move(on_step)), evaluation_(std::move(on_evaluation)) {
    const nlohmann::json tables = to_json(settings, "recipe");
    TrainHooks hooks = make_hooks();
    std::optional<FromOptions> source;
    if (from) source = FromOptions{*from, checkpoint, false};
    trainer_ = work([&] {
      const Recipe recipe = source && base.empty() ? source_recipe(*source, settings_from_json(tables, "recipe"))
                                                   : recipe_from(tables, base);
      return Trainer::start(recipe, folder, std::move(hooks), source);
    });
  }

  PyTrainer(const std::string& folder, const std::vector<std::string>& changes, std::optional<std::int64_t> from_step,
            py::object on_step, py::object on_evaluation)
      : step_(std::move(on_step)), evaluation_(std::move(on_evaluation)), changes_(changes) {
    TrainHooks hooks = make_hooks();
    trainer_ = work([&] { return Trainer::resume(folder, {changes, from_step}, std::move(hooks)); });
  }

  ~PyTrainer() {
    work([&] { trainer_.reset(); });
  }

  bool finished() {
    return with([](Trainer& t) { return t.finished(); });
  }
  std::int64_t steps() {
    return with([](Trainer& t) { return t.steps(); });
  }
  std::int64_t total_steps() {
    return with([](Trainer& t) { return t.total_steps(); });
  }
  double loss() {
    return with([](Trainer& t) { return t.loss(); });
  }
  double gradient_norm() {
    return with([](Trainer& t) { return t.gradient_norm(); });
  }
  py::object recipe() { return to_python(recipe_to_json(open().recipe())); }

  double step(std::int64_t count) {
    return with([&](Trainer& t) {
      for (std::int64_t i = 0; i < count && !t.finished() && t.steps() < t.total_steps() && !interrupt_.asked(); ++i)
        t.step();
      return t.loss();
    });
  }
  void run_scheduled() {
    with([](Trainer& t) { return t.run_scheduled(), 0; });
  }
  void save() {
    with([](Trainer& t) { return t.save(), 0; });
  }
  py::object evaluate() {
    return to_python(with([](Trainer& t) { return to_json(t.evaluate()); }));
  }
  py::object run() {
    const TrainHooks hooks = make_hooks();
    return to_python(with([&](Trainer& t) {
      TrainResult result = t.run();
      build_requested_memory(result, t.folder(), changes_, hooks);
      return result_json(result);
    }));
  }
  py::array keys(int layer) {
    return to_array(with([&](Trainer& t) {
      if (t.recipe().model.ffn != Ffn::some) bad_input(Code::experts_missing, "keys: this run has no experts");
      require_layer(t.recipe().model, layer);
      return t.model().layers()[static_cast<std::size_t>(layer)].keys.keys.clone();
    }));
  }
  // Releases the run folder.
  void close() {
    work(mutex_, [&] { trainer_.reset(); });
  }

 private:
  TrainHooks make_hooks() {
    TrainHooks hooks = hooks_for(interrupt_);
    if (step_) hooks.step = [this](const TrainProgress& progress) { step_(interrupt_, python::to_json(progress)); };
    if (evaluation_)
      hooks.evaluated = [this](const EvaluationReport& report) { evaluation_(interrupt_, to_json(report)); };
    return hooks;
  }
  Callback step_, evaluation_;
  std::vector<std::string> changes_;  // settings passed to resume
  Interrupt interrupt_;
  std::unique_ptr<Trainer> trainer_;
  std::recursive_mutex mutex_;  // recursive: a callback may call methods of its trainer
};

// Iterates over the runs of a lab, one at a time.
class PyLab {
 public:
  PyLab(const std::string& index, const std::vector<std::string>& names, const std::string& runs, int seeds,
        double scale, bool builtin, std::optional<std::int64_t> max_steps, const py::dict& settings, py::object on_step)
      : step_(std::move(on_step)) {
    LabOptions options;
    options.runs = runs;
    options.seeds = seeds;
    options.scale = scale;
    options.builtin = builtin;
    options.max_steps = max_steps;
    options.overrides = settings_from_json(to_json(settings, "settings"), "settings");
    plan_ = plan_runs(load_series_index(index), names, options);
  }

  std::size_t size() const { return plan_.size(); }
  py::object next() {
    if (next_ >= plan_.size()) throw py::stop_iteration();
    const PlannedRun& planned = plan_[next_++];
    Interrupt interrupt;
    QueueHooks hooks;
    hooks.train = hooks_for(interrupt);
    if (step_)
      hooks.train.step = [&](const TrainProgress& progress) {
        nlohmann::json told = python::to_json(progress);
        told["run"] = planned.name;
        step_(interrupt, told);
      };
    const QueueEntry entry = work(interrupt, [&] { return run_queue({planned}, hooks).at(0); });
    nlohmann::json out = result_json(entry.result);
    out["name"] = entry.name;
    out["folder"] = entry.folder;
    out["outcome"] = name_of(entry.outcome);
    out["message"] = entry.message;
    out["seconds"] = entry.seconds;
    return to_python(out);
  }

 private:
  Callback step_;
  std::vector<PlannedRun> plan_;
  std::size_t next_ = 0;
};

}  // namespace

void add_trainer(py::module_& module) {
  using py::arg;
  py::class_<PyTrainer>(module, "_Trainer")
      .def(py::init<const py::dict&, const std::string&, const std::string&, const std::optional<std::string>&,
                    const std::string&, py::object, py::object>())
      .def(py::init<const std::string&, const std::vector<std::string>&, std::optional<std::int64_t>, py::object,
                    py::object>())
      .def_property_readonly("finished", &PyTrainer::finished)
      .def_property_readonly("steps", &PyTrainer::steps)
      .def_property_readonly("total_steps", &PyTrainer::total_steps)
      .def_property_readonly("loss", &PyTrainer::loss)
      .def_property_readonly("gradient_norm", &PyTrainer::gradient_norm)
      .def_property_readonly("recipe", &PyTrainer::recipe)
      .def("step", &PyTrainer::step, arg("count"))
      .def("run_scheduled", &PyTrainer::run_scheduled)
      .def("save", &PyTrainer::save)
      .def("evaluate", &PyTrainer::evaluate)
      .def("run", &PyTrainer::run)
      .def("keys", &PyTrainer::keys, arg("layer"))
      .def("close", &PyTrainer::close);
  py::class_<PyLab>(module, "_Lab")
      .def(py::init<const std::string&, const std::vector<std::string>&, const std::string&, int, double, bool,
                    std::optional<std::int64_t>, const py::dict&, py::object>())
      .def("__len__", &PyLab::size)
      .def("__next__", &PyLab::next);
  module.def(
      "_recipe",
      [](const py::dict& settings, const std::string& base) {
        return to_python(recipe_to_json(recipe_from(to_json(settings, "recipe"), base)));
      },
      arg("settings"), arg("base"));
}

}  // namespace some::python

// Native part of `import some`; the rest is in python/some/__init__.py.
#include <filesystem>
#include <system_error>

#include "bindings/python/common.h"
#include "core/error.h"
#include "core/version.h"
#include "runs/history.h"

namespace some::python {
namespace {

// Registers the Python exception types, with the messages of the library's errors. Errors that the caller can correct
// are ValueErrors too.
void add_errors(py::module_& module) {
  static PyObject *error = nullptr, *input = nullptr;
  error = PyErr_NewExceptionWithDoc("some.Error", "Error of the library, with a one-line message.", PyExc_RuntimeError,
                                    nullptr);
  const py::tuple bases = py::make_tuple(py::handle(error), py::handle(PyExc_ValueError));
  input = PyErr_NewExceptionWithDoc("some.InputError", "Error that the caller can correct; the message says how.",
                                    bases.ptr(), nullptr);
  if (error == nullptr || input == nullptr) throw py::error_already_set();
  py::handle(error).attr("code") = std::string(name_of(Code::system_failed));  // for system errors
  py::handle(error).attr("values") = py::tuple();
  module.attr("Error") = py::handle(error);
  module.attr("InputError") = py::handle(input);
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Error& fault) {
      // The exception object is created here, because PyErr_SetString cannot set attributes.
      const py::object one = py::handle(fault.fault() == Fault::input ? input : error)(py::str(fault.what()));
      one.attr("code") = std::string(name_of(fault.code()));
      one.attr("values") = fault.values();
      PyErr_SetObject(py::type::of(one).ptr(), one.ptr());
    } catch (const std::filesystem::filesystem_error& fault) {
      PyErr_SetString(PyExc_OSError, fault.what());
    } catch (const std::system_error& fault) {
      PyErr_SetString(error, fault.what());
    }
  });
}

py::list runs(const std::string& folder) {
  py::list out;
  for (const RunListEntry& found : find_runs(folder, python_log())) {
    const RunHistory history = read_history(found, python_log());
    nlohmann::json one{{"name", found.name},
                       {"folder", found.folder},
                       {"state", found.state_text()},
                       {"parameters", history.parameters.total},
                       {"trained_parameters", history.parameters.trainable}};
    if (const EvalPoint* last = history.last()) {
      one["step"] = last->step;
      one["loss"] = last->loss;
      one["bits_per_byte"] = last->bits_per_byte;
    }
    out.append(to_python(one));
  }
  return out;
}

py::object export_run(const py::object& run, const py::object& out, const std::string& checkpoint,
                      const std::string& experts, double shard_gigabytes, const std::vector<std::string>& controls) {
  if (experts != "stored" && experts != "seed")
    bad_input(Code::option_invalid, "{} = \"{}\": must be \"stored\" or \"seed\"", "experts", experts);
  ExportOptions options;
  options.run = to_path(run);
  options.out = to_path(out);
  options.checkpoint = checkpoint;
  options.experts_from_seed = experts == "seed";
  options.shard_bytes = shard_gigabytes * 1e9;
  options.controls = controls;
  options.host = python_host(0);
  const ExportResult result = work([&] { return export_hf(options); });
  return to_python({{"folder", result.folder}, {"step", result.step}, {"weights", result.weights}});
}

py::object import_folder(const py::object& folder, const py::object& out, const std::string& tokenizer,
                         bool trained_experts) {
  ImportOptions options;
  options.folder = to_path(folder);
  options.out = to_path(out);
  options.tokenizer = tokenizer;
  options.trained_experts = trained_experts;
  options.host = python_host(0);
  const ImportResult result = work([&] { return import_hf(options); });
  return to_python({{"run", result.run}, {"step", result.step}});
}

}  // namespace
}  // namespace some::python

PYBIND11_MODULE(_some, module) {
  using namespace some::python;
  using py::arg;
  module.doc() = "Native part of the package `some`.";
  module.attr("version") = some::program_version();
  add_errors(module);
  add_run(module);
  add_trainer(module);
  module.def(
      "runs", [](const py::object& folder) { return runs(to_path(folder)); }, arg("folder") = "runs",
      "Returns the runs in a folder: name, folder, state, parameters, and step and loss of the last evaluation.");
  module.def("export_hf", &export_run, arg("run"), arg("out"), arg("checkpoint") = "latest", arg("experts") = "stored",
             arg("shard_gigabytes") = 5.0, arg("controls") = std::vector<std::string>(),
             "Writes a run as a folder for Hugging Face's libraries and plain PyTorch, as `some export` does.");
  module.def("import_hf", &import_folder, arg("folder"), arg("out"), arg("tokenizer") = "",
             arg("trained_experts") = false, "Imports an exported model as a run, as `some import` does.");
}

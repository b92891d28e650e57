// What the parts of the Python module share: values back and forth, callbacks, Ctrl-C.
//
// The interpreter's lock (GIL) is given back while the library works; whatever touches a Python object takes it again.
// No signal is taken by a thread that computes: generated matrix kernels do not keep to the rules a handler's stack
// frame relies on. Between two pieces of work, and in callbacks, they are let through.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/host.h"
#include "base/tensor.h"
#include "exchange/hf.h"
#include "train/trainer.h"

namespace some::python {
namespace py = pybind11;
using namespace exchange;

// While it lives the library works: without the lock, and with signals held back from this thread and those that it
// starts. Other threads of Python may take them meanwhile.
class Working {
 public:
  Working();
  ~Working();
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;

 private:
  friend class AtRest;
  py::gil_scoped_release free_;
  sigset_t before_;
  Working* outer_;
};
// Signals come through again and the lock is held: for a moment inside of Working.
class AtRest {
 public:
  AtRest();
  ~AtRest();
  AtRest(const AtRest&) = delete;
  AtRest& operator=(const AtRest&) = delete;

 private:
  sigset_t before_;
  py::gil_scoped_acquire lock_;
};

py::object to_python(const nlohmann::json& value);
nlohmann::json to_json(py::handle value, const std::string& what);  // InputError naming `what` where it has no JSON
py::array to_array(const Tensor& tensor);                           // a copy; of bf16 in float32

// A path or a text: str or os.PathLike.
std::string to_path(py::handle value);

// The library's messages go to logging.getLogger("some").
Log python_log();
Host python_host(int threads);

// A Python callable (or None) that C++ may hold and copy without the lock.
class Callback {
 public:
  explicit Callback(py::object callable);
  explicit operator bool() const { return callable_ != nullptr; }
  // Takes the lock. What the callable raises is kept by `Interrupt` and stops the work.
  void operator()(class Interrupt& interrupt, const nlohmann::json& argument) const;

 private:
  std::shared_ptr<py::object> callable_;
};

// Ctrl-C and exceptions of callbacks: asked() says whether the work is to stop, rethrow() raises what stopped it once
// the lock is held again. Signals are looked at a few times a second; only Python's main thread sees them.
class Interrupt {
 public:
  bool asked();
  void keep(py::error_already_set& error);  // with the lock
  void rethrow();                           // with the lock

 private:
  std::chrono::steady_clock::time_point last_{};
  std::shared_ptr<py::object> type_, value_, trace_;  // of the exception
  bool raised_ = false;
};

nlohmann::json to_json(const TrainProgress& progress);

void add_run(py::module_& module);
void add_trainer(py::module_& module);

}  // namespace some::python

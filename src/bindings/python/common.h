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
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "exchange/hf.h"
#include "runtime/host.h"
#include "tensor/tensor.h"
#include "train/trainer.h"

namespace some::python {
namespace py = pybind11;

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

// The library's work, as every call of Python does it: without the interpreter's lock, and one caller at a time where
// there is something to be held. Nobody waits for that while he holds Python's lock, so whoever has it can always get
// Python's.
template <typename Body>
decltype(auto) work(Body&& body) {
  const Working now;
  return body();
}
template <typename Body>
decltype(auto) work(std::recursive_mutex& held, Body&& body) {
  const Working now;
  const std::lock_guard lock(held);
  return body();
}
// The same where it can be interrupted: what interrupted it is raised when the lock is back.
template <typename... Work>
auto work(Interrupt& interrupt, Work&&... rest) {
  auto result = work(std::forward<Work>(rest)...);
  interrupt.rethrow();
  return result;
}

// What every training has in common: messages go to Python, and whatever stops it, the step is finished and saved
// first, as with Ctrl-C in the program.
TrainHooks hooks_for(Interrupt& interrupt);
nlohmann::json to_json(const TrainProgress& progress);

void add_run(py::module_& module);
void add_trainer(py::module_& module);

}  // namespace some::python

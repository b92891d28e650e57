// Shared helpers of the Python module: value conversion, callbacks, Ctrl-C.
//
// The GIL is released while the library works; code that touches a Python object acquires it again. Signals are blocked
// in computing threads, because generated GEMM kernels do not follow the rules that a signal handler's stack frame
// relies on. They are unblocked between pieces of work and in callbacks.
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

// Scope in which the library works: releases the GIL, and blocks signals in this thread and in threads that it starts.
// Other Python threads may still receive them.
class LibraryScope {
 public:
  LibraryScope();
  ~LibraryScope();
  LibraryScope(const LibraryScope&) = delete;
  LibraryScope& operator=(const LibraryScope&) = delete;

 private:
  friend class PythonScope;
  py::gil_scoped_release free_;
  sigset_t before_;
  LibraryScope* outer_;
};
// Scope nested inside Working: unblocks signals and acquires the GIL.
class PythonScope {
 public:
  PythonScope();
  ~PythonScope();
  PythonScope(const PythonScope&) = delete;
  PythonScope& operator=(const PythonScope&) = delete;

 private:
  sigset_t before_;
  py::gil_scoped_acquire lock_;
};

py::object to_python(const nlohmann::json& value);
// InputError naming `what` if the value has no JSON form
nlohmann::json to_json(py::handle value, const std::string& what);
py::array to_array(const Tensor& tensor);  // a copy; bf16 becomes float32

// Returns a path as text, from str or os.PathLike.
std::string to_path(py::handle value);

// Returns a log that forwards messages to logging.getLogger("some").
Log python_log();
Host python_host(int threads);

// A Python callable (or None) that C++ code may hold and copy without the GIL.
class Callback {
 public:
  explicit Callback(py::object callable);
  explicit operator bool() const { return callable_ != nullptr; }
  // Acquires the GIL. An exception raised by the callable is stored in `interrupt`, which stops the work.
  void operator()(class Interrupt& interrupt, const nlohmann::json& argument) const;

 private:
  std::shared_ptr<py::object> callable_;
};

// Records Ctrl-C and exceptions of callbacks. asked() returns true if the work must stop; rethrow() raises the
// exception after the GIL has been reacquired. Signals are polled at most every 50 ms, and only Python's main thread
// receives them.
class Interrupt {
 public:
  bool asked();
  void keep(py::error_already_set& error);  // requires the GIL
  void rethrow();                           // requires the GIL

 private:
  std::chrono::steady_clock::time_point last_{};
  std::shared_ptr<py::object> type_, value_, trace_;  // of the stored exception
  bool raised_ = false;
};

// Runs library code without the GIL, and, if a mutex is given, one caller at a time. The GIL is released before the
// mutex is locked, so a thread that holds the mutex can always acquire the GIL (no deadlock).
template <typename Body>
decltype(auto) work(Body&& body) {
  const LibraryScope now;
  return body();
}
template <typename Body>
decltype(auto) work(std::recursive_mutex& held, Body&& body) {
  const LibraryScope now;
  const std::lock_guard lock(held);
  return body();
}
// The same for interruptible work: a stored exception is raised after the GIL has been reacquired.
template <typename... Work>
auto work(Interrupt& interrupt, Work&&... rest) {
  auto result = work(std::forward<Work>(rest)...);
  interrupt.rethrow();
  return result;
}

// Returns the hooks common to all training: messages go to Python's logging, and an interrupted run finishes and saves
// its step first, as with Ctrl-C in the program.
TrainHooks hooks_for(Interrupt& interrupt);
nlohmann::json to_json(const TrainProgress& progress);

void add_run(py::module_& module);
void add_trainer(py::module_& module);

}  // namespace some::python

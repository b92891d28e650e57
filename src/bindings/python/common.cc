#include "bindings/python/common.h"

#include <csignal>

#include "core/error.h"

namespace some::python {
namespace {

// Holds a Python object. The last reference acquires the GIL before it deletes the object.
std::shared_ptr<py::object> shared(py::object object) {
  return std::shared_ptr<py::object>(new py::object(std::move(object)), [](py::object* held) {
    const py::gil_scoped_acquire lock;
    delete held;
  });
}

// The innermost scope of this thread.
thread_local LibraryScope* working = nullptr;

}  // namespace

LibraryScope::LibraryScope() : outer_(working) {
  sigset_t held;
  sigfillset(&held);
  // Synchronous faults must not be blocked.
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&held, fault);
  pthread_sigmask(SIG_BLOCK, &held, &before_);
  working = this;
}

LibraryScope::~LibraryScope() {
  working = outer_;
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

PythonScope::PythonScope() { pthread_sigmask(SIG_SETMASK, working != nullptr ? &working->before_ : nullptr, &before_); }

PythonScope::~PythonScope() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

py::object to_python(const nlohmann::json& value) {
  using Kind = nlohmann::json::value_t;
  switch (value.type()) {
    case Kind::null:
    case Kind::discarded: return py::none();
    case Kind::boolean: return py::bool_(value.get<bool>());
    case Kind::number_integer: return py::int_(value.get<std::int64_t>());
    case Kind::number_unsigned: return py::int_(value.get<std::uint64_t>());
    case Kind::number_float: return py::float_(value.get<double>());
    case Kind::string: {
      // Generated text may be cut inside a character.
      const auto& text = value.get_ref<const std::string&>();
      PyObject* decoded = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
      if (decoded == nullptr) throw py::error_already_set();
      return py::reinterpret_steal<py::object>(decoded);
    }
    case Kind::array: {
      py::list list;
      for (const auto& item : value) list.append(to_python(item));
      return list;
    }
    case Kind::object: {
      py::dict dict;
      for (const auto& [key, item] : value.items()) dict[to_python(key)] = to_python(item);
      return dict;
    }
    case Kind::binary: break;
  }
  failed(Code::internal, "a value of a type that Python cannot represent");
}

nlohmann::json to_json(py::handle value, const std::string& what) {
  if (value.is_none()) return nullptr;
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
  if (py::isinstance<py::int_>(value)) return value.cast<std::int64_t>();
  if (py::isinstance<py::float_>(value)) return value.cast<double>();
  if (py::isinstance<py::str>(value)) return value.cast<std::string>();
  if (py::isinstance<py::dict>(value)) {
    nlohmann::json out = nlohmann::json::object();
    for (const auto& [key, item] : value.cast<py::dict>()) {
      const auto name = py::str(key).cast<std::string>();
      out[name] = to_json(item, what + "." + name);
    }
    return out;
  }
  if (py::hasattr(value, "__fspath__")) return to_path(value);
  if (py::hasattr(value, "tolist")) return to_json(value.attr("tolist")(), what);  // NumPy scalars and arrays
  if (py::isinstance<py::sequence>(value)) {
    nlohmann::json out = nlohmann::json::array();
    for (const py::handle item : value) out.push_back(to_json(item, what));
    return out;
  }
  bad_input(Code::setting_type, "{}: a value of Python's type {} cannot be a setting", what,
            py::str(py::type::of(value).attr("__name__")).cast<std::string>());
}

py::array to_array(const Tensor& tensor) {
  const Tensor here = tensor.dtype() == DType::bf16    ? tensor.to(DType::f32)
                      : tensor.device() == Device::cpu ? tensor
                                                       : tensor.to(Device::cpu);
  const std::vector<py::ssize_t> shape(here.shape().dims().begin(), here.shape().dims().end());
  switch (here.dtype()) {
    case DType::f32: return py::array_t<float>(shape, here.data<float>());
    case DType::f64: return py::array_t<double>(shape, here.data<double>());
    case DType::i32: return py::array_t<std::int32_t>(shape, here.data<std::int32_t>());
    case DType::i64: return py::array_t<std::int64_t>(shape, here.data<std::int64_t>());
    case DType::bf16: break;
  }
  failed(Code::type_unsupported, "a tensor of {} on its way to NumPy", name_of(here.dtype()));
}

std::string to_path(py::handle value) {
  return py::str(py::module_::import("os").attr("fspath")(value)).cast<std::string>();
}

Log python_log() {
  return Log([](const LogMessage& message) {
    const py::gil_scoped_acquire lock;
    try {
      py::module_::import("logging").attr("getLogger")("some").attr(
          message.level == LogLevel::warning ? "warning" : "info")("%s", message.text);
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("some: a message to logging");
    }
  });
}

Host python_host(int threads) { return make_host(threads, python_log()); }

Callback::Callback(py::object callable) {
  if (!callable.is_none()) callable_ = shared(std::move(callable));
}

void Callback::operator()(Interrupt& interrupt, const nlohmann::json& argument) const {
  const PythonScope pause;
  try {
    (*callable_)(to_python(argument));
  } catch (py::error_already_set& error) {
    interrupt.keep(error);
  }
}

bool Interrupt::asked() {
  if (raised_) return true;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < std::chrono::milliseconds(50)) return false;
  last_ = now;
  const PythonScope pause;
  if (PyErr_CheckSignals() != 0) {
    py::error_already_set error;
    keep(error);
  }
  return raised_;
}

void Interrupt::keep(py::error_already_set& error) {
  if (raised_) return;
  raised_ = true;
  type_ = shared(error.type());
  value_ = shared(error.value());
  trace_ = shared(error.trace());
}

void Interrupt::rethrow() {
  if (!raised_) return;
  raised_ = false;
  PyErr_Restore(type_->inc_ref().ptr(), value_->inc_ref().ptr(), trace_->inc_ref().ptr());
  throw py::error_already_set();
}

TrainHooks hooks_for(Interrupt& interrupt) {
  TrainHooks hooks;
  hooks.log = python_log();
  hooks.stop_signal = [&interrupt] { return interrupt.asked() ? SIGINT : 0; };
  return hooks;
}

nlohmann::json to_json(const TrainProgress& progress) {
  nlohmann::json out{{"step", progress.step},
                     {"total_steps", progress.total_steps},
                     {"epoch", progress.epoch},
                     {"epochs", progress.epochs},
                     {"loss", progress.loss},
                     {"lr", progress.lr},
                     {"gradient_norm", progress.grad_norm},
                     {"tokens_per_second", progress.tokens_per_second},
                     {"seconds_left", nullptr}};
  if (progress.seconds_left) out["seconds_left"] = *progress.seconds_left;
  if (progress.stages > 0) {
    out["stage"] = progress.stage;
    out["stages"] = progress.stages;
  }
  return out;
}

}  // namespace some::python

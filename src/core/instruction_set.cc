#include "core/instruction_set.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string_view>

#include "core/error.h"

#if defined(SOME_CPU_DISPATCH)
namespace some {
namespace {

std::string_view wanted_version() {
  const char* const text = std::getenv("SOME_CPU");
  return text == nullptr ? "" : text;
}

// The instructions of the level x86-64-v3. The operating system must save the wide registers too, which
// __builtin_cpu_supports checks.
bool has_v3() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("x86-64-v3") != 0;
}

bool uses_v3() { return has_v3() && wanted_version() != "x86-64"; }

}  // namespace

std::string instruction_set() {
  const std::string_view wanted = wanted_version();
  const bool runs = wanted.empty() || wanted == "x86-64" || (wanted == "x86-64-v3" && has_v3());
  if (!runs)
    bad_input(Code::option_invalid, "SOME_CPU = \"{}\": must be x86-64, or x86-64-v3 on a CPU with AVX2; unset it",
              wanted);
  return uses_v3() ? "x86-64-v3" : "x86-64";
}

}  // namespace some

// Called by the generated dispatch code of each library before any other static initialization: points every function
// at its x86-64-v3 version if the CPU has AVX2. Uses nothing that needs initialization itself.
extern "C" void some_choose_cpu_version(void** functions, void* const* v3, std::size_t count) {
  if (some::uses_v3()) std::copy_n(v3, count, functions);
}

#else
namespace some {

std::string instruction_set() { return "native"; }

}  // namespace some
#endif

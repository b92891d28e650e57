// Selects which of the compiled versions of the CPU code this process runs (cmake/cpu_dispatch.cmake).
#pragma once

#include <string>

namespace some {

// "x86-64-v3" (AVX2, FMA), "x86-64" (SSE2 only), or "native" if the build has one version only. Versions of sums may
// differ in rounding. bad_input if the environment variable SOME_CPU names a version that cannot run here.
std::string instruction_set();

}  // namespace some

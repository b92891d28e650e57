#include "exchange/python_files.h"

#include <cstddef>

#define SOME_EMBED(name)                                                                                  \
  __asm__(".section .rodata\n.global some_hf_" #name ", some_hf_" #name "_end\nsome_hf_" #name            \
          ":\n.incbin \"" SOME_HF_FILES "/" #name ".py\"\nsome_hf_" #name "_end:\n.byte 0\n.previous\n"); \
  extern "C" const char some_hf_##name[], some_hf_##name##_end[];

SOME_EMBED(configuration_some)
SOME_EMBED(library_some)
SOME_EMBED(modeling_some)
SOME_EMBED(tensors_some)

#define SOME_EMBEDDED(name)                                                                                         \
  PythonFile {                                                                                                      \
#name ".py", std::string_view(some_hf_##name, static_cast <std::size_t>(some_hf_##name##_end - some_hf_##name)) \
  }

namespace some {

const std::vector<PythonFile>& python_files() {
  static const std::vector<PythonFile> files = {SOME_EMBEDDED(configuration_some), SOME_EMBEDDED(library_some),
                                                SOME_EMBEDDED(modeling_some), SOME_EMBEDDED(tensors_some)};
  return files;
}

}  // namespace some

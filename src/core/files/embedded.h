// Files embedded into the program at build time by cmake/embed.cmake.
#pragma once

#include <string_view>

namespace some {

struct EmbeddedFile {
  std::string_view name, text;
};

}  // namespace some

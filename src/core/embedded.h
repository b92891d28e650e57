// Files that the program carries with it; cmake/embed.cmake puts them into it when it is built.
#pragma once

#include <string_view>

namespace some {

struct EmbeddedFile {
  std::string_view name, text;
};

}  // namespace some

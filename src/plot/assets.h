// What every page is made of besides its content; embedded when the program is built (cmake/web.cmake).
#pragma once

#include <string_view>

namespace some {

struct Assets {
  std::string_view style;
  std::string_view script;  // empty where the program was built with SOME_WEB=OFF
  std::string_view hash;    // SHA-256 of the script, base64: the only script a page's content policy lets run
};
Assets embedded_assets();

}  // namespace some

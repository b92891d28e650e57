// Style sheet and script shared by all pages, embedded at build time (cmake/web.cmake).
#pragma once

#include <string_view>

namespace some {

struct Assets {
  std::string_view style;
  std::string_view script;  // empty if the program was built with SOME_WEB=OFF
  std::string_view hash;  // base64 SHA-256 of the script, the only script that a page's content security policy allows
};
Assets embedded_assets();

}  // namespace some

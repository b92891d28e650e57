#include "plot/assets.h"

// The files are put into the program as they stand; cmake/web.cmake says where they are.
__asm__(
    ".section .rodata\n"
    ".global some_page_style, some_page_style_end, some_page_script, some_page_script_end\n"
    ".global some_page_hash, some_page_hash_end\n"
    "some_page_style:\n.incbin \"" SOME_PAGE_STYLE
    "\"\nsome_page_style_end:\n.byte 0\n"
    "some_page_script:\n.incbin \"" SOME_PAGE_SCRIPT
    "\"\nsome_page_script_end:\n.byte 0\n"
    "some_page_hash:\n.incbin \"" SOME_PAGE_HASH
    "\"\nsome_page_hash_end:\n.byte 0\n"
    ".previous\n");

extern "C" {
extern const char some_page_style[], some_page_style_end[], some_page_script[], some_page_script_end[],
    some_page_hash[], some_page_hash_end[];
}

namespace some {

Assets embedded_assets() {
  const auto between = [](const char* begin, const char* end) {
    return std::string_view(begin, static_cast<std::size_t>(end - begin));
  };
  return {between(some_page_style, some_page_style_end), between(some_page_script, some_page_script_end),
          between(some_page_hash, some_page_hash_end)};
}

}  // namespace some

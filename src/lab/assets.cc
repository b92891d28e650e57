#include "lab/assets.h"

// The two files are put into the program as they stand; cmake/web.cmake says where they are.
__asm__(
    ".section .rodata\n"
    ".global some_report_style, some_report_style_end, some_report_script, some_report_script_end\n"
    "some_report_style:\n.incbin \"" SOME_REPORT_STYLE
    "\"\nsome_report_style_end:\n.byte 0\n"
    "some_report_script:\n.incbin \"" SOME_REPORT_SCRIPT
    "\"\nsome_report_script_end:\n.byte 0\n"
    ".previous\n");

extern "C" {
extern const char some_report_style[], some_report_style_end[], some_report_script[], some_report_script_end[];
}

namespace some::lab {

std::string_view report_style() {
  return {some_report_style, static_cast<std::size_t>(some_report_style_end - some_report_style)};
}
std::string_view report_script() {
  return {some_report_script, static_cast<std::size_t>(some_report_script_end - some_report_script)};
}

}  // namespace some::lab

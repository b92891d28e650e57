// Which program this is.
#pragma once

#include <string>

namespace some {

std::string program_version();  // "some 0.2.0 (2026-11-15)": its version and the day of that version

}  // namespace some

// Returns the name and version of this program.
#pragma once

#include <string>

namespace some {

std::string program_version();  // "some 0.2.0 (2026-11-15)": version and release date

}  // namespace some

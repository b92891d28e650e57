// File tests that do not follow symbolic links.
#pragma once

#include <string>

namespace some {

bool is_own_file(const std::string& path);
bool is_own_folder(const std::string& path);

}  // namespace some

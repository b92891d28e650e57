// File tests that do not follow symbolic links.
#pragma once

#include <string>

namespace some {

bool is_file_not_link(const std::string& path);
bool is_folder_not_link(const std::string& path);

}  // namespace some

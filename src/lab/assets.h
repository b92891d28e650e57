// What a report's page is made of besides its content; embedded when the program is built (cmake/web.cmake).
#pragma once

#include <string_view>

#include "base/rooms.h"

namespace some::lab {

std::string_view report_style();
std::string_view report_script();  // empty where the program was built without node

}  // namespace some::lab

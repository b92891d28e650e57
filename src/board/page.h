// The one page of the board; its script asks for everything else.
#pragma once

#include <string>
#include <vector>

#include "plot/document.h"

namespace some {

std::string board_page(const std::vector<std::string>& folders, bool read_only);

}  // namespace some

// The board's single page; its script requests everything else.
#pragma once

#include <string>
#include <vector>

#include "plot/document.h"

namespace some {

std::string board_page(const std::vector<std::string>& folders, bool read_only, bool changes);

}  // namespace some

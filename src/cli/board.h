// Opening the board (browser view of runs) from commands.
#pragma once

#include <memory>
#include <string>

#include "board/board.h"

namespace some {

constexpr int default_port = 6060;

// Starts the board. If `any_port` is true and the port is in use, one of the following ports is tried.
std::unique_ptr<Board> open_board(BoardSettings settings, bool any_port);
void show_in_browser(const std::string& address);

}  // namespace some

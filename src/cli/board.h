// The board, for the commands that open one.
#pragma once

#include <memory>
#include <string>

#include "board/board.h"

namespace some {

constexpr int usual_port = 6060;

// `any_port`: where the port is taken, one of the next will do.
std::unique_ptr<Board> open_board(BoardSettings settings, bool any_port);
void show_in_browser(const std::string& address);

}  // namespace some

// The chat page; its script requests everything else (web/src/view/talk.js).
#pragma once

#include <string>

namespace some {

std::string chat_page(bool needs_key);

}  // namespace some

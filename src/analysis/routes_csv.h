// Writes the routing of every token as a CSV file, for other programs.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/assignments.h"

namespace some {

// Writes a header line, then one line per token, layer and choice: document, position, token_id, token, next_id, loss,
// layer, rank, expert, gate. Loss is that of the next token, in nats; next_id and loss are empty if nothing is
// predicted. Tokens are quoted, with quotes doubled; bytes that are not UTF-8 are replaced.
void write_routes(const Choices& choices, const std::vector<int>& layers, const Tokenizer& tokenizer,
                  const std::function<void(std::string_view)>& write);

}  // namespace some

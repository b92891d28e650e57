// Human-readable numbers.
#pragma once

#include <string>

namespace some {

std::string format_count(double value);    // 701.50 M
std::string format_bytes(double value);    // 2.6 GiB
std::string format_seconds(double value);  // 3m 05s

}  // namespace some

// Human-readable numbers.
#pragma once

#include <string>

namespace some {

std::string human_count(double value);    // 701.50 M
std::string human_bytes(double value);    // 2.6 GiB
std::string human_seconds(double value);  // 3m 05s

}  // namespace some

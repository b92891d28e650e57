// Reasons and remedies for system errors, for the end of a message.
#pragma once

#include <string>

namespace some {

// Returns, for example, "No space left on device; make room on that disk". `error` is an errno value.
std::string reason_of(int error);
std::string last_reason();  // for the current errno

}  // namespace some

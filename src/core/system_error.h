// Why the system refused something, and what can be done about it: the end of a message.
#pragma once

#include <string>

namespace some {

// "No space left on device; make room on that disk". `error` is an errno.
std::string reason_of(int error);
std::string last_reason();  // of errno as it is now

}  // namespace some

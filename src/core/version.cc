#include "core/version.h"

namespace some {

std::string program_version() { return "some " SOME_VERSION " (" SOME_VERSION_DATE ")"; }

}  // namespace some

#include "core/system_error.h"

#include <cerrno>
#include <cstring>

namespace some {
namespace {

const char* remedy(int error) {
  switch (error) {
    case ENOSPC: return "free some space on that disk";
    case EDQUOT: return "free some space, or request a larger quota";
    case EACCES:
    case EPERM: return "check its owner and permissions, and those of its parent folders";
    case EROFS: return "choose a writable folder";
    case EMFILE: return "raise the limit of this shell with 'ulimit -n'";
    case ENFILE: return "end other programs that have files open";
    case ENOMEM: return "end other programs, or raise the limit of this shell with 'ulimit -v'";
    case EIO: return "input/output error of the disk; check the system log, then try again";
    case ESTALE:
    case ENOTCONN:
    case ETIMEDOUT:
    case EHOSTDOWN:
    case EHOSTUNREACH: return "its network share is not available; mount it again";
    case ENODEV:
    case ENXIO: return "its disk is not mounted; mount it";
    case ELOOP: return "a symbolic link refers to itself; fix the link";
    case ENAMETOOLONG: return "choose a shorter name";
    case EFBIG: return "raise the limit of this shell with 'ulimit -f', or choose another disk";
    case EISDIR: return "a folder with this name exists";
    case ENOTDIR: return "part of this path is a file, not a folder";
    case EAGAIN: return "no more threads can be started; end other programs, or raise 'ulimit -u' or 'ulimit -v'";
    case EBUSY: return "another program is using it; try again";
    case ENOENT: return "check the path";
    default: return nullptr;
  }
}

}  // namespace

std::string reason_of(int error) {
  const char* const what_to_do = remedy(error);
  std::string text = std::strerror(error);
  if (what_to_do != nullptr) text += std::string("; ") + what_to_do;
  return text;
}

std::string last_reason() { return reason_of(errno); }

}  // namespace some

#include "board/file_tail.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

namespace some {
namespace {

constexpr std::size_t piece_bytes = 1 << 20, longest_line = 16 << 20, mark_bytes = 64;

struct Descriptor {
  int number = -1;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

bool same_times(const struct stat& a, const struct stat& b) {
  return a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

}  // namespace

bool is_own_file(const std::string& path) {
  struct stat now {};
  return ::lstat(path.c_str(), &now) == 0 && S_ISREG(now.st_mode);
}

bool is_own_folder(const std::string& path) {
  struct stat now {};
  return ::lstat(path.c_str(), &now) == 0 && S_ISDIR(now.st_mode);
}

bool FileTail::forget(const Use& use) {
  const bool had = known_ && offset_ > 0;
  known_ = false;
  offset_ = 0;
  mark_.clear();
  if (had) use.anew();
  return had;
}

bool FileTail::still_there(int file) const {
  std::string now(mark_.size(), '\0');
  const auto from = static_cast<off_t>(offset_ - mark_.size());
  return ::pread(file, now.data(), now.size(), from) == static_cast<ssize_t>(now.size()) && now == mark_;
}

bool FileTail::poll(const Use& use) {
  struct stat now {};
  if (::lstat(path_.c_str(), &now) != 0 || !S_ISREG(now.st_mode)) return forget(use);
  const bool same_file = known_ && now.st_ino == seen_.st_ino && now.st_dev == seen_.st_dev;
  if (same_file && now.st_size == seen_.st_size && same_times(now, seen_)) return false;
  const Descriptor file{::open(path_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
  if (file.number < 0 || ::fstat(file.number, &now) != 0 || !S_ISREG(now.st_mode)) return forget(use);
  bool told = false;
  const bool goes_on = known_ && now.st_ino == seen_.st_ino && now.st_dev == seen_.st_dev &&
                       static_cast<std::uint64_t>(now.st_size) >= offset_ && still_there(file.number);
  if (!goes_on) told = forget(use);
  seen_ = now;
  known_ = true;
  std::string carry;
  bool too_long = false;
  const auto size = static_cast<std::uint64_t>(now.st_size);
  std::string piece(std::min<std::uint64_t>(piece_bytes, size - std::min(size, offset_)), '\0');
  for (std::uint64_t place = offset_; place < size;) {
    const ssize_t got = ::pread(file.number, piece.data(), piece.size(), static_cast<off_t>(place));
    if (got <= 0) break;
    std::string_view rest(piece.data(), static_cast<std::size_t>(got));
    place += static_cast<std::uint64_t>(got);
    for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      std::string_view line = rest.substr(0, end);
      const std::size_t length = carry.size() + line.size() + 1;
      if (!carry.empty()) {
        carry.append(line);
        line = carry;
      }
      if (!too_long) {
        use.line(line, offset_);
        told = true;
        offset_ += length;
      } else {
        offset_ = place - (rest.size() - end - 1);
      }
      carry.clear();
      too_long = false;
      rest.remove_prefix(end + 1);
    }
    if (!too_long) carry.append(rest);
    if (carry.size() > longest_line) {  // nothing that this program writes; passed over to its end
      too_long = true;
      carry.clear();
    }
  }
  mark_.resize(std::min<std::uint64_t>(offset_, mark_bytes));
  if (::pread(file.number, mark_.data(), mark_.size(), static_cast<off_t>(offset_ - mark_.size())) !=
      static_cast<ssize_t>(mark_.size()))
    known_ = false;  // it changed meanwhile: looked at again
  return told;
}

}  // namespace some

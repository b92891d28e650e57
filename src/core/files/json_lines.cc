#include "core/files/json_lines.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/system_error.h"

namespace some {
namespace {

constexpr std::size_t piece_bytes = 1 << 20, max_line_bytes = 16 << 20, mark_bytes = 64;

struct Descriptor {
  int number = -1;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

bool same_times(const struct stat& a, const struct stat& b) {
  return a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

struct LinesEnd {
  std::uint64_t offset = 0;  // after the last whole line
  std::string unfinished;    // the incomplete line after it
  int error = 0;             // errno, if reading failed
};

// Passes the complete lines between two offsets to `use`.
LinesEnd read_lines(int file, std::uint64_t from, std::uint64_t to,
                    const std::function<void(std::string_view line, std::uint64_t offset)>& use) {
  LinesEnd end{from, "", 0};
  std::string& carry = end.unfinished;
  bool too_long = false;
  std::string piece(std::min<std::uint64_t>(piece_bytes, to - std::min(to, from)), '\0');
  for (std::uint64_t place = from; place < to;) {
    const ssize_t got =
        ::pread(file, piece.data(), std::min<std::uint64_t>(piece.size(), to - place), static_cast<off_t>(place));
    if (got < 0) end.error = errno;
    if (got <= 0) break;
    std::string_view rest(piece.data(), static_cast<std::size_t>(got));
    place += static_cast<std::uint64_t>(got);
    for (std::size_t stop = rest.find('\n'); stop != std::string_view::npos; stop = rest.find('\n')) {
      std::string_view line = rest.substr(0, stop);
      const std::size_t length = carry.size() + line.size() + 1;
      if (!carry.empty()) {
        carry.append(line);
        line = carry;
      }
      if (!too_long) {
        use(line, end.offset);
        end.offset += length;
      } else {
        end.offset = place - (rest.size() - stop - 1);
      }
      carry.clear();
      too_long = false;
      rest.remove_prefix(stop + 1);
    }
    if (!too_long) carry.append(rest);
    if (carry.size() > max_line_bytes) {  // longer than any line this program writes: skip to its end
      too_long = true;
      carry.clear();
    }
  }
  return end;
}

}  // namespace

bool JsonLines::forget(const Use& use) {
  const bool had = known_ && offset_ > 0;
  known_ = false;
  offset_ = 0;
  mark_.clear();
  if (had) use.restart();
  return had;
}

bool JsonLines::tail_unchanged(int file) const {
  std::string now(mark_.size(), '\0');
  const auto from = static_cast<off_t>(offset_ - mark_.size());
  return ::pread(file, now.data(), now.size(), from) == static_cast<ssize_t>(now.size()) && now == mark_;
}

bool JsonLines::poll(const Use& use) {
  struct stat now {};
  if (::lstat(path_.c_str(), &now) != 0 || !S_ISREG(now.st_mode)) return forget(use);
  const bool same_file = known_ && now.st_ino == seen_.st_ino && now.st_dev == seen_.st_dev;
  if (same_file && now.st_size == seen_.st_size && same_times(now, seen_)) return false;
  const Descriptor file{::open(path_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
  if (file.number < 0 || ::fstat(file.number, &now) != 0 || !S_ISREG(now.st_mode)) return forget(use);
  bool told = false;
  const bool goes_on = known_ && now.st_ino == seen_.st_ino && now.st_dev == seen_.st_dev &&
                       static_cast<std::uint64_t>(now.st_size) >= offset_ && tail_unchanged(file.number);
  if (!goes_on) told = forget(use);
  seen_ = now;
  known_ = true;
  offset_ = read_lines(file.number, offset_, static_cast<std::uint64_t>(now.st_size),
                       [&](std::string_view line, std::uint64_t offset) {
                         use.line(line, offset);
                         told = true;
                       })
                .offset;
  mark_.resize(std::min<std::uint64_t>(offset_, mark_bytes));
  if (::pread(file.number, mark_.data(), mark_.size(), static_cast<off_t>(offset_ - mark_.size())) !=
      static_cast<ssize_t>(mark_.size()))
    known_ = false;  // the file changed meanwhile: the next poll reads it again
  return told;
}

void for_each_json_line(const std::string& path, const std::function<void(const JsonObject& line)>& use,
                        const std::function<void(const Error& error)>& damaged) {
  if (!exists_path(path)) return;
  const InputFile file(path);
  int number = 0;
  const auto one = [&](std::string_view line) {
    const std::string origin = fmt::format("{}:{}", path, ++number);
    try {
      // nlohmann::json treats a zero byte as the end of the text.
      if (line.find('\0') != std::string_view::npos)
        bad_input(Code::json_syntax, "{}: not JSON: contains a zero byte", origin);
      use(JsonObject(parse_json(line, origin), origin));
    } catch (const Error& error) {
      if (error.fault() != Fault::input) throw;
      if (damaged) damaged(error);
    }
  };
  const LinesEnd end =
      read_lines(file.descriptor(), 0, file.size(), [&](std::string_view line, std::uint64_t) { one(line); });
  if (end.error != 0) failed(Code::file_unreadable, "cannot read {}: {}", path, reason_of(end.error));
  if (!end.unfinished.empty()) one(end.unfinished);
}

}  // namespace some

#include "core/files/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/escape.h"
#include "core/system_error.h"

namespace some {
namespace {

constexpr std::size_t buffer_size = std::size_t{1} << 20;

class FileDescriptor {
 public:
  explicit FileDescriptor(int number) : number_(number) {}
  ~FileDescriptor() {
    if (number_ >= 0) ::close(number_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int number() const { return number_; }
  int close() { return ::close(std::exchange(number_, -1)); }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

void write_all(int file, const char* data, std::size_t size, const std::string& path) {
  while (size > 0) {
    const ssize_t written = ::write(file, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) failed(Code::file_unwritable, "cannot write {}: {}", path, last_reason());
    data += written;
    size -= static_cast<std::size_t>(written);
  }
}

// Returns the code for a file that could not be opened, according to errno.
Code unreadable() { return errno == ENOENT || errno == ENOTDIR ? Code::file_not_found : Code::file_unreadable; }

const char* kind_of(const struct stat& status) {
  return S_ISFIFO(status.st_mode) ? "a pipe" : S_ISSOCK(status.st_mode) ? "a socket" : "a device";
}

std::string folder_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// Creates an empty file in the same directory as `path` and keeps it locked while it is open, because the cleanup
// (core/files/folders.h) removes temporary files that nobody has locked. Between creation and locking the file may be
// removed, or it may belong to a process with the same id in another container; then the next name is tried. On file
// systems without locks nothing is cleaned up.
int make_temporary(const std::string& path, std::string& name) {
  // Unique within the process, as temporary names are: two writers of one path must not share a temporary file.
  static std::atomic<std::uint64_t> counter{0};
  for (;;) {
    name = fmt::format("{}.tmp-{}-{}", path, ::getpid(), counter++);
    FileDescriptor file(::open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    if (file.number() < 0) failed(Code::file_unwritable, "cannot write {}: {}", path, last_reason());
    if (::flock(file.number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) continue;
    struct stat status {};
    const bool known = ::fstat(file.number(), &status) == 0;
    if (known && status.st_nlink == 0) continue;
    if ((!known || status.st_size > 0) && ::ftruncate(file.number(), 0) != 0)
      failed(Code::file_unwritable, "cannot write {}: {}", path, last_reason());
    return file.release();
  }
}

// Removes the unfinished file at scope exit, unless it was renamed first.
struct Unfinished {
  std::string path;
  ~Unfinished() {
    if (!path.empty()) ::unlink(path.c_str());
  }
};

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path) {
  struct stat status {};
  const auto check = [&](int result) {
    if (result != 0) bad_input(unreadable(), "cannot read {}: {}", path, last_reason());
    if (S_ISREG(status.st_mode)) return;
    if (S_ISDIR(status.st_mode)) bad_input(Code::file_not_regular, "cannot read {}: it is a folder, not a file", path);
    bad_input(Code::file_not_regular, "cannot read {}: it is {}, not a file; write its output to a file first", path,
              kind_of(status));
  };
  check(::stat(path.c_str(), &status));  // checked before opening, since opening a device may already have effects
  // O_NONBLOCK: if the path has become a pipe meanwhile, opening it must not wait for a writer.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number() < 0) bad_input(unreadable(), "cannot read {}: {}", path, last_reason());
  check(::fstat(file.number(), &status));
  size_ = static_cast<std::uint64_t>(std::max<off_t>(status.st_size, 0));
  descriptor_ = file.release();
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

std::size_t InputFile::read(void* to, std::size_t size) {
  for (;;) {
    const ssize_t got = ::read(descriptor_, to, size);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) bad_input(Code::file_unreadable, "cannot read {}: {}", path_, last_reason());
  }
}

void InputFile::read_at(std::uint64_t position, void* to, std::size_t size) const {
  char* bytes = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = ::pread(descriptor_, bytes, size, static_cast<off_t>(position));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) bad_input(Code::file_unreadable, "cannot read {}: {}", path_, last_reason());
    if (got == 0) bad_input(Code::file_changed, "cannot read {}: it was truncated while it was read", path_);
    bytes += got;
    position += static_cast<std::uint64_t>(got);
    size -= static_cast<std::size_t>(got);
  }
}

std::string read_file(const std::string& path, std::size_t most) {
  InputFile file(path);
  const auto too_large = [&](std::uint64_t size) {
    bad_input(Code::file_too_large, "cannot read {}: it has at least {} bytes, more than the limit of {}", path, size,
              most);
  };
  if (file.size() > most) too_large(file.size());
  std::string contents(static_cast<std::size_t>(file.size()), '\0');
  std::size_t filled = 0;
  // Files in /proc report size 0, and files may grow: read until the end.
  for (;;) {
    if (filled == contents.size()) contents.resize(contents.size() + (filled == 0 ? 4096 : 1 + filled / 4));
    const std::size_t got = file.read(contents.data() + filled, contents.size() - filled);
    if (got == 0) break;
    filled += got;
    if (filled > most) too_large(filled);
  }
  contents.resize(filled);
  return contents;
}

void write_file_atomic(const std::string& path, std::string_view contents) {
  write_file_atomic(path, [&](const ByteSink& sink) { sink(contents.data(), contents.size()); });
}

void write_file_atomic(const std::string& path, const std::function<void(const ByteSink&)>& produce) {
  struct stat status {};
  const bool there = ::stat(path.c_str(), &status) == 0;
  // A rename would replace the pipe or device by a regular file.
  if (there && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
    bad_input(Code::file_not_regular, "cannot write {}: it is {}, not a file", path, kind_of(status));
  std::string temporary;
  FileDescriptor file(make_temporary(path, temporary));
  Unfinished unfinished{temporary};
  // Permissions are copied before the first byte is written, so that a private file stays private. On a file system
  // without permissions the call fails, which is harmless.
  if (there && S_ISREG(status.st_mode)) static_cast<void>(::fchmod(file.number(), status.st_mode & 0777));

  std::vector<char> buffer;
  buffer.reserve(buffer_size);
  produce([&](const void* data, std::size_t size) {
    const char* bytes = static_cast<const char*>(data);
    if (buffer.size() + size > buffer_size) {
      write_all(file.number(), buffer.data(), buffer.size(), path);
      buffer.clear();
    }
    if (size >= buffer_size) {
      write_all(file.number(), bytes, size, path);
    } else {
      buffer.insert(buffer.end(), bytes, bytes + size);
    }
  });
  write_all(file.number(), buffer.data(), buffer.size(), path);

  if (::fsync(file.number()) != 0) failed(Code::file_unwritable, "cannot write {}: {}", path, last_reason());
  if (::rename(temporary.c_str(), path.c_str()) != 0)
    failed(Code::file_unwritable, "cannot write {}: {}", path, last_reason());
  unfinished.path.clear();
  if (file.close() != 0) failed(Code::file_unwritable, "cannot write {}: {}", path, last_reason());
  flush_folder(folder_of(path));
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 200 && name.front() != '.' && name.find('/') == std::string_view::npos &&
         escaped(name) == name;
}

MappedFile map_file(const std::string& path) {
  const InputFile file(path);
  const auto size = static_cast<std::size_t>(file.size());
  if (size == 0) return {nullptr, "", 0};  // an empty file cannot be mapped
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (data == MAP_FAILED) failed(Code::file_unreadable, "cannot map {}: {}", path, last_reason());
  return {std::shared_ptr<const void>(data, [size](const void* memory) { ::munmap(const_cast<void*>(memory), size); }),
          static_cast<const char*>(data), size};
}

void append_bytes(const std::string& path, std::string_view bytes) {
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (file.number() < 0) failed(Code::file_unwritable, "cannot write {}: {}", path, last_reason());
  // Writes directly, without a buffer, so that a killed program loses no line. Does not flush every line to disk, which
  // would take more time than a lost line is worth.
  write_all(file.number(), bytes.data(), bytes.size(), path);
}

void append_line(const std::string& path, std::string_view line) {
  std::string text(line);
  text.push_back('\n');
  append_bytes(path, text);
}

void flush_file(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number() < 0 || ::fsync(file.number()) != 0)
    failed(Code::file_unwritable, "cannot flush {}: {}", path, last_reason());
}

void flush_folder(const std::string& path) {
  const FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.number() < 0) failed(Code::folder_unwritable, "cannot open the folder {}: {}", path, last_reason());
  // Some file systems cannot flush a folder and return EINVAL; on them a rename cannot be made more durable.
  if (::fsync(folder.number()) != 0 && errno != EINVAL)
    failed(Code::folder_unwritable, "cannot flush the folder {}: {}", path, last_reason());
}

std::uint64_t hash_bytes(const void* data, std::size_t size, std::uint64_t seed) { return XXH64(data, size, seed); }

std::uint64_t checksum_of(const void* data, std::size_t size) { return XXH3_64bits(data, size); }

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

}  // namespace some

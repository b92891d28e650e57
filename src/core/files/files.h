// Files: whole reads, and writes that either happen completely or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace some {

// Default size limit for files that are read at once (recipes, tokenizers, metrics). Such files are far smaller.
constexpr std::size_t largest_text = std::size_t{1} << 30;
// Returns the contents of a file. bad_input if it cannot be read, has more than `most` bytes, or is not a regular file:
// a read from a pipe may block forever, and a device may never end.
std::string read_file(const std::string& path, std::size_t most = largest_text);
// A file that is read sequentially or at any position, with the same checks as read_file.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  std::uint64_t size() const { return size_; }   // when it was opened
  std::size_t read(void* to, std::size_t size);  // reads at most `size` bytes; 0 at the end
  // Reads exactly `size` bytes from `position`; bad_input if the file ends earlier.
  void read_at(std::uint64_t position, void* to, std::size_t size) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};
// Writes a file atomically: temporary name in the same folder, flush, rename, flush of the folder. A replaced file
// passes its permissions on to the new one.
void write_file_atomic(const std::string& path, std::string_view contents);
// The same for contents produced in pieces: `produce` receives a function that appends bytes.
using ByteSink = std::function<void(const void*, std::size_t)>;
void write_file_atomic(const std::string& path, const std::function<void(const ByteSink&)>& produce);
// True if `name` is safe as a file name inside any folder (a name that was read from a recipe, series or run): no
// slash, no leading dot, no characters that act on a terminal.
bool is_plain_name(std::string_view name);
// A read-only memory mapping of a file. Replacing the file by renaming does not change the mapping.
struct MappedFile {
  std::shared_ptr<const void> owner;
  const char* data = nullptr;
  std::size_t size = 0;
};
MappedFile map_file(const std::string& path);                        // bad_input if the file cannot be read
void append_bytes(const std::string& path, std::string_view bytes);  // in one write, unbuffered
void append_line(const std::string& path, std::string_view line);    // appends line + '\n' in one unbuffered write
void flush_file(const std::string& path);                            // makes appended bytes durable
void flush_folder(const std::string& path);                          // makes renames in it durable
std::uint64_t hash_bytes(const void* data, std::size_t size, std::uint64_t seed = 0);  // xxHash64
std::uint64_t checksum_of(const void* data, std::size_t size);  // XXH3, which is cheap compared with reading the bytes
std::string hex(std::uint64_t value);                           // 16 digits

}  // namespace some

// Files: whole reads and writes that either happen completely or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace some {

// Whole files that are meant to be read at once (recipes, tokenizers, metrics) are far smaller than this.
constexpr std::size_t largest_text = std::size_t{1} << 30;
// bad_input when it cannot be read, is larger than `most` bytes, or is no file: a pipe may never say anything and a
// device may never end.
std::string read_file(const std::string& path, std::size_t most = largest_text);
// A file read from its beginning to its end, or at any place of it; the same rules.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  std::uint64_t size() const { return size_; }   // as it was opened
  std::size_t read(void* to, std::size_t size);  // at most so many; 0 at the end
  // Exactly so many bytes from `position`; bad_input when the file ends before.
  void read_at(std::uint64_t position, void* to, std::size_t size) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};
// Temporary name in the same folder, flush, rename, flush of the folder. A file that is replaced leaves its
// permissions.
void write_file_atomic(const std::string& path, std::string_view contents);
// The same for content produced piece by piece: `produce` is given a function that appends bytes.
using ByteSink = std::function<void(const void*, std::size_t)>;
void write_file_atomic(const std::string& path, const std::function<void(const ByteSink&)>& produce);
// Whether a name from a file (of a recipe, a series, a run) names something inside a folder, whatever the folder: no
// slash, no dot at its beginning, nothing that acts on a terminal.
bool is_plain_name(std::string_view name);
// A file seen as memory, for reading. Replacing the file (by renaming over it) leaves the mapping as it was.
struct MappedFile {
  std::shared_ptr<const void> owner;
  const char* data = nullptr;
  std::size_t size = 0;
};
MappedFile map_file(const std::string& path);                        // bad_input when it cannot be read
void append_bytes(const std::string& path, std::string_view bytes);  // in one write, unbuffered
void append_line(const std::string& path, std::string_view line);    // line + '\n', likewise
void flush_file(const std::string& path);                            // what was appended is on disk
void flush_folder(const std::string& path);                          // makes renames in it durable
std::uint64_t hash_bytes(const void* data, std::size_t size, std::uint64_t seed = 0);  // xxHash64
std::uint64_t checksum_of(const void* data, std::size_t size);  // XXH3, which costs little beside reading the bytes
std::string hex(std::uint64_t value);                           // 16 digits

}  // namespace some

// Files: whole reads and writes that either happen completely or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace some {

std::string read_file(const std::string& path);  // bad_input when it cannot be read
// Temporary name in the same folder, flush, rename, flush of the folder.
void write_file_atomic(const std::string& path, std::string_view contents);
// The same for content produced piece by piece: `produce` is given a function that appends bytes.
using ByteSink = std::function<void(const void*, std::size_t)>;
void write_file_atomic(const std::string& path, const std::function<void(const ByteSink&)>& produce);
// A file seen as memory, for reading. A file that is written anew (renamed over) leaves the mapping as it was.
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
std::string hex(std::uint64_t value);                                                  // 16 digits

}  // namespace some

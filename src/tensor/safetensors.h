// The safetensors format: 8 bytes of header length, a JSON header, then the bytes of the tensors. Implemented here
// because no C++ package provides it; the files can be read by other safetensors tools. Reading checks all sizes,
// offsets and overlaps.
//
// Files written here contain checksums (XXH3, 64 bits) in their metadata, which other readers ignore. `checksum` covers
// the header, with its own digits replaced by zeros, and is at the very beginning; `checksums` has one checksum per
// tensor, in the order of the data. So any flipped bit is found, and attributed to its tensor.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/files.h"
#include "tensor/tensor.h"

namespace some {

class SafetensorsFile {
 public:
  // Reads the header; throws bad_input naming the file and the problem if anything about it is wrong.
  static SafetensorsFile open(const std::string& path);

  // False for files of other programs and of older versions.
  bool has_checksums() const { return has_checksums_; }
  // Returns the metadata without the checksums.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& require_metadata(const std::string& key) const;  // bad_input if the key is missing
  bool has(const std::string& name) const { return entries_.count(name) != 0; }
  std::vector<std::string> names() const;
  // Gives tensors other names, for files whose names have changed since they were written (core/old_names.h). A tensor
  // keeps its name if the new one is already there.
  void rename(std::string (*current)(std::string_view name));
  Shape shape(const std::string& name) const;
  DType dtype(const std::string& name) const;   // the type that `load` returns
  bool is_half(const std::string& name) const;  // stored as F16
  // Copies a tensor into CPU memory, as stored (F64, F32, BF16, I64, I32; F16 becomes f32, which represents all its
  // values). bad_input if the name is not found or the bytes do not match their checksum.
  Tensor load(const std::string& name) const;
  // The same without a copy if possible: the tensor is a read-only mapping of the file, whose memory is shared with
  // other processes that map the file. Writing to it crashes the program, and so does reading after the file was
  // truncated. Therefore only files that are written once and replaced by renaming may be mapped.
  Tensor map(const std::string& name) const;
  const std::string& path() const { return path_; }
  // Returns a hash of the names and bytes of all tensors, from the checksums in the header; empty without checksums.
  // It is the content_digest() of the tensors that were written.
  const std::string& content_digest() const { return content_digest_; }

 private:
  struct Entry {
    DType type;
    bool half = false;  // stored as F16
    Shape shape;
    std::size_t begin, end;
    std::string checksum;  // empty: none
  };
  void read_checksums(std::string_view header);
  void compare_checksum(const std::string& name, const Entry& entry, const void* bytes) const;
  std::string path_;
  std::shared_ptr<const InputFile> file_;
  std::uint64_t data_ = 0;  // offset of the tensor data
  bool has_checksums_ = false;
  std::string content_digest_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, Entry> entries_;
};

// Returns a hash of the names and bytes of tensors, in any order. They must be on the CPU.
std::string content_digest(const std::vector<std::pair<std::string, Tensor>>& tensors);

// Writes `path` atomically (temporary name, flush, rename, flush of the folder). Tensors may be on any device.
void write_safetensors(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace some

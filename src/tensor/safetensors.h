// The safetensors format: 8 bytes of header length, a JSON header, then the tensors' bytes. Written here because there
// is no C++ package for it; readable by everyone's tools. All sizes, offsets and overlaps are checked on reading.
//
// Files written here carry checksums (XXH3, 64 bits) among the metadata, where other readers pass over them:
// `checksum` is that of the header with this number's own digits as zeros, and stands at its very beginning;
// `checksums` has one for each tensor, in the order of their bytes. So a flipped bit anywhere is found, and in a tensor
// is put down to that tensor.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/files.h"
#include "tensor/tensor.h"

namespace some {

class SafetensorsFile {
 public:
  // Reads the header; throws bad_input naming the file and the damage when anything about it is wrong.
  static SafetensorsFile open(const std::string& path);

  // Files of other programs and of older versions have none.
  bool has_checksums() const { return has_checksums_; }
  // Without the checksums.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& need_metadata(const std::string& key) const;  // bad_input when there is none
  bool has(const std::string& name) const { return entries_.count(name) != 0; }
  std::vector<std::string> names() const;
  // Gives tensors other names, for files whose names have changed since they were written (core/old_names.h). A tensor
  // keeps its name if the new one is already there.
  void rename(std::string (*current)(std::string_view name));
  Shape shape(const std::string& name) const;
  DType dtype(const std::string& name) const;   // that `load` gives
  bool is_half(const std::string& name) const;  // stored as F16
  // A copy in CPU memory, as stored (F64, F32, BF16, I64, I32; F16 becomes f32, which holds all its numbers); throws
  // bad_input when the name is absent or the bytes are not those that were written.
  Tensor load(const std::string& name) const;
  // The same without a copy where that can be: the tensor lies in the file, mapped for reading, and whoever else maps
  // the file shares the memory. Writing to it ends the program; so does reading it when the file was cut off meanwhile,
  // which is why only files that are written once and replaced by renaming are mapped.
  Tensor map(const std::string& name) const;
  const std::string& path() const { return path_; }

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
  std::uint64_t data_ = 0;  // where the tensors begin
  bool has_checksums_ = false;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, Entry> entries_;
};

// Writes to `path` atomically (temporary name, flush, rename, folder flush). Tensors may lie on any device.
void write_safetensors(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace some

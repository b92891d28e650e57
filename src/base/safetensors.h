// The safetensors format: 8 bytes of header length, a JSON header, then the tensors' bytes. Written here because there
// is no C++ package for it; readable by everyone's tools. All sizes, offsets and overlaps are checked on reading.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/tensor.h"

namespace some {

class SafetensorsFile {
 public:
  // Maps the file; throws bad_input naming the file and the damage when anything about it is wrong.
  static SafetensorsFile open(const std::string& path);

  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool has(const std::string& name) const { return entries_.count(name) != 0; }
  std::vector<std::string> names() const;
  Shape shape(const std::string& name) const;
  DType dtype(const std::string& name) const;
  // A copy in CPU memory, as stored (F64, F32, BF16, I64, I32); throws bad_input when the name is absent.
  Tensor load(const std::string& name) const;
  const std::string& path() const { return path_; }

 private:
  struct Entry {
    DType type;
    Shape shape;
    std::size_t begin, end;
  };
  std::string path_;
  std::shared_ptr<const void> mapping_;
  const char* data_ = nullptr;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, Entry> entries_;
};

// Writes to `path` atomically (temporary name, flush, rename, folder flush). Tensors may lie on any device.
void write_safetensors(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace some

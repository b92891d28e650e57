#include "kernel_parameters.h"

#include <elf.h>

#include <cstdint>
#include <cstring>

namespace fake_cuda {
namespace {

// Format written by nvcc: a wrapper that points to a header, followed by entries of one kind each.
struct Wrapper {
  std::int32_t magic, version;
  const char* data;
};
struct Header {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t bytes;
};
struct Entry {
  std::uint16_t kind, version;
  std::uint32_t header_bytes;
  std::uint64_t bytes;
};
constexpr std::int32_t kWrapperMagic = 0x466243b1;
constexpr std::uint32_t kHeaderMagic = 0xba55ed50;
constexpr std::uint16_t kElf = 2;

template <typename T>
T read(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// A section .nv.info.KERNEL is a list of attributes: one byte of format, one of kind, and two of value or, in the sized
// format, of the length of the data that follows. A parameter is described by its index and, in the upper 14 bits of
// the last word, its size.
constexpr unsigned char kSized = 4, kParameter = 0x17;
void read_attributes(const char* at, const char* end, std::vector<std::size_t>& sizes) {
  while (at + 4 <= end) {
    const auto format = static_cast<unsigned char>(at[0]), kind = static_cast<unsigned char>(at[1]);
    const auto value = read<std::uint16_t>(at + 2);
    at += 4;
    if (format != kSized) continue;
    if (kind == kParameter && value == 12 && at + value <= end) {
      const auto number = read<std::uint16_t>(at + 4);
      if (sizes.size() <= number) sizes.resize(std::size_t{number} + 1);
      sizes[number] = read<std::uint32_t>(at + 8) >> 18;
    }
    at += value;
  }
}

void read_elf(const char* elf, std::size_t bytes, std::map<std::string, std::vector<std::size_t>>& sizes) {
  if (bytes < sizeof(Elf64_Ehdr) || std::memcmp(elf, ELFMAG, SELFMAG) != 0) return;
  const auto header = read<Elf64_Ehdr>(elf);
  const auto section = [&](std::size_t index) {
    return read<Elf64_Shdr>(elf + header.e_shoff + index * sizeof(Elf64_Shdr));
  };
  if (header.e_shoff + header.e_shnum * sizeof(Elf64_Shdr) > bytes || header.e_shstrndx >= header.e_shnum) return;
  const char* const names = elf + section(header.e_shstrndx).sh_offset;
  const std::string prefix = ".nv.info.";
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr one = section(i);
    const std::string name = names + one.sh_name;
    if (name.compare(0, prefix.size(), prefix) != 0 || one.sh_offset + one.sh_size > bytes) continue;
    read_attributes(elf + one.sh_offset, elf + one.sh_offset + one.sh_size, sizes[name.substr(prefix.size())]);
  }
}

}  // namespace

void read_kernel_parameters(const void* fat_binary, std::map<std::string, std::vector<std::size_t>>& sizes) {
  const auto wrapper = read<Wrapper>(static_cast<const char*>(fat_binary));
  if (wrapper.magic != kWrapperMagic) return;
  const auto header = read<Header>(wrapper.data);
  if (header.magic != kHeaderMagic) return;
  const char* at = wrapper.data + header.header_bytes;
  const char* const end = at + header.bytes;
  while (at + sizeof(Entry) <= end) {
    const auto entry = read<Entry>(at);
    if (entry.header_bytes < sizeof(Entry)) return;
    if (entry.kind == kElf) read_elf(at + entry.header_bytes, entry.bytes, sizes);
    at += entry.header_bytes + entry.bytes;
  }
}

}  // namespace fake_cuda

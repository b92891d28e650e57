#include "compress/compressed_file.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/files/files.h"

namespace some {

namespace {

constexpr std::string_view magic = "\x89SoMEz\r\n";
constexpr unsigned char version = 1;
constexpr std::size_t longest_name = 1000;

class Writer {
 public:
  void number(std::uint64_t value) {  // LEB128
    for (; value >= 128; value >>= 7) bytes_.push_back(static_cast<char>((value & 127) | 128));
    bytes_.push_back(static_cast<char>(value));
  }
  void fixed(std::uint64_t value) {
    for (int i = 0; i < 8; ++i, value >>= 8) bytes_.push_back(static_cast<char>(value & 255));
  }
  void name(std::string_view text) {
    number(text.size());
    bytes_.append(text);
  }
  std::string& bytes() { return bytes_; }

 private:
  std::string bytes_;
};

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}
  [[noreturn]] void damaged(const char* what) const {
    bad_input(Code::compressed_invalid, "{}: {}: the file is damaged or incomplete; use another copy of it", where_,
              what);
  }
  unsigned char byte() {
    if (at_ == bytes_.size()) damaged("it ends within its header");
    return static_cast<unsigned char>(bytes_[at_++]);
  }
  std::uint64_t number(std::uint64_t most) {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 63; shift += 7) {
      const unsigned char next = byte();
      value |= std::uint64_t{next & 127u} << shift;
      if (next < 128) {
        if (value > most) damaged("a number in its header is too large");
        return value;
      }
    }
    damaged("a number in its header is too long");
  }
  std::uint64_t fixed() {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value |= std::uint64_t{byte()} << 8 * i;
    return value;
  }
  std::string name() {
    const std::uint64_t size = number(longest_name);
    if (size > bytes_.size() - at_) damaged("it ends within its header");
    const std::string_view text = bytes_.substr(at_, size);
    at_ += size;
    return std::string(text);
  }
  std::size_t at() const { return at_; }
  void skip(std::size_t bytes) { at_ += bytes; }

 private:
  std::string_view bytes_;
  const std::string& where_;
  std::size_t at_ = 0;
};

}  // namespace

const char* name_of(CompressionMode mode) {
  switch (mode) {
    case CompressionMode::stored: return "stored";
    case CompressionMode::portable: return "portable";
    case CompressionMode::model: return "model";
  }
  return "";
}

std::string write_compressed(const CompressedHeader& header, std::string_view payload) {
  Writer out;
  out.bytes() = magic;
  out.bytes().push_back(static_cast<char>(version));
  out.bytes().push_back(static_cast<char>(header.mode));
  out.number(header.length);
  out.fixed(header.checksum);
  if (header.mode != CompressionMode::stored) {
    out.number(header.parts.size() - 1);
    for (std::size_t i = 1; i + 1 < header.parts.size(); ++i) out.number(header.parts[i] - header.parts[i - 1]);
  }
  if (header.mode == CompressionMode::model) {
    out.name(header.model);
    out.name(header.arithmetic);
    out.fixed(header.probe);
  }
  out.number(payload.size());
  out.fixed(checksum_of(payload.data(), payload.size()));
  out.fixed(checksum_of(out.bytes().data(), out.bytes().size()));
  out.bytes().append(payload);
  return std::move(out.bytes());
}

CompressedFile parse_compressed(std::string_view bytes, const std::string& where) {
  if (bytes.substr(0, magic.size()) != magic)
    bad_input(Code::compressed_invalid, "{} is not a compressed file; 'some compress' writes these", where);
  Reader in(bytes, where);
  in.skip(magic.size());
  const unsigned char found = in.byte();
  CompressedFile file;
  CompressedHeader& header = file.header;
  const unsigned char mode = in.byte();
  if (found != version)
    bad_input(Code::compressed_invalid,
              "{}: format version {}, but this program reads version {}; use the version of "
              "the program that wrote it",
              where, found, version);
  if (mode > static_cast<unsigned char>(CompressionMode::model)) in.damaged("its mode is unknown");
  header.mode = static_cast<CompressionMode>(mode);
  header.length = in.number(max_compressed_bytes);
  header.checksum = in.fixed();
  if (header.mode != CompressionMode::stored) {
    const std::uint64_t parts = in.number(max_coded_parts);
    if (parts == 0) in.damaged("its list of parts is empty");
    header.parts.push_back(0);
    for (std::uint64_t i = 0; i + 1 < parts; ++i)
      header.parts.push_back(header.parts.back() + in.number(header.length - header.parts.back()));
    header.parts.push_back(header.length);
  }
  if (header.mode == CompressionMode::model) {
    header.model = in.name();
    header.arithmetic = in.name();
    header.probe = in.fixed();
  }
  const std::uint64_t size = in.number(max_compressed_bytes);
  const std::uint64_t payload_checksum = in.fixed();
  const std::size_t covered = in.at();
  if (in.fixed() != checksum_of(bytes.data(), covered)) in.damaged("the checksum of its header is wrong");
  file.header_bytes = in.at();
  file.payload = bytes.substr(in.at());
  if (file.payload.size() < size) in.damaged("it ends early");
  if (file.payload.size() > size) in.damaged("there are bytes after its end");
  if (checksum_of(file.payload.data(), file.payload.size()) != payload_checksum) in.damaged("its checksum is wrong");
  if (header.mode == CompressionMode::stored && (size != header.length || payload_checksum != header.checksum))
    in.damaged("its checksum is wrong");
  return file;
}

}  // namespace some

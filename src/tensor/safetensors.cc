#include "tensor/safetensors.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/escape.h"
#include "core/files/files.h"
#include "core/files/json.h"

namespace some {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and so is this code");

constexpr std::size_t length_field = 8;
constexpr std::uint64_t longest_header = 100'000'000;  // limit of the format itself
const char* const metadata_key = "__metadata__";
const char* const header_checksum_key = "checksum";
const char* const tensor_checksums_key = "checksums";
constexpr std::string_view before_checksum = R"({"__metadata__":{"checksum":")";
constexpr std::size_t checksum_digits = 16;
constexpr std::size_t max_axes = 16;

const std::pair<const char*, DType> type_names[] = {
    {"F64", DType::f64}, {"F32", DType::f32}, {"BF16", DType::bf16}, {"I64", DType::i64}, {"I32", DType::i32}};

// F16 is only read, since other programs save models in it. float32 represents every F16 value exactly.
const char* const half_name = "F16";

float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 0x1fu, fraction = half & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: a multiple of 2^-24
    const float size = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -size : size;
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xffu : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

const char* format_name(DType type) {
  for (const auto& [name, known] : type_names)
    if (known == type) return name;
  failed(Code::type_unsupported, "safetensors does not support the element type {}", name_of(type));
}

template <typename... Args>
[[noreturn]] void damaged(Code code, const std::string& path, fmt::format_string<Args...> format, Args&&... args) {
  const Error error = make_error(Fault::input, code, format, std::forward<Args>(args)...);
  throw error.within(path, fmt::format("{} is not a valid safetensors file: {}", path, error.what()));
}

// Escapes a tensor name for a message: files of other programs may contain arbitrary names.
std::string shown(const std::string& name) { return escaped(shortened(name, 80)); }

std::size_t read_size(const nlohmann::json& value, const std::string& path, const std::string& name) {
  if (!value.is_number_unsigned())
    damaged(Code::safetensors_entry, path, "{}: {} is not a size", name, describe(value));
  return value.get<std::size_t>();
}

nlohmann::json parse_header(const std::string& path, std::string_view text) {
  // nlohmann::json silently keeps one of two equal keys; in this format they would mean two different tensors.
  std::set<std::string> seen;
  std::string twice;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    if (event == nlohmann::json::parse_event_t::key && depth == 1 && !seen.insert(value.get<std::string>()).second)
      twice = value.get<std::string>();
    return true;
  };
  nlohmann::json header = parse_json(text, path + " is not a sound safetensors file: its header", watch);
  if (!header.is_object()) damaged(Code::safetensors_header, path, "its header is not a JSON object");
  if (!twice.empty()) damaged(Code::safetensors_header, path, "the name {} occurs twice in its header", shown(twice));
  return header;
}

std::string digest_of(const std::map<std::string, std::string>& checksums) {
  std::string text;
  for (const auto& [name, checksum] : checksums) text += fmt::format("{}:{}{}", name.size(), name, checksum);
  return hex(checksum_of(text.data(), text.size()));
}

}  // namespace

std::string content_digest(const std::vector<std::pair<std::string, Tensor>>& tensors) {
  std::map<std::string, std::string> checksums;
  for (const auto& [name, tensor] : tensors) checksums[name] = hex(checksum_of(tensor.raw(), tensor.bytes()));
  return digest_of(checksums);
}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file;
  file.path_ = path;
  file.file_ = std::make_shared<const InputFile>(path);
  const std::uint64_t size = file.file_->size();
  if (size < length_field) damaged(Code::safetensors_header, path, "it has {} bytes, too few for a header", size);
  std::uint64_t header_size = 0;
  file.file_->read_at(0, &header_size, length_field);
  if (header_size > longest_header)
    damaged(Code::safetensors_header, path, "its header would be {} bytes long, more than the {} allowed", header_size,
            longest_header);
  if (header_size > size - length_field)
    damaged(Code::safetensors_header, path, "its header would be {} bytes long, but the file has {}", header_size,
            size);
  std::string text(header_size, '\0');
  file.file_->read_at(length_field, text.data(), text.size());
  const nlohmann::json header = parse_header(path, text);
  file.data_ = length_field + header_size;
  const std::size_t data_size = size - length_field - header_size;

  for (const auto& [full_name, value] : header.items()) {
    const std::string name = shown(full_name);
    if (!value.is_object()) damaged(Code::safetensors_entry, path, "{} is not described by a JSON object", name);
    if (full_name == metadata_key) {
      for (const auto& [key, string] : value.items()) {
        if (!string.is_string()) damaged(Code::safetensors_entry, path, "metadata {} is not a string", shown(key));
        file.metadata_[key] = string.get<std::string>();
      }
      continue;
    }
    if (!value.contains("dtype") || !value.contains("shape") || !value.contains("data_offsets") || value.size() != 3)
      damaged(Code::safetensors_entry, path, "{} must have dtype, shape and data_offsets only", name);
    Entry entry{};
    const auto type = std::find_if(std::begin(type_names), std::end(type_names),
                                   [&](const auto& known) { return value["dtype"] == known.first; });
    entry.half = value["dtype"] == half_name;
    if (type == std::end(type_names) && !entry.half)
      damaged(Code::safetensors_entry, path, "{} has element type {}; must be F64, F32, F16, BF16, I64 or I32", name,
              describe(value["dtype"]));
    entry.type = entry.half ? DType::f32 : type->second;

    if (!value["shape"].is_array()) damaged(Code::safetensors_entry, path, "the shape of {} is not a list", name);
    if (value["shape"].size() > max_axes)
      damaged(Code::safetensors_entry, path, "{} has {} axes, more than the supported {}", name, value["shape"].size(),
              max_axes);
    std::vector<std::int64_t> dims;
    std::size_t needed = entry.half ? sizeof(std::uint16_t) : size_of(entry.type);
    bool too_large = false;
    for (const nlohmann::json& dim : value["shape"]) {
      const std::size_t length = read_size(dim, path, name);
      too_large =
          too_large || length > static_cast<std::size_t>(INT64_MAX) || __builtin_mul_overflow(needed, length, &needed);
      dims.push_back(static_cast<std::int64_t>(length));
    }
    if (too_large) damaged(Code::safetensors_layout, path, "{} is too large for any file", name);
    entry.shape = Shape(std::move(dims));

    const nlohmann::json& offsets = value["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2)
      damaged(Code::safetensors_entry, path, "the data_offsets of {} are not two numbers", name);
    entry.begin = read_size(offsets[0], path, name);
    entry.end = read_size(offsets[1], path, name);
    if (entry.begin > entry.end || entry.end > data_size)
      damaged(Code::safetensors_layout, path, "{} is at bytes {} to {}, but the file has {} bytes of data", name,
              entry.begin, entry.end, data_size);
    if (entry.end - entry.begin != needed)
      damaged(Code::safetensors_layout, path, "{} requires {} bytes but has {}", name, needed, entry.end - entry.begin);
    file.entries_.emplace(full_name, std::move(entry));
  }

  // The tensors must cover the data exactly: no hidden bytes and no shared bytes.
  std::vector<std::pair<std::size_t, std::size_t>> parts;
  for (const auto& [name, entry] : file.entries_) parts.emplace_back(entry.begin, entry.end);
  std::sort(parts.begin(), parts.end());
  std::size_t covered = 0;
  for (const auto& [begin, end] : parts) {
    if (begin > covered)
      damaged(Code::safetensors_layout, path, "bytes {} to {} of its data do not belong to any tensor", covered, begin);
    if (begin < covered) damaged(Code::safetensors_layout, path, "two tensors share byte {} of its data", begin);
    covered = end;
  }
  if (covered != data_size)
    damaged(Code::safetensors_layout, path, "bytes {} to {} of its data do not belong to any tensor", covered,
            data_size);
  file.read_checksums(text);
  return file;
}

void SafetensorsFile::read_checksums(std::string_view header) {
  const auto own = metadata_.find(header_checksum_key), list = metadata_.find(tensor_checksums_key);
  if (own == metadata_.end() && list == metadata_.end()) return;
  // A file with only one of the two is damaged, not written by an older version.
  if (own == metadata_.end() || list == metadata_.end() || own->second.size() != checksum_digits ||
      header.substr(0, before_checksum.size()) != before_checksum)
    damaged(Code::file_damaged, path_,
            "its checksums do not match; restore it from a copy, or, if another program changed it, remove `checksum` "
            "and `checksums` from its metadata");
  std::string zeroed(header);
  zeroed.replace(before_checksum.size(), checksum_digits, checksum_digits, '0');
  const std::string found = hex(checksum_of(zeroed.data(), zeroed.size()));
  if (found != own->second)
    damaged(Code::file_damaged, path_, "its header has the checksum {} instead of {}; restore it from a copy", found,
            own->second);
  if (list->second.size() != entries_.size() * checksum_digits)
    damaged(Code::file_damaged, path_, "it has {} tensors and checksums for {}", entries_.size(),
            list->second.size() / checksum_digits);
  std::vector<Entry*> order;
  for (auto& [name, entry] : entries_) order.push_back(&entry);
  // Empty tensors may be in any order, since all have the checksum of zero bytes.
  std::sort(order.begin(), order.end(),
            [](const Entry* a, const Entry* b) { return std::pair(a->begin, a->end) < std::pair(b->begin, b->end); });
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i]->checksum = list->second.substr(i * checksum_digits, checksum_digits);
  has_checksums_ = true;
  std::map<std::string, std::string> checksums;
  for (const auto& [name, entry] : entries_) checksums[name] = entry.checksum;
  content_digest_ = digest_of(checksums);
  metadata_.erase(own);
  metadata_.erase(list);
}

const std::string& SafetensorsFile::require_metadata(const std::string& key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end())
    bad_input(Code::file_wrong_kind, "{}: its metadata has no `{}`, so it is not a file of this kind", path_, key);
  return found->second;
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> result;
  for (const auto& [name, entry] : entries_) result.push_back(name);
  return result;
}

namespace {

template <typename Entries>
const auto& entry_of(const Entries& entries, const std::string& name, const std::string& path) {
  const auto found = entries.find(name);
  if (found == entries.end()) bad_input(Code::tensor_not_found, "{}: tensor {} not found", path, name);
  return found->second;
}

}  // namespace

void SafetensorsFile::rename(std::string (*current)(std::string_view name)) {
  for (const std::string& name : names()) {
    const std::string now = current(name);
    if (now == name || has(now)) continue;
    auto node = entries_.extract(name);
    node.key() = now;
    entries_.insert(std::move(node));
  }
}

Shape SafetensorsFile::shape(const std::string& name) const { return entry_of(entries_, name, path_).shape; }
DType SafetensorsFile::dtype(const std::string& name) const { return entry_of(entries_, name, path_).type; }
bool SafetensorsFile::is_half(const std::string& name) const { return entry_of(entries_, name, path_).half; }

void SafetensorsFile::compare_checksum(const std::string& name, const Entry& entry, const void* bytes) const {
  if (!has_checksums_) return;
  const std::string found = hex(checksum_of(bytes, entry.end - entry.begin));
  if (found != entry.checksum)
    bad_input(Code::tensor_damaged,
              "{}: tensor {} is damaged: its checksum is {} instead of {}; restore the file from a copy", path_, name,
              found, entry.checksum);
}

Tensor SafetensorsFile::load(const std::string& name) const {
  const Entry& entry = entry_of(entries_, name, path_);
  const std::size_t size = entry.end - entry.begin;
  Tensor tensor = Tensor::empty(entry.shape, entry.type, Device::cpu);
  if (!entry.half) {
    file_->read_at(data_ + entry.begin, tensor.raw(), size);
    compare_checksum(name, entry, tensor.raw());
    return tensor;
  }
  std::vector<std::uint16_t> halves(size / sizeof(std::uint16_t));
  file_->read_at(data_ + entry.begin, halves.data(), size);
  compare_checksum(name, entry, halves.data());
  std::transform(halves.begin(), halves.end(), tensor.data<float>(), half_to_float);
  return tensor;
}

Tensor SafetensorsFile::map(const std::string& name) const {
  const Entry& entry = entry_of(entries_, name, path_);
  const std::uint64_t begin = data_ + entry.begin;
  // A file of another program may contain unaligned tensors.
  if (entry.half || entry.begin == entry.end || begin % size_of(entry.type) != 0) return load(name);
  const auto size = static_cast<std::size_t>(data_ + entry.end);
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file_->descriptor(), 0);
  if (memory == MAP_FAILED) return load(name);  // not supported by some file systems
  std::shared_ptr<void> owner(memory, [size](void* mapped) { ::munmap(mapped, size); });
  char* bytes = static_cast<char*>(memory) + begin;
  compare_checksum(name, entry, bytes);
  return Tensor::wrap(bytes, entry.shape, entry.type, Device::cpu, std::move(owner));
}

void write_safetensors(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  // Wide elements first, so that every tensor is aligned to its element size for readers that map the file.
  std::vector<const std::pair<std::string, Tensor>*> order;
  for (const auto& named : tensors) order.push_back(&named);
  std::stable_sort(order.begin(), order.end(), [](const auto* left, const auto* right) {
    return size_of(left->second.dtype()) > size_of(right->second.dtype());
  });

  // The header comes first and contains the checksums, so GPU tensors are copied to the host before anything is
  // written.
  std::vector<Tensor> here;
  std::string checksums;
  for (const auto* named : order) {
    const auto& [name, tensor] = *named;
    if (!tensor) failed(Code::tensor_unwritable, "cannot write {}: the tensor {} is empty", path, name);
    here.push_back(tensor.device() == Device::cpu ? tensor : tensor.to(Device::cpu));
    checksums += hex(checksum_of(here.back().raw(), here.back().bytes()));
  }

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  auto& strings = header[metadata_key];
  strings[header_checksum_key] = std::string(checksum_digits, '0');
  strings[tensor_checksums_key] = checksums;
  for (const auto& [key, text] : metadata) {
    if (key == header_checksum_key || key == tensor_checksums_key)
      failed(Code::tensor_unwritable, "cannot write {}: the metadata name {} is reserved", path, key);
    strings[key] = text;
  }
  std::size_t position = 0;
  for (const auto* named : order) {
    const auto& [name, tensor] = *named;
    if (name == metadata_key || header.contains(name))
      failed(Code::tensor_unwritable, "cannot write {}: two tensors or metadata are named {}", path, name);
    header[name] = {{"dtype", format_name(tensor.dtype())},
                    {"shape", tensor.shape().dims()},
                    {"data_offsets", {position, position + tensor.bytes()}}};
    position += tensor.bytes();
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    failed(Code::tensor_unwritable, "cannot write {}: a name or metadata is not UTF-8", path);
  }
  text.append((length_field - text.size() % length_field) % length_field, ' ');
  if (!text.starts_with(before_checksum))
    failed(Code::tensor_unwritable, "cannot write {}: its checksum is misplaced", path);
  text.replace(before_checksum.size(), checksum_digits, hex(checksum_of(text.data(), text.size())));
  const std::uint64_t header_size = text.size();

  write_file_atomic(path, [&](const ByteSink& sink) {
    sink(&header_size, length_field);
    sink(text.data(), text.size());
    for (const Tensor& tensor : here) sink(tensor.raw(), tensor.bytes());
  });
}

}  // namespace some

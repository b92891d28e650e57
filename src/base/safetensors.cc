#include "base/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files.h"

namespace some {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and so is this code");

constexpr std::size_t length_field = 8;
constexpr std::uint64_t longest_header = 100'000'000;  // the format's own limit
const char* const metadata_key = "__metadata__";

const std::pair<const char*, DType> type_names[] = {
    {"F64", DType::f64}, {"F32", DType::f32}, {"BF16", DType::bf16}, {"I64", DType::i64}, {"I32", DType::i32}};

const char* format_name(DType type) {
  for (const auto& [name, known] : type_names)
    if (known == type) return name;
  failed("safetensors has no name for the element type {}", name_of(type));
}

template <typename... Args>
[[noreturn]] void damaged(const std::string& path, fmt::format_string<Args...> format, Args&&... args) {
  bad_input("{} is not a sound safetensors file: {}", path, fmt::format(format, std::forward<Args>(args)...));
}

std::size_t read_size(const nlohmann::json& value, const std::string& path, const std::string& name) {
  if (!value.is_number_unsigned()) damaged(path, "{}: {} is not a size", name, value.dump());
  return value.get<std::size_t>();
}

nlohmann::json parse_header(const std::string& path, std::string_view text) {
  // A JSON object silently keeps one of two equal names; here two would mean two different tensors.
  std::set<std::string> seen;
  std::string twice;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    if (event == nlohmann::json::parse_event_t::key && depth == 1 && !seen.insert(value.get<std::string>()).second)
      twice = value.get<std::string>();
    return true;
  };
  nlohmann::json header;
  try {
    header = nlohmann::json::parse(text, watch);
  } catch (const nlohmann::json::exception& error) {
    damaged(path, "its header is not JSON ({})", error.what());
  }
  if (!header.is_object()) damaged(path, "its header is not a JSON object");
  if (!twice.empty()) damaged(path, "the name {} stands in its header twice", twice);
  return header;
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  const MappedFile mapped = map_file(path);
  if (mapped.size < length_field) damaged(path, "it has {} bytes, too few for a header", mapped.size);
  SafetensorsFile file;
  file.path_ = path;
  file.mapping_ = mapped.owner;

  const char* bytes = mapped.data;
  std::uint64_t header_size = 0;
  std::memcpy(&header_size, bytes, length_field);
  if (header_size > longest_header)
    damaged(path, "its header would be {} bytes long, more than the {} allowed", header_size, longest_header);
  if (header_size > mapped.size - length_field)
    damaged(path, "its header would be {} bytes long, the file has {}", header_size, mapped.size);
  const nlohmann::json header = parse_header(path, {bytes + length_field, header_size});
  file.data_ = bytes + length_field + header_size;
  const std::size_t data_size = mapped.size - length_field - header_size;

  for (const auto& [name, value] : header.items()) {
    if (!value.is_object()) damaged(path, "{} is not described by a JSON object", name);
    if (name == metadata_key) {
      for (const auto& [key, text] : value.items()) {
        if (!text.is_string()) damaged(path, "metadata {} is not a string", key);
        file.metadata_[key] = text.get<std::string>();
      }
      continue;
    }
    if (!value.contains("dtype") || !value.contains("shape") || !value.contains("data_offsets") || value.size() != 3)
      damaged(path, "{} must have dtype, shape and data_offsets and nothing else", name);
    Entry entry{};
    const auto type = std::find_if(std::begin(type_names), std::end(type_names),
                                   [&](const auto& known) { return value["dtype"] == known.first; });
    if (type == std::end(type_names))
      damaged(path, "{} has the element type {}; known are F64, F32, BF16, I64 and I32", name, value["dtype"].dump());
    entry.type = type->second;

    if (!value["shape"].is_array()) damaged(path, "the shape of {} is not a list", name);
    std::vector<std::int64_t> dims;
    std::size_t needed = size_of(entry.type);
    bool too_large = false;
    for (const nlohmann::json& dim : value["shape"]) {
      const std::size_t size = read_size(dim, path, name);
      too_large =
          too_large || size > static_cast<std::size_t>(INT64_MAX) || __builtin_mul_overflow(needed, size, &needed);
      dims.push_back(static_cast<std::int64_t>(size));
    }
    if (too_large) damaged(path, "{} is too large: {}", name, value["shape"].dump());
    entry.shape = Shape(std::move(dims));

    const nlohmann::json& offsets = value["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2) damaged(path, "the data_offsets of {} are not two numbers", name);
    entry.begin = read_size(offsets[0], path, name);
    entry.end = read_size(offsets[1], path, name);
    if (entry.begin > entry.end || entry.end > data_size)
      damaged(path, "{} lies at bytes {} to {}, the file holds {} bytes of data", name, entry.begin, entry.end,
              data_size);
    if (entry.end - entry.begin != needed)
      damaged(path, "{} needs {} bytes and has {}", name, needed, entry.end - entry.begin);
    file.entries_.emplace(name, std::move(entry));
  }

  // The tensors must cover the data exactly, so that nothing is hidden in the file and nothing is shared.
  std::vector<std::pair<std::size_t, std::size_t>> parts;
  for (const auto& [name, entry] : file.entries_) parts.emplace_back(entry.begin, entry.end);
  std::sort(parts.begin(), parts.end());
  std::size_t covered = 0;
  for (const auto& [begin, end] : parts) {
    if (begin > covered) damaged(path, "bytes {} to {} of its data belong to no tensor", covered, begin);
    if (begin < covered) damaged(path, "two tensors share byte {} of its data", begin);
    covered = end;
  }
  if (covered != data_size) damaged(path, "bytes {} to {} of its data belong to no tensor", covered, data_size);
  return file;
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
  if (found == entries.end()) bad_input("{} has no tensor named {}", path, name);
  return found->second;
}

}  // namespace

Shape SafetensorsFile::shape(const std::string& name) const { return entry_of(entries_, name, path_).shape; }
DType SafetensorsFile::dtype(const std::string& name) const { return entry_of(entries_, name, path_).type; }

Tensor SafetensorsFile::load(const std::string& name) const {
  const auto& entry = entry_of(entries_, name, path_);
  Tensor tensor = Tensor::empty(entry.shape, entry.type, Device::cpu);
  std::memcpy(tensor.raw(), data_ + entry.begin, entry.end - entry.begin);
  return tensor;
}

void write_safetensors(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  // Wide elements first, so that every tensor is aligned to its element size for readers that map the file.
  std::vector<const std::pair<std::string, Tensor>*> order;
  for (const auto& named : tensors) order.push_back(&named);
  std::stable_sort(order.begin(), order.end(), [](const auto* left, const auto* right) {
    return size_of(left->second.dtype()) > size_of(right->second.dtype());
  });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[metadata_key] = metadata;
  std::size_t position = 0;
  for (const auto* named : order) {
    const auto& [name, tensor] = *named;
    if (!tensor) failed("cannot write {}: the tensor {} is empty", path, name);
    if (name == metadata_key || header.contains(name)) failed("cannot write {}: two things are named {}", path, name);
    header[name] = {{"dtype", format_name(tensor.dtype())},
                    {"shape", tensor.shape().dims()},
                    {"data_offsets", {position, position + tensor.bytes()}}};
    position += tensor.bytes();
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception& error) {
    failed("cannot write {}: a name or metadata is not UTF-8 ({})", path, error.what());
  }
  text.append((length_field - text.size() % length_field) % length_field, ' ');
  const std::uint64_t header_size = text.size();

  write_file_atomic(path, [&](const ByteSink& sink) {
    sink(&header_size, length_field);
    sink(text.data(), text.size());
    for (const auto* named : order) {
      const Tensor& tensor = named->second;
      const Tensor here = tensor.device() == Device::cpu ? tensor : tensor.to(Device::cpu);
      sink(here.raw(), here.bytes());
    }
  });
}

}  // namespace some

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <unordered_map>

#include "core/files/files.h"
#include "fuzz/fuzz.h"

namespace some::fuzz {
namespace {

// Mutates a number: one more or less, or an extreme value.
std::int64_t neighbour(std::int64_t number, Dice& dice) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(number) + (dice.one_in(2) ? 1U : ~std::uint64_t{0}));
}

using Json = nlohmann::json;

constexpr std::uint64_t odd_numbers[] = {0,
                                         1,
                                         2,
                                         7,
                                         8,
                                         255,
                                         256,
                                         65535,
                                         65536,
                                         0x7fffffff,
                                         0x80000000,
                                         0xffffffff,
                                         0x100000000,
                                         0x7fffffffffffffff,
                                         0x8000000000000000,
                                         0xffffffffffffffff,
                                         100'000'000,
                                         1'000'000};

const char* const odd_texts[] = {"",        "\x1b[2J", "\n",   "nan",          "-1", "1e999", "18446744073709551616",
                                 "../../x", "\xff",    "\xc3", "\xe2\x80\xae", "{}", "[[[[",  "\"",
                                 "'''",     "\"\"\"",  "a b",  "<|endoftext|>"};

void collect(Json& value, std::vector<Json*>& out, int depth = 0) {
  out.push_back(&value);
  if (value.is_structured() && depth < 70) {
    for (auto& child : value) collect(child, out, depth + 1);
  }
}

std::string deep(Dice& dice) {
  const std::size_t depth = 1 + dice.below(dice.one_in(8) ? 20000 : 80);
  const char open = dice.one_in(2) ? '[' : '{';
  std::string text;
  for (std::size_t i = 0; i < depth; ++i) text += open == '[' ? "[" : "{\"a\":";
  if (dice.one_in(2)) {
    text += "1";
    text.append(depth, open == '[' ? ']' : '}');
  }
  return text;
}

}  // namespace

Dice::Dice(std::uint64_t seed, std::string_view name, std::uint64_t number)
    : state_(hash_bytes(name.data(), name.size(), seed) + number * 0x9E3779B97F4A7C15ull) {}

std::uint64_t Dice::next() {  // splitmix64
  std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string source_folder() {
  const char* const folder = std::getenv("SOME_SOURCE_DIR");
  return folder != nullptr ? folder : SOME_SOURCE_DIR;
}

std::string written(const Json& tree) { return tree.dump(-1, ' ', false, Json::error_handler_t::replace); }

void damage_bytes(std::string& bytes, Dice& dice) {
  const std::size_t strikes = 1 + dice.below(4);
  for (std::size_t strike = 0; strike < strikes; ++strike) {
    if (bytes.empty()) bytes = "x";
    const std::size_t at = dice.below(bytes.size()), length = 1 + dice.below(dice.one_in(4) ? 400 : 12);
    switch (dice.below(9)) {
      case 0: bytes[at] = static_cast<char>(bytes[at] ^ (1 << dice.below(8))); break;
      case 1: bytes[at] = static_cast<char>(dice.next()); break;
      case 2: bytes.resize(at); break;
      case 3: bytes.erase(at, length); break;
      case 4: bytes.insert(at, bytes.substr(dice.below(bytes.size()), length)); break;
      case 5: {
        const std::uint64_t number = dice.of(odd_numbers) - dice.below(2);
        const std::size_t width = std::size_t{1} << dice.below(4);
        if (at + width <= bytes.size()) std::memcpy(bytes.data() + at, &number, width);
        break;
      }
      case 6: bytes.insert(at, dice.of(odd_texts)); break;
      case 7: bytes.append(length, static_cast<char>(dice.next())); break;
      default:
        for (std::size_t i = at; i < std::min(bytes.size(), at + length); ++i)
          bytes[i] = static_cast<char>(dice.next());
        break;
    }
  }
}

void damage_text(std::string& text, Dice& dice, const std::vector<std::string>& words) {
  const std::size_t strikes = 1 + dice.below(4);
  for (std::size_t strike = 0; strike < strikes; ++strike) {
    if (text.empty()) text = "\n";
    const std::size_t at = dice.below(text.size());
    const std::size_t begin = text.rfind('\n', at) == std::string::npos ? 0 : text.rfind('\n', at) + 1;
    const std::size_t end = std::min(text.find('\n', at), text.size());
    switch (dice.below(10)) {
      case 0: text.erase(begin, end - begin + 1); break;
      case 1: text.insert(begin, text.substr(begin, end - begin) + "\n"); break;
      case 2: text.insert(at, dice.of(words)); break;
      case 3: text.replace(at, 1 + dice.below(8), dice.of(words)); break;
      case 4: text.insert(at, std::to_string(static_cast<std::int64_t>(dice.of(odd_numbers)))); break;
      case 5: text.insert(dice.one_in(2) ? at : begin, deep(dice)); break;
      case 6: {  // replaces the value after an equals sign
        const std::size_t sign = text.find_first_of("=:", begin);
        if (sign < end) text.replace(sign + 1, end - sign - 1, dice.of(words));
        break;
      }
      case 7: text.insert(begin, dice.of(words) + " = " + dice.of(words) + "\n"); break;
      default: damage_bytes(text, dice); break;
    }
  }
}

Json odd_value(Dice& dice) {
  switch (dice.below(18)) {
    case 0: return nullptr;
    case 1: return true;
    case 2: return -1;
    case 3: return dice.of(odd_numbers);
    case 4: return -static_cast<std::int64_t>(dice.of(odd_numbers) >> 1);
    case 5: return dice.below(20);
    case 6: return 1.5;
    case 7: return -1e300;
    case 8: return 1e-300;
    case 9: return "";
    case 10: return "a b";
    case 11: return std::string(1 + dice.below(3), static_cast<char>(dice.below(128)));
    case 12: return std::string(dice.one_in(20) ? 200000 : 300, 'a');
    case 13: return "\x1b[2J\xe2\x80\xae";
    case 14: return Json::array();
    case 15: return Json::object();
    case 16: return Json::array({Json::array({"a", "b"}), Json::object({{"type", "ByteLevel"}})});
    default: return Json::parse(std::string(70, '[') + std::string(70, ']'));
  }
}

void damage_json(Json& tree, Dice& dice) {
  std::vector<Json*> values;
  collect(tree, values);
  Json* target = dice.of(values);
  const Json* other = dice.of(values);
  switch (dice.below(6)) {
    case 0: *target = odd_value(dice); break;
    case 1: {
      Json copy = *other;
      *target = std::move(copy);
      break;
    }
    case 2:
      if (target->is_structured() && !target->empty()) {
        auto at = target->begin();
        std::advance(at, static_cast<std::ptrdiff_t>(dice.below(target->size())));
        target->erase(at);
      }
      break;
    case 3:
      if (target->is_object()) (*target)[dice.of(odd_texts)[0] == '\xff' ? "x" : "y"] = odd_value(dice);
      if (target->is_array()) target->push_back(odd_value(dice));
      if (target->is_number_integer()) *target = neighbour(target->get<std::int64_t>(), dice);
      if (target->is_string()) *target = target->get<std::string>() + "x";
      break;
    case 4:
      if (target->is_array() && target->size() > 1) std::swap((*target)[0], (*target)[dice.below(target->size())]);
      if (target->is_boolean()) *target = !target->get<bool>();
      if (target->is_number()) *target = odd_value(dice);
      break;
    default:
      if (target->is_number_integer()) *target = dice.of(odd_numbers);
      break;
  }
}

FileParts take_apart(const std::string& file) {
  // The same few files are taken apart for every input.
  static std::unordered_map<std::uint64_t, FileParts> known;
  const std::uint64_t hash = hash_bytes(file.data(), file.size());
  if (const auto found = known.find(hash); found != known.end()) return found->second;
  std::uint64_t size = 0;
  std::memcpy(&size, file.data(), 8);
  return known.emplace(hash, FileParts{Json::parse(file.substr(8, size)), file.substr(8 + size)}).first->second;
}

std::string put_together(const FileParts& parts) {
  const std::string text = written(parts.header);
  const std::uint64_t size = text.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &size, 8);
  return out + text + parts.data;
}

namespace {

// Changes a tensor's shape to another one with as many elements, or its element type to another one of the same width.
void reshape(Json& entry, Dice& dice) {
  Json& shape = entry["shape"];
  switch (dice.below(5)) {
    case 0:
      if (shape.size() > 1) std::swap(shape[0], shape[shape.size() - 1]);
      break;
    case 1: shape.push_back(1); break;
    case 2: shape.insert(shape.begin(), 1); break;
    case 3: {
      std::uint64_t elements = 1;
      for (const Json& dim : shape) elements *= dim.get<std::uint64_t>();
      shape = Json::array({elements});
      break;
    }
    default:
      if (entry["dtype"] == "F64")
        entry["dtype"] = "I64";
      else if (entry["dtype"] == "I64")
        entry["dtype"] = "F64";
      else
        entry["dtype"] = entry["dtype"] == "F32" ? "I32" : "F32";
      break;
  }
}

void odd_numbers_in(std::string& data, std::size_t begin, std::size_t end, bool wide, Dice& dice) {
  const double odd[] = {NAN, INFINITY, -INFINITY, 1e300, -1e300, 1e-320, 0.0, -0.0, 1e30};
  const std::size_t width = wide ? 8 : 4;
  if (end < begin + width) return;
  for (std::size_t n = 1 + dice.below(3); n > 0; --n) {
    const std::size_t at = begin + dice.below((end - begin) / width) * width;
    if (dice.one_in(2)) {
      const std::uint64_t number = dice.of(odd_numbers);
      std::memcpy(data.data() + at, &number, width);
    } else if (wide) {
      std::memcpy(data.data() + at, &dice.of(odd), 8);
    } else {
      const auto number = static_cast<float>(dice.of(odd));
      std::memcpy(data.data() + at, &number, 4);
    }
  }
}

}  // namespace

std::string damage_safetensors(const std::string& file, Dice& dice) {
  if (dice.one_in(4)) {
    std::string bytes = file;
    damage_bytes(bytes, dice);
    return bytes;
  }
  FileParts parts = take_apart(file);
  // The file's own checksums would only report the change.
  if (parts.header.contains("__metadata__") && !dice.one_in(8)) {
    parts.header["__metadata__"].erase("checksum");
    parts.header["__metadata__"].erase("checksums");
    parts.header["__metadata__"].erase("crc32");  // that of fixtures, whose format says that they have one
    if (parts.header["__metadata__"].contains("kind")) parts.header["__metadata__"].erase("format");
  }
  std::vector<std::string> tensors;
  for (const auto& [name, value] : parts.header.items()) {
    if (name != "__metadata__") tensors.push_back(name);
  }
  // The damage may have replaced the whole header; then there is no entry left to mutate.
  for (std::size_t strikes = 1 + dice.below(3); strikes > 0 && parts.header.is_object(); --strikes) {
    Json& entry = parts.header[tensors.empty() ? "x" : dice.of(tensors)];
    const bool sound = entry.is_object() && entry.contains("shape") && entry["shape"].is_array() &&
                       entry.contains("data_offsets") && entry["data_offsets"].is_array() &&
                       entry["data_offsets"].size() == 2 && entry["data_offsets"][0].is_number_unsigned() &&
                       entry["data_offsets"][1].is_number_unsigned() && entry.contains("dtype");
    Json& metadata = parts.header["__metadata__"];
    switch (dice.below(7)) {
      case 0: damage_json(parts.header, dice); break;
      case 1:
        if (sound && std::all_of(entry["shape"].begin(), entry["shape"].end(),
                                 [](const Json& dim) { return dim.is_number_unsigned(); }))
          reshape(entry, dice);
        break;
      case 2:
      case 3: {  // JSON inside a metadata string
        if (!metadata.is_object() || metadata.empty()) break;
        auto at = metadata.begin();
        std::advance(at, static_cast<std::ptrdiff_t>(dice.below(metadata.size())));
        if (!at->is_string()) break;
        std::string text = at->get<std::string>();
        // Serializing JSON damaged to nest thousands of levels deep would overflow the stack here, not in the reader.
        const bool deep = std::count_if(text.begin(), text.end(), [](char c) { return c == '[' || c == '{'; }) > 1000;
        Json inner = deep ? Json(Json::value_t::discarded) : Json::parse(text, nullptr, false);
        if (inner.is_discarded() || dice.one_in(8)) {
          damage_text(text, dice, {"[", "]", "{", "\"", "nan", "1e999"});
          *at = text;
        } else {
          damage_json(inner, dice);
          *at = written(inner);
        }
        break;
      }
      case 4:
        if (sound) {
          const std::uint64_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
          if (begin <= end && end <= parts.data.size())
            odd_numbers_in(parts.data, begin, end, entry["dtype"] == "F64" || entry["dtype"] == "I64", dice);
        }
        break;
      case 5:
        if (sound) entry[dice.one_in(2) ? "shape" : "data_offsets"][0] = odd_value(dice);
        break;
      default:
        if (tensors.size() > 1) {  // exchanges the names of two tensors
          const std::string left = dice.of(tensors), right = dice.of(tensors);
          std::swap(parts.header[left], parts.header[right]);
        }
        break;
    }
  }
  std::string out = put_together(parts);
  if (dice.one_in(16)) damage_bytes(out, dice);
  return out;
}

}  // namespace some::fuzz

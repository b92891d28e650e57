#include "runs/event_file.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/files/files.h"
#include "core/files/json_lines.h"

namespace some {
namespace {

// The few protocol-buffer field types of an event are encoded here: the library and its compiler would be a large
// dependency for five fields.
void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(0x80 | (value & 0x7f)));
  out.push_back(static_cast<char>(value));
}

template <class Number>
void put_fixed(std::string& out, Number value) {
  char bytes[sizeof(Number)];
  std::memcpy(bytes, &value, sizeof(Number));  // the format is little-endian, as are all supported machines
  out.append(bytes, sizeof(Number));
}

enum Wire { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };
void put_tag(std::string& out, int field, Wire wire) { put_varint(out, static_cast<std::uint64_t>(field << 3 | wire)); }

void put_bytes(std::string& out, int field, std::string_view value) {
  put_tag(out, field, Wire::bytes);
  put_varint(out, value.size());
  out.append(value);
}

std::string event_head() {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::string event;
  put_tag(event, 1, Wire::fixed64);  // wall_time
  put_fixed(event, now);
  return event;
}

// Returns a record: length, checksum of the length, the event, checksum of the event.
std::string record(const std::string& event) {
  const auto masked = [](std::string_view bytes) {
    const std::uint32_t sum = crc32c(bytes);
    return ((sum >> 15) | (sum << 17)) + 0xa282ead8u;
  };
  std::string out;
  put_fixed(out, static_cast<std::uint64_t>(event.size()));
  put_fixed(out, masked(out));
  out += event;
  put_fixed(out, masked(event));
  return out;
}

std::string summary_record(const nlohmann::json& line, const std::string& summary) {
  std::string event = event_head();
  put_tag(event, 2, Wire::varint);
  const auto step = line.find("step");
  put_varint(event, step != line.end() && step->is_number_integer() && *step >= 0 ? step->get<std::uint64_t>() : 0);
  put_bytes(event, 5, summary);
  return record(event);
}

std::string line_record(const nlohmann::json& line) {
  std::string summary;
  for (const auto& [name, number] : event_scalars(line)) {
    std::string value;
    put_bytes(value, 1, name);
    put_tag(value, 2, Wire::fixed32);
    put_fixed(value, static_cast<float>(number));
    put_bytes(summary, 1, value);
  }
  return summary_record(line, summary);
}

// Each text is a tensor of one string, marked as belonging to TensorBoard's plugin "text".
std::string samples_record(const nlohmann::json& line) {
  constexpr std::uint64_t dt_string = 7;
  std::string summary;
  for (const auto& [name, text] : event_texts(line)) {
    std::string size, shape, tensor, plugin, metadata, value;
    put_tag(size, 1, Wire::varint);
    put_varint(size, 1);
    put_bytes(shape, 2, size);
    put_tag(tensor, 1, Wire::varint);
    put_varint(tensor, dt_string);
    put_bytes(tensor, 2, shape);
    put_bytes(tensor, 8, text);
    put_bytes(plugin, 1, "text");
    put_bytes(metadata, 1, plugin);
    put_bytes(value, 1, name);
    put_bytes(value, 8, tensor);
    put_bytes(value, 9, metadata);
    put_bytes(summary, 1, value);
  }
  return summary_record(line, summary);
}

// TensorBoard renders texts as Markdown: generated characters must not become markup, and lines must stay lines.
std::string as_markdown(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n')
      out += "  ";
    else if (std::string_view("\\`*_{}[]<>()#+-.!|~&").find(c) != std::string_view::npos)
      out += '\\';
    out += c;
  }
  return out;
}

void collect(const nlohmann::json& object, const std::string& prefix, const std::string& suffix,
             std::vector<std::pair<std::string, double>>& out) {
  for (const auto& [key, value] : object.items()) {
    const std::string name = prefix.empty() ? key : prefix + " " + key;
    if (value.is_object()) collect(value, name, suffix, out);
    if (value.is_number()) out.emplace_back(name + "/" + suffix, value.get<double>());
  }
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static const std::array<std::uint32_t, 256> table = [] {
    std::array<std::uint32_t, 256> sums{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t sum = i;
      for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? 0x82f63b78u : 0);
      sums[i] = sum;
    }
    return sums;
  }();
  std::uint32_t sum = ~0u;
  for (const char c : bytes) sum = sum >> 8 ^ table[(sum ^ static_cast<unsigned char>(c)) & 0xff];
  return ~sum;
}

std::vector<std::pair<std::string, double>> event_scalars(const nlohmann::json& line) {
  std::vector<std::pair<std::string, double>> out;
  const auto kind_given = line.find("kind");
  const std::string kind = kind_given != line.end() && kind_given->is_string() ? kind_given->get<std::string>() : "run";
  for (const auto& [key, value] : line.items()) {
    if (value.is_number() && key != "step" && key != "middle_layer") {
      out.emplace_back(kind + "/" + key, value.get<double>());
    }
  }
  const auto layers = line.find("layers");
  if (layers == line.end() || !layers->is_array()) return out;
  for (std::size_t i = 0; i < layers->size(); ++i) {
    nlohmann::json layer = (*layers)[i];
    if (!layer.is_object()) continue;
    const auto given = layer.find("layer");
    const std::size_t number =
        given != layer.end() && given->is_number_integer() && *given >= 0 ? given->get<std::size_t>() : i;
    layer.erase("layer");
    collect(layer, "", fmt::format("{} layer {}", kind, number), out);
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> event_texts(const nlohmann::json& line) {
  std::vector<std::pair<std::string, std::string>> out;
  const auto samples = line.find("samples");
  if (samples == line.end() || !samples->is_array()) return out;
  const auto text_of = [](const nlohmann::json& sample, const char* name) {
    const auto found = sample.find(name);
    return found != sample.end() && found->is_string() ? as_markdown(found->get<std::string>()) : std::string();
  };
  for (std::size_t i = 0; i < samples->size(); ++i) {
    const nlohmann::json& sample = (*samples)[i];
    if (!sample.is_object()) continue;
    const std::string prompt = text_of(sample, "prompt"), text = text_of(sample, "text");
    out.emplace_back(fmt::format("samples/{}", i + 1), prompt.empty() ? text : "**" + prompt + "**" + text);
  }
  return out;
}

EventFile::EventFile(std::string path, const std::string& metrics_path, const std::string& samples_path)
    : path_(std::move(path)) {
  std::string first = event_head();
  put_bytes(first, 3, "brain.Event:2");  // file_version: readers check this
  std::string contents = record(first);
  // A line damaged by hand must not keep a run from continuing.
  for_each_json_line(metrics_path, [&](const JsonObject& line) { contents += line_record(line.json()); });
  for_each_json_line(samples_path, [&](const JsonObject& line) { contents += samples_record(line.json()); });
  write_file_atomic(path_, contents);
}

void EventFile::add(const nlohmann::json& line) { append_bytes(path_, line_record(line)); }
void EventFile::add_samples(const nlohmann::json& line) { append_bytes(path_, samples_record(line)); }

}  // namespace some

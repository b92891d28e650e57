#include "verify/fixture.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/files/files.h"
#include "core/old_names.h"
#include "core/setting.h"
#include "model/operations.h"

namespace some {
namespace {

constexpr double any_number = std::numeric_limits<double>::max();

JsonObject config_of(const SafetensorsFile& file) {
  const auto found = file.metadata().find("config");
  if (!file.metadata().contains("kind") || found == file.metadata().end())
    bad_input(Code::fixture_invalid, "{} is not a fixture: its header needs `kind` and `config`", file.path());
  const std::string origin = file.path() + ": `config` in its header";
  return {parse_json(found->second, origin), origin};
}

// CRC-32 (IEEE 802.3), as in Python's zlib.
std::uint32_t crc32(std::string_view bytes) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> out{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      out[i] = i;
      for (int bit = 0; bit < 8; ++bit) out[i] = (out[i] >> 1) ^ (out[i] % 2 == 1 ? 0xEDB88320u : 0u);
    }
    return out;
  }();
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  return ~crc;
}

// Throws if the file was changed: its metadata contain the checksum of all its bytes, with zeros as the checksum's own
// digits. Files of the first format, from other programs, may have none.
void check_checksum(const SafetensorsFile& file) {
  const auto refuse = [&](std::string_view what) {
    bad_input(Code::file_damaged, "{} is damaged: {}; copy the fixture again", file.path(), what);
  };
  const auto found = file.metadata().find("crc32");
  const auto format = file.metadata().find("format");
  if (found == file.metadata().end()) {
    if (format != file.metadata().end()) refuse("its checksum is missing");
    return;
  }
  std::string bytes = read_file(file.path());
  constexpr std::string_view key = "\"crc32\":\"";
  const std::size_t at = bytes.find(key);
  constexpr std::size_t digits = 8;
  if (at == std::string::npos || found->second.size() != digits) refuse("its checksum is not one");
  bytes.replace(at + key.size(), digits, digits, '0');
  if (fmt::format("{:08x}", crc32(bytes)) != found->second) refuse("its bytes do not have the checksum in its header");
}

// Keys that a config may have besides the settings of a model.
constexpr std::array other_keys = {"vocab",      "seed",     "beta_scale", "key_constraint", "temperature",  "steps",
                                   "lr",         "schedule", "adam_betas", "adam_eps",       "weight_decay", "clip",
                                   "count_pads", "pad_id",   "eos_id",     "batch",          "usage"};
constexpr std::array memory_keys = {
    "d_model",     "decay", "merge_evicted", "nprobe", "threshold", "partitions", "refinement_passes",
    "switch_rate", "slots", "counts",        "values", "windows",   "beta"};

// Throws if a key is unknown: its value would be ignored and the case would count as tested.
void check_keys(const JsonObject& config, const std::string& kind) {
  for (const auto& [name, value] : config.json().items()) {
    const auto equals = [&name = name](std::string_view one) { return one == name; };
    bool known = kind == "memory" ? std::any_of(memory_keys.begin(), memory_keys.end(), equals)
                                  : std::any_of(other_keys.begin(), other_keys.end(), equals);
    for (const Setting<ModelConfig>& setting : model_settings()) {
      if (known) break;
      known = kind != "memory" && current_setting(setting.table + "." + name) == setting.full_name();
    }
    if (!known)
      bad_input(Code::fixture_invalid, "{}: unknown key {}; see docs/verify.md", config.origin(),
                describe(nlohmann::json(name)));
  }
}

// Returns a config value converted and checked for its setting.
SettingValue value_of(const SettingInfo& setting, const JsonObject& config) {
  const std::string& key = setting.name;
  const auto checked = [&](double value) {
    if (!setting.contains(value)) config.wrong(key, setting.expected());
    return value;
  };
  switch (setting.kind) {
    case SettingKind::boolean: return config.need<bool>(key);
    case SettingKind::integer: {
      const auto value = config.need<std::int64_t>(key);
      checked(static_cast<double>(value));
      return value;
    }
    case SettingKind::number: return checked(config.need<double>(key));
    case SettingKind::text:
    case SettingKind::choice: {
      const auto value = config.need<std::string>(key);
      const auto& choices = setting.choices;
      if (!choices.empty() && std::find(choices.begin(), choices.end(), value) == choices.end())
        config.wrong(key, setting.expected());
      return value;
    }
    case SettingKind::numbers:
    case SettingKind::integers:
    case SettingKind::layer_scale: {
      const auto items = config.need<std::vector<double>>(key);
      for (const double item : items) {
        if (setting.kind == SettingKind::integers && item != std::floor(item)) config.wrong(key, setting.expected());
        checked(item);
      }
      const auto& lengths = setting.lengths;
      if (!lengths.empty() && std::find(lengths.begin(), lengths.end(), items.size()) == lengths.end())
        config.wrong(key, setting.expected());
      return items;
    }
    case SettingKind::anneal: {
      const JsonObject anneal = config.object(key);
      const auto& shapes = anneal_shapes();
      const auto found = std::find(shapes.begin(), shapes.end(), anneal.get<std::string>("shape", "none"));
      if (found == shapes.end()) anneal.wrong("shape", fmt::format("one of {}", fmt::join(shapes, ", ")));
      const auto shape = static_cast<AnnealShape>(found - shapes.begin());
      // An exponential schedule cannot start or end at 0.
      const double least = shape == AnnealShape::exponential ? std::numeric_limits<double>::min() : -any_number;
      return Anneal{shape, anneal.get<double>("start", 1.0, least, any_number),
                    anneal.get<double>("end", 1.0, least, any_number)};
    }
  }
  return {};
}

}  // namespace

Fixture::Fixture(const std::string& path) : file_(SafetensorsFile::open(path)), config_(config_of(file_)) {
  kind_ = file_.metadata().at("kind");
  check_checksum(file_);
  if (kind_ == "memory") config_ = with_current_settings(config_, "memory");
  check_keys(config_, kind_);
  file_.rename(current_tensor);
}

// Returns the settings of a case; missing settings take the defaults of recipes, missing sizes the smallest values.
ModelConfig Fixture::model_config() const {
  ModelConfig c;
  c.seed = config_.get<std::uint64_t>("seed", 0);
  c.vocab = config_.get<int>("vocab", 8, 1, 1 << 20);
  c.d_model = c.seq_len = c.d_ffn = 8;
  c.layers = c.heads = c.experts = c.top_k = 1;
  c.train_temp = 1.0;
  nlohmann::json named = config_.json();
  // Two keys have different names in fixtures than in recipes.
  if (named.contains("key_constraint") && !named.contains("constraint")) named["constraint"] = named["key_constraint"];
  if (named.contains("temperature") && !named["temperature"].is_string()) {
    named["train_temp"] = named["temperature"];
    named.erase("temperature");
  }
  for (const Setting<ModelConfig>& setting : model_settings()) {
    for (const auto& [name, value] : config_.json().items()) {
      const std::string full = setting.table + "." + name;
      if (full != setting.full_name() && current_setting(full) == setting.full_name() && !named.contains(setting.name))
        named[setting.name] = value;
    }
    if (named.contains(setting.name) && named[setting.name].is_string())
      named[setting.name] = current_value(setting.full_name(), named[setting.name].get<std::string>());
  }
  const JsonObject from(std::move(named), config_.origin());
  for (const Setting<ModelConfig>& setting : model_settings()) {
    if (from.has(setting.name)) setting.set(c, value_of(setting, from));
  }
  c.eval_temp = c.train_temp;
  c.keys.beta *= config_.get<double>("beta_scale", 1.0, -any_number, any_number);
  if (c.top_k > c.experts) config_.wrong("top_k", fmt::format("at most `experts` = {}", c.experts));
  return c;
}

ModelConfig Fixture::checked_model_config() const {
  ModelConfig config = model_config();
  try {
    check_config(config);
  } catch (const Error& error) {
    throw error.within(config_.origin(), fmt::format("{}: {}", config_.origin(), error.what()));
  }
  return config;
}

void Fixture::check_proportion(const ModelConfig& config, std::int64_t rows) const {
  double stored = 0;
  for (const std::string& name : file_.names()) stored += static_cast<double>(file_.shape(name).elements());
  // Double precision needs twice the estimated memory; a case with its gradients and moments takes about ten times its
  // parameters.
  const double needed = 2 * estimate_memory(config, static_cast<double>(rows), false, true).total();
  constexpr double small = 256.0 * (1 << 20), factor = 64, bytes = 8;
  if (needed > small + factor * bytes * stored)
    bad_input(Code::fixture_invalid,
              "{}: a case of these sizes requires {:.1f} GiB, but the file has {:.1f} MiB of numbers; one of the sizes "
              "is wrong",
              config_.origin(), needed / (1 << 30), bytes * stored / (1 << 20));
}

Shape Fixture::shape(const std::string& name, int rank) const {
  const Shape found = file_.shape(name);
  if (found.rank() != rank || found.elements() == 0)
    bad_input(Code::tensor_shape, "{}: {} has shape {}; must have {} axes, each >= 1", path(), name, found.text(),
              rank);
  return found;
}

Tensor Fixture::load(const std::string& name, const Shape& shape) const {
  if (const Shape found = file_.shape(name); found != shape)
    bad_input(Code::tensor_shape, "{}: {} has shape {}, but its config requires {}", path(), name, found.text(),
              shape.text());
  return file_.load(name);
}

Tensor Fixture::numbers(const std::string& name, const Shape& shape) const { return load(name, shape); }

Tensor Fixture::ids(const std::string& name, const Shape& shape, std::int64_t low, std::int64_t high) const {
  const Tensor stored = load(name, shape);
  if (stored.dtype() != DType::i64 && stored.dtype() != DType::i32)
    bad_input(Code::tensor_type, "{}: {} has elements of type {}; must be I64 or I32", path(), name,
              name_of(stored.dtype()));
  const Tensor wide = stored.dtype() == DType::i64 ? stored : stored.to(DType::i64);
  for (std::int64_t i = 0; i < wide.elements(); ++i) {
    if (const std::int64_t id = wide.data<std::int64_t>()[i]; id < low || id > high)
      bad_input(Code::tensor_value, "{}: {} contains {}; must be integers from {} to {}", path(), name, id, low, high);
  }
  return stored.dtype() == DType::i32 ? stored : stored.to(DType::i32);
}

std::vector<double> Fixture::expected(const std::string& name, std::size_t size) const {
  const std::string full = "expect." + name;
  const Shape found = file_.shape(full);
  if (static_cast<std::size_t>(found.elements()) != size)
    bad_input(Code::tensor_shape, "{}: {} has shape {}, but there are {} results", path(), full, found.text(), size);
  return read_vector(file_.load(full));
}

std::optional<double> Fixture::expected_measure(const std::string& name) const {
  const auto found = file_.metadata().find(name);
  if (found == file_.metadata().end()) return std::nullopt;
  const std::string& text = found->second;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    bad_input(Code::fixture_invalid, "{}: `{}` in its header: must be a number, not {}", path(), name,
              describe(nlohmann::json(text)));
  return value;
}

}  // namespace some

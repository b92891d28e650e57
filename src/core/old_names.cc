#include "core/old_names.h"

#include <algorithm>
#include <array>

namespace some {
namespace {

struct OldName {
  std::string_view old, current;
};
struct OldValue {
  std::string_view setting, old, current;
};

constexpr std::array settings = {
    OldName{"model.look_back", "model.conv"},
    OldName{"some.readin", "some.input_proj"},
    OldName{"some.readout", "some.output_proj"},
    OldName{"some.readout_init", "some.output_proj_init"},
    OldName{"some.listen", "some.token_shift"},
    OldName{"data.train_stories", "data.train_documents"},
    OldName{"data.valid_stories", "data.valid_documents"},
    OldName{"memory.match", "memory.threshold"},
    OldName{"memory.sharpness", "memory.beta"},
    OldName{"memory.share", "memory.switch_rate"},
    OldName{"memory.inherit", "memory.merge_evicted"},
    OldName{"memory.parts", "memory.partitions"},
    OldName{"memory.look", "memory.nprobe"},
    OldName{"memory.rounds", "memory.refinement_passes"},
};
constexpr std::array values = {
    OldValue{"some.routing", "random", "hash"},
    OldValue{"some.modulation", "factor", "multiplicative"},
    OldValue{"some.modulation", "inside", "additive"},
};
// A key of a line of metrics.jsonl, or of the header of a memory.
constexpr std::array keys = {
    OldName{"load_over_fair", "max_over_mean_load"},
    OldName{"stories", "documents"},
    OldName{"deeds", "history"},
    OldName{"settle", "refine"},
};
// A part of a tensor's name, between dots.
constexpr std::array tensors = {
    OldName{"look_back", "conv"},    OldName{"readin", "input_proj"},    OldName{"readout", "output_proj"},
    OldName{"centres", "centroids"}, OldName{"tallies", "entry_counts"}, OldName{"settled", "refined"},
};

}  // namespace

std::string current_setting(std::string_view name) {
  for (const OldName& one : settings) {
    if (one.old == name) return std::string(one.current);
  }
  return std::string(name);
}

std::string current_value(std::string_view setting, std::string_view value) {
  for (const OldValue& one : values) {
    if (one.setting == setting && one.old == value) return std::string(one.current);
  }
  return std::string(value);
}

JsonObject with_current_settings(const JsonObject& object, std::string_view table) {
  const std::string prefix = std::string(table) + '.';
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [key, value] : object.json().items())
    out[current_setting(prefix + key).substr(prefix.size())] = value;
  return {std::move(out), object.origin()};
}

std::string key_in(const JsonObject& object, std::string_view name) {
  if (object.has(std::string(name))) return std::string(name);
  for (const OldName& one : keys) {
    if (one.current == name && object.has(std::string(one.old))) return std::string(one.old);
  }
  return std::string(name);
}

namespace {

std::string replace_parts(std::string_view name, std::string_view OldName::*from, std::string_view OldName::*to) {
  std::string out;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    std::string_view part = name.substr(begin, end - begin);
    for (const OldName& one : tensors) {
      if (one.*from == part) part = one.*to;
    }
    out += part;
    if (end < name.size()) out += '.';
    begin = end + 1;
  }
  return out;
}

}  // namespace

std::string current_tensor(std::string_view name) { return replace_parts(name, &OldName::old, &OldName::current); }
std::string first_tensor_name(std::string_view name) { return replace_parts(name, &OldName::current, &OldName::old); }

}  // namespace some

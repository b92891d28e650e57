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
};
constexpr std::array values = {
    OldValue{"some.routing", "random", "hash"},
    OldValue{"some.modulation", "factor", "multiplicative"},
    OldValue{"some.modulation", "inside", "additive"},
};
// A key of a line of metrics.jsonl.
constexpr std::array metrics = {
    OldName{"load_over_fair", "max_over_mean_load"},
    OldName{"stories", "documents"},
};
// A part of a tensor's name, between dots.
constexpr std::array tensors = {
    OldName{"look_back", "conv"},
    OldName{"readin", "input_proj"},
    OldName{"readout", "output_proj"},
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

std::string metric_name(const JsonObject& line, std::string_view name) {
  if (line.has(std::string(name))) return std::string(name);
  for (const OldName& one : metrics) {
    if (one.current == name && line.has(std::string(one.old))) return std::string(one.old);
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

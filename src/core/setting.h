// Settings as their owners declare them: name, kind, range, description, and the struct member that holds the value.
// Reading recipes and golden fixtures, wording messages and writing files all use these declarations; settings are
// listed nowhere else.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/anneal.h"

namespace some {

enum class SettingKind {
  boolean,
  integer,
  number,
  text,
  choice,       // text: one of `choices`, or any text for which `accepts` returns true
  numbers,      // list of numbers
  integers,     // list of integers
  layer_scale,  // list of numbers, one per layer, or one number for all
  anneal,       // table of shape, start, end
};

// Decides whether a setting may change when training continues from existing weights.
enum class SettingRole {
  model,   // determines the parameters, the expert library or their meaning: weights are reused only if it is unchanged
  tokens,  // determines the meaning of token ids: weights are reused only if it is unchanged
  run,     // belongs to the run as a whole
  training_stage,  // what is trained and how: may differ between runs and between stages of a run
  length,          // duration of training: may differ between runs and stages, and a resumed run may be extended
  habit,           // what is logged and written, and when: a resumed run may change it
  machine,         // where the run is computed: may differ in every session, and is not stored with the run
};

using SettingValue = std::variant<bool, std::int64_t, double, std::string, std::vector<double>, Anneal>;

// Description of a setting, independent of its owner.
struct SettingInfo {
  std::string table;  // recipe table: "model", "some", "data", "train"; empty for keys before the first table
  std::string name;
  SettingKind kind = SettingKind::number;
  std::string meaning;
  std::vector<std::string> choices;
  bool (*accepts)(const std::string&) = nullptr;  // if `choices` are only examples: true for an accepted text
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;   // the value must be above `low`, not equal to it
  bool below_high = false;  // the value must be below `high`, not equal to it
  SettingRole role = SettingRole::training_stage;
  bool in_steps = false;     // a number of training steps, which is scaled when the run is shortened
  std::vector<int> lengths;  // allowed lengths of a list; empty: any length

  std::string full_name() const { return table.empty() ? name : table + "." + name; }
  std::string expected() const;       // "a whole number of at least 1"
  bool contains(double value) const;  // true if the value is in range
};

template <typename Owner>
struct Setting : SettingInfo {
  std::function<SettingValue(const Owner&)> get;
  std::function<void(Owner&, const SettingValue&)> set;
};

// Declares settings one by one. A place is a pointer to a member of Owner, or a generic lambda [](auto& owner) -> auto&
// { ... } that returns a reference to one, so that the same place serves reading and writing.
template <typename Owner>
class SettingList {
 public:
  std::vector<Setting<Owner>> list;
  // Table and role of all settings declared after they are set.
  std::string table;
  SettingRole role = SettingRole::training_stage;

  template <typename Place>
  Setting<Owner>& boolean(const char* name, Place place, const char* meaning) {
    return plain<bool>(name, SettingKind::boolean, place, meaning);
  }

  template <typename Place>
  Setting<Owner>& integer(const char* name, Place place, double low, double high, const char* meaning) {
    // Values that a narrow member cannot hold are out of range, not truncated.
    if constexpr (sizeof(Member<Place>) == 4) high = std::min(high, 2147483647.0);
    return ranged(plain<std::int64_t>(name, SettingKind::integer, place, meaning), low, high);
  }

  template <typename Place>
  Setting<Owner>& number(const char* name, Place place, double low, double high, const char* meaning) {
    return ranged(plain<double>(name, SettingKind::number, place, meaning), low, high);
  }

  template <typename Place>
  Setting<Owner>& text(const char* name, Place place, const char* meaning) {
    return plain<std::string>(name, SettingKind::text, place, meaning);
  }

  // The member is an enum, with `choices` in the order of its values, or a string.
  template <typename Place>
  // NOLINTNEXTLINE(performance-unnecessary-value-param): moved from if the member is a text
  Setting<Owner>& choice(const char* name, Place place, std::vector<std::string> choices, const char* meaning) {
    if constexpr (std::is_enum_v<Member<Place>>) {
      Setting<Owner>& setting = add(name, SettingKind::choice, meaning);
      setting.choices = choices;
      setting.get = [place, choices](const Owner& owner) {
        return SettingValue(choices.at(static_cast<std::size_t>(std::invoke(place, owner))));
      };
      setting.set = [place, choices](Owner& owner, const SettingValue& value) {
        const auto found = std::find(choices.begin(), choices.end(), std::get<std::string>(value));
        std::invoke(place, owner) = static_cast<Member<Place>>(found - choices.begin());
      };
      return setting;
    } else {
      Setting<Owner>& setting = plain<std::string>(name, SettingKind::choice, place, meaning);
      setting.choices = std::move(choices);
      return setting;
    }
  }

  template <typename Place>
  Setting<Owner>& anneal(const char* name, Place place, const char* meaning) {
    return plain<Anneal>(name, SettingKind::anneal, place, meaning);
  }

  // A list of integers, or of one number per layer.
  template <typename Place>
  Setting<Owner>& sequence(const char* name, SettingKind kind, Place place, double low, const char* meaning) {
    Setting<Owner>& setting = add(name, kind, meaning);
    setting.low = low;
    setting.get = [place](const Owner& owner) {
      const auto& items = std::invoke(place, owner);
      return SettingValue(std::vector<double>(items.begin(), items.end()));
    };
    setting.set = [place](Owner& owner, const SettingValue& value) {
      const auto& items = std::get<std::vector<double>>(value);
      std::invoke(place, owner).assign(items.begin(), items.end());
    };
    return setting;
  }

  // Adds a setting; the caller must set `get` and `set`.
  Setting<Owner>& add(const char* name, SettingKind kind, const char* meaning) {
    Setting<Owner>& setting = list.emplace_back();
    setting.table = table;
    setting.name = name;
    setting.kind = kind;
    setting.role = role;
    setting.meaning = meaning;
    return setting;
  }

  // Adds the settings of a part of Owner, which `place` returns.
  template <typename Part, typename Place>
  void include(const std::vector<Setting<Part>>& part, Place place) {
    for (const Setting<Part>& one : part) {
      Setting<Owner>& setting = list.emplace_back();
      static_cast<SettingInfo&>(setting) = one;
      if (setting.table.empty()) setting.table = table;
      setting.get = [get = one.get, place](const Owner& owner) { return get(place(owner)); };
      setting.set = [set = one.set, place](Owner& owner, const SettingValue& value) { set(place(owner), value); };
    }
  }

 private:
  template <typename Place>
  using Member = std::remove_reference_t<std::invoke_result_t<Place, Owner&>>;

  template <typename Value, typename Place>
  Setting<Owner>& plain(const char* name, SettingKind kind, Place place, const char* meaning) {
    Setting<Owner>& setting = add(name, kind, meaning);
    setting.get = [place](const Owner& owner) { return SettingValue(static_cast<Value>(std::invoke(place, owner))); };
    setting.set = [place](Owner& owner, const SettingValue& value) {
      std::invoke(place, owner) = static_cast<Member<Place>>(std::get<Value>(value));
    };
    return setting;
  }

  static Setting<Owner>& ranged(Setting<Owner>& setting, double low, double high) {
    setting.low = low;
    setting.high = high;
    return setting;
  }
};

inline constexpr double unlimited = std::numeric_limits<double>::infinity();

}  // namespace some

// A setting as its owner declares it: name, kind, range, meaning, and the member it lies in. Recipes and golden
// fixtures are read, messages worded and files written from these declarations; no one else lists settings.
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
  choice,       // text, one of `choices`, or one that `accepts` takes
  numbers,      // list of numbers
  integers,     // list of whole numbers
  layer_scale,  // list of numbers, one per layer, or one number for all
  anneal,       // table of shape, start, end
};

// What it means to change a setting for a model that goes on learning.
enum class SettingRole {
  model,           // decides the parameters, the library or what they mean: weights go on only where it is the same
  tokens,          // decides what an id means: likewise
  run,             // belongs to a run as a whole
  training_stage,  // what is learnt and how: another run, or another stage of one, may differ
  length,          // how long it is learnt: likewise, and a run that is resumed may become longer
  habit,           // what is looked at and written, and when: a run that is resumed may change it
  machine,         // where it is computed: every sitting may differ, and no run keeps it
};

using SettingValue = std::variant<bool, std::int64_t, double, std::string, std::vector<double>, Anneal>;

// What is said of a setting, whoever owns it.
struct SettingWords {
  std::string table;  // of a recipe: "model", "some", "data", "train"; empty for keys before the first table
  std::string name;
  SettingKind kind = SettingKind::number;
  std::string meaning;
  std::vector<std::string> choices;
  bool (*accepts)(const std::string&) = nullptr;  // where `choices` are examples only: whether it is one of them
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;   // the value must be above `low`, not equal to it
  bool below_high = false;  // likewise
  SettingRole role = SettingRole::training_stage;
  bool in_steps = false;     // a number of steps of the run, which shrinks with the run
  std::vector<int> lengths;  // of a list; empty: any

  std::string full_name() const { return table.empty() ? name : table + "." + name; }
  std::string wants() const;          // "a whole number of at least 1"
  bool contains(double value) const;  // in range
};

template <typename Owner>
struct Setting : SettingWords {
  std::function<SettingValue(const Owner&)> get;
  std::function<void(Owner&, const SettingValue&)> set;
};

// Declares settings one by one. A place is a pointer to a member of Owner, or a generic lambda
// [](auto& owner) -> auto& { ... } that leads to one, so that it reads and writes.
template <typename Owner>
class SettingList {
 public:
  std::vector<Setting<Owner>> list;
  // Of the settings declared from here on.
  std::string table;
  SettingRole role = SettingRole::training_stage;

  template <typename Place>
  Setting<Owner>& boolean(const char* name, Place place, const char* meaning) {
    return plain<bool>(name, SettingKind::boolean, place, meaning);
  }

  template <typename Place>
  Setting<Owner>& integer(const char* name, Place place, double low, double high, const char* meaning) {
    // Values a narrow member cannot hold are out of range, not cut off.
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

  // Of an enum, in the order of its values, or of a text.
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

  // A list of whole numbers, or of one number per layer.
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

  // get and set are still to be given.
  Setting<Owner>& add(const char* name, SettingKind kind, const char* meaning) {
    Setting<Owner>& setting = list.emplace_back();
    setting.table = table;
    setting.name = name;
    setting.kind = kind;
    setting.role = role;
    setting.meaning = meaning;
    return setting;
  }

  // The settings of a part of Owner that `place` leads to.
  template <typename Part, typename Place>
  void include(const std::vector<Setting<Part>>& part, Place place) {
    for (const Setting<Part>& one : part) {
      Setting<Owner>& setting = list.emplace_back();
      static_cast<SettingWords&>(setting) = one;
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

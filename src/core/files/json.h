// JSON from files. Every reader uses these functions: they limit the nesting depth (nlohmann::json writes and compares
// recursively), and report every problem as file, place and expected value, not in the words of nlohmann::json.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace some {

class Error;  // core/error.h

constexpr int max_json_depth = 64;

// Parses `text`; bad_input "ORIGIN: line 3, column 7: not JSON: ..." if it is not JSON or nests deeper than
// max_json_depth.
nlohmann::json parse_json(std::string_view text, const std::string& origin,
                          const nlohmann::json::parser_callback_t& watch = nullptr);
// The same for lines that may safely be damaged: empty in the cases in which parse_json throws.
std::optional<nlohmann::json> parse_json_line(std::string_view line);

// Formats a value for a message: one short line; objects and lists only by kind and size.
std::string describe(const nlohmann::json& value);

nlohmann::json json_of(const Error& error);  // {"code", "message", "values"}: the machine-readable form of an error

// An object that is read key by key. A value that does not fit is bad_input "ORIGIN: KEY: must be ..., not ...".
class JsonObject {
 public:
  JsonObject(nlohmann::json object, std::string origin);  // bad_input if it is not an object

  bool has(const std::string& key) const { return object_.contains(key); }
  const nlohmann::json& json() const { return object_; }
  const std::string& origin() const { return origin_; }

  // Returns the value of `key`; bad_input if it is missing. T: bool, int, std::int64_t, std::uint64_t, double,
  // std::string, or a vector of these.
  template <typename T>
  T need(const std::string& key) const {
    return read<T>(find(key), key);
  }
  template <typename T>
  T get(const std::string& key, T fallback) const {
    return has(key) ? read<T>(object_.at(key), key) : std::move(fallback);
  }
  // The same for numbers in [low, high].
  template <typename T>
  T need(const std::string& key, T low, T high) const {
    return within(need<T>(key), key, low, high);
  }
  template <typename T>
  T get(const std::string& key, T fallback, T low, T high) const {
    return has(key) ? within(need<T>(key), key, low, high) : fallback;
  }
  JsonObject object(const std::string& key) const;                // a member that is itself an object
  std::vector<JsonObject> objects(const std::string& key) const;  // a list of objects
  [[noreturn]] void wrong(const std::string& key, const std::string& wanted) const;

 private:
  template <typename T>
  struct is_vector : std::false_type {};
  template <typename T>
  struct is_vector<std::vector<T>> : std::true_type {};

  template <typename T>
  T read(const nlohmann::json& value, const std::string& key) const {
    if constexpr (is_vector<T>::value) {
      if (!value.is_array()) wrong(value, key, "a list");
      T list;
      for (const nlohmann::json& item : value) list.push_back(read<typename T::value_type>(item, key));
      return list;
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!value.is_boolean()) wrong(value, key, "true or false");
      return value.get<bool>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!value.is_string()) wrong(value, key, "a text");
      return value.get<std::string>();
    } else if constexpr (std::is_floating_point_v<T>) {
      if (!value.is_number()) wrong(value, key, "a number");
      return value.get<T>();
    } else {
      static_assert(std::is_integral_v<T>);
      using Limits = std::numeric_limits<T>;
      // JSON has one number type, so 3.0 would be an integer too; but no writer of counts produces it.
      if (!value.is_number_integer()) wrong(value, key, "an integer");
      const bool fits =
          value.is_number_unsigned()
              ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(Limits::max())
              : value.get<std::int64_t>() >= 0 ||
                    (std::is_signed_v<T> && value.get<std::int64_t>() >= static_cast<std::int64_t>(Limits::min()));
      if (!fits) wrong_range(value, key, std::to_string(Limits::min()), std::to_string(Limits::max()));
      return value.get<T>();
    }
  }
  template <typename T>
  T within(T value, const std::string& key, T low, T high) const {
    if (!(value >= low && value <= high)) wrong_range(object_.at(key), key, text_of(low), text_of(high));
    return value;
  }
  template <typename T>
  static std::string text_of(T number) {
    return nlohmann::json(number).dump();
  }
  const nlohmann::json& find(const std::string& key) const;
  [[noreturn]] void wrong(const nlohmann::json& value, const std::string& key, const std::string& wanted) const;
  [[noreturn]] void wrong_range(const nlohmann::json& value, const std::string& key, const std::string& low,
                                const std::string& high) const;

  nlohmann::json object_;
  std::string origin_;
};

}  // namespace some

#include "core/error.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace some {
namespace {

// Converts "setting_type" to "setting-type" at compile time, in its own storage.
template <std::size_t n>
struct Dashed {
  std::array<char, n> text{};
  constexpr explicit Dashed(const char (&name)[n]) {
    for (std::size_t i = 0; i < n; ++i) text[i] = name[i] == '_' ? '-' : name[i];
  }
  constexpr std::string_view view() const { return {text.data(), n - 1}; }
};

#define SOME_TOPIC(topic)
#define SOME_DASHED(code, meaning) constexpr Dashed code##_name(#code);
SOME_ERROR_CODES(SOME_TOPIC, SOME_DASHED)
#undef SOME_TOPIC
#undef SOME_DASHED

// An entry of the list of codes: the heading of a topic (topic is set), or a code.
struct Listed {
  const char* topic = nullptr;
  CodeMeaning entry{};
};

#define SOME_TOPIC(topic) Listed{topic, {}},
#define SOME_LISTED(code, meaning) Listed{nullptr, {Code::code, code##_name.view(), {}, meaning}},
constexpr Listed listed_codes[] = {SOME_ERROR_CODES(SOME_TOPIC, SOME_LISTED)};
#undef SOME_TOPIC
#undef SOME_LISTED

constexpr std::size_t count_codes() {
  std::size_t count = 0;
  for (const Listed& one : listed_codes) count += one.topic == nullptr ? 1 : 0;
  return count;
}

constexpr std::array<CodeMeaning, count_codes()> make_codes() {
  std::array<CodeMeaning, count_codes()> out{};
  std::size_t count = 0;
  std::string_view topic;
  for (const Listed& one : listed_codes) {
    if (one.topic != nullptr) {
      topic = one.topic;
    } else {
      out[count] = one.entry;
      out[count].topic = topic;
      ++count;
    }
  }
  return out;
}

constexpr std::array<CodeMeaning, count_codes()> all_codes = make_codes();

}  // namespace

std::span<const CodeMeaning> error_codes() { return all_codes; }

std::string_view name_of(Code code) { return all_codes[static_cast<std::size_t>(code)].name; }

std::optional<Code> code_named(std::string_view name) {
  const auto found = std::ranges::find(all_codes, name, &CodeMeaning::name);
  if (found == all_codes.end()) return std::nullopt;
  return found->code;
}

Error Error::within(std::string_view where, const std::string& message) const {
  std::vector<std::string> values{std::string(where)};
  values.insert(values.end(), values_.begin(), values_.end());
  return {fault_, code_, message, std::move(values)};
}

std::vector<std::string> values_of(fmt::format_args arguments, std::size_t count) {
  std::vector<std::string> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(fmt::vformat("{" + std::to_string(i) + "}", arguments));
  return values;
}

Error error_from(Fault fault, Code code, fmt::string_view format, fmt::format_args arguments, std::size_t count) {
  return {fault, code, fmt::vformat(format, arguments), values_of(arguments, count)};
}

void throw_error(Fault fault, Code code, fmt::string_view format, fmt::format_args arguments, std::size_t count) {
  throw error_from(fault, code, format, arguments, count);
}

}  // namespace some

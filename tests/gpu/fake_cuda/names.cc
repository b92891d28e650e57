#include "names.h"

#include <cxxabi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace fake_cuda {
namespace {

// Returns the position of the bracket closed by the last character.
std::size_t opening_of_last(const std::string& text) {
  int depth = 0;
  for (std::size_t i = text.size(); i-- > 0;) {
    if (text[i] == ')') ++depth;
    if (text[i] == '(' && --depth == 0) return i;
  }
  return std::string::npos;
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

// Splits "a, b<c, d>" into its two parts.
std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  int depth = 0;
  std::string part;
  for (const char letter : text) {
    if (letter == '(' || letter == '<' || letter == '{' || letter == '[') ++depth;
    if (letter == ')' || letter == '>' || letter == '}' || letter == ']') --depth;
    if (letter == ',' && depth == 0) {
      parts.push_back(trimmed(part));
      part.clear();
    } else {
      part += letter;
    }
  }
  if (!trimmed(part).empty()) parts.push_back(trimmed(part));
  return parts;
}

// Removes every "name::", because a namespace may change while the kernel stays the same.
std::string without_scopes(std::string text) {
  for (const char* const unnamed : {"(anonymous namespace)::", "<unnamed>::"}) {
    for (std::size_t at; (at = text.find(unnamed)) != std::string::npos;) text.erase(at, std::strlen(unnamed));
  }
  for (std::size_t at = 0; (at = text.find("::", at)) != std::string::npos;) {
    std::size_t first = at;
    while (first > 0 && (std::isalnum(static_cast<unsigned char>(text[first - 1])) || text[first - 1] == '_')) --first;
    if (first == at) {
      at += 2;  // after template arguments: part of the name
      continue;
    }
    text.erase(first, at + 2 - first);
    at = first;
  }
  return text;
}

template <typename T>
T read(const void* argument) {
  T value;
  std::memcpy(&value, argument, sizeof value);
  return value;
}

}  // namespace

KernelName read_kernel_name(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(abi::__cxa_demangle(mangled, nullptr, nullptr, &status),
                                                              &std::free);
  if (status != 0) return {mangled, {}};
  std::string text = demangled.get();
  KernelName read;
  const std::size_t open = !text.empty() && text.back() == ')' ? opening_of_last(text) : std::string::npos;
  if (open != std::string::npos) {
    read.parameters = parts_of(text.substr(open + 1, text.size() - open - 2));
    text.erase(open);
  }
  int depth = 0;  // a template's name follows its return type and a space
  std::size_t first = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<' || text[i] == '(' || text[i] == '{') ++depth;
    if (text[i] == '>' || text[i] == ')' || text[i] == '}') --depth;
    if (text[i] == ' ' && depth == 0) first = i + 1;
  }
  read.name = without_scopes(text.substr(first));
  return read;
}

std::string value_of(const std::string& type, const void* argument) {
  std::string plain = type;
  if (plain.size() > 6 && plain.compare(plain.size() - 6, 6, " const") == 0) plain.resize(plain.size() - 6);
  const auto number = [](long long value) { return std::to_string(value); };
  if (plain == "bool") return number(read<unsigned char>(argument));
  if (plain == "int") return number(read<int>(argument));
  if (plain == "unsigned int") return number(read<unsigned int>(argument));
  if (plain == "long" || plain == "long long") return number(read<long long>(argument));
  if (plain == "unsigned long" || plain == "unsigned long long")
    return std::to_string(read<unsigned long long>(argument));
  if (plain == "short") return number(read<short>(argument));
  if (plain == "unsigned short") return number(read<unsigned short>(argument));
  if (plain == "char" || plain == "signed char" || plain == "unsigned char") return number(read<signed char>(argument));
  if (plain == "float" || plain == "double") {
    char text[40];
    std::snprintf(text, sizeof text, "%.9g", plain == "float" ? read<float>(argument) : read<double>(argument));
    return text;
  }
  return "_";
}

}  // namespace fake_cuda

// API keys of a server. The holder of a key is identified by the key's number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace some {

class ApiKeys {
 public:
  ApiKeys() = default;
  explicit ApiKeys(std::vector<std::string> keys);  // bad_input for a key that is too short or has blanks in it
  // Reads one key per line; skips blank lines and lines that begin with #. bad_input if the file has no key, or if
  // other users can read it.
  static ApiKeys from_file(const std::string& path);
  // The same with keys separated by commas or line ends; `origin` names them in messages.
  static ApiKeys from_text(const std::string& text, const std::string& origin);

  bool required() const { return !keys_.empty(); }
  std::size_t size() const { return keys_.size(); }
  // Returns the number of the key in an "Authorization: Bearer KEY" field; empty if there is no valid one. Takes the
  // same time for any field. Without keys every client has number 0.
  std::optional<std::size_t> holder(std::string_view authorization) const;

 private:
  std::vector<std::string> keys_;
};

}  // namespace some

#include "serve/api_keys.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "core/error.h"
#include "core/files/files.h"
#include "http/http.h"

namespace some {
namespace {

constexpr std::size_t least_key_bytes = 16, max_key_bytes = 512;

std::string without_blanks(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin));
}

bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return (x >= 'A' && x <= 'Z' ? x + 32 : x) == y; });
}

}  // namespace

ApiKeys::ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const std::string& key = keys_[i];
    if (key.size() < least_key_bytes || key.size() > max_key_bytes)
      bad_input(Code::api_key_invalid,
                "API key {}: must have {} to {} characters (has {}); 'openssl rand -hex 24' creates one", i + 1,
                least_key_bytes, max_key_bytes, key.size());
    if (std::any_of(key.begin(), key.end(), [](char c) { return c <= ' ' || c > '~'; }))
      bad_input(Code::api_key_invalid, "API key {}: must consist of printable ASCII characters without blanks", i + 1);
  }
}

ApiKeys ApiKeys::from_text(const std::string& text, const std::string& origin) {
  std::vector<std::string> keys;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find_first_of(",\n", begin), text.size());
    const std::string key = without_blanks(std::string_view(text).substr(begin, end - begin));
    if (!key.empty() && key[0] != '#') keys.push_back(key);
    begin = end + 1;
  }
  if (keys.empty()) bad_input(Code::api_key_invalid, "{}: has no API key; write one per line", origin);
  return ApiKeys(std::move(keys));
}

ApiKeys ApiKeys::from_file(const std::string& path) {
  const std::string text = read_file(path, 1 << 20);
  struct stat now {};
  if (::stat(path.c_str(), &now) == 0 && (now.st_mode & (S_IROTH | S_IWOTH)) != 0)
    bad_input(Code::api_key_invalid, "{}: other users can read or write the API keys; use chmod 600 {}", path, path);
  return from_text(text, path);
}

std::optional<std::size_t> ApiKeys::holder(std::string_view authorization) const {
  if (keys_.empty()) return 0;
  const std::size_t blank = std::min(authorization.find(' '), authorization.size());
  const bool bearer = same_letters(authorization.substr(0, blank), "bearer");
  const std::string given = without_blanks(authorization.substr(std::min(authorization.size(), blank + 1)));
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < keys_.size(); ++i) {  // no early exit: constant time
    if (equal_secrets(given, keys_[i])) found = i;
  }
  return bearer ? found : std::nullopt;
}

}  // namespace some

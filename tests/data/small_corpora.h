// Corpora of a few documents, for tests of reading text and of the cache.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/log.h"
#include "data/source.h"
#include "data/token_data.h"
#include "expect_error.h"

namespace some {

// Collects the library's log during a test.
class Listener {
 public:
  std::vector<LogMessage> warnings;
  std::vector<std::string> infos;
  Host host = make_host(0, Log([this](const LogMessage& message) {
                          if (message.level == LogLevel::warning)
                            warnings.push_back(message);
                          else
                            infos.push_back(message.text);
                        }));
  Listener() = default;
  Listener(const Listener&) = delete;
};

inline bool any_contains(const std::vector<std::string>& messages, const std::string& part) {
  return std::any_of(messages.begin(), messages.end(),
                     [&](const auto& m) { return m.find(part) != std::string::npos; });
}

inline std::string story_number(int i) {
  return "Story " + std::to_string(i) + " tells of a cat that had " + std::to_string(i * i) + " friends.";
}

inline std::string text_of(int first, int count, const std::string& line_end = "\n") {
  std::string text;
  for (int i = first; i < first + count; ++i) text += story_number(i) + line_end + "<|endoftext|>" + line_end;
  return text;
}

inline DataConfig small_config(const std::string& train, const std::string& valid = "") {
  DataConfig config;
  config.train = train;
  config.valid = valid;
  config.vocab = 300;
  return config;
}

inline Corpora load(const DataConfig& config, const std::string& cache = "", std::uint64_t seed = 1,
                    const Host& host = {}) {
  return load_corpora(host, config, seed, cache, {});
}

inline std::string decode(const Corpora& corpora, const TokenData& data, std::int64_t document) {
  return corpora.tokenizer.decode(data.ids(document), {.skip_specials = true});
}

inline std::vector<std::string> all_texts(const Corpora& corpora, const TokenData& data) {
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < data.documents(); ++i) texts.push_back(decode(corpora, data, i));
  return texts;
}

inline bool same_tokens(const TokenData& a, const TokenData& b) {
  if (a.documents() != b.documents() || a.tokens() != b.tokens() || a.hash() != b.hash()) return false;
  for (std::int64_t i = 0; i < a.documents(); ++i) {
    if (!std::ranges::equal(a.ids(i), b.ids(i)) || !std::ranges::equal(a.bytes(i), b.bytes(i))) return false;
    if (a.document_text_bytes(i) != b.document_text_bytes(i)) return false;
  }
  return true;
}

}  // namespace some

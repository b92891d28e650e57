// Built-in text: a deterministic generator of short documents, so that training works on a machine without any data.
// Each domain has its own vocabulary and structure (for studies of domain shift).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace some {

struct StoryOptions {
  std::uint64_t seed = 0;
  std::string domain = "stories";  // one of story_domains()
};

// Maximum number of documents per domain: several hundred gigabytes of text, more than any realistic request.
constexpr std::int64_t max_stories = 100'000'000;

// Returns the names of the domains. The first is the default; the last, "mixed", draws each document from one of the
// other domains.
std::vector<std::string> story_domains();

// Returns document `index` of a domain: a pure function of (seed, domain, index), plain ASCII, without a trailing
// newline. bad_input for an unknown domain.
std::string make_story(const StoryOptions& options, std::uint64_t index);

// Passes documents first to first + count - 1 to `sink`, each followed by a newline and a separator line.
void write_stories(const StoryOptions& options, std::uint64_t count, const std::function<void(std::string_view)>& sink,
                   std::uint64_t first = 0, std::string_view separator = "<|endoftext|>");

}  // namespace some

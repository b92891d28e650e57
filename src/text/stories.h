// Built-in text: a deterministic generator of short pieces, so that a machine without any data has something real
// to learn from. Each domain has its own vocabulary and structure (for studies of domain shift).
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

// As many pieces as any domain has: some hundred gigabytes. Nobody asks for more on purpose.
constexpr std::int64_t max_stories = 100'000'000;

// The known domains; the first is the default, the last, "mixed", draws each piece from one of the others.
std::vector<std::string> story_domains();

// Piece `index` of a domain: a pure function of (seed, domain, index), plain ASCII, without a newline at its end.
// Throws bad_input for an unknown domain.
std::string make_story(const StoryOptions& options, std::uint64_t index);

// Hands pieces first .. first+count-1 to `sink`, each followed by a newline and a line with the separator.
void write_stories(const StoryOptions& options, std::uint64_t count, const std::function<void(std::string_view)>& sink,
                   std::uint64_t first = 0, std::string_view separator = "<|endoftext|>");

}  // namespace some

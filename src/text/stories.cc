#include "text/stories.h"

#include <algorithm>

#include "core/error.h"
#include "core/random.h"
#include "text/stories_telling.h"
#include "text/story_script.h"

namespace some {
namespace {

constexpr std::string_view mixed = "mixed";

// Returns the index of the domain to which document `index` belongs.
std::size_t domain_of(const StoryOptions& options, const std::vector<std::string>& domains, std::uint64_t index) {
  if (options.domain == mixed) {
    const RandomStream choice = random_stream(options.seed, "built-in mixed");
    return choice.below(index, static_cast<std::uint32_t>(domains.size()));
  }
  const auto found = std::ranges::find(domains, options.domain);
  if (found != domains.end()) return static_cast<std::size_t>(found - domains.begin());
  bad_input(Code::text_unknown, "unknown domain '{}'; must be one of {}", options.domain,
            telling::join_list(story_domains()));
}

}  // namespace

std::vector<std::string> story_domains() {
  std::vector<std::string> names = telling::built_in_stories().domains();
  names.emplace_back(mixed);
  return names;
}

std::string make_story(const StoryOptions& options, std::uint64_t index) {
  const telling::StoryScript& script = telling::built_in_stories();
  const std::size_t domain = domain_of(options, script.domains(), index);
  return script
      .tell(domain, random_stream(options.seed, fmt::format("built-in {} {}", script.domains()[domain], index)))
      .text;
}

void write_stories(const StoryOptions& options, std::uint64_t count, const std::function<void(std::string_view)>& sink,
                   std::uint64_t first, std::string_view separator) {
  // Rejects an unknown domain even if count is 0.
  domain_of(options, telling::built_in_stories().domains(), first);
  for (std::uint64_t i = 0; i < count; ++i) {
    std::string piece = make_story(options, first + i);
    piece += '\n';
    piece += separator;
    piece += '\n';
    sink(piece);
  }
}

}  // namespace some

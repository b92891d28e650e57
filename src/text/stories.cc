#include "text/stories.h"

#include <iterator>

#include "core/error.h"
#include "core/random.h"
#include "text/stories_telling.h"

namespace some {
namespace {

struct Domain {
  std::string_view name;
  std::string (*tell)(RandomStream);
};

constexpr Domain kDomains[] = {
    {"stories", telling::tell_story},
    {"recipes", telling::tell_recipe},
    {"letters", telling::tell_letter},
    {"nature", telling::tell_nature},
};
constexpr std::string_view kMixed = "mixed";

// The domain piece `index` belongs to.
const Domain& domain_of(const StoryOptions& options, std::uint64_t index) {
  if (options.domain == kMixed) {
    const RandomStream choice = random_stream(options.seed, "built-in mixed");
    return kDomains[choice.below(index, static_cast<std::uint32_t>(std::size(kDomains)))];
  }
  for (const Domain& domain : kDomains) {
    if (domain.name == options.domain) return domain;
  }
  bad_input("unknown story domain '{}': known are {}", options.domain, telling::join_list(story_domains()));
}

}  // namespace

std::vector<std::string> story_domains() {
  std::vector<std::string> names;
  for (const Domain& domain : kDomains) names.emplace_back(domain.name);
  names.emplace_back(kMixed);
  return names;
}

std::string make_story(const StoryOptions& options, std::uint64_t index) {
  const Domain& domain = domain_of(options, index);
  return domain.tell(random_stream(options.seed, fmt::format("built-in {} {}", domain.name, index)));
}

void write_stories(const StoryOptions& options, std::uint64_t count, const std::function<void(std::string_view)>& sink,
                   std::uint64_t first, std::string_view separator) {
  domain_of(options, first);  // an unknown name is refused even when nothing is asked for
  for (std::uint64_t i = 0; i < count; ++i) {
    std::string piece = make_story(options, first + i);
    piece += '\n';
    piece += separator;
    piece += '\n';
    sink(piece);
  }
}

}  // namespace some

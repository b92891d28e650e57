#include "analysis/needle/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "core/random.h"

namespace some {
namespace {

constexpr std::array names{"Tamir", "Odile", "Runa",  "Basil", "Ines",  "Kofi", "Marta", "Nils",
                           "Yuki",  "Zora",  "Petra", "Anton", "Lena",  "Omar", "Vera",  "Hugo",
                           "Sofia", "Emil",  "Nora",  "Tariq", "Greta", "Ivan", "Leila", "Bruno"};
constexpr std::array colors{"red", "blue", "green", "yellow", "silver", "golden", "white", "black", "brown", "purple"};
constexpr std::array things{"key",  "ring",  "map",    "lamp",   "bell",   "drum",   "kite",    "spoon",
                            "coin", "shell", "button", "ribbon", "mirror", "basket", "whistle", "candle"};
constexpr std::array places{"garden", "kitchen", "forest", "castle", "school", "barn", "park", "shop"};

// Returns the numbers below `size` in random order.
std::vector<std::size_t> shuffled(std::size_t size, const RandomStream& stream) {
  std::vector<std::size_t> out(size);
  std::iota(out.begin(), out.end(), std::size_t{0});
  for (std::size_t i = 0; i + 1 < size; ++i)
    std::swap(out[i], out[i + stream.below(i, static_cast<std::uint32_t>(size - i))]);
  return out;
}

}  // namespace

std::int64_t max_facts() { return static_cast<std::int64_t>(colors.size() * things.size()); }

FactSet make_facts(std::int64_t count, std::uint64_t seed) {
  FactSet out;
  out.answers.assign(places.begin(), places.end());
  const auto about = shuffled(colors.size() * things.size(), random_stream(seed, "facts.things"));
  const auto people = shuffled(names.size(), random_stream(seed, "facts.names"));
  const auto asked = static_cast<std::size_t>(std::min(count, max_facts()));
  const auto order = shuffled(asked, random_stream(seed, "facts.answers"));
  for (std::size_t i = 0; i < asked; ++i) {
    Fact fact;
    const char* name = names[people[i % people.size()]];
    const std::string thing = fmt::format("{} {}", colors[about[i] / things.size()], things[about[i] % things.size()]);
    fact.answer = order[i] % places.size();
    fact.verbatim = fmt::format("{} keeps the {} in the", name, thing);
    fact.reworded = fmt::format("Where is the {} of {}? It is in the", thing, name);
    fact.statement = fmt::format("{} {}.", fact.verbatim, places[fact.answer]);
    out.facts.push_back(std::move(fact));
  }
  return out;
}

}  // namespace some

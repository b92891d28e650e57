#include "text/stories_tales.h"

#include <utility>

namespace some::telling {
namespace {

struct Plot {
  const char* name;
  void (*tell)(Telling&);
};

constexpr Plot kPlots[] = {
    {"lost_and_found", lost_and_found},
    {"broken_and_mended", broken_and_mended},
    {"learning_a_skill", learning_a_skill},
    {"afraid_no_more", afraid_no_more},
    {"telling_the_truth", telling_the_truth},
    {"sleepless_night", sleepless_night},
    {"strange_noise", strange_noise},
    {"weather_and_plans", weather_and_plans},
    {"wished_for_gift", wished_for_gift},
    {"new_neighbour", new_neighbour},
    {"sharing", sharing},
    {"sick_friend", sick_friend},
    {"missing_ingredient", missing_ingredient},
    {"the_errand", the_errand},
    {"baby_animal", baby_animal},
    {"growing_garden", growing_garden},
    {"stuck_up_high", stuck_up_high},
    {"treasure_map", treasure_map},
    {"chain_of_trades", chain_of_trades},
    {"foolish_wish", foolish_wish},
    {"the_right_helper", the_right_helper},
    {"kindness_returned", kindness_returned},
    {"the_boaster", the_boaster},
    {"winter_stores", winter_stores},
    {"race_and_rescue", race_and_rescue},
};

constexpr const char* kHomes[] = {
    "in a small white house by the sea",
    "in a tall brick house in the city",
    "on a farm at the foot of a hill",
    "in a stone cottage near the forest",
    "in a little flat above a bakery",
    "in a sleepy village beside a slow river",
    "in a wooden cabin on a lake",
    "on a quiet street near the park",
    "in a mountain town with steep roads",
    "in a blue house at the end of a lane",
    "in an old mill by a stream",
    "in a house with a crooked chimney",
    "in a painted wagon at the edge of a meadow",
    "in a narrow house by the canal",
    "in a busy town with a round square",
    "in a yellow house behind the school",
    "in a fishing village on a windy coast",
    "on an apple farm in a green valley",
    "in a brick house across from the library",
    "in a tiny house with a purple door",
};

constexpr const char* kTraits[] = {"curious", "kind",       "cheerful", "brave", "clever", "gentle",  "friendly",
                                   "playful", "thoughtful", "lively",   "shy",   "merry",  "helpful", "polite",
                                   "dreamy",  "quiet",      "patient",  "eager", "honest", "bold"};

constexpr const char* kHabits[] = {
    "{He} [liked|loved] to ask questions about everything.",
    "{He} always wore [a striped scarf|red boots|a green cap|a wool sweater|yellow socks|a straw hat].",
    "{He} had [freckles on {his} nose|a big smile|curly hair|a gap between {his} front teeth|sparkling eyes].",
    "{He} [hummed|sang] a little song wherever {he} went.",
    "{He} collected [smooth stones|old buttons|feathers|bottle caps|stamps|sea shells|postcards].",
    "{He} liked to draw [horses|castles|ships|dragons|trains|flowers] in a small notebook.",
    "{He} was [five|six|seven|eight|nine] years old.",
    "Everyone on the street knew {him} and waved when {he} passed.",
};

}  // namespace

void open_child(Telling& t) {
  cast_child(t, "hero", "");
  t.set("trait", t.dice.pick(kTraits));
  t.set("place", t.dice.pick(kHomes));
  t.say(
      "[[Once upon a time,|Once,|Long ago,] there was a~ {trait} [little |young |]{child} [named|called] {hero}.|"
      "{Hero} was a~ {trait} [little |young |]{child} who lived {place}.|"
      "{Place}, there lived a~ {trait} {child} [named|called] {hero}.|"
      "There once was a {child} named {hero}, and {he} was very {trait}.|"
      "{Hero} lived {place}. {He} was a~ {trait} {child}.]");
  if (t.dice.chance(35)) t.say(t.dice.pick(kHabits));
}

const Animal& open_animal(Telling& t, bool runner) {
  const Animal* drawn = &pick_animal(t.dice);
  while (runner && !runs(*drawn)) drawn = &pick_animal(t.dice);
  const Animal& animal = *drawn;
  t.person("hero", "", pick_animal_name(t.dice), t.dice.chance(50) ? Gender::female : Gender::male);
  t.set("kind", animal.name);
  t.set("trait", t.dice.pick(kTraits));
  t.set("home", animal.home);
  t.set("food", animal.food);
  t.set("moves", animal.moves);
  t.say(
      "[[Once upon a time,|Once,|Long ago,] there was a~ {trait} {kind} [named|called] {hero}. {He} lived {home}.|"
      "{Home}, there lived a~ {trait} {kind} [named|called] {hero}.|"
      "{Hero} the {kind} lived {home}. {He} was very {trait}.|"
      "{Hero} was a~ {trait} {kind} who lived {home}.]");
  t.maybe(40, "{He} liked to eat {food} [more than anything|every day|for breakfast and for supper].");
  return animal;
}

void draw_day(Telling& t) {
  t.set("day",
        "one [quiet |fine |busy |ordinary |lovely |long ||][[Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday] "
        "[morning|afternoon]|"
        "[spring|summer|autumn] [morning|afternoon|day]]");
}

Tale tell_tale(RandomStream stream) {
  Telling t(stream);
  const Plot& plot = t.dice.pick(kPlots);
  plot.tell(t);
  std::string hero = t.get("hero");
  return Tale{std::move(t).finish(), std::move(hero), plot.name};
}

std::string tell_story(RandomStream stream) { return tell_tale(stream).text; }

}  // namespace some::telling

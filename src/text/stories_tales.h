// The plots of the domain "stories" (internal to the generator). A plot casts its people, draws the rows of its
// tables that make its problem and its solution fit, and tells its beats in order, each in one of several wordings.
#pragma once

#include "text/stories_telling.h"
#include "text/stories_words.h"

namespace some::telling {

// Beginnings: cast {hero} (a child, or an animal with {kind}) and say who it is. {trait} is what the hero is like.
void open_child(Telling& t);
const Animal& open_animal(Telling& t, bool runner = false);
// Whether it goes on foot, so that it can take part in a race.
inline bool runs(const Animal& animal) { return !animal.wings && animal.talent != Talent::swim; }
// {day}: "one quiet Monday morning" (plain, without weather, so that it never quarrels with the plot).
void draw_day(Telling& t);

// At home (stories_tales_home.cc).
void lost_and_found(Telling& t);
void broken_and_mended(Telling& t);
void learning_a_skill(Telling& t);
void afraid_no_more(Telling& t);
void telling_the_truth(Telling& t);
void sleepless_night(Telling& t);
void strange_noise(Telling& t);
// With others (stories_tales_friends.cc).
void weather_and_plans(Telling& t);
void wished_for_gift(Telling& t);
void new_neighbour(Telling& t);
void sharing(Telling& t);
void sick_friend(Telling& t);
void missing_ingredient(Telling& t);
void the_errand(Telling& t);
// Out of doors (stories_tales_outside.cc).
void baby_animal(Telling& t);
void growing_garden(Telling& t);
void stuck_up_high(Telling& t);
void treasure_map(Telling& t);
void chain_of_trades(Telling& t);
void foolish_wish(Telling& t);
// Fables (stories_tales_fables.cc).
void the_right_helper(Telling& t);
void kindness_returned(Telling& t);
void the_boaster(Telling& t);
void winter_stores(Telling& t);
void race_and_rescue(Telling& t);

}  // namespace some::telling

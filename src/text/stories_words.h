// Word tables shared by the domains (internal to the generator). Nouns carry the properties the plots rely on, so
// that a fish never rides a bicycle.
#pragma once

#include "text/stories_telling.h"

namespace some::telling {

enum class Talent { fly, swim, dig, climb, carry, gnaw };

struct Animal {
  const char* name;   // "rabbit"
  const char* home;   // "in a warm burrow under an old oak"
  const char* food;   // what it likes to eat: "clover"
  const char* moves;  // past tense: "hopped"
  Talent talent;
  bool small;  // fits on a hand
  bool wings = false;
};

const Animal& pick_animal(Dice& dice);
const Animal& pick_animal(Dice& dice, Talent talent);
// Another species than `other`.
const Animal& pick_other_animal(Dice& dice, const Animal& other);

const char* pick_girl(Dice& dice);
const char* pick_boy(Dice& dice);
const char* pick_family_name(Dice& dice);
const char* pick_animal_name(Dice& dice);

// A child with a name that no person of the telling bears yet; the gender is drawn.
void cast_child(Telling& t, const char* role, const char* suffix);
// A grown-up of the family: {parent} "mother", {Parent_call} as a child would say it, pronouns with `suffix`.
void cast_parent(Telling& t, const char* suffix);
// {elder} "Grandma Rosa" or "Mr. Bell" for a neighbour or shopkeeper, pronouns with `suffix`.
void cast_neighbour(Telling& t, const char* role, const char* suffix);

}  // namespace some::telling

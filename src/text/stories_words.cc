#include "text/stories_words.h"

#include <string>

namespace some::telling {
namespace {

constexpr const char* kGirls[] = {"Mia",   "Nora",  "Ella",  "Clara", "Hannah", "Zoe",   "Anna",  "Eva",
                                  "Leila", "Tessa", "Maya",  "Sofia", "Elsie",  "Greta", "Ida",   "Julia",
                                  "Keiko", "Lina",  "Marta", "Nina",  "Olga",   "Priya", "Rosa",  "Sara",
                                  "Tilda", "Vera",  "Wanda", "Yara",  "Amina",  "Bella", "Carla", "Dora",
                                  "Freya", "Gina",  "Hilda", "Jana",  "Kira",   "Lucy",  "Molly", "Sally"};
constexpr const char* kBoys[] = {"Tom",   "Ben",    "Max",    "Leo",   "Sam",     "Finn",   "Oscar", "Omar",
                                 "Theo",  "Hugo",   "Jack",   "Peter", "Noah",    "Eli",    "Adam",  "Bruno",
                                 "Caleb", "Dario",  "Emil",   "Felix", "Gabriel", "Henry",  "Ivan",  "Jonah",
                                 "Karl",  "Liam",   "Milo",   "Nico",  "Otto",    "Paolo",  "Rafi",  "Simon",
                                 "Toby",  "Victor", "Walter", "Yusuf", "Arthur",  "Casper", "Timmy", "Anton"};
constexpr const char* kFamilies[] = {"Bell",  "Carter", "Moreno", "Olsen", "Patel",  "Quinn", "Rossi", "Tanaka",
                                     "Weber", "Novak",  "Hill",   "Adler", "Brandt", "Cole",  "Dunn",  "Fisher",
                                     "Gupta", "Lopez",  "Marsh",  "Okoro", "Park",   "Stone", "Vogel", "Winter"};
constexpr const char* kAnimalNames[] = {
    "Pip",   "Bramble", "Hazel",   "Nutmeg", "Pepper",  "Willow", "Rusty",  "Tumble",  "Dusty", "Clover",
    "Sunny", "Thimble", "Biscuit", "Fern",   "Cricket", "Maple",  "Button", "Juniper", "Moss",  "Poppy",
    "Acorn", "Bumble",  "Pebble",  "Smoky",  "Ginger",  "Twig",   "Basil",  "Dandy",   "Flick", "Tansy"};

constexpr Animal kAnimals[] = {
    {"mouse", "in a tiny hole behind a barrel", "cheese crumbs", "scurried", Talent::gnaw, true},
    {"rabbit", "in a warm burrow under an old oak", "clover", "hopped", Talent::dig, false},
    {"squirrel", "in a hollow in a tall pine", "nuts", "scampered", Talent::climb, true},
    {"hedgehog", "under a heap of dry leaves", "beetles", "shuffled", Talent::dig, true},
    {"fox", "in a den beneath a rocky slope", "berries", "trotted", Talent::dig, false},
    {"bear", "in a deep cave on the hillside", "honey", "lumbered", Talent::carry, false},
    {"badger", "in a long tunnel below the meadow", "roots", "waddled", Talent::dig, false},
    {"frog", "in a pond full of lilies", "flies", "leaped", Talent::swim, true},
    {"duck", "in a nest among the reeds", "pond weed", "waddled", Talent::swim, false, true},
    {"owl", "in an old barn with a broken window", "moths", "glided", Talent::fly, false, true},
    {"otter", "on a muddy bank by the river", "fish", "slid", Talent::swim, false},
    {"mole", "in a dark room under the garden", "worms", "crept", Talent::dig, true},
    {"turtle", "on a sandy shore by the lake", "lettuce", "plodded", Talent::swim, false},
    {"beaver", "in a lodge of sticks in the stream", "bark", "paddled", Talent::gnaw, false},
    {"crow", "in a messy nest in an elm", "seeds", "flapped", Talent::fly, false, true},
    {"goat", "in a shed on the mountain", "thistles", "climbed", Talent::climb, false},
    {"pony", "in a stable with a red door", "carrots", "galloped", Talent::carry, false},
    {"donkey", "in a field beside the mill", "hay", "trotted", Talent::carry, false},
    {"sparrow", "in a nest under the roof", "crumbs", "fluttered", Talent::fly, true, true},
    {"raccoon", "in a hollow log by the creek", "corn", "padded", Talent::climb, false},
    {"swan", "on an island in the lake", "water plants", "floated", Talent::swim, false, true},
    {"robin", "in a hedge full of thorns", "cherries", "flew", Talent::fly, true, true},
    {"cat", "in a basket by the stove", "cream", "padded", Talent::climb, false},
    {"ox", "in a barn at the edge of the village", "straw", "plodded", Talent::carry, false},
    {"monkey", "in a fig tree by the waterfall", "bananas", "swung", Talent::climb, false},
    {"elephant", "in a grove of shady trees", "melons", "marched", Talent::carry, false},
    {"parrot", "in a palm tree near the beach", "mangoes", "flew", Talent::fly, false, true},
    {"hamster", "in a cozy nest of wool", "sunflower seeds", "scurried", Talent::gnaw, true},
};

const char* pick_free(Telling& t, Gender gender) {
  for (;;) {
    const char* name = gender == Gender::female ? pick_girl(t.dice) : pick_boy(t.dice);
    bool taken = false;
    for (const char* role : {"hero", "friend", "other"}) taken = taken || t.has(role, name);
    if (!taken) return name;
  }
}

}  // namespace

const Animal& pick_animal(Dice& dice) { return dice.pick(kAnimals); }

const Animal& pick_animal(Dice& dice, Talent talent) {
  for (;;) {
    const Animal& animal = dice.pick(kAnimals);
    if (animal.talent == talent) return animal;
  }
}

const Animal& pick_other_animal(Dice& dice, const Animal& other) {
  for (;;) {
    const Animal& animal = dice.pick(kAnimals);
    if (&animal != &other) return animal;
  }
}

const char* pick_girl(Dice& dice) { return dice.pick(kGirls); }
const char* pick_boy(Dice& dice) { return dice.pick(kBoys); }
const char* pick_family_name(Dice& dice) { return dice.pick(kFamilies); }
const char* pick_animal_name(Dice& dice) { return dice.pick(kAnimalNames); }

void cast_child(Telling& t, const char* role, const char* suffix) {
  const Gender gender = t.dice.chance(50) ? Gender::female : Gender::male;
  t.person(role, suffix, pick_free(t, gender), gender);
}

void cast_parent(Telling& t, const char* suffix) {
  struct Parent {
    const char* word;
    const char* call;
    Gender gender;
  };
  static constexpr Parent kParents[] = {{"mother", "Mom", Gender::female},
                                        {"mother", "Mama", Gender::female},
                                        {"father", "Dad", Gender::male},
                                        {"father", "Papa", Gender::male},
                                        {"grandmother", "Grandma", Gender::female},
                                        {"grandfather", "Grandpa", Gender::male},
                                        {"aunt", "Auntie", Gender::female},
                                        {"uncle", "Uncle", Gender::male}};
  const Parent& parent = t.dice.pick(kParents);
  t.person("parent", suffix, parent.word, parent.gender);
  t.set("call", parent.call);
}

void cast_neighbour(Telling& t, const char* role, const char* suffix) {
  const Gender gender = t.dice.chance(50) ? Gender::female : Gender::male;
  const std::string name = std::string(gender == Gender::female ? "Mrs. " : "Mr. ") + pick_family_name(t.dice);
  t.person(role, suffix, name, gender);
}

}  // namespace some::telling

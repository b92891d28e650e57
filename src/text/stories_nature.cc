// The domain "nature": short field notes in the present tense. A species brings its habitat, season, food, voice and
// enemies along, so that every sentence of a note agrees with the others.
#include <string>

#include "text/stories_telling.h"

namespace some::telling {
namespace {

struct Species {
  const char* name;  // singular, with article taken from a~
  const char* many;
  const char* looks;  // noun phrases after "has"
  const char* size;   // "as long as a finger"
  const char* habitat;
  const char* food;
  const char* method;  // how it feeds, verb phrase in the present, subject it
  const char* home;    // where it breeds or rests
  const char* young;   // its young
  const char* enemy;
  const char* defense;  // verb phrase, subject it
  const char* winter;   // verb phrase, subject it
  const char* sign;     // what a walker notices
};

constexpr Species kSpecies[] = {
    {"kingfisher", "kingfishers", "a turquoise back and an orange breast", "hardly longer than a hand", "clear streams",
     "minnows and water insects", "dives head first from a branch", "a burrow in a steep bank", "six or seven chicks",
     "the sparrowhawk", "darts away low over the water", "moves to the coast when the streams freeze",
     "a shrill whistle and a blue flash"},
    {"red squirrel", "red squirrels", "tufted ears and a bushy tail", "about as heavy as three eggs", "pine woods",
     "cones, buds and mushrooms", "peels each cone from the bottom up", "a round nest of twigs called a drey",
     "three or four kittens", "the pine marten", "flees to the thinnest branches", "lives on hidden supplies",
     "gnawed cones on a stump"},
    {"common toad", "common toads", "warty skin and copper eyes", "as broad as a palm", "damp gardens and woods",
     "slugs, beetles and worms", "flicks out a sticky tongue", "a shallow pond", "thousands of black tadpoles",
     "the grass snake", "puffs itself up and stands tall", "sleeps in a hole below the frost", "a soft chirping"},
    {"barn owl", "barn owls", "a heart-shaped face and silent wings", "no heavier than a loaf", "open farmland",
     "voles and shrews", "listens in the dark and drops on its prey", "a dusty ledge in a barn", "four to six owlets",
     "the eagle owl", "hisses and sways in its nest", "hunts by day when snow is deep",
     "gray pellets full of tiny bones"},
    {"hermit crab", "hermit crabs", "a soft, curled body and one large claw", "as small as a thumb", "tide pools",
     "scraps of weed and dead fish", "sifts the sand with its mouthparts", "a borrowed shell", "drifting larvae",
     "the octopus", "pulls back and shuts the door with its claw", "stays in deeper water",
     "a snail shell that walks sideways"},
    {"mountain hare", "mountain hares", "long hind legs and short ears", "as heavy as a cat", "high moors and slopes",
     "heather, grass and bark", "grazes at dusk", "a shallow form among the stones",
     "two or three leverets with open eyes", "the golden eagle", "sits still and then sprints uphill",
     "turns white as snow", "round droppings and wide tracks"},
    {"stag beetle", "stag beetles", "shiny jaws that look like antlers", "as long as a finger", "old oak woods",
     "sap that leaks from trees", "licks the sap with a feathery tongue", "rotten wood underground",
     "fat white grubs that need five years to grow", "the magpie", "opens its jaws and rears up",
     "rests in the soil as a pupa", "a deep hum in the air"},
    {"gray seal", "gray seals", "a long nose and a spotted coat", "as heavy as three men", "rocky coasts",
     "herring, cod and sand eels", "dives for a quarter of an hour", "a remote beach", "a single pup in white fur",
     "the killer whale", "slips into the surf", "hauls out on the rocks to give birth",
     "a dark head that bobs in the waves"},
    {"white stork", "white storks", "red legs and black wing tips", "as tall as a child of three", "wet meadows",
     "frogs, mice and grasshoppers", "strides along and stabs with its bill", "a huge nest on a chimney",
     "three or four nestlings", "the sea eagle", "claps its bill like castanets",
     "flies thousands of miles to the south", "a loud clatter from the roofs"},
    {"dragonfly", "dragonflies", "four glassy wings and enormous eyes", "as wide as a hand is long",
     "ponds and ditches", "gnats and flies", "snatches its prey in flight", "reeds that stick out of the water",
     "nymphs that live under water for years", "the hobby falcon", "zigzags faster than the eye can follow",
     "survives as an egg or a nymph", "empty skins on the stalks"},
    {"beaver", "beavers", "orange teeth and a flat tail", "as heavy as a large dog", "slow rivers",
     "bark, leaves and water lilies", "fells whole trees at night", "a lodge with an entrance below the surface",
     "two to four kits", "the wolf", "slaps the water and dives", "eats branches stored under the ice",
     "pointed stumps and pale chips"},
    {"swift", "swifts", "sickle-shaped wings and a sooty coat", "lighter than a slice of bread",
     "the open sky above towns", "tiny insects high in the air", "sails along with its mouth wide open",
     "a crack under the eaves", "two or three naked chicks", "the hobby falcon", "outflies nearly everything",
     "stays on the wing over Africa", "a shrill scream above the roofs"},
    {"hedgehog", "hedgehogs", "about six thousand spines", "as big as a melon", "hedges and gardens",
     "earthworms, caterpillars and snails", "snuffles through the leaves after sunset", "a nest of leaves and moss",
     "four or five hoglets with soft spines", "the badger", "rolls into a ball", "hibernates until the first warm rain",
     "loud grunts under the bushes"},
    {"adder", "adders", "a dark zigzag along its back", "as long as an arm", "heaths and bogs",
     "lizards and young mice", "strikes once and waits", "a hole among the roots", "about ten live young",
     "the buzzard", "hisses before it bites", "lies stiff in a shared den", "a coiled shape on a sunny stone"},
    {"salmon", "salmon", "silver sides and a hooked jaw", "as long as a leg", "cold rivers and the northern sea",
     "shrimp and small fish", "hunts far out in the ocean", "a gravel bed upstream", "fry with striped sides",
     "the brown bear", "leaps up waterfalls to get away", "rests in deep pools after spawning",
     "a splash below the weir"},
    {"bumblebee", "bumblebees", "a furry coat with yellow bands", "as thick as a bean", "flowery meadows",
     "nectar and pollen", "shakes the blossoms with its buzz", "an old mouse hole", "a few hundred workers",
     "the crab spider", "raises a middle leg as a warning", "survives only as a young queen",
     "a deep drone in the clover"},
    {"lynx", "lynxes", "ear tufts and a stubby tail", "as tall as a shepherd dog", "large quiet forests",
     "roe deer and hares", "creeps up and pounces", "a cave or a fallen trunk", "two blind kittens", "the wolf",
     "vanishes without a sound", "walks on broad paws as if on snowshoes", "round tracks without claws"},
    {"puffin", "puffins", "a bill in red, blue and yellow", "as tall as a bottle", "grassy sea cliffs", "sand eels",
     "dives deep and lines up ten fish in its bill", "a tunnel in the turf", "one gray puffling", "the great skua",
     "whirs away on short wings", "drifts alone on the open ocean", "a comical growl from the ground"},
    {"garden spider", "garden spiders", "a white cross on its back", "as wide as a coin", "bushes and fences",
     "flies, midges and moths", "spins a wheel of sticky threads", "a leaf rolled up with silk",
     "a yellow cluster of spiderlings", "the blue tit", "drops on a safety thread", "leaves only its eggs behind",
     "a web full of dew"},
    {"otter", "otters", "webbed feet and thick brown fur", "as long as a child is tall", "lakes and clean rivers",
     "eels, crayfish and frogs", "follows fish into the deepest pools", "a den called a holt",
     "two or three playful cubs", "the sea eagle", "dives and leaves a chain of bubbles",
     "fishes through holes in the ice", "slides in the muddy bank"},
};

constexpr const char* kObservers[] = {"My notebook says",    "An old ranger told me",      "Farmers around here say",
                                      "A guide book claims", "My grandmother used to say", "The warden reports"};

void profile(Telling& t) {
  t.line("[Field notes|Nature diary|Notes from the {land}|Species of the week]: {title}");
  t.paragraph();
  t.say(
      "The {name} has {looks}. [It is {size}.|A grown {name} is {size}.] Its [habitat|home|domain] is {habitat}[ in "
      "many parts of the {land}| in most parts of the country|].");
  t.say("[It feeds on|Its diet consists of|It eats mainly] {food}. When it is hungry, it {method}.");
  t.paragraph();
  t.say("{season_sentence}");
  t.say(
      "[For breeding, it uses|It raises its family in|As a nursery it chooses] {home}. There one can find {young}[ in "
      "a good year|].");
  t.say(
      "[Its worst enemy is {enemy}.|It has to beware of {enemy}.|It must watch out for {enemy}.] In danger it "
      "{defense}. In the cold months it {winter}.");
  t.paragraph();
  t.say(
      "[How can you recognize it|What should a walker look for|How do you know that one is near]? [The best sign "
      "is|Look or listen for|A sure clue is] {sign}. [Keep your distance, and it will tolerate you.|Sit still for half "
      "an hour, and be patient.|Please leave your dog on the leash.|Do not disturb the young.]");
  t.maybe(60, "Last {month}, our group counted {count} {many} in the {land}.");
  t.maybe(50,
          "[Their number has [fallen|risen|remained stable] in the last [ten|twenty|thirty] years.|The species is "
          "protected by law.|Volunteers count the {many} every year.]");
}

void sighting(Telling& t) {
  t.line("[Log entry|Observation|Report]: {month}, " + std::to_string(4 + t.dice.below(17)) + ":" +
         (t.dice.chance(50) ? "15" : "40") + ", {sky}, " + std::to_string(2 + t.dice.below(24)) + " degrees");
  t.paragraph();
  t.say(
      "[I am sitting|I crouch|We lie hidden] at the edge of the {land}. [Nothing stirs at first.|For a long time there "
      "is only the wind.|The light is still pale.] Then I notice {sign}. It can only be a~ {name}.");
  t.say(
      "[A moment later|After ten minutes|Without hurry], it comes into view. [Through the binoculars|In this "
      "light|From here] I can [clearly see|make out] {looks}. [It is {size}.|It looks larger than I expected.|It seems "
      "to be a young one.]");
  t.paragraph();
  t.say(
      "It is hungry. It {method}. Today's menu is {food}, [and it does not seem to be in any hurry|as is usual for "
      "{many}|and there is plenty of it here].");
  t.say(
      "[Suddenly|All at once] it [freezes|grows alert]. Is {enemy} nearby? It {defense}. [The whole scene lasts only "
      "seconds.|Then there is silence again.|I hold my breath.]");
  t.paragraph();
  t.say(
      "{observer} that {many} like {habitat} and that they need {home} in order to breed. [I mark the spot on my "
      "map.|I count {count} of them before dusk.|The nearest village is {count} miles away.]");
  t.say(
      "[{month} is a good time to watch them|I will return in a week to look for {young}|In the cold season the {name} "
      "{winter}]. [Nature keeps its own calendar.|Such mornings are worth the cold feet.|I close my notebook and walk "
      "back along the dike.]");
}

void compare(Telling& t, const Species& other) {
  t.set("other", other.name);
  t.set("other_home", other.home);
  t.line("[Two neighbors|Comparison|Who lives here|Side by side]: {name} and {other} ({land}, {month})");
  t.paragraph();
  t.say(
      "[At first sight they have little in common.|Both can be observed here.|Walkers often ask about these two.|Our "
      "group studied both of them last {month}.]");
  t.say(std::string("The {name} has {looks}. The {other}[, in contrast,|, on the other hand,|] has ") + other.looks +
        ".");
  t.maybe(60, std::string("[The {name} is {size}, while the {other} is |In size they differ as well: the {name} is "
                          "{size}, and the {other} is ]") +
                  other.size + ".");
  t.paragraph();
  t.say(
      std::string(
          "[They also differ in their habits.|Their tastes are not the same.|They rarely compete for food.] The {name} "
          "[prefers|looks for] {habitat} and [feeds on|hunts or gathers] {food}. The {other} [prefers|looks for] ") +
      other.habitat + " and feeds on " + other.food + ".");
  t.maybe(60, std::string("When it is hungry, the {name} {method}. The {other} ") + other.method + ".");
  t.maybe(60,
          "[Both must protect their offspring.|Each has its own nursery.|Where do the young grow up?] The {name} "
          "[needs|chooses] {home}. The {other} [needs|chooses] {other_home}.");
  t.paragraph();
  t.say(std::string("[What about danger?|And their enemies?|Neither of them is safe.] When {enemy} appears, the {name} "
                    "{defense}. [If it is threatened|In an emergency], the {other} ") +
        other.defense + ".");
  t.say(std::string("In winter, the {name} {winter}. The {other} ") + other.winter +
        ". [So each has found its own answer to the cold.|Evolution has more than one solution.|Both strategies "
        "work.|We counted {count} of the first and only one of the second.]");
  t.maybe(40, "{observer} that the {name} can be known by {sign}.");
}

}  // namespace

std::string tell_nature(RandomStream stream) {
  Telling t(stream);
  const auto species = t.dice.pick_several(kSpecies, 2);
  const Species& one = *species[0];
  t.set("name", one.name);
  t.set("title", "the " + std::string(one.name));
  t.set("many", one.many);
  t.set("looks", one.looks);
  t.set("size", one.size);
  t.set("habitat", one.habitat);
  t.set("food", one.food);
  t.set("method", one.method);
  t.set("home", one.home);
  t.set("young", one.young);
  t.set("enemy", one.enemy);
  t.set("defense", one.defense);
  t.set("winter", one.winter);
  t.set("sign", one.sign);
  t.set("land", "[district|county|reserve|national park|region|peninsula|province|northern zone]");
  t.set("month", "[April|May|June|July|August|September]");
  t.set("sky", "[overcast|clear sky|light drizzle|thin mist|scattered clouds|fresh breeze|dead calm]");
  t.set("observer", t.dice.pick(kObservers));
  t.set("count", "[two|three|four|five|six|seven|nine]");
  t.set("season_sentence",
        "[The best time to see it is in {month}.|It is most active in {month}, when the days are long.|In {month}, "
        "with a bit of luck, you may meet it at dawn.|Courtship reaches its peak in {month}.]");
  switch (t.dice.below(3)) {
    case 0: profile(t); break;
    case 1: sighting(t); break;
    default: compare(t, *species[1]);
  }
  return std::move(t).finish();
}

}  // namespace some::telling

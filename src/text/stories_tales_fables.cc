// Fables: animals whose homes, food and talents come from the table of species.
#include "text/stories_tales.h"

namespace some::telling {
namespace {

// A second animal {friend} (with its species in {friend_kind}) under a name the hero does not bear.
void cast_animal(Telling& t, const Animal& animal, const char* role, const char* suffix) {
  const char* name = pick_animal_name(t.dice);
  while (t.has("hero", name) || t.has("friend", name)) name = pick_animal_name(t.dice);
  t.person(role, suffix, name, t.dice.chance(50) ? Gender::female : Gender::male);
  t.set(std::string(role) + "_kind", animal.name);
  t.set(std::string(role) + "_moves", animal.moves);
  t.set(std::string(role) + "_food", animal.food);
  t.set(std::string(role) + "_home", animal.home);
}

// A small animal that water can harm, or a large one.
const Animal& pick_small(Dice& dice, bool small) {
  for (;;) {
    const Animal& animal = pick_animal(dice);
    if (animal.small == small && (!small || animal.talent != Talent::swim)) return animal;
  }
}

// Runners of about the same size, so that one can help the other up.
bool well_matched(const Animal& one, const Animal& other) {
  return runs(other) && one.small == other.small && (one.talent == Talent::carry) == (other.talent == Talent::carry);
}

// Whether an animal of one talent might well manage a task for another: birds reach what climbers reach, and the
// big carriers could break or shift what the others gnaw or dig.
bool could_try(const Animal& animal, Talent task) {
  if (animal.talent == task) return true;
  if (task == Talent::fly || task == Talent::climb) return animal.wings || animal.talent == Talent::climb;
  return animal.talent == Talent::carry && (task == Talent::dig || task == Talent::gnaw);
}

}  // namespace

void the_right_helper(Telling& t) {
  struct Problem {
    Talent talent;
    const char* problem;  // a whole sentence
    const char* task;     // what has to be done, after "to"
    const char* deed;     // past tense, subject the helper
  };
  static constexpr Problem kProblems[] = {
      {Talent::fly, "A sudden wind carried {his} blue scarf to the top of the mill", "reach the top of the mill",
       "rose up into the sky, picked up the scarf and dropped it at {hero}'s feet"},
      {Talent::fly, "{His} bell had been hung on the church tower by a naughty boy", "reach the tower",
       "circled the tower once and came back with the bell"},
      {Talent::swim, "{His} little boat broke loose and drifted to the middle of the lake", "swim so far",
       "dived in, took the rope and pulled the boat to the shore"},
      {Talent::swim, "{His} grandmother's spoon fell off the bridge into the river", "dive to the bottom",
       "took a deep breath, dived down and came up with the spoon"},
      {Talent::dig, "A heap of earth slid down the hill and buried {his} wheelbarrow", "dig through so much earth",
       "dug so fast that the earth flew in all directions, and soon the wheelbarrow was free"},
      {Talent::dig, "{He} had buried a box of winter food and now the ground was as hard as stone",
       "dig in hard ground", "scraped and dug with strong claws until the box came out"},
      {Talent::climb, "{His} lantern was hanging on a steep cliff where a storm had left it", "climb the cliff",
       "went up the cliff from ledge to ledge and brought the lantern down"},
      {Talent::climb,
       "The ripest peaches grew at the very top of the tree, and {his} mother was ill and longed for one",
       "climb so high", "climbed up the trunk and tossed down peach after peach"},
      {Talent::carry, "A fallen tree lay across the path to the village, and {he} had to bring medicine there",
       "move the tree", "pushed with one strong shoulder, and the tree rolled into the ditch"},
      {Talent::carry, "The mill was far away, and {his} sack of corn was too heavy", "carry the sack",
       "lifted the sack as if it were a cushion and carried it to the mill"},
      {Talent::gnaw, "{His} cousin was caught in a hunter's net", "break the thick ropes",
       "nibbled through one rope after another until the net fell open"},
      {Talent::gnaw, "A door had swollen in the rain, and {his} baby sister was locked in the cupboard behind it",
       "open the wooden door", "gnawed a round hole in the wood, and out came the little one"},
  };
  static constexpr const char* kBoasts[] = {"I am sure I can do it", "Leave it to me", "That is nothing for me",
                                            "I will try"};
  const Animal& hero = open_animal(t);
  const Problem* problem = &t.dice.pick(kProblems);
  while (could_try(hero, problem->talent)) problem = &t.dice.pick(kProblems);
  const Animal* helper = &pick_animal(t.dice, problem->talent);
  const Animal* wrong = &pick_animal(t.dice);
  while (could_try(*wrong, problem->talent) || wrong == &hero) wrong = &pick_animal(t.dice);
  cast_animal(t, *wrong, "other", "2");
  cast_animal(t, *helper, "friend", "3");
  t.set("task", problem->task);
  t.say("One day {he} had a problem. " + t.expand(problem->problem) + ".");
  t.maybe(60, "\"[What shall I do|How can I ever fix this]?\" said {hero}. \"I am only a~ {kind}. I cannot {task}.\"");
  t.paragraph();
  t.say("{Other} the {other_kind} [{other_moves} by|heard it|came along]. \"" + std::string(t.dice.pick(kBoasts)) +
        ",\" said {other}. {He2} tried and tried. But a~ {other_kind} cannot {task}. \"[I am sorry|It is too hard for "
        "me],\" [said|puffed] {other}.");
  t.say(
      "[Then|Next] {friend} the {friend_kind} {friend_moves} [closer|up to them|out of the shadows]. {Friend} was "
      "[quiet and shy|not proud|often overlooked], and [nobody had asked {him3}|{he3} did not talk much]. \"[May I "
      "try|Perhaps I can help]?\" {he3} asked.");
  t.say("\"[Yes, please|Oh, please do],\" said {hero}.");
  t.say("{Friend} " + t.expand(problem->deed) + ". [It did not take long.|It was done in a moment.|]");
  t.paragraph();
  t.say(
      "\"[Hurray|Thank you, thank you]!\" [cried|shouted] {hero}. \"[What was impossible for us was easy for "
      "you|Nobody could have done it better].\"");
  t.maybe(60, "\"[Everyone is good at something|Each of us has a gift],\" said {friend}[ with a smile| and blushed|].");
  t.maybe(60,
          "{Hero} [shared {his} {food} with them|invited them both to {his} home|gave {friend} a crown of daisies], "
          "and {other} [laughed too|clapped the loudest|told everyone about it].");
  t.say(
      "[From then on, {hero}, {other} and {friend} were friends, and each helped in a different way.|And {hero} never "
      "forgot the day when the quiet {friend_kind} saved {him}.|After that, {hero} always asked the right friend for "
      "the right task.]");
}

void kindness_returned(Telling& t) {
  struct Trap {
    const char* trouble;  // of the small one, subject {friend}
    const char* rescue;   // past tense, subject {hero}
  };
  static constexpr Trap kTraps[] = {
      {"lay on {his2} back in a puddle and could not get up", "turned {him2} over with care"},
      {"was caught in a bramble bush", "pulled the thorns apart one by one"},
      {"was shivering in the cold rain", "made room under a big leaf and kept {him2} warm"},
      {"was stuck in an empty bottle", "broke the neck of the bottle with a stone"},
      {"had not eaten for three days", "gave {him2} half of the supper"},
      {"was being carried away by the stream", "threw {him2} a branch and pulled {him2} out"},
      {"had a splinter in one foot", "drew it out with great care"},
  };
  struct Return {
    const char* danger;  // subject {hero}
    const char* help;    // past tense, subject {friend}
  };
  static constexpr Return kReturns[] = {
      {"stepped into a hunter's snare, and the rope pulled tight", "bit and tore at the rope until it snapped"},
      {"lost the way in a thick fog", "knew every stone by heart and led {hero} home"},
      {"fell asleep too close to a burning field", "shouted into {hero}'s ear until {hero} woke and ran"},
      {"had a bee sting on the nose and howled with pain", "found a cool leaf and laid it on the sting"},
      {"was about to eat a poisonous mushroom", "shouted a warning just in time"},
      {"could not find any food in the deep snow", "showed {hero} a secret store of acorns and dried berries"},
      {"was sad and alone after a quarrel with the other animals",
       "sat down beside {hero} and stayed until the stars came out"},
  };
  const Animal& hero = pick_small(t.dice, false);
  t.person("hero", "", pick_animal_name(t.dice), t.dice.chance(50) ? Gender::female : Gender::male);
  t.set("kind", hero.name);
  t.set("moves", hero.moves);
  cast_animal(t, pick_small(t.dice, true), "friend", "2");
  const Trap& trap = t.dice.pick(kTraps);
  const Return& back = t.dice.pick(kReturns);
  t.set("size", "[big|strong|tall|proud]");
  t.say(
      "[Once upon a time, there was a {size} {kind} named {hero}.|{Hero} was a {size} {kind}.|There was once a {size} "
      "{kind} who was called {hero}.] " +
      std::string("{He} lived ") + hero.home + ".");
  t.say(
      "One [evening|morning|rainy day], {he} {moves} through the [grass|forest|fields|bushes] and [heard a thin "
      "voice|found somebody very small]. It was {friend} the {friend_kind}. {He2} " +
      t.expand(trap.trouble) + ".");
  t.maybe(60, "\"[Help me, please|Please do not pass by]!\" said {friend}.");
  t.paragraph();
  t.say("{Hero} [was in a hurry, but {he} stopped|could have walked on, but {he} did not|bent down]. {He} " +
        t.expand(trap.rescue) + ".");
  t.say("\"Thank you! One day I will help you too,\" said {friend}.");
  t.say(
      "{Hero} [had to laugh|chuckled|smiled]. \"You? Help me? You are [no bigger than my foot|as small as a plum|so "
      "tiny]! But [you are welcome|that is kind of you].\" And {he} [went on|{moves} away].");
  t.paragraph();
  t.say("[Weeks later|Some time later|When the season had changed], {hero} " + t.expand(back.danger) +
        ". [There was no one around.|{He} called, but the wind blew the words away.|{He} thought that nobody would "
        "come.]");
  t.say(
      "But somebody came. It was {friend}! The little {friend_kind} {friend_moves} [closer|as fast as {he2} could]. "
      "\"[I am here|Hold on|Do not be afraid]!\" {he2} said. {He2} " +
      t.expand(back.help) + ".");
  t.paragraph();
  t.say(
      "{Hero} [took a deep breath|lowered {his} head|was quiet for a moment]. \"I laughed at you because you are "
      "small,\" {he} said. \"[I was wrong|That was foolish of me]. You have a big heart.\"");
  t.say(
      "[\"You were kind to me first,\" said {friend}.|\"Kindness always finds its way back,\" said {friend}.|\"Nobody "
      "is too small to help,\" said {friend}.]");
  t.say(
      "From that day on, {hero} the {kind} and {friend} the {friend_kind} were [friends|the best of friends|always "
      "seen together].");
}

void the_boaster(Telling& t) {
  struct Boast {
    const char* boast;    // "I am the fastest in the land"
    const char* contest;  // "a race to the old stump"
    const char* mistake;  // past tense, subject {hero}
    const char* steady;   // past tense, subject {friend}
  };
  static constexpr Boast kBoasts[] = {
      {"I am the fastest in the whole valley", "race to the old stump", "stopped halfway to admire {himself} in a pool",
       "went on, step after step, without a rest"},
      {"I am the best singer in the wood", "singing contest",
       "sang so loudly all night before that {his} voice was gone", "sang one simple tune, soft and true"},
      {"I know the forest better than anyone", "hunt for the golden mushroom",
       "took a shortcut without looking and fell into a bog", "followed the signs with care"},
      {"I am the strongest of all", "pulling match at the well",
       "pulled with one leg to show off and slipped in the mud", "pulled slowly and did not let go"},
      {"I can build faster than any of you", "house building contest",
       "used only grass and spit, and the first wind blew it away", "laid stone upon stone and twig upon twig"},
      {"I can stay awake longer than anyone", "night watch", "boasted until {he} was tired and snored before midnight",
       "counted the stars quietly until dawn"},
      {"I never make a mistake", "cooking contest", "mixed up the sugar and the salt", "tasted everything twice"},
  };
  open_animal(t);
  const Boast& boast = t.dice.pick(kBoasts);
  const Animal* rival = &pick_animal(t.dice);
  // A small rival could not win the pulling match.
  while (rival->name == t.get("kind") || rival->small) rival = &pick_animal(t.dice);
  cast_animal(t, *rival, "friend", "2");
  t.set("contest", boast.contest);
  t.set("boast", boast.boast);
  t.say(
      "But {hero} had one fault. {He} liked to [boast|brag|show off]. \"{boast}!\" {he} told everyone, [morning, noon "
      "and night|whether they wanted to hear it or not|again and again].");
  t.say(
      "[The other animals were tired of it.|The other animals rolled their eyes.] At last {friend} the {friend_kind} "
      "said, \"[Then show us|Let us see]. Tomorrow there will be a {contest}, you against me.\"");
  t.maybe(60,
          "{Hero} laughed [until {his} belly hurt|out loud]. \"Against you? [I have already won|That will be easy]!\"");
  t.paragraph();
  t.say(
      "The next day, all the animals came to see the {contest}. [The owl was the judge.|The old badger gave the "
      "signal.|The frogs beat the drum.]");
  t.say("{Hero} " + t.expand(boast.mistake) + ". {Friend} " + t.expand(boast.steady) + ".");
  t.say(
      "[In the end|When it was over], {friend} had won, and [everybody cheered|the whole wood clapped|the birds threw "
      "petals into the air].");
  t.paragraph();
  t.maybe(70,
          "{Hero} [hid behind a bush|looked at the ground|felt hot with shame]. {He} thought that they would all "
          "[mock|tease|laugh at] {him}.");
  t.say(
      "{Friend} came over. \"[You are good at it|You could have won|You are quick and clever],\" {he2} said. \"[You "
      "only forgot to do your best|Next time use your strength and not your mouth].\"");
  t.maybe(60,
          "\"[You are right|That is true],\" said {hero}. \"[I am sorry that I bragged|I talked too much]. You won "
          "fairly.\"");
  t.say(
      "[Then they ate {food} together, and {hero} listened to the others for the first time.|After that, {hero} talked "
      "less and did more, and everyone liked {him} better.|From then on, when {hero} wanted to say \"{boast},\" {he} "
      "bit {his} tongue and smiled.]");
}

void winter_stores(Telling& t) {
  static constexpr const char* kPastimes[] = {
      "danced on the lawn", "lay in the sun",        "chased butterflies", "slept in a hammock of leaves",
      "played the fiddle",  "splashed in the brook", "made daisy chains"};
  static constexpr const char* kStores[] = {"acorns",    "hazelnuts",  "dried berries", "wheat", "apples",
                                            "chestnuts", "pine cones", "turnips",       "beans", "dried mushrooms"};
  struct Return {
    const char* work;
    const char* pleased;
  };
  static constexpr Return kReturns[] = {
      {"mend the roof", "not a single drop came in"},
      {"sweep the snow from the door", "the path was always clear"},
      {"tell a tale every evening", "the long nights felt short"},
      {"play a tune after supper", "even the walls seemed to dance"},
      {"carry in the firewood", "the stove never went out"},
      {"knit warm socks for both of us", "nobody had cold feet"},
  };
  const Animal& hero = open_animal(t);
  cast_animal(t, pick_other_animal(t.dice, hero), "friend", "2");
  const auto stores = t.dice.pick_several(kStores, 2);
  const Return& work = t.dice.pick(kReturns);
  t.set("pastime", t.dice.pick(kPastimes));
  t.set("store", *stores[0]);
  t.set("store_too", *stores[1]);
  t.set("work", work.work);
  t.say(
      "All summer long, {hero} [worked hard|was busy] and gathered {store} and {store_too} for the winter.[ {He} "
      "[filled every shelf|stacked them in neat rows|counted them each evening].|]");
  t.say(
      "{His} neighbor, {friend} the {friend_kind}, only {pastime}. \"[Come and play!|Why do you work on such a fine "
      "day?]\" {friend} called.");
  t.say(
      "\"[Winter will come|The cold days will be long], and then there will be nothing to eat,\" said {hero}. \"[You "
      "should gather something too|Come, I will show you where the {store} are].\"");
  t.say(
      "\"[Winter is far away|I will do it tomorrow|There is plenty of time],\" said {friend} and "
      "[yawned|laughed|hummed].");
  t.paragraph();
  t.say(
      "But the days grew shorter. [The leaves fell, and then the snow fell.|One morning the pond was frozen.|The first "
      "frost turned the grass white.] {Friend} [looked everywhere|searched under every bush], but there was no food "
      "left. {He2} was cold and hungry.");
  t.say(
      "[One night|On the coldest evening], there was a knock at {hero}'s door. It was {friend}, [with snow on {his2} "
      "head|shaking from top to toe]. \"[You were right|I was foolish],\" {he2} said. \"Please, may I have [a little "
      "food|a few {store}]?\"");
  t.paragraph();
  t.say(
      "[{Hero} could have said no, but {he} had a soft heart.|{Hero} thought of all the hard work, but then {he} saw "
      "how {friend} trembled.|{Hero} opened the door wide.] \"[Come in and get warm|Sit by the fire]. There is enough "
      "for two if we are careful,\" {he} said.");
  t.maybe(
      70,
      "\"How can I thank you?\" asked {friend}. \"You can {work},\" said {hero}. And {friend} did it so well that " +
          std::string(work.pleased) + ".");
  t.maybe(50,
          "When spring came, [the snow melted|the birds returned|the first flowers opened], and {friend} was the first "
          "one [to wake up|out of bed]. \"This year I will gather {store} with you,\" {he2} said.");
  t.say(
      "[{Hero} was glad, for work is lighter when it is shared.|And {hero} found that a~ {friend_kind} who has learned "
      "a lesson makes a very good neighbor.|So they worked in the morning and played in the evening, and {hero} "
      "learned to dance a little too.]");
}

void race_and_rescue(Telling& t) {
  struct Accident {
    const char* accident;  // subject {friend}
    const char* help;      // past tense, subject {hero}
  };
  static constexpr Accident kAccidents[] = {
      {"tripped over a root and hurt {his2} leg", "tied a broad leaf around it and let {him2} lean on {his} shoulder"},
      {"slid into a ditch and could not get out", "held out a long stick and pulled with all {his} might"},
      {"ran into a thorn bush and got stuck", "bent the branches back one by one"},
      {"took the wrong turn and sank into the mud", "laid a log across the mud and pulled {him2} free"},
      {"got tangled in an old fishing line", "untied the knots, though it took a long time"},
      {"felt dizzy in the hot sun and had to lie down", "fetched water in a shell and fanned {him2} with a fern"},
  };
  static constexpr const char* kPrizes[] = {"a cake made of nuts and honey",
                                            "a crown of golden leaves",
                                            "a shining medal",
                                            "a basket full of the best fruit",
                                            "a silver bell",
                                            "a red flag with a star"};
  static constexpr const char* kCourses[] = {"around the lake",
                                             "through the forest",
                                             "to the windmill and back",
                                             "over the three hills",
                                             "along the river to the bridge",
                                             "from the barn to the old oak"};
  const Animal& hero = open_animal(t, true);
  const Animal* rival = &pick_other_animal(t.dice, hero);
  while (!well_matched(hero, *rival)) rival = &pick_other_animal(t.dice, hero);
  cast_animal(t, *rival, "friend", "2");
  const Accident& accident = t.dice.pick(kAccidents);
  t.set("prize", t.dice.pick(kPrizes));
  t.set("course", t.dice.pick(kCourses));
  t.say(
      "Every [spring|summer|year] there was a great race {course}. The prize was {prize}. {Hero} [had trained for "
      "weeks|had dreamed of winning it since {he} was little|wanted to win it more than anything].");
  t.say(
      "{Friend} the {friend_kind} was in the race as well. \"[I will beat you|You will only see my back|Do not cry "
      "when you lose],\" {he2} [said|teased].[ {Hero} [only smiled|said nothing|wished {him2} good luck].|]");
  t.paragraph();
  t.say(
      "\"Ready, steady, go!\" called the [old owl|gray goose|stork], and they were off. {Hero} [ran as fast as {he} "
      "could|gave it everything]. [Soon|By the halfway mark] {he} and {friend} were far ahead of the others, side by "
      "side.");
  t.say("Then {friend} " + t.expand(accident.accident) + ". \"[Help|Oh no]!\" {he2} cried.");
  t.say(
      "{Hero} [looked back|slowed down|heard it]. The finish was [so near|not far away]. [But how could {he} leave "
      "{friend} there?|But {friend}'s face was full of pain.] {Hero} turned around.");
  t.say("{He} " + t.expand(accident.help) +
        ". [Meanwhile|While {he} was doing this], the others [hurried|rushed] past them, one after another.");
  t.paragraph();
  t.say(
      "{Hero} and {friend} [came in last, arm in arm|crossed the line together, the last of all|reached the finish "
      "when the sun was already low]. [To their surprise, everyone cheered.|All the animals stood up and clapped.]");
  t.maybe(70,
          "\"Why did you help me? I was not nice to you,\" said {friend}. \"[Because you needed it|A race comes every "
          "year, but a friend does not],\" said {hero}.");
  t.maybe(60,
          "The winner, a young [hare|deer|colt], [came up to them|stepped forward] and [gave {prize} to {hero}|laid "
          "{prize} at {hero}'s feet]. \"I only ran faster. You did something greater.\"");
  t.say(
      "[{Hero} shared it with {friend}, and from then on they trained together.|That was the day when {hero} lost a "
      "race and won a friend.|And {hero} was happier than any winner had ever been.]");
}

}  // namespace some::telling

// Plots with others: plans, presents, newcomers, sharing, visiting the sick, lending, buying.
#include "text/stories_tales.h"

namespace some::telling {

void weather_and_plans(Telling& t) {
  struct Plan {
    const char* plan;     // "have a picnic on the hill"
    const char* packing;  // what they packed
    unsigned spoiled_by;  // bits of the weathers below
  };
  enum : unsigned { kRain = 1, kSnow = 2, kWind = 4, kFog = 8, kHeat = 16 };
  static constexpr Plan kPlans[] = {
      {"have a picnic on the hill", "bread, cheese and a jug of juice", kRain | kSnow | kWind},
      {"ride their bicycles to the mill", "two helmets and a bottle of water", kRain | kSnow | kHeat},
      {"play badminton in the park", "two rackets and a feathery ball", kRain | kWind | kHeat},
      {"look at the far mountains from the tower", "a pair of field glasses and a map", kFog | kRain | kSnow},
      {"run a race around the pond", "their fastest shoes and a stopwatch", kHeat | kSnow | kRain},
      {"sail paper boats on the pond", "six paper boats with tiny flags", kRain | kWind | kFog},
      {"paint pictures of the harbor", "paint, paper and a folding table", kRain | kFog | kWind},
      {"pick wild strawberries in the wood", "two pails and a sandwich each", kRain | kHeat | kFog},
      {"build a camp of blankets in the meadow", "three blankets and a rope", kWind | kRain | kSnow},
      {"watch the gliders on the big field", "folding chairs and a bag of peanuts", kFog | kRain | kSnow},
  };
  struct Weather {
    unsigned bit;
    const char* sign;
    const char* arrival;
    const char* instead;  // "fly our kites"
    const char* gear;     // what they put on or fetched
    const char* fun;      // what happened, a whole sentence
  };
  static constexpr Weather kWeathers[] = {
      {kRain, "Gray clouds rolled in", "big drops of rain began to fall", "splash in the puddles",
       "put on rubber boots and yellow raincoats",
       "They jumped from puddle to puddle until even their noses were muddy"},
      {kRain, "The sky turned as dark as slate", "it poured", "put on a puppet show indoors",
       "fetched old socks and buttons to make puppets",
       "The sock king and the sock queen had a funny quarrel about a pancake"},
      {kSnow, "The air grew cold and still", "thick snowflakes came down", "build a snowman",
       "put on mittens and thick scarves", "The snowman got a carrot nose and a cooking pot for a hat"},
      {kSnow, "The wind smelled of ice", "the whole world turned white with snow", "go sledding",
       "pulled the old sled out of the shed", "They whizzed down the slope and screamed with joy"},
      {kWind, "The trees began to bend", "a strong wind blew everything about", "fly our kites",
       "ran home for the kites and a ball of string",
       "The kites rose higher than the church tower and tugged at the strings"},
      {kWind, "Leaves whirled through the air", "the wind howled around the corners", "make pinwheels",
       "cut bright paper and pinned it to sticks", "The pinwheels spun so fast that their colors ran together"},
      {kFog, "A white mist crept up from the river", "the fog was as thick as milk", "play hide and seek in the mist",
       "tied small bells to their wrists", "It was the best hiding game ever, for they could only hear each other"},
      {kFog, "The hills vanished one after another", "nobody could see farther than a few steps",
       "bake gingerbread at home", "put on aprons and rolled up their sleeves",
       "The gingerbread men came out with crooked smiles, and the whole house smelled of spice"},
      {kHeat, "The sun burned down", "it became too hot to move", "swim in the creek", "fetched towels and sun hats",
       "They floated on their backs and watched the dragonflies"},
      {kHeat, "Not a single cloud was in the sky", "the road was so hot that it shimmered",
       "make ice pops in the shade", "squeezed lemons and poured the juice into cups",
       "The ice pops were sour and sweet and dripped on their toes"},
  };
  open_child(t);
  cast_child(t, "friend", "2");
  const Plan& plan = t.dice.pick(kPlans);
  const Weather* weather = &t.dice.pick(kWeathers);
  while ((weather->bit & plan.spoiled_by) == 0) weather = &t.dice.pick(kWeathers);
  t.set("plan", plan.plan);
  t.set("instead", weather->instead);
  t.say("{His} best friend was [called|named] {friend}.");
  t.say(
      "[One morning|One Saturday|On the first day of the holidays], {hero} and {friend} wanted to {plan}. [They had "
      "talked about it all week.|They had been waiting for this day.|]");
  t.say(std::string("They packed ") + plan.packing + " and set off.");
  t.paragraph();
  t.say(std::string("But they had not gone far when the weather changed. ") + weather->sign + ", and soon " +
        weather->arrival + ".");
  t.say(
      "\"[Oh no|What a pity|That is not fair]!\" said {friend}. \"We cannot {plan} [in this weather|now|like this].\" "
      "{He2} [hung {his2} head|kicked a stone|looked ready to cry].");
  t.say(
      "{Hero} was [sad too|disappointed as well], but then {he} [looked around|looked up|thought for a while] and "
      "[smiled|had an idea]. \"This weather is bad for one thing but good for another,\" {he} said. \"Let us "
      "{instead}!\"");
  t.paragraph();
  t.say(std::string("So they ") + weather->gear + ". " + weather->fun + ".");
  t.maybe(50,
          "\"[This is even better|I have never had so much fun|I am glad the weather changed]!\" "
          "[laughed|shouted|said] {friend}.");
  t.maybe(40, "Later they shared the things they had brought from home[ and told each other jokes| and rested|].");
  t.say(
      "[\"We can {plan} another day,\" said {hero}, and so they did, one week later.|In the evening, {hero} and "
      "{friend} were tired and happy. They had learned that a spoiled plan can make room for a better one.|When {hero} "
      "lay in bed "
      "that night, {he} was almost thankful for the bad weather.]");
}

void wished_for_gift(Telling& t) {
  struct Wish {
    const char* gift;
    const char* want;  // why the friend wants it, subject {friend}
    const char* seller;
    const char* joy;  // what the friend did with it, subject {friend}
  };
  static constexpr Wish kWishes[] = {
      {"paint box", "loved to paint but had only one old brush", "art shop",
       "painted a rainbow for {hero} that very day"},
      {"pair of warm gloves", "had to keep {his2} cold hands in {his2} pockets all winter", "wool shop",
       "threw the first snowball with warm hands"},
      {"book about the stars", "stood at the window every night and looked at the sky", "book shop",
       "found the Great Bear in the sky that same night"},
      {"small guitar", "liked to sing and to drum on every table", "music shop",
       "played a song with three notes for everyone"},
      {"kite with a long tail", "ran to the hill whenever the wind blew", "toy shop",
       "flew it so high that the swallows were surprised"},
      {"fishing rod", "sat by the river every Sunday with only a stick and a thread", "hardware shop",
       "caught a fat trout before supper"},
      {"magnifying glass", "wanted to see every bug and leaf from close up", "curiosity shop",
       "counted the spots of a ladybug"},
      {"soccer ball", "had been kicking an old tin can for weeks", "sports shop",
       "scored the first goal between two trees"},
      {"cookbook", "dreamed of being a chef", "book shop", "cooked a pot of tomato soup for all the guests"},
      {"pot of red tulips", "missed the garden of {his2} old home", "flower shop",
       "put it on the windowsill and watered it with care"},
      {"chess set", "had learned the rules but had no pieces to play with", "toy shop",
       "played a long game with {hero} and lost with a smile"},
      {"lantern", "had to walk home in the dark after choir practice", "hardware shop",
       "walked home that evening in a circle of golden light"},
      {"straw hat", "got a red nose every summer", "hat shop", "wore it in the sun, in the shade and even at supper"},
      {"bag of clay", "shaped little animals out of mud after every rain", "art shop",
       "made a tiny elephant with a curly trunk"},
      {"toolbox", "built things with a stone instead of a hammer", "hardware shop",
       "built a house for the birds with a round door"},
  };
  static constexpr const char* kJobs[] = {
      "watered the plants of a neighbor", "walked the dog of the old captain", "sold lemonade at the corner",
      "swept the yard of the bakery",     "picked beans for the farmer",       "washed the wagon of the milkman",
      "sorted bottles for the grocer",    "shoveled the path of the church",   "carried newspapers from door to door",
      "brushed the ponies at the stable", "stacked firewood for the miller",
  };
  open_child(t);
  cast_child(t, "friend", "2");
  cast_neighbour(t, "seller", "3");
  const Wish& wish = t.dice.pick(kWishes);
  const auto jobs = t.dice.pick_several(kJobs, 2);
  t.set("gift", wish.gift);
  t.set("shop", wish.seller);
  t.say("{His} best friend {friend} " + t.expand(wish.want) + ".");
  t.say("\"I wish I had a~ {gift},\" {friend} [often said|said one day|sighed one afternoon].");
  t.say(
      "{Hero} [remembered this|kept it in mind|did not forget it], for {friend} would [soon have a birthday|have a "
      "birthday in a week|turn [seven|eight|nine] that month].");
  t.paragraph();
  t.say(
      "In the window of the {shop} stood a~ [fine|lovely|splendid] {gift}. But {hero} had only [one coin|two "
      "coins|three coins] in {his} [purse|pocket|money box], and the {gift} cost [ten|eight|twelve].");
  t.say(std::string("\"Then I will earn the rest,\" {he} said. {He} ") + *jobs[0] + ", and {he} " + *jobs[1] +
        ". [It was hard work.|{His} arms were tired, but {he} did not stop.|Coin by coin the money grew.]");
  t.say(
      "[On the day before the birthday|At last|On Friday], {he} [ran|went] to the {shop} and counted the coins [on the "
      "counter|one by one]. [There was just enough! \"You worked hard for a friend,\" said {seller}, who owned the "
      "{shop}. \"[I will add a ribbon for you|The wrapping paper is free].\"|One coin was missing! But {seller}, who "
      "owned the {shop}, [smiled|winked]. \"You worked hard for a friend,\" {he3} said. \"The last coin is on me.\"]");
  t.paragraph();
  t.say(
      "At the party, {hero} gave {friend} a package. {Friend} [tore off the paper|opened it slowly|untied the string] "
      "and [gasped|beamed|jumped up and down]. \"A~ {gift}! [It is just what I wished for|You remembered my wish|How "
      "wonderful]!\"");
  t.say("{Friend} " + t.expand(wish.joy) + ".");
  t.say(
      "[{Hero} had no coins left, but {he} felt very rich.|Seeing {friend} so happy was the best present for "
      "{hero}.|{Hero} learned that giving can feel even better than getting.]");
}

void new_neighbour(Telling& t) {
  struct Interest {
    const char* activity;  // "draw maps"
    const char* clue;      // what the hero noticed
    const char* invite;
    const char* together;  // past tense, subject they
  };
  static constexpr Interest kInterests[] = {
      {"draw maps", "a roll of paper and a compass in a box",
       "I am drawing a map of the whole town. Do you want to add your street?",
       "drew every lane, every well and every cat on the wall"},
      {"play the drums", "a pair of drumsticks in a back pocket", "We have old pots in the shed. Shall we make a band?",
       "drummed until the birds flew up and the neighbors danced"},
      {"look for fossils", "a little hammer and a bag of stones",
       "I know a cliff with snails made of stone. Shall I show you?", "found a stone snail as big as a plate"},
      {"build model ships", "a tiny ship inside a bottle", "I have wood and glue. Shall we build a fleet?",
       "built seven ships and sailed them on the pond"},
      {"grow cactus plants", "a row of prickly plants on the windowsill",
       "My cactus is blooming today. Would you like to see it?", "made a desert garden in an old drawer"},
      {"play chess", "a checkered board under one arm", "I need somebody to play with. Do you want the white pieces?",
       "played until the street lamps were lit"},
      {"do magic tricks", "a deck of cards and a black hat", "I can make a coin vanish. Can you make it come back?",
       "put on a magic show for the whole street"},
      {"watch birds", "a notebook full of birds", "There is a nest of swallows in our barn. Come and see!",
       "counted five chicks with wide open beaks"},
      {"play soccer", "a ball with a scratch on it", "We are one player short. Can you be our goalkeeper?",
       "won the game by one goal"},
      {"bake", "an apron with flour on it", "Grandma is teaching me to make pretzels. There is enough dough for two.",
       "baked pretzels that looked like knots, hearts and snakes"},
      {"read about pirates", "a book with a skull on the cover",
       "I have the second part of that book. Do you want to borrow it?", "turned an old rowboat into a pirate ship"},
      {"tell jokes", "a smile that came out for a second",
       "Do you know why the snail carries its house? It cannot pay rent!",
       "told each other jokes until their sides hurt"},
  };
  open_child(t);
  cast_child(t, "friend", "2");
  const Interest& interest = t.dice.pick(kInterests);
  t.set("activity", interest.activity);
  t.set("clue", interest.clue);
  t.say(
      "[One day|In the spring|At the end of summer|One Monday], a new family moved in next door. They came from [far "
      "away|another country|the other side of the mountains|a big city|an island], and they had a {child2} named "
      "{friend}.");
  t.paragraph();
  t.say(
      "{Friend} [sat alone on the steps|did not know anybody|stood by the fence and said nothing|watched the other "
      "children from the window]. {He2} [looked lonely|missed {his2} old home|was too shy to say hello].");
  t.maybe(60,
          "[\"{He2} does not talk to us,\" said some of the children. \"Let us play without {him2}.\"|Some children "
          "pointed and whispered.|At school, nobody sat beside {him2}.]");
  t.say(
      "{Hero} remembered how it feels to be [alone|new|left out]. Then {he} saw that {friend} had {clue}. \"[Aha|Oh], "
      "{he2} likes to {activity} too!\" {he} thought.");
  t.paragraph();
  t.say("The next [day|morning|afternoon], {hero} went over and said, \"Hello, I am {hero}. " +
        std::string(interest.invite) + "\"");
  t.say(
      "{Friend} [looked up in surprise|blinked|blushed]. \"[I would love to|Yes, please|Really? Yes]!\" {he2} said, "
      "and {his2} whole face [lit up|shone].");
  t.say(std::string("That [day|afternoon|same day], they ") + interest.together + ".");
  t.maybe(50,
          "[Soon the other children came to watch, and then they joined in.|{Friend} taught {hero} how to say "
          "\"friend\" in another language.|{Friend}'s parents brought out a plate of warm rolls.]");
  t.paragraph();
  t.maybe(60,
          "\"I was afraid that I would never have a friend here,\" said {friend}. \"[Now you have one|Well, here I "
          "am|Now you have me],\" said {hero}.");
  t.say(
      "[After that, {hero} and {friend} were together almost every day.|And {hero} learned that a friendly word can "
      "open a closed door.|They both loved to {activity}, and {hero} was glad that {he} had knocked on that door.]");
}

void sharing(Telling& t) {
  struct Toy {
    const char* toy;
    const char* alone;     // why it is no good alone, a whole sentence
    const char* together;  // past tense, subject they
  };
  static constexpr Toy kToys[] = {
      {"swing", "There was nobody to push {him}, and the swing hung still",
       "took turns, and one pushed while the other flew up to the leaves"},
      {"seesaw", "With no one on the other end, it stayed on the ground",
       "went up and down, up and down, like a boat on the waves"},
      {"sandbox", "{He} built a castle, but nobody was there to see it",
       "built a castle with four towers, a moat and a tunnel that met in the middle"},
      {"red wagon", "{He} could pull it, but then {he} could not ride in it",
       "pulled each other down the lane and back"},
      {"board game", "{He} rolled the dice for both sides, and it was dull",
       "rolled the dice, laughed and lost count of the games"},
      {"jump rope", "{He} tied one end to a tree, but the tree did not turn it",
       "turned the rope and jumped to a funny rhyme"},
      {"puppet theater", "The puppets bowed, but the chairs were empty",
       "gave the puppets silly voices and took turns to clap"},
      {"ball", "{He} threw it, and then {he} had to fetch it, every single time",
       "threw it back and forth a hundred times"},
      {"tent", "It was dark and quiet in there, and {he} had no one to whisper to",
       "told each other tales in the tent with a lamp between them"},
      {"train set", "{He} could drive the train, but nobody waved at the station",
       "laid the rails around the whole room and opened three stations"},
      {"bubble kit", "{He} blew bubbles, but no one chased them",
       "blew bubbles as big as melons and chased them over the lawn"},
  };
  open_child(t);
  cast_child(t, "friend", "2");
  cast_parent(t, "3");
  const Toy& toy = t.dice.pick(kToys);
  t.set("toy", toy.toy);
  draw_day(t);
  t.say(
      "{Day}, {hero} got a new {toy}[ from {his} {parent}| for {his} birthday|]. It was [the finest {toy} in the "
      "street|brand new|just what {he} had wanted].");
  t.say(
      "[Soon|Before long|That same day] {friend} from next door came [by|running|to see it]. \"[May I play with it "
      "too|Can I have a turn|May I try it]?\" {he2} asked.");
  t.say("\"No! It is mine,\" said {hero}[ and turned away| and made a cross face|].");
  t.maybe(
      70,
      "{Friend} [looked at the ground|said nothing|swallowed hard] and went [away|home] [slowly|with small steps].");
  t.paragraph();
  t.say("{Hero} played alone. [At first it was nice.|At first {he} was pleased.] But then it was not so much fun. " +
        t.expand(toy.alone) + ".");
  t.say(
      "{His} {parent} [looked out of the window|came out|saw {his} long face]. \"[Why do you look so glum|Is the {toy} "
      "not any good]?\" {he3} asked.");
  t.say("\"It is [boring|lonely] without [a friend|{friend}],\" [said|admitted|mumbled] {hero}. \"I was not kind.\"");
  t.maybe(70,
          "\"[It is never too late to be kind|A sorry can be said at any time|You can still fix that],\" said {his} "
          "{parent}.");
  t.paragraph();
  t.say(
      "So {hero} [ran next door|knocked at the next house|went to find {friend}]. \"I am sorry, {friend},\" {he} said. "
      "\"[Please come and play.|Will you play with me?] You can go first.\"");
  t.say(std::string("{Friend} [smiled|grinned|forgave {him} at once]. The two of them ") + toy.together + ".");
  t.say(
      "[\"This is much better,\" said {hero}.|The {toy} was twice as much fun for two, and {hero} knew it now.|When it "
      "got dark, {hero} said, \"Come back tomorrow! It is our {toy} now.\"]");
}

void sick_friend(Telling& t) {
  struct Cure {
    const char* illness;
    const char* missed;   // the event missed
    const char* comfort;  // what the hero brought
    const char* deed;     // past tense, subject hero
  };
  static constexpr Cure kCures[] = {
      {"had a bad cold", "the class trip to the zoo", "a pot of chicken soup",
       "drew every animal of the zoo on a long strip of paper"},
      {"had a fever", "the lantern parade", "a bunch of grapes", "made a paper lantern and hung it over the bed"},
      {"had broken an arm", "the swimming contest", "a bag of oranges", "wrote a funny verse on the white cast"},
      {"had the chicken pox", "the spring fair", "a cool lotion and a comic book",
       "set up a tiny fair with a ring toss in front of the window"},
      {"had a sore throat", "the school play", "a jar of honey",
       "acted out all the parts of the play, even the talking horse"},
      {"had twisted an ankle", "the big soccer match", "a soft cushion",
       "told the whole match from the first kick to the last"},
      {"had an earache", "the concert in the park", "a warm wool cap", "tapped all the songs softly on the bed post"},
      {"had a stomach ache", "the berry festival", "a can of peppermint tea",
       "kept a basket of berries cool until they could be eaten"},
      {"had the mumps", "the first snow", "a knitted scarf",
       "built a snowman right outside the window, with its face toward the bed"},
  };
  open_child(t);
  cast_child(t, "friend", "2");
  cast_parent(t, "3");
  const Cure& cure = t.dice.pick(kCures);
  t.set("illness", cure.illness);
  t.set("missed", cure.missed);
  t.set("comfort", cure.comfort);
  t.say("{He} and {friend} [did everything together|were the best of friends|walked to school together every day].");
  t.say(
      "But one [morning|day], {friend} did not come. {His} {parent} told {him} that {friend} {illness} and had to stay "
      "in bed. \"Then {he2} will miss {missed}!\" said {hero}.");
  t.paragraph();
  t.maybe(60,
          "{Hero} went to {missed}, but [it was not the same alone|{he} kept thinking of {friend}|half of the fun was "
          "missing]. \"[How can I cheer {him2} up|What would make {him2} smile]?\" {he} [wondered|asked {himself}].");
  t.say(
      "[The next day|After school|That evening], {he} [went to see {friend}|knocked at {friend}'s door|visited "
      "{friend}] and brought {comfort}.");
  t.say(
      "{Friend} lay in bed and looked [pale|tired|bored|miserable]. \"I missed {missed},\" {he2} [said "
      "sadly|sniffed|sighed].");
  t.say(std::string("\"Then I will bring it to you,\" said {hero}. And {he} ") + cure.deed + ".");
  t.maybe(70,
          "{Friend} [laughed so much that the bed shook|forgot to feel ill|clapped and smiled for the first time in "
          "days]. \"You are better than any medicine,\" {he2} said.");
  t.paragraph();
  t.say(
      "A [week|few days|little while] later, {friend} was well again. But then it was {hero} who [began to sneeze|felt "
      "hot and dizzy|had to stay in bed]!");
  t.say(
      "[Who came to the door with {comfort}? It was {friend}, of course.|This time {friend} came with {comfort} and "
      "sat by the bed.]");
  t.say(
      "[\"Now it is my turn to look after you,\" said {friend}, and {hero} felt better already.|{Hero} smiled under "
      "the blanket. A good friend is there on sunny days and on sick days too.|\"That is what friends are for,\" said "
      "{friend}. {Hero} squeezed {his2} hand.]");
}

void missing_ingredient(Telling& t) {
  struct Bake {
    const char* dish;
    const char* missing;
    const char* amount;
    const char* smell;
  };
  static constexpr Bake kBakes[] = {
      {"apple pie", "cinnamon", "a spoon of cinnamon", "apples and spice"},
      {"birthday cake", "eggs", "three eggs", "vanilla and butter"},
      {"pancakes", "milk", "a jug of milk", "warm butter"},
      {"honey cookies", "honey", "a jar of honey", "honey and nuts"},
      {"pumpkin soup", "cream", "a cup of cream", "pumpkin and herbs"},
      {"lemon cake", "lemons", "two lemons", "sweet lemons"},
      {"potato dumplings", "salt", "a pinch of salt", "steam and onions"},
      {"walnut bread", "walnuts", "a bag of walnuts", "fresh bread"},
      {"carrot muffins", "carrots", "a bunch of carrots", "carrots and ginger"},
      {"rice pudding", "sugar", "a bowl of sugar", "sweet milk"},
      {"waffles", "flour", "a sack of flour", "hot batter"},
      {"cheese tart", "butter", "a block of butter", "melted cheese"},
  };
  open_child(t);
  cast_parent(t, "2");
  cast_neighbour(t, "neighbor", "3");
  const Bake& bake = t.dice.pick(kBakes);
  t.set("dish", bake.dish);
  t.set("missing", bake.missing);
  t.set("amount", bake.amount);
  t.set("smell", bake.smell);
  const std::string_view dish = bake.dish;
  const bool plural = dish.ends_with("s");
  t.set("some_dish", plural ? "{dish}" : "a~ {dish}");
  if (dish.ends_with("bread") || dish.ends_with("soup") || dish.ends_with("pudding")) t.set("some_dish", "{dish}");
  t.set("were", plural ? "were" : "was");
  t.set("them", plural ? "them" : "it");
  draw_day(t);
  t.say(
      "{Day}, {hero} and {his} {parent} wanted to make {some_dish}. They [washed their hands|put on their "
      "aprons|cleared the table] and got out [the big bowl|a wooden spoon|the old recipe].");
  t.say(
      "But when {hero} opened the cupboard, there was no more {missing}! \"We cannot make {some_dish} without "
      "{missing},\" said {his} {parent}.");
  t.paragraph();
  t.say(
      "\"[I will ask {neighbor}|Maybe {neighbor} has some|Let me go to {neighbor}],\" said {hero}. {Neighbor} lived "
      "[across the road|upstairs|two doors away|behind the garden], [all alone with an old dog|in rooms full of "
      "clocks|in a room full of books|with only a canary for company].");
  t.say(
      "{Hero} [knocked|rang the bell]. \"Good [morning|day], {neighbor}. May we please borrow {amount}?\" {he} asked[ "
      "politely|].");
  t.say(
      "\"Of course, my dear,\" said {neighbor} and gave {him} {amount}. \"[It has been a long time since anyone made "
      "{some_dish} around here|I used to make {some_dish} when my children were small|I have not tasted {dish} for "
      "years].\" {He3} [looked a little sad|smiled, but {his3} eyes were wet|sighed softly].");
  t.paragraph();
  t.say(
      "{Hero} ran home. {He} [stirred|mixed|measured] and {his} {parent} [tasted|poured|kept an eye on the stove]. "
      "Soon the kitchen smelled of {smell}.");
  t.say(
      "\"[May I invite {neighbor}|Can {neighbor} eat with us]?\" asked {hero}. \"[What a good idea|Yes, that would be "
      "lovely],\" said {his} {parent}.");
  t.say(
      "So the three of them sat around the table. The {dish} {were} [warm|perfect|delicious], and {neighbor} [told "
      "tales of long ago|asked for more|hummed with joy|ate two helpings].");
  t.say(
      "[\"You lent us {amount}, and we got a friend as well,\" {hero} said to {neighbor}.|From that day on, {neighbor} "
      "came to eat with {hero} every [Sunday|week|Friday].|{Hero} was glad that the {missing} had run out, because now "
      "{neighbor} was not lonely anymore.]");
}

void the_errand(Telling& t) {
  struct Good {
    const char* good;    // "a loaf of bread"
    const char* plain;   // "bread"
    const char* seller;  // "baker"
  };
  static constexpr Good kGoods[] = {
      {"a loaf of bread", "bread", "baker"},
      {"a dozen eggs", "eggs", "farmer"},
      {"a piece of cheese", "cheese", "dairyman"},
      {"a bag of apples", "apples", "fruit seller"},
      {"a fresh fish", "fish", "fishmonger"},
      {"a spool of thread", "thread", "tailor"},
      {"a jar of mustard", "mustard", "grocer"},
      {"a bunch of parsley", "parsley", "herb woman"},
      {"a box of candles", "candles", "candle maker"},
      {"a bottle of ink", "ink", "stationer"},
      {"a string of sausages", "sausages", "butcher"},
      {"a bar of soap", "soap", "soap maker"},
      {"a pound of pears", "pears", "fruit seller"},
      {"a sack of oats", "oats", "miller"},
      {"a pot of jam", "jam", "grocer"},
      {"a bundle of leeks", "leeks", "gardener"},
      {"a clay mug", "mug", "potter"},
      {"a ball of yarn", "yarn", "wool seller"},
  };
  static constexpr const char* kDistractions[] = {
      "a juggler with five oranges",     "a dancing bear made of wood that moved on strings",
      "two puppies rolling in the dust", "a man with a barrel organ",
      "a parade with drums and flags",   "a painter drawing on the street",
      "a cart full of singing birds",
  };
  open_child(t);
  cast_parent(t, "2");
  auto goods = t.dice.pick_several(kGoods, 3);
  while (std::string_view(goods[0]->seller) == goods[1]->seller ||
         std::string_view(goods[0]->seller) == goods[2]->seller ||
         std::string_view(goods[1]->seller) == goods[2]->seller) {
    goods = t.dice.pick_several(kGoods, 3);
  }
  const char* const names[] = {"one", "two", "three"};
  for (int i = 0; i < 3; ++i) {
    t.set(names[i], goods[i]->good);
    t.set(std::string("plain_") + names[i], goods[i]->plain);
    t.set(std::string("seller_") + names[i], goods[i]->seller);
  }
  t.set("distraction", t.dice.pick(kDistractions));
  t.set("the_distraction", "the " + t.get("distraction").substr(t.get("distraction").find(' ') + 1));
  draw_day(t);
  t.say(
      "{Day}, {his} {parent} said, \"[You are big enough to go to the market alone.|I need your help today.|Will you "
      "go to the market for me?] Please bring me {one}, {two} and {three}.\"");
  t.say(
      "\"[I will not forget anything|That is easy|I can do that, {call}]!\" said {hero}. {He} took [the basket|a cloth "
      "bag|the big basket] and [went off|skipped down the road|hurried away].[ \"{plain_one}, {plain_two}, "
      "{plain_three},\" {he} said to {himself}.|]");
  t.paragraph();
  t.say("First {he} went to the {seller_one} and bought {one}. Then {he} went to the {seller_two} and bought {two}.");
  t.say(
      "But in the [square|middle of the market] {he} saw {distraction}. {Hero} [stopped to watch|stood and "
      "stared|laughed and clapped] for a long time. When it was over, {he} could not remember the third thing!");
  t.maybe(50, "\"{plain_one}, {plain_two}, and what else?\" {he} [wondered|muttered|said and scratched {his} head].");
  t.paragraph();
  t.say(
      "[{He} almost cried.|{He} felt foolish.|] [An old woman|A policeman|A flower girl|A kind sailor] saw {him} and "
      "said, \"[Walk past all the stalls|Go along the stalls once more] and look. [Your eyes may remember what your "
      "ears forgot|What you see may remind you].\"");
  t.say(
      "[{Hero} walked past [the hats and the pots|the carpets and the cups|the cabbages and the brooms|the shoes and "
      "the baskets].|So {hero} did.] Then {he} saw the {seller_three}. \"{plain_three}!\" {he} [shouted|cried]. {He} "
      "bought {three} with the last coins.");
  t.paragraph();
  t.say(
      "At home, {his} {parent} [unpacked|looked into] the basket. \"{One}, {two} and {three}. [You thought of "
      "everything|Well done|It is all here]!\"");
  t.say(
      "[{Hero} [grinned|laughed] and told {him2} about {the_distraction}.|] \"[Next time I will write a list|Next time "
      "I will watch the show after the shopping],\" said {hero}.");
}

}  // namespace some::telling

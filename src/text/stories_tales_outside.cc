// Plots out of doors: animals, gardens, trees, maps, markets and a little magic.
#include "text/stories_tales.h"

namespace some::telling {

void baby_animal(Telling& t) {
  struct Baby {
    const char* baby;
    const char* parent;
    const char* cry;
    const char* found;    // where the hero found it
    const char* trouble;  // what was wrong
    const char* home;     // where it lives
    const char* clue;     // what led there
    const char* treat;    // what it ate or drank meanwhile
  };
  static constexpr Baby kBabies[] = {
      {"duckling", "mother duck", "peeped", "in a ditch by the road", "It could not climb the steep side", "the pond",
       "a row of tiny footprints in the mud", "a few oats"},
      {"fawn", "doe", "bleated", "behind a fallen log", "It was tangled in a vine", "the quiet clearing",
       "fresh hoof prints", "some soft leaves"},
      {"kitten", "mother cat", "mewed", "in a flower pot", "It was wet and hungry", "the hay barn",
       "a trail of gray hairs on the fence", "a saucer of milk"},
      {"lamb", "ewe", "called for its mother", "at the bottom of a rocky slope", "Its leg was stuck between two stones",
       "the high pasture", "bits of wool on the thorns", "a handful of grass"},
      {"baby owl", "mother owl", "clicked its beak", "on the forest path",
       "It had fallen from its nest and could not fly yet", "the hollow beech tree", "brown feathers under a tree",
       "some time to rest"},
      {"puppy", "mother dog", "whimpered", "under a market stall", "It had followed a sausage and lost its way",
       "the shepherd's hut", "a name on its collar", "a crust of bread"},
      {"baby turtle", "mother turtle", "made no sound at all", "on a dusty path", "It was walking the wrong way",
       "the lake", "the smell of water on the wind", "a leaf of lettuce"},
      {"foal", "brown mare", "whinnied", "outside the orchard gate",
       "It had jumped over a low fence and could not get back", "the stable on the hill", "hoof marks along the lane",
       "a sweet carrot"},
      {"gosling", "gray goose", "cheeped", "in a wheel track", "It was too tired to walk", "the reedy island",
       "white feathers along the bank", "some cress"},
      {"baby seal", "mother seal", "cried like a child", "high up on the beach", "The tide had left it behind",
       "the water's edge", "a loud bark from the waves", "a cool bath of seawater"},
      {"piglet", "mother pig", "squealed", "in a muddy hole", "It had dug too deep and could not get out",
       "the pigsty behind the mill", "a broken board in the fence", "an apple core"},
      {"young squirrel", "mother squirrel", "chattered", "at the foot of a pine", "It had fallen off a thin branch",
       "the hollow pine nearby", "a shower of nutshells from the next tree", "a hazelnut"},
      {"calf", "spotted cow", "mooed softly", "in the neighbor's corn", "It had slipped through a gap in the hedge",
       "the meadow by the stream", "the sound of a cowbell", "a lick of salt"},
  };
  open_child(t);
  cast_child(t, "friend", "2");
  const Baby& baby = t.dice.pick(kBabies);
  t.set("baby", baby.baby);
  t.set("mother", baby.parent);
  t.set("found", baby.found);
  t.set("home", baby.home);
  t.set("clue", baby.clue);
  t.set("treat", baby.treat);
  draw_day(t);
  t.say(std::string("{Day}, {hero} was [on {his} way home|out for a walk|on {his} way to school] when {he} found a~ "
                    "{baby} {found}. It ") +
        baby.cry + ".");
  t.say(std::string(baby.trouble) + ".");
  t.say(
      "\"[You poor little thing|Do not be afraid|Hello, little one],\" said {hero}. {He} [moved slowly|knelt "
      "down|spoke softly], so that the {baby} would not be frightened, and helped it with gentle hands.");
  t.paragraph();
  t.say(
      "{His} friend {friend} [came running|came along the path]. \"[Can we keep it|Can we take it home with us|May we "
      "keep it as a pet]?\" {he2} asked.");
  t.say(
      "{Hero} [stroked the {baby} and shook {his} head|wished it too, but {he} shook {his} head|thought about it]. "
      "\"[It needs its mother|Somewhere its mother is looking for it|It would miss its family]. We must find out where "
      "it lives.\"");
  t.maybe(60, "They gave it {treat}[ and let it rest| and waited until it was calm|].");
  t.say(
      "Then {friend} noticed {clue}. \"[I know|That is a clue|That must be it]!\" {he2} said. \"Its home must be "
      "{home}.\"");
  t.paragraph();
  t.say(
      "[Step by step|Slowly and carefully|Together] they brought the {baby} to {home}. [And there|There], the {mother} "
      "was [waiting|searching|calling]. The {baby} [gave a happy cry|wriggled with joy] and [hurried to her|ran to her "
      "side|was with her in a moment].");
  t.maybe(60,
          "The {mother} [looked at {hero} and {friend} for a long time, as if to say thank you|nudged her little one "
          "and then looked back at the children|came close, without fear, and blinked at the children].");
  t.say(
      "[\"It was hard to let it go, but this is where it belongs,\" said {hero}.|\"Now it is happy, and so am I,\" "
      "said {hero}.|{Hero} waved until {his} arm was tired. {He} had learned that helping sometimes means letting "
      "go.]");
  t.maybe(40,
          "Often after that day, {hero} and {friend} came to {home} to see [how the {baby} grew|their little "
          "friend|the {baby} play].");
}

void growing_garden(Telling& t) {
  struct Crop {
    const char* seed;   // "a pumpkin seed"
    const char* plant;  // "pumpkin"
    const char* sprout;
    const char* harvest;  // "a pumpkin as big as a barrel"
    const char* dish;     // what was made of it
  };
  static constexpr Crop kCrops[] = {
      {"a pumpkin seed", "pumpkin", "two round leaves", "a pumpkin as big as a barrel", "a sweet pumpkin soup"},
      {"a sunflower seed", "sunflower", "a thin green stem", "a sunflower taller than the fence",
       "a bowl of roasted seeds"},
      {"a bean", "bean plant", "a curly green tip", "a basket of crisp beans", "a bean stew"},
      {"a tomato seed", "tomato plant", "a hairy little stalk", "twenty red tomatoes", "a spicy tomato sauce"},
      {"a strawberry seed", "strawberry plant", "a leaf with three fingers", "a bowl of juicy strawberries",
       "a strawberry tart"},
      {"a carrot seed", "carrot", "a feathery leaf", "a carrot as long as an arm", "a carrot salad"},
      {"a melon seed", "melon", "a smooth round leaf", "a melon with golden stripes", "cool slices of melon"},
      {"a pea", "pea plant", "a tiny hook of green", "a heap of plump peas", "a pea soup with mint"},
      {"a grain of corn", "corn plant", "a blade like a small sword", "six yellow ears of corn",
       "corn on the cob with butter"},
      {"a potato", "potato plant", "a dark green shoot", "a sack of smooth potatoes", "potato cakes"},
  };
  struct Threat {
    const char* threat;
    const char* remedy;  // past tense, subject hero
    const char* helper;  // advice
  };
  static constexpr Threat kThreats[] = {
      {"no rain fell for weeks, and the leaves began to droop", "carried water from the well every morning and evening",
       "It is thirsty. Give it water when the sun is low"},
      {"hungry snails came and nibbled at the leaves",
       "scattered crushed eggshells around it, and the snails stayed away",
       "Snails do not like to crawl over sharp shells"},
      {"a storm bent it to the ground", "tied it to a strong stick with a piece of yarn",
       "It needs something to lean on, just like us"},
      {"a crow kept pecking at it", "built a scarecrow out of a broom and an old jacket",
       "Birds are afraid of a man who never goes home"},
      {"weeds grew all around it and took its light", "pulled out the weeds one by one",
       "It needs room and light. Clear its bed"},
      {"a cold night was coming", "covered it with straw and an old sack",
       "Frost bites young leaves. Tuck it in like a child"},
      {"a rabbit dug under the fence", "set flat stones along the fence and gave the rabbit some clover instead",
       "Close the gap, and feed the rabbit somewhere else"},
      {"tiny green bugs covered the stem", "brought three ladybugs on a leaf, and they ate up all the bugs",
       "Ladybugs love to eat those bugs"},
  };
  open_child(t);
  cast_neighbour(t, "neighbor", "2");
  const Crop& crop = t.dice.pick(kCrops);
  const Threat& threat = t.dice.pick(kThreats);
  t.set("seed", crop.seed);
  t.set("plant", crop.plant);
  t.set("sprout", crop.sprout);
  t.set("harvest", crop.harvest);
  t.set("dish", crop.dish);
  t.say(
      "[In spring|One day in April|When the snow had melted], {neighbor}, the old gardener next door, gave {him} "
      "{seed}. \"[Put it into the ground and be patient|It looks like nothing now, but wait|Take good care of it],\" "
      "{he2} said.");
  t.say(
      "{Hero} [dug a small hole|made a little bed of soft soil|found a sunny place], put it in and covered it with "
      "earth. [{He} watered it, too.|{He} marked the spot with a white stone.|]");
  t.paragraph();
  t.say(
      "The next day {he} ran out to look. There was nothing.[ {He} looked on [the second day and the third day|Tuesday "
      "and on Wednesday]. Still nothing!|] \"[It is too slow|It will never grow|Maybe it is asleep],\" {he} "
      "[grumbled|said].");
  t.maybe(60,
          "\"[Good things take time|Roots grow where you cannot see them|A seed does not look at the clock],\" said "
          "{neighbor}.");
  t.say(
      "Then, after [ten days|two weeks|a warm night], {sprout} [pushed out of|peeked out of|came up from] the earth. "
      "{Hero} [danced around it|was so happy that {he} sang to it|called everyone to see].");
  t.paragraph();
  t.say(std::string("But then ") + threat.threat +
        ". \"[What shall I do?|Please help me!|Oh, my poor {plant}!]\" [cried|said] {hero}.");
  t.say(std::string("\"") + threat.helper + ",\" said {neighbor}. So {hero} " + threat.remedy +
        ". The {plant} [grew strong again|was saved|stood up and grew].");
  t.paragraph();
  t.say(
      "[At the end of summer|When autumn came|After many weeks], {hero} harvested {harvest}! [{He} could hardly "
      "believe it.|{He} was the proudest {child} in town.|]");
  t.maybe(60,
          "There was {dish} for everybody, and {hero} [took the first plate to {neighbor}|invited {neighbor} and all "
          "the neighbors|shared it with everyone in the street].");
  t.say(
      "[\"It tastes of sun and patience,\" said {neighbor}, and {hero} laughed.|{Hero} kept one seed for the next "
      "spring. {He} had learned to wait and to care.|\"I grew it, but you taught me how,\" {hero} said to {neighbor}. "
      "\"Thank you.\"]");
}

void stuck_up_high(Telling& t) {
  struct Stuck {
    const char* thing;
    const char* play;  // past tense, what they did with it
    const char* how;   // how it went up
  };
  static constexpr Stuck kStuck[] = {
      {"kite", "were flying a~ [red|blue|striped] kite", "A gust of wind blew it into the treetop"},
      {"ball", "were throwing a~ [rubber|yellow|new] ball", "It flew too high and got stuck between two branches"},
      {"paper airplane", "were testing a big paper airplane", "It sailed up and landed in the old oak"},
      {"straw hat", "were walking through the park, and one of them wore a straw hat",
       "The wind snatched it and hung it on a branch"},
      {"toy parachute", "were playing with a toy parachute", "It drifted sideways and caught on the tree"},
      {"balloon", "were carrying a~ [silver|round red|heart-shaped] balloon",
       "Its string slipped away and got tangled in the leaves"},
      {"feather ball", "were playing badminton", "One hard hit sent the feather ball into the maple"},
      {"frisbee", "were tossing a frisbee", "It curved away and stayed in the branches"},
  };
  static constexpr const char* kAttempts[] = {
      "{Hero} jumped as high as {he} could, but it was too far up.",
      "{Friend} shook the trunk, but only [leaves|acorns|a few twigs] fell down.",
      "{Hero} threw a pine cone at it, but {he} missed.",
      "{Friend} stood on a bench and stretched, but {his2} arms were too short.",
      "{Hero} tried to climb up, but the lowest branch was too high.",
      "{Friend} poked at it with a stick, but the stick was too short.",
  };
  struct Rescue {
    const char* who;
    Gender gender;
    const char* tool;
    const char* deed;
  };
  static constexpr Rescue kRescues[] = {
      {"a firefighter", Gender::female, "a long ladder", "leaned the ladder against the trunk and climbed up"},
      {"a window cleaner", Gender::male, "a pole with a hook", "reached up with the pole and pulled gently"},
      {"a fisherman", Gender::male, "a landing net on a long stick", "lifted the net and caught it from below"},
      {"a painter", Gender::female, "a folding ladder", "set up the ladder and went up step by step"},
      {"an apple farmer", Gender::female, "an apple picker",
       "held up the picker and plucked it down like a ripe apple"},
      {"a very tall basketball player", Gender::male, "a gym bag",
       "put down the bag, took a run, leaped and tapped it loose"},
      {"a circus acrobat", Gender::female, "a striped suitcase",
       "put down the suitcase and swung from branch to branch like a monkey"},
      {"a gardener", Gender::male, "a long rake", "shook the right branch with the rake"},
  };
  open_child(t);
  cast_child(t, "friend", "2");
  const Stuck& stuck = t.dice.pick(kStuck);
  const Rescue& rescue = t.dice.pick(kRescues);
  t.person("who", "3", rescue.who, rescue.gender);
  t.set("the_who", "the " + std::string(rescue.who).substr(std::string_view(rescue.who).find(' ') + 1));
  t.set("thing", stuck.thing);
  t.set("tool", rescue.tool);
  const auto attempts = t.dice.pick_several(kAttempts, 3);
  draw_day(t);
  t.say("{Day}, {hero} and {his} friend {friend} " + t.expand(stuck.play) + ". " + stuck.how + ".");
  t.say(
      "\"[Oh dear|Oh no], the {thing}!\" [cried|shouted] {friend}. \"[How do we get it down?|What do we do now?|It is "
      "stuck!]\"");
  t.paragraph();
  t.say(*attempts[0]);
  t.say(*attempts[1]);
  if (t.dice.chance(50)) t.say(*attempts[2]);
  t.maybe(60,
          "[The {thing} did not move at all.|The {thing} stayed where it was.] [{Friend} sat down in the grass and "
          "sulked.|{Friend} was close to tears.|\"It is no use,\" said {friend}.]");
  t.maybe(60,
          "\"[We cannot do it alone|We need help],\" said {hero}. \"[Let us ask someone|There is nothing wrong with "
          "asking for help].\"");
  t.paragraph();
  t.say(
      "[Just then|After a while|At that moment], {who} came down the path, carrying {tool}. {Hero} [ran up|went over] "
      "and said, \"Excuse me, our {thing} is stuck in the tree. Could you please help us?\"");
  t.say(std::string("\"[With pleasure|Of course|Nothing easier than that],\" said {the_who}. {He3} ") + rescue.deed +
        ". [A moment later|In no time], the {thing} was [down|free|back in their hands].");
  t.maybe(70, "\"Thank you!\" [cried|called] {hero} and {friend} [together|with one voice].");
  t.maybe(60,
          "They [gave {him3} half of their [cake|sandwich|chocolate]|helped {him3} to carry {his3} things|waved until "
          "{he3} was out of sight].");
  t.paragraph();
  t.maybe(50,
          "[After that they played on the open field, far from the trees.|Then they went on playing until the sun went "
          "down.|For the rest of the day they were more careful.]");
  t.say(
      "[{Hero} had learned that it is wise to ask for help, and that most people are glad to give it.|\"Asking was the "
      "best trick of all,\" said {hero}, and {friend} agreed.|{Hero} went home with the {thing} under {his} arm and a "
      "smile on {his} face.]");
}

void treasure_map(Telling& t) {
  struct Mark {
    const char* sign;   // on the map
    const char* place;  // what it means
    const char* next;   // what they did there
  };
  static constexpr Mark kMarks[] = {
      {"a ring of three stones", "the three gray stones by the brook", "crossed the brook on a slippery plank"},
      {"a bent tree", "the crooked willow", "ducked under its hanging branches"},
      {"a sleeping giant", "the long hill behind the village", "climbed up until they were out of breath"},
      {"a cat with one eye", "the old tower with a single window", "circled its mossy wall"},
      {"a broken wheel", "the ruined mill", "squeezed past the rotten door"},
      {"a snake", "the path with seven bends", "followed every turn of it"},
      {"a tooth", "the white rock on the moor", "stood in its shadow and looked to the west"},
      {"a crown", "the hilltop with five pines", "counted the pines twice"},
      {"a mirror", "the round pond", "followed its shore, past the herons"},
      {"a mouth", "the cave by the sea", "went in with a candle"},
      {"a pair of horns", "the fork where two roads meet", "took the left road, as the arrow told them"},
  };
  struct Treasure {
    const char* box;
    const char* inside;
    const char* meaning;
    const char* use;
  };
  static constexpr Treasure kTreasures[] = {
      {"an iron chest", "a hundred old coins", "They belonged to the village long ago",
       "gave them to the village, and a playground was built with them"},
      {"a clay jar", "letters tied with a ribbon", "A sailor had written them to his family",
       "read them aloud to everyone at the fire"},
      {"a tin box", "marbles, a spinning top and a note", "The note said: for the next child who likes adventures",
       "put a toy of their own into the box and buried it again"},
      {"a wooden case", "a small telescope", "It had belonged to the captain of a ship",
       "looked at the moon that night and saw its mountains"},
      {"a leather bag", "seeds of every color", "A gardener had saved them for hungry years",
       "planted them along the main street"},
      {"a barrel", "dusty costumes and masks", "A circus had left them behind", "put on a show for the whole town"},
      {"a copper kettle", "a book of songs", "The songs had been forgotten for years",
       "taught them to the children of the choir"},
  };
  open_child(t);
  cast_child(t, "friend", "2");
  const auto marks = t.dice.pick_several(kMarks, 3);
  const Treasure& treasure = t.dice.pick(kTreasures);
  t.set("first", marks[0]->sign);
  t.set("second", marks[1]->sign);
  t.set("box", treasure.box);
  draw_day(t);
  t.say(
      "{Day}, {hero} found [an old map in the attic|a yellow map inside a book|a map in a bottle on the shore|a map "
      "behind a picture frame]. [It was torn at the edges.|Its ink was faded.|A red cross was painted on it.|]");
  t.say(
      "\"[Look at this, {friend}|{Friend}, come quickly]!\" {he} called to {his} [friend|cousin]. \"[It is a treasure "
      "map|It shows the way to a treasure]! First there is {first}, then {second}, and then a cross.\"");
  t.paragraph();
  t.say(std::string("\"{First}? That must be ") + marks[0]->place +
        ",\" said {friend}. They [ran|went|hurried] there and " + marks[0]->next + ".");
  t.say(
      "\"Now we need {second},\" said {hero}.[ They [looked everywhere|turned the map around and around|sat down and "
      "thought].|]");
  t.maybe(60,
          "[It was getting late.|{Friend}'s feet hurt.|A light rain began to fall.] \"[Should we turn back|Shall we go "
          "home]?\" asked {friend}. \"[Only a little farther|Not yet|We are so close],\" said {hero}.");
  t.say(std::string("Then {he} [pointed|slapped {his} forehead|shouted with joy]. \"It is ") + marks[1]->place +
        "!\" [So|Quickly] they went on and " + marks[1]->next + ".");
  t.paragraph();
  t.say(
      "There, under [a flat stone|a heap of leaves|a thorn bush|the roots of a tree], they [dug with their hands|dug "
      "with a stick|scraped the earth away] until they [hit something hard|heard a clunk]. It was {box}!");
  t.say(std::string("{Hero} [lifted|opened] the lid. Inside {he} found ") + treasure.inside + ". " + treasure.meaning +
        ".");
  t.maybe(50, "\"[It is not what I expected|What a find|That is a real treasure],\" said {friend}.");
  t.say(std::string("[The two friends did not have to think for long.|] They ") + treasure.use + ".");
  t.say(
      "[\"The best part was finding it with you,\" said {hero}.|{Hero} hung the old map over {his} bed, so that {he} "
      "would never forget that day.|And {hero} knew that a treasure shines most when it is shared.]");
}

void chain_of_trades(Telling& t) {
  // Each owner wants what the hero has and gives what the next one wants, so the chain always closes.
  struct Link {
    const char* who;
    Gender gender;
    const char* wants;  // the thing, with article
    const char* why;
  };
  static constexpr Link kLinks[] = {
      {"the baker", Gender::male, "a basket of eggs", "I have no eggs for my cakes"},
      {"the weaver", Gender::female, "a ball of white wool", "My loom is empty"},
      {"the fisherman", Gender::male, "a strong rope", "My boat keeps drifting away"},
      {"the teacher", Gender::female, "a piece of chalk", "I cannot write on the board"},
      {"the beekeeper", Gender::male, "an empty jar", "My honey has nowhere to go"},
      {"the shepherd", Gender::male, "a warm cap", "My ears freeze on the mountain"},
      {"the seamstress", Gender::female, "a box of pins", "The dress will not hold together"},
      {"the carpenter", Gender::female, "a bag of nails", "The new roof is loose"},
      {"the cook", Gender::male, "a string of onions", "My soup tastes of nothing"},
      {"the gardener", Gender::female, "a new bucket", "My flowers are thirsty and my bucket leaks"},
      {"the fiddler", Gender::male, "a lump of wax", "My bow squeaks like a mouse"},
      {"the clown", Gender::male, "a pot of red paint", "My nose has lost its color"},
      {"the sailor", Gender::male, "a good map", "I do not know the way to the islands"},
      {"the doctor", Gender::female, "a bunch of mint", "My patients need a soothing tea"},
      {"the painter", Gender::female, "a soft brush", "My brush has lost all its hair"},
  };
  static constexpr const char* kGoals[] = {"a small white pony",
                                           "a silver flute",
                                           "a pair of skates",
                                           "a telescope",
                                           "a real drum",
                                           "a wooden sled",
                                           "a parrot with green feathers",
                                           "a bicycle with a bell",
                                           "a ticket to the circus",
                                           "a picture book about whales",
                                           "a kitten with white paws"};
  open_child(t);
  const auto links = t.dice.pick_several(kLinks, 3);
  t.set("goal", t.dice.pick(kGoals));
  const char* const names[] = {"one", "two", "three"};
  for (int i = 0; i < 3; ++i) {
    t.set(std::string("thing_") + names[i], links[i]->wants);
    t.set(std::string("why_") + names[i], links[i]->why);
    t.person(std::string("who_") + names[i], std::string("_") + names[i], links[i]->who, links[i]->gender);
  }
  t.say(
      "{Hero} wished for {goal}. But {he} had no money. All {he} had was {thing_one}[ that {he} had found in the shed| "
      "from {his} aunt|]. \"[I will see what I can trade|Maybe somebody needs it],\" {he} [thought|said] and [went "
      "out|set off].");
  t.paragraph();
  t.say(
      "[First|Down the road] {he} met {who_one}. \"{why_one},\" {he_one} [said|complained|sighed]. \"If only I had "
      "{thing_one}!\"");
  t.say(
      "\"You can have mine,\" said {hero}. {Who_one} was [delighted|very glad] and gave {him} {thing_two} in return.");
  t.say(
      "[A little later|Next|Around the corner] {he} met {who_two}. \"{why_two},\" said {who_two}. \"I [need|am looking "
      "for] {thing_two}.\"");
  t.say(
      "\"[Here it is|What luck, I have just that|Take this],\" said {hero}. {Who_two} thanked {him} and gave {him} "
      "{thing_three}.");
  t.paragraph();
  t.say(
      "[At the edge of town|By the fountain|On the bridge] stood {who_three}, who looked [sad|worried|unhappy]. "
      "\"{why_three},\" said {who_three}. \"I would give a lot for {thing_three}.\"");
  t.maybe(60, "{Hero} held out {thing_three}. \"[It is yours|Please take it],\" {he} said.");
  t.say(
      "\"[You are an angel|How wonderful|You have saved my day]!\" said {who_three}. \"I have {goal} that [nobody uses "
      "anymore|I do not need]. It shall be yours.\"");
  t.paragraph();
  t.maybe(60,
          "{Hero} could hardly speak for joy.[ {He} had started with {thing_one}, and now {his} wish had come true.|]");
  t.say(
      "[\"Everyone got what they needed, and so did I,\" said {hero}.|{Hero} learned that what is useless to one may "
      "be a treasure to another.|And whenever {hero} met {who_one}, {who_two} or {who_three}, they waved like old "
      "friends.]");
}

void foolish_wish(Telling& t) {
  struct Wish {
    const char* wish;     // what the hero said
    const char* first;    // at first it was nice
    const char* trouble;  // then
    const char* lesson;
  };
  static constexpr Wish kWishes[] = {
      {"I wish that everything I touch would turn into candy",
       "The spoon became a lollipop, and the chair became chocolate",
       "Then {he} hugged the dog, and it became a dog of sugar that could not bark",
       "a real dog is sweeter than sugar"},
      {"I wish that it were always summer", "The sun shone every day, and {he} swam every day",
       "Then the well ran dry and the flowers turned brown", "rain has its own good days"},
      {"I wish to be as big as a giant", "{He} could look over all the roofs",
       "Then {he} could not get through the door, and {his} friends ran away from {his} feet",
       "it is good to be the right size for your own bed"},
      {"I wish to be as small as an ant", "{He} rode on a beetle and slept in a tulip",
       "Then a drop of rain knocked {him} over, and nobody heard {him} call", "it is good to be seen and heard"},
      {"I wish that I never had to sleep", "{He} played all night with {his} toys",
       "Then {he} was so tired that {he} put salt in the milk and shoes on {his} hands",
       "sleep is a gift and not a bother"},
      {"I wish that all the grown-ups would do what I say", "There was cake for breakfast and no washing",
       "Then {he} fell and hurt {his} knee, and nobody knew what to do", "it is nice when somebody takes care of you"},
      {"I wish that my toys could talk", "The bear told jokes, and the dolls sang",
       "Then they all talked at once and quarreled the whole night", "a little silence is worth a lot"},
      {"I wish to fly like a bird", "{He} rose above the trees and looped around the tower",
       "Then a flock of crows chased {him}, and {he} could not land", "it is good to have both feet on the ground"},
      {"I wish for a mountain of gold", "Gold coins rained down and filled the garden",
       "Then they covered the beans, the swing and the front door", "you cannot eat gold or play with it"},
      {"I wish to be invisible", "{He} sneaked past everyone and tickled the cat",
       "Then {his} own family walked past {him} and set no plate for {him} at the table",
       "being seen by those you love is worth more than any trick"},
      {"I wish that every day were my birthday", "There were presents, candles and songs",
       "By the tenth day nobody had any presents left, and the songs sounded tired",
       "a special day is special because it is rare"},
  };
  struct Magic {
    const char* giver;
    const char* known;  // afterwards: "the fairy"
    const char* token;
    Gender gender;
  };
  static constexpr Magic kMagic[] = {
      {"an old woman with a heavy bundle", "the old woman", "a~ [gray|smooth] pebble", Gender::female},
      {"a little man with a green beard", "the little man", "a copper button", Gender::male},
      {"a fairy caught in a spider web", "the fairy", "a bead of blue glass", Gender::female},
      {"a traveler with a torn cloak", "the traveler", "a wooden ring", Gender::male},
      {"a witch who had lost her glasses", "the witch", "a black feather", Gender::female},
      {"a dwarf with a broken cart", "the dwarf", "a tiny lamp", Gender::male},
      {"a mermaid stuck in a rock pool", "the mermaid", "a pink shell", Gender::female},
  };
  open_child(t);
  const Wish& wish = t.dice.pick(kWishes);
  const Magic& magic = t.dice.pick(kMagic);
  t.person("giver", "2", magic.giver, magic.gender);
  t.set("giver_short", magic.known);
  t.set("token", magic.token);
  const std::string token = t.get("token");
  t.set("the_token", "the " + token.substr(token.find(' ') + 1));
  draw_day(t);
  t.say(
      "{Day}, {he} met {giver}. {Hero} [stopped and helped {him2}|was kind and helped {him2}|did not laugh but helped "
      "{him2}].");
  t.say(
      "\"[You have a good heart|Thank you, {child}],\" said {giver_short}. \"Take {token}. [It grants two wishes, but "
      "be careful with them|You may wish two times. Choose well].\"");
  t.paragraph();
  t.say("{Hero} [ran home|could hardly wait|did not think for long]. {He} held {the_token} tight and said, \"" +
        std::string(wish.wish) + ".\"");
  t.say("[There was a flash of light|The air sparkled|Something went pop], and the wish came true. " +
        t.expand(wish.first) + ". \"This is [great|wonderful|the best day of my life]!\" {he} [cried|laughed].");
  t.say("[But it did not stay so nice.|But soon the trouble began.] " + t.expand(wish.trouble) + ".");
  t.maybe(60,
          "[{Hero} sat down and wept.|\"Oh, what have I done?\" said {hero}.|\"This is not what I wanted,\" {hero} "
          "sobbed.]");
  t.paragraph();
  t.say(
      "Then {he} remembered {the_token}. There was one wish left. {He} could have asked for [a castle|a ship|a crown|a "
      "hundred toys]. But {he} said, \"I wish that everything were as it was before.\"");
  t.say(
      "[At once|In the blink of an eye], all was [as it had been|well again|back to normal]. {The_token} [crumbled "
      "into dust|vanished from {his} hand|was cold and plain].");
  t.say(std::string("[{Hero} was not sorry at all. {He} knew now that ") + wish.lesson + ".|\"Now I know that " +
        wish.lesson + ",\" said {hero}, and {he} was happy with things as they were.]");
}

}  // namespace some::telling

// Plots at home: losing, breaking, learning, fearing, owning up, falling asleep, listening.
#include "text/stories_tales.h"

namespace some::telling {

void lost_and_found(Telling& t) {
  struct Lost {
    const char* thing;
    const char* look;
    const char* use;  // what the hero did with it, past tense
  };
  static constexpr Lost kLost[] = {
      {"teddy bear", "[soft brown|fluffy|worn old]", "hugged it every night"},
      {"toy car", "[shiny red|tiny blue|fast green]", "raced it along every shelf"},
      {"whistle", "[silver|wooden|loud]", "blew it whenever {he} was happy"},
      {"marble", "[glass|swirly green|clear blue]", "held it up to the sun to see the colors"},
      {"storybook", "[thin|old|favorite]", "read a page of it every evening"},
      {"mitten", "[warm red|striped|woolly]", "wore it on every cold day"},
      {"music box", "[tiny|golden|round]", "turned its little handle again and again"},
      {"key", "[rusty|brass|small]", "used it to open a secret drawer"},
      {"puppet", "[funny|wooden|cloth]", "made it dance for visitors"},
      {"spinning top", "[painted|striped|bright]", "spun it on the kitchen floor"},
      {"toy dinosaur", "[spotted|green|plastic]", "made it roar at breakfast"},
      {"ribbon", "[pink|silk|long purple]", "tied it around {his} wrist for luck"},
      {"magnifying glass", "[round|heavy|clever little]", "looked at ants and leaves with it"},
      {"doll", "[rag|tiny|smiling]", "took it to every tea party"},
      {"compass", "[brass|pocket|small]", "liked to see its needle turn to the north"},
      {"toy robot", "[tin|square|silver]", "made it march across the rug"},
  };
  struct Memory {
    const char* doing;  // "I was ..."
    const char* where;  // the place it leads to
    const char* why;    // how the thing came there
  };
  static constexpr Memory kMemories[] = {
      {"helping to fold the laundry", "in the laundry basket", "It had slipped between the clean sheets"},
      {"feeding the hens", "in the hen house", "It lay in the straw beside a warm egg"},
      {"raking leaves in the yard", "under the pile of leaves", "It had dropped out of a pocket while {he} worked"},
      {"building a fort with pillows", "under the biggest pillow", "It had been inside the fort all along"},
      {"having a picnic on the lawn", "in the picnic basket", "It was wrapped up in the checkered blanket"},
      {"taking a bath", "behind the bathtub", "It had rolled away on the wet floor"},
      {"sweeping the porch", "beneath the porch steps", "It had fallen through a crack in the boards"},
      {"packing my bag for school", "at the bottom of the school bag", "It was hiding below the pencils and books"},
      {"picking apples in the orchard", "in the apple crate", "It lay there among the red apples"},
      {"baking buns in the kitchen", "in the flour bin", "It was white with flour from end to end"},
      {"sitting on the sofa with the cat", "under the sofa", "The cat had pushed it there with a paw"},
      {"watering the roses", "next to the watering can", "It was a little wet, but that did not matter"},
      {"riding in the cart", "under the seat of the cart", "It had bounced there on the bumpy road"},
      {"playing dress-up in the attic", "in the pocket of an old coat", "It had stayed there after the game"},
      {"painting at the table", "inside the paint box", "It had a small blue spot on it now"},
  };
  open_child(t);
  const Lost& lost = t.dice.pick(kLost);
  const auto memories = t.dice.pick_several(kMemories, 3);
  t.set("thing", lost.thing);
  t.set("look", lost.look);
  t.set("doing", memories[0]->doing);
  t.set("where", memories[0]->where);
  t.set("wrong", memories[1]->where);
  t.set("wrong_too", memories[2]->where);
  draw_day(t);
  cast_parent(t, "2");
  t.say("{Hero} had a~ {look} {thing}[ that {he} loved| from {his} grandparents|].");
  t.say(std::string("{He} ") + lost.use + ".");
  t.paragraph();
  t.say(
      "[But {day}|{Day}], the {thing} was [gone|missing|nowhere to be seen]. {Hero} felt [sad|worried|a lump in {his} "
      "throat].");
  t.maybe(60, "{He} looked {wrong}, but it was not there.[ {He} looked {wrong_too}, but it was not there either.|]");
  t.say(
      "[\"I have lost my {thing}!\" {he} cried.|\"Where is my {thing}?\" {he} asked with tears in {his} eyes.|\"Oh no, "
      "my {thing} is lost!\" said {hero}.]");
  t.paragraph();
  t.say(
      "{His} {parent} [sat down beside {him}|put an arm around {him}|gave {him} a hug]. \"[Let us think about it "
      "together|Do not worry, we will think about it]. What were you doing when you last had it?\"");
  t.say(
      "{Hero} [closed {his} eyes and thought|thought hard|thought for a moment]. \"I was {doing},\" {he} said [at "
      "last|slowly].");
  t.maybe(60, "\"Then let us look {where},\" said {his} {parent}.");
  t.paragraph();
  t.say("They looked {where}, and there was the {thing}! " + t.expand(memories[0]->why) + ".");
  t.say(
      "[{Hero} jumped for joy|{Hero} laughed out loud|{Hero} clapped {his} hands] and [held the {thing} tight|hugged "
      "{his} {parent}]. \"Thank you, {call}!\" {he} said.");
  t.say(
      "[From that day on, {hero} put the {thing} back in its place every evening.|{Hero} learned that it helps to stop "
      "and think when something is lost.|That night {hero} fell asleep with the {thing} beside {him}, and {he} was "
      "happy.]");
}

void broken_and_mended(Telling& t) {
  struct Broken {
    const char* thing;
    const char* accident;  // what happened to it
    const char* mender;
    const char* fix;  // what the mender did, past tense
  };
  static constexpr Broken kBroken[] = {
      {"flower vase", "It fell off the table and broke into three pieces", "potter",
       "glued the pieces together so well that the cracks hardly showed"},
      {"wooden ship", "Its mast snapped in two", "carpenter", "carved a new mast from a piece of pine"},
      {"music box", "Its spring jumped out and it stopped playing", "clockmaker",
       "put in a new spring and a drop of oil"},
      {"patchwork quilt", "It caught on a nail and tore", "tailor", "sewed a neat patch over the hole"},
      {"leather bag", "Its strap tore off", "cobbler", "sewed on a strong new strap"},
      {"bicycle", "Its front wheel hit a rock and bent", "blacksmith", "heated the wheel and hammered it straight"},
      {"teapot", "Its handle broke off", "potter", "shaped a new handle from clay and baked it hard"},
      {"violin", "One of its strings snapped", "music teacher", "stretched a new string across it and tuned it"},
      {"picture book", "Two of its pages ripped", "librarian", "mended the pages with paste and thin paper"},
      {"rocking chair", "One of its legs cracked", "carpenter", "fitted a new leg and sanded it smooth"},
      {"pearl necklace", "Its string broke and the pearls rolled across the floor", "jeweler",
       "threaded the pearls on a stronger string"},
      {"alarm clock", "It dropped on the tiles and stopped ticking", "clockmaker",
       "opened the back and set the little wheels in place"},
      {"straw basket", "Its bottom split open", "weaver", "wove fresh straw into the bottom"},
      {"umbrella", "Two of its ribs bent in the doorway", "tinsmith",
       "straightened the ribs and wrapped them with wire"},
      {"garden spade", "Its handle split when it hit the wall", "blacksmith",
       "fixed a new handle on it with an iron ring"},
      {"lace curtain", "It got caught in the door and ripped", "tailor", "stitched the lace with tiny white stitches"},
  };
  open_child(t);
  const Broken& broken = t.dice.pick(kBroken);
  cast_parent(t, "2");
  cast_neighbour(t, "mender", "3");
  t.set("thing", broken.thing);
  t.set("craft", broken.mender);
  draw_day(t);
  t.say("In {his} house there was a~ [beautiful|fine|lovely|dear old] {thing} that belonged to {his} {parent}.");
  t.maybe(60, "\"Please [be careful with it|do not play with it],\" {his} {parent} [often |always |]said.");
  t.paragraph();
  t.say(
      "{Day}, {hero} [wanted to look at the {thing}|could not help touching the {thing}|took the {thing} without "
      "asking].");
  t.say(std::string(broken.accident) + "! {Hero} [froze|turned pale|gasped|held {his} breath].");
  t.maybe(60,
          "[At first {he} wanted to hide it under the bed. But {his} heart felt heavy.|{He} thought of saying that the "
          "wind had done it. But that would be a lie.|{He} wanted to run away, but {he} knew that would not help.]");
  t.say(
      "So {he} went to {his} {parent} and [said in a small voice|whispered|said], \"{call}, I broke your {thing}. I am "
      "[so|very|truly] sorry.\"");
  t.paragraph();
  t.say(
      "{His} {parent} was [quiet for a moment|sad about it|a little upset], but {he2} [was not angry|did not shout|did "
      "not scold]. \"[It was brave to tell me|Thank you for being honest|I am glad you told me the truth],\" {he2} "
      "said. \"Let us take it to {mender}, the {craft}.\"");
  t.say(std::string("{Mender} looked at the {thing} and [nodded|smiled|scratched {his3} chin]. \"I can mend this,\" "
                    "{he3} said. Then {he3} ") +
        broken.fix + ".");
  t.maybe(60,
          "To pay for the work, {hero} [swept the floor of the workshop|carried in wood for the stove|washed the "
          "windows of the shop|ran errands for {mender} all week].");
  t.paragraph();
  t.say("[Soon|Before long|By evening] the {thing} was [as good as new|back in its place|whole again].");
  t.say(
      "[{Hero} felt light and glad. |{Hero} smiled with relief. |][Now {hero} knew that a mistake can be mended when "
      "you tell the truth.|{Hero} had learned that the truth is easier to carry than a secret.|From then on, {hero} "
      "always asked before {he} touched things that were not {hers}.]");
  t.maybe(40, "And {hero} never forgot [the kind {craft}|that day].");
  t.maybe(30, "\"I love you more than any {thing},\" said {his} {parent}, and {hero} [smiled|hugged {him2}].");
}

void learning_a_skill(Telling& t) {
  struct Skill {
    const char* skill;    // after "to"
    const char* place;    // where it is practised
    const char* failure;  // past tense, subject the hero
    const char* tip;
    const char* success;  // past tense, subject the hero
  };
  static constexpr Skill kSkills[] = {
      {"ride a bicycle", "in the lane", "wobbled and fell into the grass", "Look ahead and not at your feet",
       "rode all the way to the gate without falling"},
      {"swim", "at the lake", "swallowed water and splashed like a puppy",
       "Kick slowly and breathe out under the water", "swam from the dock to the big rock"},
      {"whistle", "on the porch", "blew and blew, but only air came out", "Wet your lips and make them small and round",
       "whistled a clear, high note"},
      {"tie shoelaces", "on the stairs", "made a knot that came apart at once",
       "Make two loops like the ears of a rabbit", "tied two perfect bows"},
      {"skate", "on the frozen pond", "slipped and sat down hard on the ice", "Bend your knees and push to the side",
       "glided across the pond like a bird"},
      {"juggle", "in the yard", "dropped all three balls on the ground", "Throw each ball to the same height",
       "kept three balls in the air while everyone counted to ten"},
      {"play the flute", "by the window", "made a squeak that scared the cat",
       "Blow softly, as if you were cooling soup", "played a whole song from start to end"},
      {"draw a horse", "at the desk", "drew something that looked like a potato",
       "Start with simple circles and join them", "drew a horse with a flying mane"},
      {"knit", "by the fire", "dropped so many stitches that the scarf had holes",
       "Count every row before you begin the next", "finished a warm, even scarf"},
      {"climb the rope", "in the gym", "slid down before {he} reached the middle",
       "Hold the rope with your feet as well", "touched the bell at the very top"},
      {"jump rope", "in the schoolyard", "tripped over the rope again and again",
       "Listen to the rope and jump when it taps", "jumped twenty times in a row"},
      {"turn a cartwheel", "on the lawn", "landed on {his} back with a thump",
       "Reach for the ground with one hand and then the other", "turned three cartwheels, one after another"},
      {"row a boat", "on the river", "went around and around in a circle", "Pull both oars at the same time",
       "rowed in a straight line to the other bank"},
      {"milk the goat", "in the barn", "got not even one drop, and the goat bleated",
       "Be calm and sing to her while you work", "filled half a pail with warm milk"},
      {"catch a ball", "in the park", "let the ball bounce off {his} chest", "Watch the ball until it is in your hands",
       "caught the ball ten times without a miss"},
      {"bake bread", "in the kitchen", "pulled a flat, hard loaf out of the oven", "Let the dough rest until it grows",
       "baked a round loaf with a golden crust"},
      {"ski", "on the snowy slope", "rolled down like a snowball", "Point your skis together like a slice of pie",
       "slid down the whole slope and stopped at the fence"},
      {"read aloud", "in the classroom", "mixed up the letters and blushed", "Put a finger under each word",
       "read a full page without a stop"},
      {"fly a kite", "on the hill", "ran and ran while the kite dragged on the ground",
       "Wait for the wind, and then let out the string", "sent the kite up until it was a dot in the sky"},
      {"dance", "in the hall", "stepped on everyone's toes", "Count one, two, three in your head",
       "danced to the end of the music without a wrong step"},
  };
  open_child(t);
  const Skill& skill = t.dice.pick(kSkills);
  t.set("skill", skill.skill);
  t.set("spot", skill.place);
  if (t.dice.chance(50)) {
    cast_parent(t, "2");
    t.set("coach", "{his} {parent}");
    t.set("coach_again", "{coach}");
  } else {
    cast_child(t, "friend", "2");
    t.set("coach", "{his} [friend|cousin|neighbor] {friend}");
    t.set("coach_again", "{friend}");
  }
  draw_day(t);
  t.say(
      "[More than anything, {hero} wanted to learn to {skill}.|{Hero} had one big wish. {He} wanted to {skill}.|All "
      "the other children could {skill}, but {hero} could not.]");
  t.paragraph();
  t.say(std::string("{Day}, {hero} tried {spot}. {He} ") + skill.failure + ".");
  t.maybe(60,
          "{He} tried again[ and again|, but it was no better|]. [{His} cheeks grew hot.|{He} wanted to cry.|{He} "
          "stamped {his} foot.]");
  t.say(
      "[\"I will never learn it!\" {he} [said|cried|grumbled].|\"This is too hard for me,\" {he} sighed.|\"I give "
      "up,\" {he} said with a frown.]");
  t.paragraph();
  t.say(
      "[Just then|A little later|At that moment] {coach} came by and [saw {his} sad face|stopped to watch|sat down "
      "next to {him}].");
  t.say(std::string("\"[I could not do it at first either|Nobody can do it the first time|It took me a whole summer to "
                    "learn it],\" said {coach_again}. \"") +
        skill.tip + ".\"");
  t.maybe(55,
          "{Hero} [wiped {his} eyes|took a deep breath|nodded] and tried once more. [It was a little better.|This time "
          "it almost worked.|It still went wrong, but not so badly.]");
  t.say(
      "[Every day that week|Day after day|Each afternoon after school] {he} practiced {spot}, and {coach_again} "
      "[cheered {him} on|helped {him}|watched and clapped].");
  t.paragraph();
  t.say(std::string("Then, [on Sunday|at the end of the week|one fine day], it happened. {Hero} ") + skill.success +
        "!");
  t.say("\"[I did it|Look at me|I can do it]!\" {he} [shouted|called|cried happily].");
  t.say(
      "[{Hero} was very proud, because {he} had not given up.|{Hero} hugged {coach_again}. {He} knew now that practice "
      "makes hard things easy.|That evening {hero} could not stop smiling. {He} had learned that it is fine to fail as "
      "long as you try again.]");
}

void afraid_no_more(Telling& t) {
  struct Fear {
    const char* fear;   // "afraid of ..."
    const char* scene;  // when it showed, a whole sentence
    const char* truth;  // what it really was, a whole sentence
    const char* aid;    // what the grown-up gave or said to do
    const char* after;  // how it went afterwards
  };
  static constexpr Fear kFears[] = {
      {"the dark", "At night {he} saw a tall shadow on the wall of {his} room",
       "It was only a coat that hung on the door", "a small lamp shaped like a moon",
       "slept soundly with the little lamp beside {his} bed"},
      {"thunder", "One evening the sky growled and the windows shook",
       "It was only two clouds bumping together far away", "a game of counting the seconds after each flash",
       "counted until the storm had moved away"},
      {"big dogs", "In the park a huge dog ran straight toward {him}", "The dog only wanted to give back a ball",
       "a biscuit to hold out on a flat hand", "scratched the big dog behind its ears"},
      {"deep water", "At the beach {he} saw that the water was dark and wide",
       "It was only dark because of the soft green weeds below", "a round float to hold on to",
       "paddled out to the first buoy and back"},
      {"the cellar", "Down in the cellar something hissed and clanked", "It was only the old heater warming up",
       "a bright lantern to carry", "went down alone to fetch a jar of plums"},
      {"spiders", "In the bathroom a gray spider sat in the tub", "The spider was only looking for a drink of water",
       "a glass and a card to carry it outside", "set the spider free on a rose bush"},
      {"clowns", "At the circus a clown with a huge red mouth bent down to {him}",
       "Under the paint there was only a friendly young man", "a red paper nose",
       "put on the red nose and made the clown laugh"},
      {"the dentist", "In the waiting room {he} heard a loud buzzing sound",
       "It was only a little brush that cleans teeth", "a song to hum inside {his} head",
       "opened {his} mouth wide and was done in no time"},
      {"heights", "At the fair {he} stood before the great wheel and it looked as high as a tower",
       "The wheel only turned as slowly as a sleepy snail", "a lucky coin to hold",
       "rode up to the top and saw the whole town"},
      {"owls", "Late at night something hooted outside {his} window", "It was only an owl singing to her chicks",
       "a pair of field glasses", "watched the owl feed her babies in the moonlight"},
      {"geese", "On the way to school a flock of geese blocked the path and honked",
       "They were only guarding their fluffy goslings", "advice to walk slowly around them",
       "passed the geese every morning with a friendly nod"},
      {"bees", "In the garden a bee buzzed around {his} head", "The bee was only searching for sweet flowers",
       "a net hat and the job of watching the hive", "helped to gather the first honey of the year"},
      {"masks", "At the festival a giant with a green face danced toward {him}",
       "It was only the baker under a paper mask", "paper, glue and paint to make one",
       "wore a mask with a long red beak and danced too"},
      {"the old bridge", "On the way to the mill the bridge creaked under {his} shoe",
       "The boards only creaked because they were dry", "a rope to hold on each side",
       "crossed the bridge twice, just for fun"},
  };
  open_child(t);
  const Fear& fear = t.dice.pick(kFears);
  cast_parent(t, "2");
  t.set("fear", fear.fear);
  t.set("scene", fear.scene);
  t.set("aid", fear.aid);
  t.set("truth", fear.truth);
  t.set("after", fear.after);
  t.say("But there was one thing that {he} did not like. {Hero} was afraid of {fear}.");
  t.paragraph();
  t.say("{scene}. {Hero} [began to shake|could not move|felt {his} heart beat fast].");
  t.say(
      "[\"Help!\" {he} cried.|\"I am scared,\" {he} whispered.|\"I want to go home,\" {he} said in a tiny voice.|{He} "
      "ran to {his} {parent} and hid {his} face.]");
  t.say(
      "{His} {parent} took {his} hand. \"[Let us look at it together|Come, we will see what it is|Sometimes a thing "
      "looks less scary from close up],\" {he2} said.");
  t.say("So they looked, step by step. {truth}!");
  t.maybe(60, "\"Is that all?\" {hero} asked[ and gave a little laugh| in surprise|].");
  t.paragraph();
  t.say(
      "\"[Being brave does not mean that you are never afraid|Everybody is afraid of something|When I was small, I was "
      "afraid of {fear} too],\" said {his} {parent}. \"[Here is something that helped me|This will help you next "
      "time|I know what will help].\"");
  t.say("And {he2} gave {him} {aid}.");
  t.say(
      "[The next time|A few days later|When the time came], {hero} [took a deep breath|stood up straight|bit {his} lip "
      "but did not run away]. {He} {after}.");
  t.maybe(60,
          "[\"I was still a bit afraid, but I did it,\" {he} told {his} {parent}.|\"Were you scared?\" asked {his} "
          "{parent}. \"Only a little,\" said {hero}.|\"I am proud of you,\" said {his} {parent}.]");
  t.say(
      "[{Hero} felt as tall as a tree.|Now {hero} knew that courage grows each time you use it.|After that, {hero} was "
      "not afraid of {fear} anymore.]");
}

void telling_the_truth(Telling& t) {
  struct Treat {
    const char* treat;
    const char* deed;   // past tense, subject the hero
    const char* trace;  // what gave it away
    const char* occasion;
  };
  static constexpr Treat kTreats[] = {
      {"cherry pie", "ate the whole middle of it", "red juice on {his} chin", "the school fair"},
      {"chocolate cake", "scraped off all the frosting with a finger", "brown frosting on {his} sleeve", "a birthday"},
      {"jar of honey", "emptied it spoon by spoon", "sticky fingers", "the breakfast of the guests"},
      {"bowl of strawberries", "gobbled up every berry", "a pink stain on {his} shirt", "the evening dessert"},
      {"tray of cookies", "took one, and then another, until the tray was bare", "crumbs in {his} pockets",
       "the bake sale"},
      {"pot of plum jam", "licked it clean", "a purple mustache", "the pancakes on Sunday"},
      {"bag of toffees", "chewed them one by one", "shiny wrappers under {his} chair", "the holiday party"},
      {"bowl of whipped cream", "dipped in a spoon until nothing was left", "a white spot on the tip of {his} nose",
       "the waffles"},
      {"plate of cinnamon buns", "nibbled at each of them", "sugar all over {his} collar",
       "the visit of the neighbors"},
      {"lemon pudding", "swallowed it in six big bites", "yellow pudding on {his} cuff", "the family dinner"},
      {"dish of roasted almonds", "crunched them until the dish was empty", "bits of almond in {his} lap",
       "the choir evening"},
  };
  static constexpr const char* kBlamed[] = {"dog", "cat", "parrot", "goat", "puppy", "neighbor's cat"};
  open_child(t);
  const Treat& treat = t.dice.pick(kTreats);
  cast_parent(t, "2");
  draw_day(t);
  t.set("treat", treat.treat);
  t.set("trace", treat.trace);
  t.set("blamed", t.dice.pick(kBlamed));
  t.say(std::string("{Day}, {his} {parent} [put|set|left] a~ {treat} on the [kitchen table|windowsill|counter]. "
                    "\"[This is|I made this] for ") +
        treat.occasion + ", so please do not touch it,\" {he2} said.");
  t.paragraph();
  t.say(std::string("But it smelled so good! When nobody was looking, {hero} ") + treat.deed + ".");
  t.maybe(60,
          "It tasted [sweet|wonderful|delicious], but [soon|a moment later] {his} stomach [began to ache|felt "
          "funny|hurt].");
  t.say(
      "Then {his} {parent} came back. \"[What happened here|Who did this|Where has it all gone]?\" {he2} [asked|said "
      "in surprise].");
  t.say(
      "\"It was the {blamed}!\" {hero} [said quickly|answered|blurted out] and [looked at the floor|turned red|hid "
      "{his} hands].");
  t.paragraph();
  t.say(
      "{His} {parent} looked at the {blamed}, who was [fast asleep|asleep in the sun|snoring on the rug]. Then {he2} "
      "saw {trace}, but {he2} [said nothing|only raised {his2} eyebrows|waited quietly].");
  t.say(
      "{Hero} [felt terrible|felt worse and worse|could not look up]. It was not fair to the poor {blamed}. \"[That "
      "was not true|I told a lie],\" {he} said [at last|softly]. \"It was me. I am sorry.\"");
  t.say(
      "\"[I am sad about the {treat}|I am disappointed about the {treat}], but I am happy that you told the truth,\" "
      "said {his} {parent}. \"Now [you can help me to make another one|we will make it again together].\"");
  t.paragraph();
  t.maybe(60,
          "They worked side by side [until sunset|all afternoon|until everything was ready]. {Hero} [stirred|washed "
          "the dishes|measured the sugar|cleaned the table] and did not take a single bite.");
  t.say(
      "[Before bed, {hero} gave the {blamed} an extra treat and said sorry too.|That night {hero} slept well, for a "
      "clear heart makes a soft pillow.|{Hero} learned that the truth can be hard to say, but it feels much better "
      "than a lie.]");
}

void sleepless_night(Telling& t) {
  struct Reason {
    const char* reason;
    const char* remedy;  // what the grown-up did, past tense
    const char* effect;
  };
  static constexpr Reason kReasons[] = {
      {"The wind rattled the shutters", "tied the shutters with a piece of cord", "Now the wind only hummed softly"},
      {"Tomorrow was {his} first day at school, and {his} head was full of thoughts",
       "made a list of all the good things that could happen", "The thoughts became quiet one by one"},
      {"The moon shone right into {his} face", "drew the thick curtain", "The room grew dark and soft"},
      {"{His} feet were as cold as ice", "filled a bottle with hot water and put it under the blanket",
       "Warmth crept from {his} toes to {his} ears"},
      {"{His} favorite pillow was in the wash", "rolled up a soft sweater into a new pillow",
       "It smelled of soap and home"},
      {"{He} had heard a scary tale that day", "told the tale again, but with a silly ending",
       "{He} giggled until the fear was gone"},
      {"A mosquito buzzed around {his} bed", "hung a thin net over the bed", "The buzzing stayed outside"},
      {"{He} missed {his} sister, who was away", "helped {him} to write her a short note",
       "It felt as if she were near"},
      {"The room was hot, and not a leaf moved outside", "opened the window and brought a wet cloth for {his} forehead",
       "A cool breath of air came in"},
      {"{His} stomach growled like a bear", "warmed a cup of milk with a spoon of honey",
       "{His} stomach purred like a kitten"},
  };
  static constexpr const char* kAttempts[] = {
      "{He} counted sheep, but at [sixty|ninety] they all ran away.",
      "{He} turned on {his} left side and then on {his} right side.",
      "{He} hid {his} head under the blanket, but it was too warm there.",
      "{He} looked at the ceiling and named all the animals {he} knew.",
      "{He} listened to the clock. It struck [nine|ten|eleven].",
      "{He} sang a lullaby to {his} toy [rabbit|elephant|lion], but only the toy fell asleep.",
      "{He} closed {his} eyes as tightly as {he} could.",
  };
  open_child(t);
  const Reason& reason = t.dice.pick(kReasons);
  cast_parent(t, "2");
  const auto attempts = t.dice.pick_several(kAttempts, 3);
  t.say("One night {hero} [could not sleep|lay awake in bed|was wide awake]. " + t.expand(reason.reason) + ".");
  t.say(*attempts[0]);
  t.say(*attempts[1]);
  if (t.dice.chance(40)) t.say(*attempts[2]);
  t.say("[Nothing helped.|Sleep did not come.|It was no use.]");
  t.paragraph();
  t.say(
      "At last {he} [tiptoed down the stairs|got up and opened the door|called softly]. \"{call}, I cannot sleep,\" "
      "{he} said.");
  t.say("\"[What is wrong|What is keeping you awake|Why not, my dear]?\" asked {his} {parent}.");
  t.say("{Hero} explained it. {His} {parent} [listened and nodded|thought for a moment|smiled]. Then {he2} " +
        t.expand(reason.remedy) + ". " + t.expand(reason.effect) + ".");
  t.paragraph();
  t.maybe(60,
          "\"[Shall I stay a little|Do you want me to sit here for a while]?\" asked {his} {parent}. \"Yes, please,\" "
          "said {hero}.");
  t.maybe(70,
          "{His} {parent} [hummed an old tune|stroked {his} hair|told {him} about [the stars|the sea|a sleepy dragon|a "
          "train that travels to dreamland]].");
  t.maybe(50,
          "[One by one the lights in the town went out.|Outside, an owl flew over the roofs.|The house became very "
          "still.|A single star blinked in the window.]");
  t.maybe(60, "{Hero} yawned [once|twice|three times]. \"Good night, {call},\" {he} [mumbled|murmured|whispered].");
  t.say(
      "[And before {his} {parent} could answer, {hero} was asleep.|Soon {hero} was dreaming of [a boat on a silver "
      "lake|a garden of lanterns|a friendly whale|clouds made of wool].|Then {hero} slept until the "
      "[sun|birds|rooster] woke {him} in the morning, and {he} felt fresh and happy.]");
}

void strange_noise(Telling& t) {
  struct Noise {
    const char* sound;
    const char* where;
    const char* guess;
    const char* cause;  // a whole sentence
    const char* deed;   // what they did about it, past tense
    const char* result;
  };
  static constexpr Noise kNoises[] = {
      {"tap, tap, tap", "on the roof", "a ghost with a hammer", "A woodpecker was pecking at the chimney",
       "hung a block of old wood in the pear tree for the bird", "From then on the woodpecker tapped in the pear tree"},
      {"scratch, scratch", "behind the kitchen door", "a monster with long claws",
       "A wet kitten was scratching at the wood", "dried the kitten with a towel and gave it milk",
       "The kitten curled up and purred"},
      {"drip, drop, drip", "in the attic", "a crying spirit", "Rain was coming through a hole in the roof",
       "put a bucket under the hole and fixed it with a new tile", "The attic was dry again"},
      {"rustle, rustle", "under the porch", "a sneaky thief", "A hedgehog was making a bed of leaves",
       "brought more dry leaves for the hedgehog", "The hedgehog slept there all winter"},
      {"squeak, squeak", "in the shed", "a hundred mice", "The wheel of the wheelbarrow was turning in the draft",
       "put oil on the wheel", "The shed was quiet at once"},
      {"boom, boom", "from the yard", "a giant on his way to town", "The loose gate was swinging in the wind",
       "tied the gate with a strong rope", "The yard was silent"},
      {"tinkle, tinkle", "outside the window", "a fairy with tiny bells",
       "A lost goat with a bell was nibbling the roses", "led the goat back to the farmer",
       "The farmer gave them a round cheese"},
      {"whoo, whoo", "in the chimney", "a lonely wolf", "The wind was blowing across an empty bottle on the ledge",
       "took the bottle down and put a flower into it", "After that the chimney was still"},
      {"croak, croak", "in the bathroom", "a toad as big as a sofa", "A small green frog was sitting in the sink",
       "carried the frog to the pond in a cup", "The frog jumped in with a splash"},
      {"crunch, crunch", "in the pantry", "a hungry troll", "A raccoon was eating the crackers",
       "opened the window and let the raccoon out", "They kept the crackers in a tin after that"},
      {"flap, flap", "above the ceiling", "a dragon with torn wings", "A pigeon could not find the way out",
       "opened the skylight for the pigeon", "The pigeon flew off over the rooftops"},
      {"tick, tick, tick", "inside the wall", "a secret machine", "A lost pocket watch was lying behind a loose board",
       "wound the watch and polished it", "It had belonged to a grandfather long ago"},
  };
  open_child(t);
  const Noise& noise = t.dice.pick(kNoises);
  cast_child(t, "friend", "2");
  t.set("sound", noise.sound);
  t.set("where", noise.where);
  t.set("guess", noise.guess);
  t.set("relation", "[brother|cousin|friend]");
  if (t.get("he2") == "she") t.set("relation", "[sister|cousin|friend]");
  t.say(
      "One [stormy|dark|windy|quiet|cold] [evening|night], {he} was [reading|playing cards|drawing|building a tower of "
      "blocks] with {his} {relation} {friend} when they heard something. \"{sound}!\" it went {where}.");
  t.paragraph();
  t.say("\"[What was that|Did you hear that]?\" [asked|whispered] {hero}.");
  t.say("\"Maybe it is {guess}!\" said {friend}, and {his2} [eyes grew round|voice trembled|knees shook].");
  t.say(
      "{Hero} was [a bit afraid too|not sure|frightened as well], but {he} [wanted to know|was more curious than "
      "afraid|did not believe it]. \"[Guessing will not help us|There is only one way to find out]. [Let us go and "
      "look|We have to look],\" {he} said.");
  t.say(
      "{He} took [a candle|a lantern|a flashlight], and {friend} took [a broom|an umbrella|a wooden spoon|a pillow]. "
      "They [crept|tiptoed|went] along, hand in hand. \"{sound}!\" it went again, [louder|closer] this time.");
  t.paragraph();
  t.say(std::string("{Hero} [counted to three|held up the light] and looked. ") + noise.cause + "!");
  t.maybe(50,
          "\"So that is the [secret|mystery]!\" {hero} [laughed|said with a grin], and {friend} [laughed too|felt "
          "silly but glad|let out a long breath].");
  t.say(std::string("Together they ") + noise.deed + ". " + noise.result + ".");
  t.paragraph();
  t.say(
      "[After that, whenever there was a strange sound, {hero} and {friend} did not hide. They went to look.|\"Most "
      "scary things are small when you look at them,\" said {hero}, and {friend} agreed.|Then {hero} and {friend} "
      "drank hot [cocoa|tea|milk] and told everybody about {guess} that was not there.]");
}

}  // namespace some::telling

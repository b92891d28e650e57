// The domain "letters": place and date, greeting, body in the first person, closing and signature. Who writes to whom
// decides the tone; places and people named once stay the same to the end.
#include <string>

#include "text/stories_telling.h"
#include "text/stories_words.h"

namespace some::telling {
namespace {

constexpr const char* kTowns[] = {"Maple Cove", "Stonebridge", "Westhaven", "Ashford Green", "Port Merrin",
                                  "Larkfield",  "Silverton",   "Oakham",    "Fernhill",      "Saltmarsh",
                                  "Kingsbrook", "Applewick",   "Northgate", "Millbury",      "Rosedale",
                                  "Greyfen",    "Harrowgate",  "Sandwell",  "Birchwood",     "Eastlake"};

// {town}, {date}, and a second town {far} where the other person lives.
void head(Telling& t, const char* months =
                          "[January|February|March|April|May|June|July|August|September|October|November|December]") {
  const auto towns = t.dice.pick_several(kTowns, 2);
  t.set("town", *towns[0]);
  t.set("far", *towns[1]);
  t.set("date", std::to_string(1 + t.dice.below(28)) + " " + months);
  t.line("{town}, {date}");
  t.paragraph();
}

// The writer {me} and a friend or relative {you}; {role} is how the writer signs.
void relatives(Telling& t) {
  struct Relation {
    const char* call;
    const char* daughter;
    const char* son;
    const char* greeting_to;  // somebody of the other house to greet
  };
  static constexpr Relation kRelations[] = {
      {"Grandma", "granddaughter", "grandson", "Grandpa"},
      {"Grandpa", "granddaughter", "grandson", "Grandma"},
      {"Uncle [Bernard|Frank|Louis|Alfred]", "niece", "nephew", "Aunt [Helen|Marion|Judith]"},
      {"Aunt [Edith|Carol|Agatha|Ruth]", "niece", "nephew", "Uncle [George|Martin|Philip]"},
      {"Godmother", "godchild", "godchild", "your old cat"},
      {"Godfather", "godchild", "godchild", "your cheerful parrot"},
  };
  cast_child(t, "hero", "");
  const Relation& relation = t.dice.pick(kRelations);
  t.set("you", relation.call);
  t.set("role", t.get("he") == "she" ? relation.daughter : relation.son);
  t.set("others", relation.greeting_to);
}

void friends(Telling& t) {
  cast_child(t, "hero", "");
  cast_child(t, "friend", "2");
  t.set("you", "{friend}");
  t.set("role", "[friend|old friend|best friend]");
  t.set("others", "[your family|your sister|your brother|everyone at home|your parents]");
}

void close_warm(Telling& t) {
  t.maybe(50, "[Give my love to {others}|Please say hello to {others}|A big hug to {others}].");
  t.maybe(50, "[Write back soon|Please write to me soon|I hope to hear from you soon|I look forward to your answer].");
  t.paragraph();
  t.line("[With love|Lots of love|Yours truly|Warm wishes|A thousand greetings|Yours always],");
  t.line("[your {role} {hero}|{hero}]");
  if (t.dice.chance(35)) {
    t.paragraph();
    t.line(
        "P.S. [I have drawn a little [ship|cat|lighthouse|castle] for you on the back|The stamp is for your "
        "collection|Please excuse my handwriting, because the [bus|train] is shaking|"
        "I am sending you a pressed [clover|poppy|daisy] with this letter|Do not forget to feed the "
        "[goldfish|canary|hamster]|My new telephone number is " +
        std::to_string(100 + t.dice.below(900)) + "-" + std::to_string(1000 + t.dice.below(9000)) +
        "|I have lost another tooth].");
  }
}

void strangers(Telling& t, const char* office) {
  const Gender gender = t.dice.chance(50) ? Gender::female : Gender::male;
  t.person("reader", "2", std::string(gender == Gender::female ? "Ms. " : "Mr. ") + pick_family_name(t.dice), gender);
  t.set("office", office);
  const std::string first = t.dice.chance(50) ? pick_girl(t.dice) : pick_boy(t.dice);
  std::string last = pick_family_name(t.dice);
  while (t.get("reader").ends_with(last)) last = pick_family_name(t.dice);
  t.set("hero", first + " " + last);
  t.line("[To the {office}|For the attention of the {office}]");
  t.paragraph();
  t.line("Dear {reader},");
  t.paragraph();
}

void close_formal(Telling& t) {
  t.paragraph();
  t.line("[Sincerely|Yours sincerely|Respectfully|Kind regards|With best regards|Yours faithfully],");
  t.line("{hero}");
}

void from_holiday(Telling& t) {
  struct Stay {
    const char* place;
    const char* bed;
    const char* view;
    const char* doing;
    const char* trouble;
    const char* souvenir;
  };
  static constexpr Stay kStays[] = {
      {"at the seaside", "a guesthouse with blue shutters", "From my window I can see the harbor and the ferries",
       "we collect shells and swim before lunch", "a seagull stole my sandwich right out of my hand",
       "a shell that whistles"},
      {"in the mountains", "a wooden hut without electricity", "In the morning the valley is full of clouds",
       "we hike to another peak", "we were caught in a hailstorm and had to shelter in a cowshed",
       "a crystal from the quarry"},
      {"at the summer camp", "a tent with five others", "The lake is right behind the tents",
       "we paddle canoes and sing around the campfire", "our tent fell down in the middle of the night",
       "a bracelet that I braided myself"},
      {"in the capital", "a tiny room on the ninth floor", "At night the avenues glitter like jewels",
       "we visit one museum and one cafe", "we took the wrong tram and ended up at the airport",
       "a postcard of the royal palace"},
      {"on a houseboat", "a narrow bunk that rocks me to sleep", "Ducks swim past the window at breakfast",
       "we travel from lock to lock along the canal", "I dropped the captain's hat into the water",
       "a little brass anchor"},
      {"on a ranch", "the loft above the stables", "The plain goes on and on, as flat as a table",
       "I help to groom the horses", "my horse stopped at a puddle and I flew right into it", "a lucky horseshoe"},
      {"in a vineyard", "an attic that smells of grapes", "The hills are striped with rows of vines",
       "we carry baskets and eat as many grapes as we pick", "a wasp chased me through three rows of vines",
       "a bottle of red juice"},
      {"on an island", "a cabin built from driftwood", "There are no cars, only bicycles and goats",
       "we row out to the seal rocks", "the ferry did not run for two days because of the gale",
       "a piece of green sea glass"},
  };
  head(t, "[June|July|August]");
  t.dice.chance(60) ? relatives(t) : friends(t);
  const Stay& stay = t.dice.pick(kStays);
  t.set("stay", stay.place);
  t.line("Dear {you},");
  t.paragraph();
  t.say(
      "[Greetings from {town}|I am writing to you from {town}|Here I am in {town}]! We have been {stay} for [three "
      "days|a week|ten days] now, and [I like it very much|the time flies|it is lovely].");
  t.say(std::string("We sleep in ") + stay.bed + ". " + stay.view + ".");
  t.say(std::string("[Every day|Each morning|Most days], ") + stay.doing +
        ". [I am already quite tanned.|I have learned so much.|In the evenings we play cards.|The food is delicious, "
        "especially the [pancakes|fish stew|cherry tart|dumplings].]");
  t.paragraph();
  t.say(
      std::string("[You will laugh|Something funny happened|I must tell you about our little adventure]: [last "
                  "Tuesday|on Sunday|yesterday], ") +
      stay.trouble +
      ". [Luckily, nobody was hurt.|We laughed about it all evening.|I was cross at first, but now I find it funny.]");
  t.say(
      std::string("I have bought you a souvenir. It is a surprise, but I can tell you that it is not a hat. [All "
                  "right, I will tell you: it is |I cannot keep the secret: it is |You will guess it anyway: it is ]") +
      stay.souvenir + ".");
  t.paragraph();
  t.say(
      "We will be back on [Friday|the last day of the month|Sunday evening|Monday]. [I will visit you in {far} as soon "
      "as I can|Then I will come to {far} and tell you the rest|When I come to {far}, I will show you my "
      "photographs].");
  close_warm(t);
}

void thank_you(Telling& t) {
  struct Present {
    const char* present;
    const char* fits;
    const char* used;
  };
  static constexpr Present kPresents[] = {
      {"knitted sweater", "It fits perfectly, and the sleeves are just long enough",
       "I wore it to the ice rink and did not shiver once"},
      {"watercolor set", "There are shades in it that I had never seen before",
       "I have painted our balcony, the cat and both of our neighbors"},
      {"atlas", "It is so heavy that it needs its own shelf", "I have already found the river where you grew up"},
      {"fountain pen", "It glides over the paper like a skate", "I am using it to write this very letter"},
      {"alarm clock", "It rings like a fire engine", "I have been on time for school every day since"},
      {"puzzle of a thousand pieces", "It kept the whole family busy",
       "Only one piece was missing, and we found it under the carpet"},
      {"backpack", "It has seven pockets, and I have counted them twice",
       "It came with me on our class excursion and stayed dry in the rain"},
      {"mouth organ", "It sounds bright and cheerful", "I can play two tunes, and the dog howls along"},
      {"set of gardening tools", "They are the right size for my hands",
       "I have planted radishes in a box on the balcony"},
      {"novel about the polar explorers", "I could not put it down",
       "I read it under the blanket until two in the morning"},
      {"wool blanket", "It is as soft as a lamb", "I wrap myself in it every evening and think of you"},
      {"teapot with the painted birds", "It arrived without a single scratch",
       "We drank jasmine tea from it on Sunday"},
  };
  head(t);
  t.dice.chance(70) ? relatives(t) : friends(t);
  const Present& present = t.dice.pick(kPresents);
  t.set("present", present.present);
  t.set("occasion", "[my birthday|the holidays|my graduation|my name day]");
  t.line("Dear {you},");
  t.paragraph();
  t.say(
      "[Thank you so much|Many thanks|I want to thank you with all my heart] for the {present} that you sent me for "
      "{occasion}. [The parcel arrived on [Monday|Thursday|Saturday]|The postman brought it this week], and I [opened "
      "it at once|could not wait to open it|was so excited].");
  t.say(std::string(present.fits) + ". " + present.used + ".");
  t.say(
      "[How did you know that I needed one|Did somebody tell you that I had wished for it|You always find the right "
      "present, so how do you do it]?");
  t.paragraph();
  t.say(
      "[We had a small party|We celebrated at home|There was a big celebration] here in {town}. [The cake had three "
      "layers|We ate outdoors under paper lanterns|Mom made her famous lasagna|We played charades until midnight], and "
      "[the only thing missing was you|everyone asked about you|we raised our glasses to you].");
  t.maybe(60,
          "[School is going well, and my favorite subject is [geography|chemistry|history|music].|I have joined the "
          "[rowing club|chess club|choir|theater group].|Our neighbor's dog had [four|five|six] puppies.]");
  t.say(
      "[When will you come to visit us|Will you come to {town} in the spring|Could you visit us next month]? [The "
      "guest room is ready for you|I would love to show you how I use it|The trip from {far} takes only two hours].");
  close_warm(t);
}

void invitation(Telling& t) {
  struct Event {
    const char* event;
    const char* place;
    const char* program;
    const char* bring;
  };
  static constexpr Event kEvents[] = {
      {"my birthday party", "in our garden", "There will be a treasure hunt and a barbecue",
       "Please bring a swimsuit, because we will fill the paddling pool"},
      {"our housewarming", "in our new apartment", "We will show you every room, even the messy one",
       "Please bring a chair if you have one to spare"},
      {"the concert of our orchestra", "in the town hall",
       "I will play my first solo on the [cello|clarinet|trumpet|oboe]",
       "You need not bring anything except your ears"},
      {"my sister's wedding", "in the old chapel", "After the ceremony there will be dancing until dawn",
       "Please tell us if you eat meat or not"},
      {"our harvest supper", "in the barn", "We will roast corn and press apple cider", "Please bring a dish to share"},
      {"a costume ball", "at the community center", "There is a prize for the funniest costume",
       "Please come in disguise"},
      {"the opening of my exhibition", "in the gallery on Market Street", "I will show twenty drawings of bridges",
       "Bring your friends, too"},
      {"our family reunion", "on the lawn behind the manor", "Forty cousins have already promised to come",
       "Please bring old photographs"},
      {"a stargazing night", "on the hill above the village",
       "A teacher will explain the planets to us through a big telescope", "Please bring a warm blanket"},
      {"our chess tournament", "in the library", "We will play five rounds, and the loser washes the dishes",
       "Please bring a clock if you own one"},
  };
  head(t);
  t.dice.chance(40) ? relatives(t) : friends(t);
  const Event& event = t.dice.pick(kEvents);
  t.set("event", event.event);
  t.line("Dear {you},");
  t.paragraph();
  t.say(
      "[I would like to invite you to|You are warmly invited to|It would make me very happy if you came to] {event}. "
      "[It takes place|It will be held] on [Saturday|Sunday|Friday], the " +
      std::string("[first|third|fifth|seventh|tenth|twelfth|fifteenth|twentieth] of next month, ") + event.place +
      " here in {town}. We [start|begin] at [three|four|five|six|seven] o'clock.");
  t.say(std::string(event.program) + ". " + event.bring + ".");
  t.paragraph();
  t.say(
      "[The train from {far} leaves every hour, and it is a ten minute walk from the station.|If you drive from {far}, "
      "take the road along the river and turn left at the windmill.|There is a direct bus from {far}, and we will pick "
      "you up at the stop.]");
  t.say(
      "[You can stay overnight, of course.|If it gets late, you may sleep on our sofa.|We have a spare bed for you.] "
      "[Please let me know by the end of the week whether you can come.|Tell me soon if you can make it, so that I can "
      "plan the food.|Please answer before the weekend.]");
  t.say("[It would not be the same without you|I have not seen you for such a long time|I am counting the days].");
  close_warm(t);
}

void apology(Telling& t) {
  struct Fault {
    const char* fault;
    const char* excuse;
    const char* amends;
  };
  static constexpr Fault kFaults[] = {
      {"I forgot your birthday", "I had written the wrong date in my calendar",
       "I will take you out for dinner at the place with the red lamps"},
      {"I shouted at you on the telephone", "I was tired after a long week, and that is no excuse",
       "The next time I am upset, I will count to ten first"},
      {"I lost the umbrella that you lent me", "I left it on the train, and the lost property office has not found it",
       "I have ordered a new one with the same wooden handle"},
      {"I told everyone your secret", "I spoke before I thought", "I have asked them all to keep it to themselves"},
      {"I missed our meeting at the station", "My alarm did not ring, and I slept until noon",
       "I will come an hour early the next time"},
      {"I laughed at your poem", "I did not understand how much it meant to you",
       "I have read it again, slowly, and I think it is beautiful"},
      {"I broke the handle of your suitcase", "I packed far too many books into it",
       "A leather worker is repairing it, and I will pay the bill"},
      {"I have not written for half a year", "There was the move, then the new job, and then I was ashamed",
       "From now on I will write on the first Sunday of every month"},
      {"I spilled coffee on your carpet", "I was waving my arms while I told that silly joke",
       "I have booked a carpet cleaner for Thursday"},
  };
  head(t);
  t.dice.chance(30) ? relatives(t) : friends(t);
  const Fault& fault = t.dice.pick(kFaults);
  t.line("Dear {you},");
  t.paragraph();
  t.say(std::string("[I owe you an apology.|This is not an easy letter to write.|I have wanted to write this for "
                    "days.] I am [very|truly|terribly] sorry that ") +
        fault.fault + ". " + fault.excuse + ".");
  t.say(
      "[You have every right to be angry with me.|I understand if you are hurt.|I can imagine how you felt.] [You have "
      "always been kind to me, and I was careless.|I value you more than I have shown.|I thought about it all night.]");
  t.paragraph();
  t.say(std::string("I would like to make up for it. ") + fault.amends + ".");
  t.say(
      "[Do you remember the summer when we [repaired the old rowing boat|got lost in {far}|slept on the beach|built "
      "the tree house]? We quarreled then, too, and after an hour we were laughing again.|We have known each other for "
      "so long, and I do not want to lose that.|In {town} everything reminds me of you, even the bakery on the "
      "corner.]");
  t.say("[Can you forgive me|Will you give me another chance|May I call you this week]?");
  close_warm(t);
}

void new_town(Telling& t) {
  struct Change {
    const char* reason;
    const char* work;
  };
  static constexpr Change kChanges[] = {
      {"my father found work at the shipyard", "He builds ferries and comes home with paint on his nose"},
      {"my mother is now a doctor at the hospital", "She wears a white coat and is often tired, but happy"},
      {"my parents have bought a small hotel", "I carry the suitcases and get tips"},
      {"my aunt needed help with her bookshop", "We dust the shelves and unpack new novels"},
      {"my father teaches at the college", "His students call him professor, which makes us giggle"},
      {"my mother drives the night train", "She knows all the stations by heart"},
  };
  static constexpr const char* kPeople[] = {"a boy who keeps snakes",
                                            "twins who always finish each other's sentences",
                                            "a girl who can walk on her hands",
                                            "an old pianist who gives lessons for free",
                                            "a retired sailor with a glass eye",
                                            "a girl who wants to be an astronaut"};
  head(t);
  friends(t);
  const Change& change = t.dice.pick(kChanges);
  t.line("Dear {you},");
  t.paragraph();
  t.say(std::string("[We have arrived|The move is over|We live in {town} now]! As you know, we left {far} because ") +
        change.reason + ". " + change.work + ".");
  t.say(
      "[Our apartment is on the [second|third|fourth] floor, and the stairs creak.|Our house is narrow, with a spiral "
      "staircase.|We live above a laundry, so it always smells of soap.] [My room faces the railway, and I can "
      "identify the trains by their sound.|I have a desk by the window where I am writing to you.|The boxes are still "
      "piled up to the ceiling.]");
  t.paragraph();
  t.say(
      "[The first week at the new school was difficult|At the new school, I did not know anyone|On my first day I sat "
      "in the wrong classroom]. [I ate my lunch alone and thought of our bench in {far}.|Nobody understood my "
      "accent.|I missed you and our silly jokes.]");
  t.say(std::string("But then I met ") + t.dice.pick(kPeople) +
        ". [So it is getting better.|Since then I feel a little more at home.|We meet every afternoon.] [Still, nobody "
        "can replace you.|You would like the people here.|I have told everyone about you.]");
  t.paragraph();
  t.say(
      "[How is everybody in {far}|What is new in {far}|Do you still go to the swimming pool in {far}]? [Has the new "
      "bridge been finished|Who is sitting next to you now|Did our team win the cup]? [You must come here in the "
      "vacation|I am saving money for a ticket|My parents say that you can visit us at any time].");
  close_warm(t);
}

void complaint(Telling& t) {
  struct Order {
    const char* item;
    const char* office;
    const char* defect;
    const char* claim;
  };
  static constexpr Order kOrders[] = {
      {"a coffee machine", "customer service department", "it leaks, and the coffee is cold", "replace the machine"},
      {"a pair of hiking boots", "complaints department", "both boots are for the left foot",
       "send me one boot for the right foot"},
      {"a bookshelf", "furniture department", "two boards and all the screws are missing", "send the missing parts"},
      {"a winter coat", "mail order department", "the zipper is broken and the lining is torn", "refund the price"},
      {"a set of twelve plates", "shipping department", "nine of them arrived in pieces",
       "deliver new plates in better packaging"},
      {"a wall clock", "repair service", "it runs backward", "repair the clock free of charge"},
      {"a red bicycle", "sales manager", "it is green, and the brakes squeal", "exchange the bicycle"},
      {"a desk lamp", "customer service department", "the switch gives off sparks",
       "take the lamp off the market and refund my money"},
      {"a rain jacket", "quality manager", "it soaks up water like a sponge", "refund the price"},
      {"a radio", "repair service", "it receives only one station, and that one plays marches", "replace the radio"},
  };
  head(t);
  const Order& order = t.dice.pick(kOrders);
  strangers(t, order.office);
  t.set("item", order.item);
  const std::string item = t.get("item");
  t.set("the_item", "the " + item.substr(item.find(' ') + 1));
  t.set("claim", order.claim);
  t.say(
      "[On the [second|fourth|ninth|eleventh] of last month, I ordered {item} from your company.|Three weeks ago, I "
      "bought {item} in your branch in {far}.|I am writing with regard to {item}, which I purchased from your "
      "catalog.] The order number is " +
      std::to_string(1000 + t.dice.below(9000)) + ". I paid [the full amount in advance|by check|in cash].");
  t.say(std::string(
            "Unfortunately, I am not satisfied. When I unpacked {the_item}, I discovered the following problem: ") +
        order.defect +
        ". [I have enclosed two photographs.|I have enclosed a copy of the receipt.|My neighbor can confirm this.]");
  t.paragraph();
  t.say(
      "[I called your office twice, but nobody could help me.|I have written to you before, but I received no "
      "reply.|The shop assistant told me to contact you directly.] [I have been a loyal customer for ten years, and "
      "until now I was always pleased.|I am sure that this is only an error.|This is the first time that I have had "
      "reason to complain.]");
  t.say(
      "Therefore I ask you to {claim} within [ten days|two weeks|fourteen days]. [You can reach me in {town} in the "
      "evening.|Please inform me in writing how you wish to proceed.|I would like to avoid further steps.]");
  t.say(
      "[Thank you for your attention to this matter|I trust that we will find a fair solution|I look forward to your "
      "prompt reply].");
  close_formal(t);
}

void petition(Telling& t) {
  struct Request {
    const char* office;
    const char* problem;
    const char* danger;
    const char* proposal;
  };
  static constexpr Request kRequests[] = {
      {"mayor's office", "there is no crosswalk in front of the primary school",
       "The children have to run between the cars", "paint a crosswalk and put up a sign"},
      {"city council", "the last bus to {far} leaves at six in the evening",
       "People who work late must walk home along a dark road", "add a later bus on weekdays"},
      {"parks department", "the playground on Mill Street has been closed for a year",
       "The children play on the parking lot instead", "repair the slide and reopen the gate"},
      {"library board", "the library is closed on Saturdays", "Many families have no time during the week",
       "open the reading room for three hours on Saturday morning"},
      {"water authority", "the fountain in the square has run dry",
       "Travelers and dogs find nothing to drink in summer", "clean the pipes and turn the water on again"},
      {"railway company", "the waiting room at our station has no heating", "Elderly passengers catch cold there",
       "install a radiator before winter"},
      {"waste department", "the bins by the river are emptied only once a month",
       "The wind blows plastic into the water", "empty them every week"},
      {"forestry office", "the old lime trees on the avenue are marked for felling",
       "They give shade to the whole district and shelter to the owls",
       "examine the trees once more before they are cut down"},
  };
  head(t);
  const Request& request = t.dice.pick(kRequests);
  strangers(t, request.office);
  t.say(std::string("[I am writing on behalf of the residents of [Chapel Lane|Harbor Street|the old quarter|the "
                    "riverside district].|As a citizen of {town}, I would like to draw your attention to a "
                    "problem.|We, the undersigned, turn to you with a request.] As you may know, ") +
        t.expand(request.problem) + ". " + request.danger + ".");
  t.say(
      "[Last week there was nearly an accident.|The situation grows worse every month.|I have observed this myself on "
      "several occasions.|A local newspaper has already reported on it.]");
  t.paragraph();
  t.say(std::string("We propose a simple measure: the {office} should ") + request.proposal +
        ". [According to our estimate, the cost would be small.|Volunteers have offered to assist with the work.|Other "
        "towns, for example {far}, have done this with great success.]");
  t.say("[We have collected " + std::to_string(50 + t.dice.below(900)) +
        " signatures, which you will find enclosed.|A public meeting on this subject was attended by " +
        std::to_string(20 + t.dice.below(180)) +
        " people.|Both the school and the merchants' association support the proposal.]");
  t.paragraph();
  t.say(
      "[We would be grateful for an appointment to discuss the details.|May we present our plan at the next "
      "session?|Please let us know what you decide.] [I remain at your disposal for any questions|We appreciate your "
      "efforts for our community|Thank you in advance for your support].");
  close_formal(t);
}

void application(Telling& t) {
  struct Job {
    const char* job;
    const char* office;
    const char* training;
    const char* reason;
  };
  static constexpr Job kJobs[] = {
      {"assistant gardener", "botanical garden", "I have looked after a greenhouse with two hundred orchids",
       "I believe that plants need patience, and I have plenty of it"},
      {"night receptionist", "Hotel Meridian", "I speak four languages and have worked in a hostel",
       "I am wide awake when others yawn"},
      {"bookkeeper", "harbor company", "I completed a course in accounting and kept the books of a bakery",
       "I like it when columns of figures agree"},
      {"ship's cook", "ferry line", "I have cooked for a crew of thirty on a fishing trawler", "I am never seasick"},
      {"violin teacher", "music academy", "I studied at the conservatory and have taught beginners for six years",
       "I enjoy the moment when a scratch becomes a melody"},
      {"zookeeper", "city zoo", "I have raised two orphaned bear cubs", "I am calm, strong and an early riser"},
      {"proofreader", "publishing house", "I have corrected school books for three years",
       "I cannot walk past a misspelled sign"},
      {"mechanic", "tram depot", "I served an apprenticeship in a garage and hold a certificate for diesel engines",
       "I love machines that run quietly"},
      {"librarian", "county library", "I have catalogued the archive of a monastery",
       "I know that every book has its reader"},
  };
  head(t);
  const Job& job = t.dice.pick(kJobs);
  t.set("job", job.job);
  strangers(t, job.office);
  t.say(
      "[I read in the [{town} Gazette|morning paper|evening news] that you are looking for a~ {job}|With great "
      "interest I have seen your advertisement for a~ {job}|A colleague told me that the {office} needs a~ {job}]. I "
      "would like to apply for this position.");
  t.say(std::string("[I am [twenty-four|twenty-nine|thirty-three|forty-one] years old and live in {far}.|At present I "
                    "am employed in {far}.|I grew up in {far} and recently moved to {town}.] ") +
        job.training + ". " + job.reason + ".");
  t.paragraph();
  t.say(
      "[My former employers praise my reliability and my sense of humor.|I work carefully, both alone and in a team.|I "
      "am used to irregular hours and do not mind weekends.] [I could begin on the first of the month.|I would be "
      "available at short notice.|My notice period is six weeks.]");
  t.say(
      "[My references and a short biography are enclosed|Enclosed you will find my certificates|I have enclosed copies "
      "of my diplomas]. [I would be delighted to introduce myself in person|I would welcome an interview|It would be "
      "an honor to meet you].");
  close_formal(t);
}

}  // namespace

std::string tell_letter(RandomStream stream) {
  static constexpr void (*kKinds[])(Telling&) = {from_holiday, thank_you, invitation, apology,
                                                 new_town,     complaint, petition,   application};
  Telling t(stream);
  t.dice.pick(kKinds)(t);
  return std::move(t).finish();
}

}  // namespace some::telling

// The domain "recipes": a title, a list of ingredients with amounts, numbered steps in the imperative, a tip. Every
// ingredient of the list is used in a step, and no step uses anything else but water, salt and the tools.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "text/stories_telling.h"

namespace some::telling {
namespace {

struct Item {
  const char* one;
  const char* many;
  const char* prep;  // imperative, before "the carrots"
};

constexpr Item kRoots[] = {
    {"carrot", "carrots", "Peel and slice"},
    {"potato", "potatoes", "Peel and dice"},
    {"leek", "leeks", "Wash and slice"},
    {"parsnip", "parsnips", "Peel and chop"},
    {"sweet potato", "sweet potatoes", "Peel and cube"},
    {"turnip", "turnips", "Peel and dice"},
    {"beet", "beets", "Peel and cube"},
    {"zucchini", "zucchinis", "Trim and slice"},
    {"fennel bulb", "fennel bulbs", "Trim and slice"},
    {"bell pepper", "bell peppers", "Core and chop"},
    {"celery stalk", "celery stalks", "Rinse and chop"},
    {"tomato", "tomatoes", "Rinse and quarter"},
    {"mushroom", "mushrooms", "Wipe and slice"},
    {"eggplant", "eggplants", "Trim and cube"},
};
constexpr Item kRaw[] = {
    {"cucumber", "cucumbers", "Slice"},
    {"radish", "radishes", "Slice"},
    {"tomato", "tomatoes", "Chop"},
    {"carrot", "carrots", "Peel and grate"},
    {"apple", "apples", "Core and cube"},
    {"pear", "pears", "Core and slice"},
    {"avocado", "avocados", "Halve and slice"},
    {"orange", "oranges", "Peel and slice"},
    {"yellow pepper", "yellow peppers", "Core and slice"},
    {"celery stalk", "celery stalks", "Chop"},
    {"fig", "figs", "Quarter"},
    {"scallion", "scallions", "Trim and chop"},
};
constexpr Item kFruits[] = {
    {"apple", "apples", "Peel, core and slice"}, {"pear", "pears", "Peel, core and slice"},
    {"peach", "peaches", "Pit and slice"},       {"plum", "plums", "Pit and halve"},
    {"apricot", "apricots", "Pit and quarter"},  {"banana", "bananas", "Peel and slice"},
    {"mango", "mangoes", "Peel and dice"},       {"nectarine", "nectarines", "Pit and dice"},
    {"kiwi", "kiwis", "Peel and dice"},
};
constexpr Item kBerries[] = {{"blueberry", "blueberries", "Rinse"},   {"raspberry", "raspberries", "Rinse"},
                             {"blackberry", "blackberries", "Rinse"}, {"strawberry", "strawberries", "Rinse"},
                             {"cherry", "cherries", "Pit"},           {"cranberry", "cranberries", "Rinse"},
                             {"currant", "currants", "Rinse"},        {"gooseberry", "gooseberries", "Rinse"}};
constexpr const char* kHerbs[] = {"parsley",  "basil",    "thyme", "dill",    "chives",   "mint",
                                  "rosemary", "cilantro", "sage",  "oregano", "tarragon", "marjoram"};
constexpr const char* kSpices[] = {"cumin",        "paprika",   "turmeric",     "curry powder", "ground ginger",
                                   "chili flakes", "coriander", "black pepper", "saffron",      "mustard powder"};
constexpr const char* kSweetSpices[] = {"cinnamon", "nutmeg", "cardamom",   "vanilla",    "allspice",
                                        "ginger",   "anise",  "lemon zest", "orange zest"};
constexpr Item kNuts[] = {
    {"walnut", "walnuts", "Chop"},  {"almond", "almonds", "Chop"},     {"hazelnut", "hazelnuts", "Chop"},
    {"pecan", "pecans", "Chop"},    {"cashew", "cashews", "Chop"},     {"pistachio", "pistachios", "Chop"},
    {"peanut", "peanuts", "Crush"}, {"chestnut", "chestnuts", "Chop"}, {"macadamia", "macadamias", "Crush"}};
constexpr const char* kCheeses[] = {"cheddar", "feta", "goat cheese", "mozzarella", "parmesan", "gouda", "ricotta"};
constexpr const char* kOils[] = {"olive oil", "sunflower oil", "butter", "canola oil"};
constexpr const char* kDriedFruits[] = {"raisins",        "dried apricots", "dates",           "dried figs",
                                        "dried cherries", "prunes",         "chocolate chips", "coconut flakes"};

std::string title_case(std::string text) {
  bool start = true;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool small = text.compare(i, 4, "and ") == 0 || text.compare(i, 5, "with ") == 0;
    if (start && !small && text[i] >= 'a' && text[i] <= 'z') text[i] = static_cast<char>(text[i] - 'a' + 'A');
    start = text[i] == ' ';
  }
  return text;
}

// Slots {key} "carrots" or "carrot", {key_are}, {key_them}, {key_line} "3 carrots", {key_prep}.
void count_item(Telling& t, const std::string& key, const Item& item, unsigned count) {
  t.set(key, count == 1 ? item.one : item.many);
  // In titles a celery stalk is celery.
  const std::string one = item.one;
  t.set(key + "_kind", one.ends_with(" stalk") || one.ends_with(" bulb") ? one.substr(0, one.rfind(' ')) : one);
  t.set(key + "_are", count == 1 ? "is" : "are");
  t.set(key + "_them", count == 1 ? "it" : "them");
  t.set(key + "_line", std::to_string(count) + " {" + key + "}");
  t.set(key + "_prep", item.prep);
}

struct Recipe {
  std::string title;
  std::vector<std::string> ingredients;
  std::vector<std::string> steps;
  std::vector<std::string> tips;
};

std::string number(Telling& t, unsigned low, unsigned high, unsigned step = 1) {
  return std::to_string(low + step * t.dice.below((high - low) / step + 1));
}

Recipe soup(Telling& t, unsigned servings) {
  const auto roots = t.dice.pick_several(kRoots, 2);
  count_item(t, "first", *roots[0], servings + t.dice.below(2));
  count_item(t, "second", *roots[1], 1 + servings / 3);
  t.set("herb", t.dice.pick(kHerbs));
  t.set("spice", t.dice.pick(kSpices));
  t.set("fat", t.dice.pick(kOils));
  t.set("liquid", "[vegetable broth|chicken broth|water]");
  t.set("finish", "[cream|coconut milk|sour cream|plain yogurt]");
  t.set("minutes", number(t, 15, 30, 5));
  Recipe r;
  r.title = t.expand("[creamy |warm |simple |spicy |golden |]{first_kind} and {second_kind} soup");
  r.ingredients = {"{first_line}",
                   "{second_line}",
                   "1 onion",
                   "2 tablespoons of {fat}",
                   std::to_string(servings) + " cups of {liquid}",
                   "half a cup of {finish}",
                   "1 teaspoon of {spice}",
                   "a [handful|small bunch] of {herb}"};
  r.steps = {"{first_prep} the {first}. {second_prep} the {second}. Chop the onion.",
             "[Heat|Warm] the {fat} in a [large|deep|heavy] pot and [fry|cook|soften] the onion [for 5 minutes|until "
             "it is clear|until it is golden].",
             "Add the {first}, the {second} and the {spice}. [Stir well|Stir for 2 minutes].",
             "Pour in the {liquid} and bring it to a boil. [Cover the pot and|Then] simmer for {minutes} minutes, "
             "until the {first} {first_are} [soft|tender].",
             "[Blend the soup until it is smooth|Mash the soup with a fork, but leave some pieces|Puree half of the "
             "soup and pour it back]. Stir in the {finish} and season with salt.",
             "[Ladle the soup into bowls|Fill the bowls] and [sprinkle|scatter] the {herb} on top."};
  r.tips = {"Tip: if the soup is too thick, add a little more {liquid}.",
            "Tip: the soup tastes even better the next day.",
            "Serve it with [crusty bread|toast|warm rolls|crackers]."};
  return r;
}

Recipe salad(Telling& t, unsigned servings) {
  const auto raw = t.dice.pick_several(kRaw, 2);
  count_item(t, "first", *raw[0], 1 + servings / 2);
  count_item(t, "second", *raw[1], 1 + servings / 2);
  t.set("leaf", "[lettuce|spinach|arugula|kale|cabbage|chicory]");
  count_item(t, "nut", t.dice.pick(kNuts), 20);
  t.set("cheese", t.dice.pick(kCheeses));
  t.set("herb", t.dice.pick(kHerbs));
  t.set("sour", "[lemon juice|wine vinegar|apple vinegar|lime juice]");
  t.set("sweet", "[honey|maple syrup|sugar]");
  Recipe r;
  r.title = t.expand("[crunchy |fresh |summer |crisp |]{leaf} salad with {first_kind} and {cheese}");
  r.ingredients = {std::to_string(servings) + " handfuls of {leaf}",
                   "{first_line}",
                   "{second_line}",
                   "[50|80|100] grams of {cheese}",
                   "a handful of {nut}",
                   "3 tablespoons of olive oil",
                   "1 tablespoon of {sour}",
                   "1 teaspoon of {sweet}",
                   "a few sprigs of {herb}"};
  r.steps = {"Wash the {leaf} in cold water, [drain it and tear it into pieces|shake it dry and cut it into strips].",
             "{first_prep} the {first}. {second_prep} the {second}. Put everything in a [wide|large|glass] bowl.",
             "[Toast|Roast] the {nut} in a dry pan [until they smell nutty|for 3 minutes|until they turn brown]. Let "
             "them cool.",
             "For the dressing, whisk the olive oil, the {sour} and the {sweet} with a pinch of salt.",
             "Chop the {herb} and crumble the {cheese} over the salad. Add the {nut}.",
             "Pour the dressing over the salad and toss it [gently|well] [just before serving|with two spoons]."};
  r.tips = {"Tip: keep the dressing in a jar, so that the {leaf} stays crisp.",
            "Tip: leave out the {cheese} for guests who do not eat it.",
            "Serve the salad at once, while the {nut} are still crunchy."};
  return r;
}

Recipe cookies(Telling& t, unsigned servings) {
  count_item(t, "nut", t.dice.pick(kNuts), 20);
  t.set("extra", t.dice.pick(kDriedFruits));
  t.set("spice", t.dice.pick(kSweetSpices));
  t.set("sugar", "[brown sugar|white sugar|cane sugar]");
  t.set("flour", "[wheat flour|oat flour|spelt flour|whole wheat flour]");
  t.set("heat", number(t, 170, 200, 10));
  t.set("minutes", number(t, 9, 15));
  t.set("pieces", std::to_string(servings * 6));
  Recipe r;
  r.title = t.expand("[chewy |crisp |soft |grandma's |holiday |]{spice} cookies with {extra}");
  r.ingredients = {number(t, 180, 260, 20) + " grams of {flour}",
                   number(t, 100, 140, 10) + " grams of butter",
                   number(t, 80, 140, 20) + " grams of {sugar}",
                   "1 egg",
                   "half a teaspoon of baking soda",
                   "1 teaspoon of {spice}",
                   "half a cup of {extra}",
                   "half a cup of {nut}"};
  r.steps = {
      "Preheat the oven to {heat} degrees and line a [baking sheet|tray] with paper.",
      "Beat the butter and the {sugar} until [the mixture is fluffy|they are pale and creamy]. Beat in the egg.",
      "[In a second bowl, mix|Sift] the {flour}, the baking soda and the {spice}. [Fold|Stir] this into the butter.",
      "{nut_prep} the {nut} [roughly|finely] and knead them into the dough together with the {extra}.",
      "[Shape|Roll] the dough into {pieces} small balls, set them on the paper and press them flat.",
      "Bake the cookies for {minutes} minutes, until the edges are [golden|light brown]. Let them cool on a rack."};
  r.tips = {"Tip: the cookies keep for a week in a tin.", "Tip: chill the dough for an hour if it is sticky.",
            "They go well with [a glass of cold milk|hot tea|a cup of cocoa]."};
  return r;
}

Recipe cake(Telling& t, unsigned servings) {
  count_item(t, "fruit", t.dice.pick(kFruits), 2 + t.dice.below(3));
  count_item(t, "nut", t.dice.pick(kNuts), 20);
  t.set("spice", t.dice.pick(kSweetSpices));
  t.set("heat", number(t, 160, 190, 10));
  t.set("minutes", number(t, 35, 55, 5));
  t.set("eggs", std::to_string(2 + servings / 3));
  t.set("dairy", "[milk|buttermilk|yogurt|sour cream]");
  Recipe r;
  r.title = t.expand("[moist |easy |sunday |upside down |country |]{fruit_kind} cake with {nut}");
  r.ingredients = {number(t, 200, 300, 20) + " grams of flour",
                   "{fruit_line}",
                   "{eggs} eggs",
                   number(t, 120, 200, 20) + " grams of sugar",
                   number(t, 100, 180, 20) + " grams of butter",
                   "[100|120|150] milliliters of {dairy}",
                   "2 teaspoons of baking powder",
                   "1 teaspoon of {spice}",
                   "a handful of {nut}"};
  r.steps = {
      "Preheat the oven to {heat} degrees. [Grease|Butter] a [round|square|loaf] cake pan with a little of the butter.",
      "{fruit_prep} the {fruit}.",
      "Melt the rest of the butter and whisk it with the sugar, the eggs and the {dairy}.",
      "Add the flour, the baking powder and the {spice}. Mix [quickly|just] until there are no lumps.",
      "Pour the batter into the pan. Lay the {fruit} on top and [sprinkle|scatter] the {nut} over [{fruit_them}|the "
      "cake].",
      "Bake the cake for {minutes} minutes. It is done when a [toothpick|skewer|thin knife] comes out clean.",
      "Let it rest in the pan for 10 minutes before you [turn it out|slice it]."};
  r.tips = {"Tip: dust the cake with sugar when it is cold.",
            "Tip: cover the cake with foil if the {nut} get too dark.", "It is best while it is still a little warm."};
  return r;
}

Recipe pancakes(Telling& t, unsigned servings) {
  count_item(t, "berry", t.dice.pick(kBerries), 20);
  t.set("spice", t.dice.pick(kSweetSpices));
  t.set("milk", "[milk|oat milk|buttermilk|almond milk]");
  t.set("flour", "[wheat flour|buckwheat flour|oat flour|spelt flour]");
  t.set("topping", "[maple syrup|honey|whipped cream|yogurt|plum jam|lemon curd]");
  t.set("pieces", std::to_string(servings * 3));
  Recipe r;
  r.title = t.expand("[fluffy |thin |breakfast |lazy |]{berry_kind} pancakes with {topping}");
  r.ingredients = {std::to_string((servings + 1) / 2) + " cup{s} of {flour}",
                   std::to_string((servings + 1) / 2) + " cup{s} of {milk}",
                   std::to_string(1 + servings / 2) + " eggs",
                   "1 teaspoon of baking powder",
                   "a pinch of {spice}",
                   "a cup of {berry}",
                   "1 tablespoon of butter",
                   "{topping} for serving"};
  t.set("s", (servings + 1) / 2 == 1 ? "" : "s");
  r.steps = {"Whisk the eggs and the {milk} in a [bowl|jug].",
             "Add the {flour}, the baking powder and the {spice}. Stir until the batter is [smooth|thick and smooth]. "
             "Let it rest for [10|15|20] minutes.",
             "Wash the {berry} and [pat|shake] them dry. [Fold half of them|Fold them] into the batter.",
             "Melt [some|a little] of the butter in a [pan|flat pan|skillet] over medium heat.",
             "Drop in a [ladle|large spoonful] of batter. When bubbles [rise|appear] on top, flip the pancake and cook "
             "the other side for [1 minute|2 minutes].",
             "Cook {pieces} pancakes in this way, with a bit of butter for each.",
             "Stack the pancakes and [pour|spoon] the {topping} over them."};
  r.tips = {"Tip: keep the pancakes warm in the oven until all are done.",
            "Tip: the first pancake often fails. Eat it in the kitchen.", "Serve at once, while they are hot."};
  return r;
}

Recipe pasta(Telling& t, unsigned servings) {
  const auto roots = t.dice.pick_several(kRoots, 2);
  count_item(t, "first", *roots[0], 1 + servings / 2);
  count_item(t, "second", *roots[1], 1 + servings / 2);
  t.set("shape", "[spaghetti|penne|macaroni|fusilli|linguine|noodles|farfalle]");
  t.set("cheese", t.dice.pick(kCheeses));
  t.set("herb", t.dice.pick(kHerbs));
  t.set("bean", "[chickpeas|white beans|peas|olives|capers|lentils]");
  t.set("minutes", number(t, 8, 12));
  Recipe r;
  r.title = t.expand("[quick |rustic |baked |green |]{shape} with {first_kind} and {bean}");
  r.ingredients = {std::to_string(servings * 100) + " grams of {shape}",
                   "{first_line}",
                   "{second_line}",
                   "1 small can of {bean}",
                   number(t, 2, 4) + " cloves of garlic",
                   "3 tablespoons of olive oil",
                   "50 grams of {cheese}",
                   "a [bunch|handful] of {herb}"};
  r.steps = {
      "Bring a large pot of salted water to a boil.",
      "{first_prep} the {first}. {second_prep} the {second}. [Mince|Crush|Slice] the garlic.",
      "Heat the olive oil in a [wide pan|skillet]. Fry the garlic for 1 minute, then add the {first} and the {second} "
      "and cook until they are tender.",
      "[Drain|Rinse] the {bean} and [add them to|warm them in] the pan.",
      "Boil the {shape} for {minutes} minutes. [Save a cup of the water, then|Then] drain the {shape} well and add "
      "everything to the pan.",
      "Toss everything together. [Tear|Chop] the {herb}, grate or crumble the {cheese} and scatter both on top."};
  r.tips = {"Tip: a spoonful of pasta water makes the sauce silky.",
            "Tip: leftovers can be baked with more {cheese} the next day.",
            "Season with salt and pepper at the table."};
  return r;
}

Recipe curry(Telling& t, unsigned servings) {
  const auto roots = t.dice.pick_several(kRoots, 3);
  count_item(t, "first", *roots[0], 1 + servings / 2);
  count_item(t, "second", *roots[1], 1 + servings / 2);
  t.set("protein", "[chickpeas|red lentils|tofu|chicken|shrimp|kidney beans]");
  const auto spices = t.dice.pick_several(kSpices, 2);
  t.set("spice", *spices[0]);
  t.set("spice_too", *spices[1]);
  t.set("herb", t.dice.pick(kHerbs));
  t.set("side", "[rice|couscous|flatbread|bulgur|quinoa]");
  t.set("minutes", number(t, 20, 35, 5));
  Recipe r;
  r.title = t.expand("[mild |hot |one pot |weekday |]{protein} curry with {first_kind}");
  r.ingredients = {std::to_string(servings * 100) + " grams of {protein}",
                   "{first_line}",
                   "{second_line}",
                   "1 onion",
                   "1 tablespoon of oil",
                   "1 can of coconut milk",
                   "2 teaspoons of {spice}",
                   "half a teaspoon of {spice_too}",
                   "a handful of {herb}",
                   "{side} for serving"};
  r.steps = {"Peel and chop the onion. {first_prep} the {first}. {second_prep} the {second}.",
             "Heat the oil in a [wok|deep pan|pot]. Fry the onion with the {spice} and the {spice_too} until "
             "[fragrant|it smells good|the onion is soft].",
             "Add the {first} and the {second} and stir until they are coated.",
             "Pour in the coconut milk, add the {protein} and bring it to a [boil|gentle boil].",
             "[Lower the heat|Turn down the heat] and simmer for {minutes} minutes, until [the sauce is "
             "thick|everything is tender]. Add salt to taste.",
             "Meanwhile, prepare the {side}.",
             "Chop the {herb}. Serve the curry with the {side} and the {herb}."};
  r.tips = {"Tip: add a squeeze of lime for a fresher taste.", "Tip: use less {spice_too} if children eat with you.",
            "The curry can be frozen for up to two months."};
  return r;
}

Recipe smoothie(Telling& t, unsigned servings) {
  count_item(t, "fruit", t.dice.pick(kFruits), servings);
  count_item(t, "berry", t.dice.pick(kBerries), 20);
  t.set("base", "[milk|yogurt|oat milk|orange juice|apple juice|kefir|coconut water]");
  t.set("sweet", "[honey|maple syrup|date syrup|agave syrup]");
  t.set("spice", t.dice.pick(kSweetSpices));
  t.set("boost", "[rolled oats|chia seeds|flax seeds|peanut butter|wheat germ]");
  Recipe r;
  r.title = t.expand("[morning |pink |frosty |thick |summer |]{fruit_kind} and {berry_kind} smoothie");
  r.ingredients = {"{fruit_line}",
                   std::to_string((servings + 1) / 2) + " cup{s} of {berry}",
                   std::to_string(servings * 150) + " milliliters of {base}",
                   number(t, 2, 4) + " tablespoons of {boost}",
                   "1 teaspoon of {sweet}",
                   "a pinch of {spice}",
                   "[6|8|10] ice cubes"};
  t.set("s", (servings + 1) / 2 == 1 ? "" : "s");
  r.steps = {
      "{fruit_prep} the {fruit}.",
      "[Rinse|Wash] the {berry} and remove any [stems|leaves].",
      "Put the {fruit} and the {berry} in a blender. Pour in the {base}.",
      "Add the {boost}, the {sweet} and the {spice}.",
      "Blend [on high speed|at full power] for [1 minute|2 minutes], until the drink is [smooth|creamy and smooth].",
      "Add the ice cubes and blend [again|once more] until they are crushed.",
      "Pour the smoothie into " + std::to_string(servings) +
          " [tall|chilled|cold] glasses[ and add a straw to each|]."};
  r.tips = {"Tip: freeze the {berry} first and you will need no ice.",
            "Tip: use less {base} for a smoothie that you can eat with a spoon.",
            "Drink it [right away|within an hour|while it is cold]."};
  return r;
}

Recipe omelet(Telling& t, unsigned servings) {
  const auto roots = t.dice.pick_several(kRoots, 2);
  count_item(t, "first", *roots[0], 1 + servings / 3);
  t.set("cheese", t.dice.pick(kCheeses));
  t.set("herb", t.dice.pick(kHerbs));
  t.set("spice", t.dice.pick(kSpices));
  t.set("fat", t.dice.pick(kOils));
  t.set("eggs", std::to_string(servings * 2));
  t.set("meat", "[ham|smoked salmon|bacon|turkey|smoked tofu|sausage]");
  Recipe r;
  r.title = t.expand("[hearty |farmer's |fluffy |oven |]{first_kind} omelet with {cheese}");
  r.ingredients = {"{eggs} eggs",
                   "{first_line}",
                   "[60|80|100] grams of {cheese}",
                   "[60|80|100] grams of {meat}",
                   "2 tablespoons of milk",
                   "1 tablespoon of {fat}",
                   "a pinch of {spice}",
                   "some {herb}"};
  r.steps = {
      "Crack the eggs into a bowl. Beat them with the milk, the {spice} and a little salt.",
      "{first_prep} the {first}. Cut the {meat} into [strips|small cubes|thin pieces].",
      "Heat the {fat} in a [large|heavy|nonstick] pan and cook the {first} for [5|6|8] minutes, until the {first} "
      "{first_are} [soft|tender|golden].",
      "Add the {meat} and [brown it|fry it for 2 minutes].",
      "Pour the eggs over it. [Tilt the pan to spread them|Shake the pan gently] and [lower the heat|cover the pan].",
      "When the eggs are almost [set|firm], [scatter|spread] the {cheese} on top and wait until it melts.",
      "Fold the omelet, [slide it onto a plate|cut it in wedges] and garnish it with the {herb}."};
  r.tips = {"Tip: use eggs at room temperature.", "Tip: cold slices are good for a [picnic|lunch box].",
            "Serve it with [a green salad|toast|fried potatoes|pickles]."};
  return r;
}

Recipe bread(Telling& t, unsigned servings) {
  t.set("flour", "[wheat flour|rye flour|spelt flour|whole wheat flour]");
  count_item(t, "nut", t.dice.pick(kNuts), 20);
  t.set("herb", "[dried rosemary|caraway seeds|fennel seeds|dried thyme|poppy seeds|onion flakes]");
  t.set("sweet", "[honey|molasses|sugar|malt syrup]");
  t.set("heat", number(t, 200, 240, 10));
  t.set("minutes", number(t, 25, 45, 5));
  t.set("oil", "[olive oil|melted butter|sunflower oil]");
  Recipe r;
  r.title = t.expand(std::string("[rustic |soft |crusty |village |]") +
                     (servings > 4 ? "{nut_kind} rolls with {herb}" : "{nut_kind} bread with {herb}"));
  r.ingredients = {number(t, 400, 600, 50) + " grams of {flour}",
                   number(t, 260, 340, 20) + " milliliters of warm water",
                   "1 packet of yeast",
                   "1 teaspoon of {sweet}",
                   "2 teaspoons of salt",
                   "2 tablespoons of {oil}",
                   "1 tablespoon of {herb}",
                   "a cup of {nut}"};
  r.steps = {"Dissolve the yeast and the {sweet} in the warm water. Wait [10|5] minutes, until it [foams|bubbles].",
             "Mix the {flour}, the salt and the {herb} in a [big|wide] bowl. Add the yeast water and the {oil}.",
             "Knead the dough for [8|10|12] minutes, until it is [smooth and elastic|soft and stretchy].",
             "{nut_prep} the {nut} and work them into the dough. Cover the bowl with a [cloth|damp towel] and let the "
             "dough rise for [1 hour|90 minutes].",
             servings > 4
                 ? "Divide the dough into " + std::to_string(servings * 2) +
                       " pieces and roll them into balls. Set them on a tray and let them rise again for 20 minutes."
                 : "Shape the dough into a [round|long|plump] loaf. Set it on a tray and let it rise again for [30|40] "
                   "minutes.",
             std::string("Heat the oven to {heat} degrees. [Brush|Spray] the ") +
                 (servings > 4 ? "rolls with water and bake them" : "loaf with water, cut a cross on top and bake it") +
                 " for {minutes} minutes.",
             servings > 4 ? "Let the rolls cool for [10|15] minutes before you break them open."
                          : "Knock on the bottom of the loaf. If it sounds hollow, the bread is done."};
  r.tips = {"Tip: put a cup of water in the oven, and the crust will be crisp.",
            "Tip: yesterday's bread makes good toast.", "Eat it with [salted butter|cheese|jam|soup]."};
  return r;
}

Recipe crumble(Telling& t, unsigned servings) {
  count_item(t, "fruit", t.dice.pick(kFruits), servings + 1);
  count_item(t, "berry", t.dice.pick(kBerries), 20);
  count_item(t, "nut", t.dice.pick(kNuts), 20);
  t.set("spice", t.dice.pick(kSweetSpices));
  t.set("heat", number(t, 180, 200, 10));
  t.set("minutes", number(t, 25, 40, 5));
  t.set("side", "[vanilla ice cream|whipped cream|custard|cold yogurt]");
  Recipe r;
  r.title = t.expand("[autumn |golden |crunchy |family |]{fruit_kind} and {berry_kind} crumble");
  r.ingredients = {"{fruit_line}",
                   "a cup of {berry}",
                   number(t, 100, 160, 20) + " grams of flour",
                   number(t, 60, 100, 10) + " grams of rolled oats",
                   number(t, 80, 120, 10) + " grams of cold butter",
                   number(t, 60, 100, 10) + " grams of sugar",
                   "1 teaspoon of {spice}",
                   "a handful of {nut}",
                   "{side} for serving"};
  r.steps = {
      "Preheat the oven to {heat} degrees.",
      "{fruit_prep} the {fruit}. Wash the {berry}. Spread the fruit in a [baking dish|deep dish] and [dust it "
      "with|sprinkle over] a spoonful of the sugar.",
      "Cut the butter into cubes. Rub it into the flour [with your fingertips|with cold hands] until it looks like "
      "[crumbs|wet sand].",
      "{nut_prep} the {nut}. Mix them with the oats, the {spice} and the rest of the sugar, and add this to the "
      "crumbs.",
      "Scatter the crumbs over the fruit [without pressing|in an even layer].",
      "Bake for {minutes} minutes, until the top is [golden|crisp and brown] and the juice bubbles at the sides.",
      "Let it cool a little and serve it with the {side}."};
  r.tips = {"Tip: make a double batch of crumbs and freeze one half.", "Tip: sour {berry} need a bit more sugar.",
            "Leftovers are a fine breakfast."};
  return r;
}

Recipe roast(Telling& t, unsigned servings) {
  const auto roots = t.dice.pick_several(kRoots, 3);
  count_item(t, "first", *roots[0], servings);
  count_item(t, "second", *roots[1], 1 + servings / 2);
  count_item(t, "third", *roots[2], 1 + servings / 2);
  t.set("herb", t.dice.pick(kHerbs));
  t.set("spice", t.dice.pick(kSpices));
  t.set("glaze", "[honey|mustard|soy sauce]");
  t.set("dip", "[garlic yogurt|hummus|tomato sauce|herb butter|lemon mayonnaise|tahini sauce]");
  t.set("heat", number(t, 200, 230, 10));
  t.set("minutes", number(t, 25, 45, 5));
  Recipe r;
  r.title = t.expand("[roasted|oven baked|sticky roasted] {first} with {dip}");
  r.ingredients = {
      "{first_line}",           "{second_line}",           "{third_line}",           "[2|3|4] tablespoons of olive oil",
      "2 teaspoons of {spice}", "1 tablespoon of {glaze}", "a few sprigs of {herb}", "a small bowl of {dip}"};
  r.steps = {"Heat the oven to {heat} degrees. [Line|Oil] a large tray.",
             "{first_prep} the {first}. {second_prep} the {second}. {third_prep} the {third}.",
             "Whisk the olive oil, the {glaze} and the {spice} with [half a teaspoon|a pinch] of salt.",
             "Toss the vegetables in this [mixture|marinade], until every piece [shines|is coated]. Spread them out on "
             "the tray.",
             "Lay the {herb} on top and roast for {minutes} minutes. [Turn the pieces once|Shake the tray halfway].",
             "The dish is ready when the {first} {first_are} [brown at the edges|soft inside and crisp outside].",
             "Serve the vegetables hot, with the {dip} on the side."};
  r.tips = {"Tip: do not crowd the tray, or the vegetables will steam.",
            "Tip: cold leftovers make a good filling for wraps.",
            "This dish goes well with [rice|grilled fish|fresh bread|roast chicken]."};
  return r;
}

}  // namespace

std::string tell_recipe(RandomStream stream) {
  static constexpr Recipe (*kDishes[])(Telling&, unsigned) = {soup,  salad,    cookies, cake,  pancakes, pasta,
                                                              curry, smoothie, omelet,  bread, crumble,  roast};
  static constexpr const char* kNumbers[] = {"two", "three", "four", "five", "six", "eight"};
  static constexpr unsigned kServings[] = {2, 3, 4, 5, 6, 8};
  Telling t(stream);
  const std::uint32_t size = t.dice.below(6);
  const Recipe recipe = t.dice.pick(kDishes)(t, kServings[size]);
  t.line(title_case(recipe.title));
  t.paragraph();
  t.set("servings", kNumbers[size]);
  t.line(
      "[Serves {servings}|For {servings} people|Enough for {servings}]. [Preparation|Time]: about [15|20|25|30|40|45] "
      "minutes[, plus cooking time|].");
  t.paragraph();
  t.line("Ingredients:");
  for (const std::string& ingredient : recipe.ingredients) t.line("- " + ingredient);
  t.paragraph();
  t.line("[Steps|Method]:");
  for (std::size_t i = 0; i < recipe.steps.size(); ++i) t.line(std::to_string(i + 1) + ". " + recipe.steps[i]);
  t.paragraph();
  t.line(recipe.tips[t.dice.below(static_cast<std::uint32_t>(recipe.tips.size()))]);
  return std::move(t).finish();
}

}  // namespace some::telling

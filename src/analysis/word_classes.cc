#include "analysis/word_classes.h"

#include <cctype>
#include <unordered_map>

namespace some {
namespace {

const char* const pronouns =
    "i you he she it we they me him us them mine yours hers ours theirs myself yourself himself herself itself "
    "ourselves themselves who whom what which someone "
    "somebody anyone anybody everyone everybody nobody something anything everything nothing whoever whatever";
const char* const determiners =
    "the a an this that these those my your his her its our their some any no every each another both all many few "
    "several much more most such either neither whose "
    "enough other others half";
const char* const prepositions =
    "of in on at by for with from to into onto over under above below behind beside between among through across "
    "around along past near before after during until "
    "till since against about toward towards without within upon off out up down inside outside beyond beneath except "
    "like as than per round underneath";
const char* const conjunctions =
    "and or but so because if when while although though unless whether nor yet where why how whenever wherever once";
const char* const adverbs =
    "not very too also then now here there again soon always never often sometimes just only even still already almost "
    "away back together home maybe perhaps later "
    "finally suddenly instead else today tomorrow yesterday ever well far fast hard early late once twice quite rather "
    "really indeed anymore everywhere nowhere "
    "somewhere outside forward forever first next last inside please yes oh hello goodbye hey wow okay ok thanks alone "
    "apart aside forth upstairs downstairs nearby";
const char* const numbers =
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty "
    "seventy eighty ninety hundred thousand million zero second third dozen";
// Base forms; inflectional endings are removed before lookup. Irregular forms are listed in full.
const char* const verbs =
    "be am is are was were been being have has had having do does did done doing will would can could shall should may "
    "might must say said go went gone see saw seen "
    "want like love play look run ran walk come came get got give gave given take took taken make made find found know "
    "knew known think thought tell told ask put let "
    "help try start begin began begun feel felt become became leave left keep kept hold held bring brought sit sat "
    "stand stood lie lay lain live laugh smile cry jump "
    "climb swim swam swum fly flew flown fall fell fallen eat ate eaten drink drank drunk sleep slept wake woke woken "
    "open close shut turn stop wait watch hear heard "
    "listen speak spoke spoken talk call shout whisper sing sang sung dance read write wrote written draw drew drawn "
    "paint cut build built break broke broken fix mend "
    "carry pull push throw threw thrown catch caught drop pick hide hid hidden show shown share lose lost win won hug "
    "kiss thank hope wish need use work learn teach "
    "taught grow grew grown plant pour fill cook bake mix stir add wash clean dry dig dug chase follow lead led meet "
    "met visit stay move ride rode ridden drive drove "
    "driven sail float shine shone blow blew blown burn melt freeze froze frozen buy bought sell sold pay paid send "
    "sent wear wore worn hit hurt bite bit bitten scare "
    "surprise remember forget forgot forgotten understand understood believe promise decide agree answer reply nod "
    "shake shook shaken wave clap point touch smell taste "
    "seem happen end finish arrive return enter reach cross pass stick stuck tie lift roll slide slid swing swung hang "
    "hung spin spun bounce splash shiver tremble sigh "
    "yawn giggle grin frown gasp peek stare glance search gather collect count measure heat boil serve chop spread "
    "press cool warm wrap tap knock rub scrub sweep swept "
    "dream wonder imagine pretend practice invite greet welcome trust forgive forgave forgiven save protect rescue "
    "care worry mind miss enjoy hate fear dare fight fought "
    "marry belong matter mean meant cost spend spent grab squeeze scratch sniff bark purr meow quack roar growl buzz "
    "hop skip crawl creep crept march rush hurry wander "
    "explore travel land rest relax repeat change choose chose chosen guess solve check guard own set lit light sew "
    "stitch sort pack unpack load lock unlock hand bow "
    "admit apologize explain discover notice realize remind suggest allow appear disappear rise rose risen set sink "
    "sank sunk shrink bloom nest hatch feed fed hunt ought "
    "don doesn didn won couldn wouldn shouldn isn aren wasn weren hasn haven hadn ain ll ve re";
const char* const adjectives =
    "big small little large tiny huge tall short long high low old new young good bad nice kind happy sad angry afraid "
    "scared brave shy proud tired hungry thirsty sick "
    "better best worse worst red blue green yellow brown black white grey gray pink purple orange golden silver bright "
    "dark hot cold warm cool wet dry soft hard smooth "
    "rough sharp round flat square clean dirty full empty heavy light strong weak fast slow quick loud quiet silent "
    "pretty beautiful ugly lovely sweet sour salty bitter "
    "fresh ripe rotten rich poor easy difficult simple safe dangerous special strange funny silly serious busy lazy "
    "free ready sure sorry glad mad calm gentle careful "
    "careless curious clever smart wise foolish stupid magic magical wonderful great fine perfect favorite favourite "
    "same different true false right wrong real whole "
    "broken lost hidden secret alone lonely friendly mean rude polite honest fair shiny sparkly fluffy furry fuzzy "
    "muddy sandy sunny rainy cloudy windy snowy stormy icy "
    "thick thin wide narrow deep shallow close distant early late only own next last first early cozy cosy comfortable "
    "noisy tasty delicious yummy sleepy excited "
    "surprised worried frightened lucky precious wooden rusty dusty crooked hollow bare steep";
const char* const nouns =
    "time day night morning afternoon evening noon week month year minute hour moment season spring summer autumn fall "
    "winter birthday holiday party man woman men women "
    "boy girl child children kid baby people person friend family mother mom mommy mum mama father dad daddy papa "
    "parent sister brother grandma grandmother grandpa "
    "grandfather aunt uncle cousin neighbor neighbour teacher doctor nurse farmer baker king queen prince princess "
    "knight witch wizard fairy giant dragon monster ghost "
    "pirate captain sailor soldier thief stranger hero name face head hair eye ear nose mouth tooth teeth tongue neck "
    "arm hand finger thumb leg foot feet knee back tail "
    "wing paw claw beak fur feather skin heart body voice smile tear animal pet dog puppy cat kitten bird duck goose "
    "geese hen chicken rooster owl crow eagle robin "
    "sparrow parrot fish shark whale dolphin frog toad turtle snake lizard mouse mice rat rabbit bunny squirrel "
    "hedgehog fox wolf wolves bear deer horse pony donkey cow "
    "pig sheep lamb goat lion tiger elephant monkey giraffe zebra bee bug ant spider butterfly worm snail crab otter "
    "beaver badger mole raccoon swan hamster house home "
    "room kitchen bedroom bathroom door window wall floor roof stair stairs bed table chair lamp clock mirror picture "
    "book story page letter word song music toy doll ball "
    "kite bike bicycle car truck bus train boat ship plane wheel swing slide game puzzle block balloon gift present "
    "box bag basket bottle cup bowl plate spoon fork knife "
    "pot pan food bread butter cheese egg milk water juice tea coffee soup cake cookie candy chocolate sugar salt "
    "honey jam apple banana orange pear cherry berry "
    "strawberry grape lemon carrot potato tomato onion corn bean rice nut seed fruit vegetable meal breakfast lunch "
    "dinner supper snack tree leaf leaves branch root "
    "flower rose grass bush garden park farm field forest wood woods jungle hill mountain valley cave rock stone sand "
    "mud dirt path road street bridge river stream lake "
    "pond sea ocean beach island wave shore sky sun moon star cloud rain snow wind storm thunder lightning rainbow ice "
    "fire smoke light shadow air hole town village city "
    "school class shop store market castle tower hospital church library zoo circus barn shed stable fence gate well "
    "nest burrow den hat coat shirt dress shoe boot sock "
    "glove scarf pocket button ribbon thread needle rope string key lock tool hammer nail saw shovel bucket brush "
    "broom paint paper pencil pen crayon color colour blue "
    "shape circle line number money coin dollar treasure gold silver jewel ring crown sword map flag wish dream idea "
    "plan secret surprise trick joke lesson problem trouble "
    "mistake accident danger fear love joy fun luck magic power help work job rule question answer reason way thing "
    "place side end top bottom middle corner edge piece part "
    "bit group team world life sound noise smell taste dust crumb oven stove pinch flour dough recipe minute teaspoon "
    "tablespoon ounce pound gram inch degree slice layer "
    "mixture batter cream oil vinegar pepper garlic sauce pie feast dear sincerely regards machine robot computer "
    "phone radio camera medicine blanket pillow towel soap "
    "bath lantern candle lamp match ladder wagon cart sled tent camp trip journey walk nap";

using Lexicon = std::unordered_map<std::string, WordClass>;

void add_words(Lexicon& lexicon, const char* list, WordClass word_class) {
  std::string word;
  for (const char* c = list;; ++c) {
    if (*c != ' ' && *c != '\0') {
      word += *c;
      continue;
    }
    if (!word.empty()) lexicon.emplace(word, word_class);  // the first list that contains a word takes precedence
    word.clear();
    if (*c == '\0') return;
  }
}

const Lexicon& lexicon() {
  static const Lexicon words = [] {
    Lexicon all;
    add_words(all, pronouns, WordClass::pronoun);
    add_words(all, determiners, WordClass::determiner);
    add_words(all, conjunctions, WordClass::conjunction);
    add_words(all, prepositions, WordClass::preposition);
    add_words(all, numbers, WordClass::number);
    add_words(all, verbs, WordClass::verb);
    add_words(all, adjectives, WordClass::adjective);
    add_words(all, nouns, WordClass::noun);
    add_words(all, adverbs, WordClass::adverb);
    return all;
  }();
  return words;
}

const Lexicon& noun_lexicon() {
  static const Lexicon words = [] {
    Lexicon all;
    add_words(all, nouns, WordClass::noun);
    return all;
  }();
  return words;
}

bool letter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || static_cast<unsigned char>(c) >= 0x80;
}

// Returns the word itself, or its stem if an ending can be removed: plurals, -ed, -ing, 's.
std::string stem_in(const Lexicon& words, const std::string& word) {
  if (words.count(word) != 0) return word;
  const auto stem = [&](std::string_view ending, std::string_view instead) -> std::string {
    if (word.size() <= ending.size() + 1 || !std::string_view(word).ends_with(ending)) return {};
    std::string base = word.substr(0, word.size() - ending.size()) + std::string(instead);
    if (words.count(base) != 0) return base;
    // stopped, running: a doubled letter is removed too
    if (instead.empty() && base.size() > 2 && base[base.size() - 1] == base[base.size() - 2]) {
      base.pop_back();
      if (words.count(base) != 0) return base;
    }
    return {};
  };
  for (const auto& [ending, instead] : std::initializer_list<std::pair<const char*, const char*>>{{"s", ""},
                                                                                                  {"es", ""},
                                                                                                  {"ies", "y"},
                                                                                                  {"ves", "f"},
                                                                                                  {"ed", ""},
                                                                                                  {"ed", "e"},
                                                                                                  {"ied", "y"},
                                                                                                  {"ing", ""},
                                                                                                  {"ing", "e"},
                                                                                                  {"er", ""},
                                                                                                  {"er", "e"},
                                                                                                  {"est", ""},
                                                                                                  {"est", "e"},
                                                                                                  {"ier", "y"},
                                                                                                  {"iest", "y"}}) {
    std::string base = stem(ending, instead);
    if (!base.empty()) return base;
  }
  return {};
}

struct Before {  // the preceding part of the sentence
  bool start = true;
  WordClass last = WordClass::punctuation;
  std::string word;
};

bool opens_noun(const Before& before) {
  return before.last == WordClass::determiner || before.last == WordClass::adjective ||
         before.last == WordClass::number;
}

WordClass class_of(const std::string& spelled, const Before& before) {
  std::string word;
  for (const char c : spelled) word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool capital = std::isupper(static_cast<unsigned char>(spelled[0])) != 0;
  if (const std::size_t apostrophe = word.find('\''); apostrophe != std::string::npos && apostrophe > 0) {
    if (word.ends_with("n't")) return WordClass::verb;
    word.resize(apostrophe);
  }
  const std::string stem = stem_in(lexicon(), word);
  if (capital && !before.start && word != "i" &&
      (stem.empty() || word == stem || lexicon().at(stem) == WordClass::noun ||
       lexicon().at(stem) == WordClass::adjective))
    return WordClass::name;
  if (!stem.empty()) {
    WordClass found = lexicon().at(stem);
    const bool inflected = word.size() > stem.size() && (word.ends_with("ed") || word.ends_with("ing"));
    // "a walk", "the small light": an ambiguous word is a noun if a noun is expected; "to light" remains a verb.
    if ((found == WordClass::verb || found == WordClass::adjective) && !inflected && opens_noun(before) &&
        !stem_in(noun_lexicon(), word).empty() && before.word != "to")
      found = WordClass::noun;
    if (found == WordClass::verb && word.ends_with("er") && word != stem) found = WordClass::noun;  // baker, runner
    return found;
  }
  if (capital) return WordClass::name;
  const auto ends = [&](std::string_view ending) {
    return word.size() > ending.size() + 2 && std::string_view(word).ends_with(ending);
  };
  if (ends("ly")) return WordClass::adverb;
  if (ends("ness") || ends("tion") || ends("ment") || ends("ship") || ends("hood")) return WordClass::noun;
  if (ends("ful") || ends("less") || ends("ous") || ends("able") || ends("ish")) return WordClass::adjective;
  if (ends("ing") || ends("ed")) return opens_noun(before) ? WordClass::adjective : WordClass::verb;
  if (opens_noun(before)) return WordClass::noun;
  if (before.last == WordClass::pronoun || before.word == "to") return WordClass::verb;
  return WordClass::other;
}

}  // namespace

const char* name_of(WordClass word_class) {
  static const char* const names[word_classes] = {"noun",        "name",        "verb",      "pronoun", "determiner",
                                                  "preposition", "conjunction", "adjective", "adverb",  "number",
                                                  "punctuation", "space",       "other"};
  return names[static_cast<std::size_t>(word_class)];
}

std::vector<ClassifiedWord> classify_text(std::string_view text) {
  std::vector<ClassifiedWord> out;
  Before before;
  for (std::size_t i = 0; i < text.size();) {
    ClassifiedWord word{i, i + 1, WordClass::other};
    const auto c = static_cast<unsigned char>(text[i]);
    if (letter(text[i])) {
      while (word.end < text.size() &&
             (letter(text[word.end]) ||
              (text[word.end] == '\'' && word.end + 1 < text.size() && letter(text[word.end + 1]))))
        ++word.end;
      const std::string spelled(text.substr(word.begin, word.end - word.begin));
      word.word_class = class_of(spelled, before);
      before = {false, word.word_class, spelled};
    } else if (std::isdigit(c) != 0) {
      while (word.end < text.size() && std::isdigit(static_cast<unsigned char>(text[word.end])) != 0) ++word.end;
      word.word_class = WordClass::number;
      before = {false, WordClass::number, {}};
    } else if (std::isspace(c) != 0) {
      word.word_class = WordClass::space;
      if (c == '\n') before = {};
    } else {
      word.word_class = WordClass::punctuation;
      // A quotation mark may open a sentence; it does not hide the word before it.
      const bool ends_sentence = c == '.' || c == '!' || c == '?' || c == '"' || c == ':';
      before = {ends_sentence || (before.start && c != ','), WordClass::punctuation, {}};
    }
    out.push_back(word);
    i = word.end;
  }
  return out;
}

std::vector<WordClass> classify_tokens(const Tokenizer& tokenizer, std::span<const std::int32_t> ids,
                                       std::span<const std::uint16_t> byte_lengths) {
  std::string text;
  std::vector<std::size_t> begins, ends;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool special = tokenizer.is_special(ids[i]);
    const std::string bytes = special ? std::string() : std::string(tokenizer.token_bytes(ids[i]));
    // The text has more bytes than the token: the tokenizer dropped a space.
    if (i < byte_lengths.size() && byte_lengths[i] > bytes.size()) text += ' ';
    begins.push_back(text.size());
    text += bytes;
    ends.push_back(text.size());
  }
  const std::vector<ClassifiedWord> words = classify_text(text);
  std::vector<WordClass> out(ids.size(), WordClass::other);
  std::size_t word = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    // A token belongs to the word of its first non-space byte; a token of only spaces is a space.
    std::size_t at = begins[i];
    while (at < ends[i] && std::isspace(static_cast<unsigned char>(text[at])) != 0) ++at;
    if (begins[i] == ends[i]) continue;
    if (at == ends[i]) {
      out[i] = WordClass::space;
      continue;
    }
    while (word + 1 < words.size() && words[word].end <= at) ++word;
    out[i] = words[word].word_class;
  }
  return out;
}

}  // namespace some

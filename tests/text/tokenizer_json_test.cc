// The reader of tokenizer.json: errors that name the faulty part, and a fuzz test that must end in an error or a
// working tokenizer, never in a crash (also run it in a build with -DSOME_ASAN=ON).
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "text/bpe_train.h"
#include "text/tokenizer.h"
#include "text_helpers.h"

namespace some {
namespace {

using nlohmann::json;
using testing::Dice;

json small_file(TokenizerKind kind) {
  BpeTrainOptions options;
  options.kind = kind;
  options.vocab_size = kind == TokenizerKind::bytelevel ? 280 : 50;
  int left = 1;
  return json::parse(train_bpe(options, [&](std::string& text) {
                       text = "the miller and the cat went down to the river, the river rose and the cat went home";
                       return left-- > 0;
                     }).to_json());
}

// Loads the file after a change and returns the error.
std::optional<Error> refusal(TokenizerKind kind, const std::function<void(json&)>& change) {
  json file = small_file(kind);
  change(file);
  return error_in([&] { Tokenizer::from_json(file.dump(), "t.json"); });
}

TEST(TokenizerJson, RefusesWhatIsNotSupportedByName) {
  struct Case {
    TokenizerKind kind;
    Code code;
    std::vector<std::string> values;
    std::function<void(json&)> change;
  };
  const TokenizerKind words = TokenizerKind::whitespace, bytes = TokenizerKind::bytelevel;
  const std::vector<Case> cases = {
      {words,
       Code::tokenizer_unsupported,
       {"normalizer"},
       [](json& f) {
         f["normalizer"] = {{"type", "NFC"}};
       }},
      {words,
       Code::tokenizer_unsupported,
       {"truncation"},
       [](json& f) {
         f["truncation"] = {{"max_length", 8}};
       }},
      {words,
       Code::tokenizer_unsupported,
       {"padding"},
       [](json& f) {
         f["padding"] = {{"strategy", "BatchLongest"}};
       }},
      {words,
       Code::tokenizer_unsupported,
       {"pre_tokenizer"},
       [](json& f) {
         f["pre_tokenizer"] = {{"type", "Metaspace"}};
       }},
      {words, Code::tokenizer_invalid, {"pre_tokenizer"}, [](json& f) { f["pre_tokenizer"] = nullptr; }},
      {words, Code::tokenizer_invalid, {"pre_tokenizer"}, [](json& f) { f.erase("pre_tokenizer"); }},
      {bytes,
       Code::tokenizer_unsupported,
       {"pre_tokenizer.add_prefix_space"},
       [](json& f) { f["pre_tokenizer"]["add_prefix_space"] = true; }},
      {bytes,
       Code::tokenizer_unsupported,
       {"pre_tokenizer.add_prefix_space"},
       [](json& f) { f["pre_tokenizer"].erase("add_prefix_space"); }},
      {bytes,
       Code::tokenizer_unsupported,
       {"pre_tokenizer.use_regex"},
       [](json& f) { f["pre_tokenizer"]["use_regex"] = false; }},
      {bytes,
       Code::tokenizer_invalid,
       {"pre_tokenizer.use_regex"},
       [](json& f) { f["pre_tokenizer"]["use_regex"] = "yes"; }},
      {words,
       Code::tokenizer_unsupported,
       {"post_processor"},
       [](json& f) {
         f["post_processor"] = {{"type", "TemplateProcessing"}};
       }},
      {words,
       Code::tokenizer_unsupported,
       {"decoder"},
       [](json& f) {
         f["decoder"] = {{"type", "ByteLevel"}};
       }},
      {bytes,
       Code::tokenizer_unsupported,
       {"decoder"},
       [](json& f) {
         f["decoder"] = {{"type", "WordPiece"}};
       }},
      {words, Code::tokenizer_unsupported, {"model"}, [](json& f) { f["model"]["type"] = "WordPiece"; }},
      {words, Code::tokenizer_unsupported, {"model.dropout"}, [](json& f) { f["model"]["dropout"] = 0.1; }},
      {words, Code::tokenizer_unsupported, {"model.fuse_unk"}, [](json& f) { f["model"]["fuse_unk"] = true; }},
      {words,
       Code::tokenizer_unsupported,
       {"model.byte_fallback"},
       [](json& f) { f["model"]["byte_fallback"] = true; }},
      {words,
       Code::tokenizer_unsupported,
       {"model.ignore_merges"},
       [](json& f) { f["model"]["ignore_merges"] = true; }},
      {words,
       Code::tokenizer_unsupported,
       {"model.continuing_subword_prefix"},
       [](json& f) { f["model"]["continuing_subword_prefix"] = "##"; }},
      {words,
       Code::tokenizer_unsupported,
       {"model.end_of_word_suffix"},
       [](json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }},
      {words, Code::tokenizer_invalid, {"model.unk_token"}, [](json& f) { f["model"]["unk_token"] = "<none>"; }},
      {words, Code::tokenizer_invalid, {"model.unk_token"}, [](json& f) { f["model"]["unk_token"] = 0; }},
      {words, Code::tokenizer_unsupported, {"model.\"extra\""}, [](json& f) { f["model"]["extra"] = 1; }},
      {words, Code::tokenizer_unsupported, {"\"extra\""}, [](json& f) { f["extra"] = 1; }},
      {words, Code::tokenizer_unsupported, {"version"}, [](json& f) { f["version"] = "2.0"; }},
      {words, Code::tokenizer_invalid, {"model"}, [](json& f) { f.erase("model"); }},
      {words, Code::tokenizer_invalid, {"model.vocab"}, [](json& f) { f["model"].erase("vocab"); }},
      {words, Code::tokenizer_invalid, {"model.vocab"}, [](json& f) { f["model"]["vocab"] = json::object(); }},
      {words, Code::tokenizer_invalid, {"model.merges"}, [](json& f) { f["model"].erase("merges"); }},
      {words,
       Code::tokenizer_invalid,
       {"model.vocab", "5"},
       [](json& f) { f["model"]["vocab"]["a"] = 5, f["model"]["vocab"]["c"] = 5; }},
      {words, Code::tokenizer_invalid, {"model.vocab", "\"a\""}, [](json& f) { f["model"]["vocab"]["a"] = 50; }},
      {words,
       Code::tokenizer_invalid,
       {"model.vocab", "\"a\""},
       [](json& f) { f["model"]["vocab"]["a"] = 18446744073709551615ull; }},
      {words, Code::tokenizer_invalid, {"model.vocab", "\"a\""}, [](json& f) { f["model"]["vocab"]["a"] = -1; }},
      {words, Code::tokenizer_invalid, {"model.vocab", "\"a\""}, [](json& f) { f["model"]["vocab"]["a"] = 3.5; }},
      {words, Code::tokenizer_invalid, {"model.vocab", "\"a\""}, [](json& f) { f["model"]["vocab"]["a"] = "3"; }},
      {words,
       Code::tokenizer_invalid,
       {"model.merges", "0", "\"q\""},
       [](json& f) {
         f["model"]["merges"][0] = {"q", "e"};
       }},
      {words,
       Code::tokenizer_invalid,
       {"model.merges", "0", "\"ww\""},
       [](json& f) {
         f["model"]["merges"][0] = {"w", "w"};
       }},
      {words,
       Code::tokenizer_invalid,
       {"model.merges", "0"},
       [](json& f) {
         f["model"]["merges"][0] = {"w", "e", "n"};
       }},
      {words, Code::tokenizer_invalid, {"model.merges", "0"}, [](json& f) { f["model"]["merges"][0] = "the"; }},
      {words, Code::tokenizer_invalid, {"model.merges", "0"}, [](json& f) { f["model"]["merges"][0] = "t h e"; }},
      {words, Code::tokenizer_invalid, {"model.merges", "0"}, [](json& f) { f["model"]["merges"][0] = 7; }},
      {words,
       Code::tokenizer_invalid,
       {"added_tokens[1]", "\"[PAD]\"", "7"},
       [](json& f) { f["added_tokens"][1]["id"] = 7; }},
      {words,
       Code::tokenizer_unsupported,
       {"added_tokens[1].lstrip"},
       [](json& f) { f["added_tokens"][1]["lstrip"] = true; }},
      {words,
       Code::tokenizer_invalid,
       {"added_tokens[1].content"},
       [](json& f) { f["added_tokens"][1]["content"] = ""; }},
      {words,
       Code::tokenizer_invalid,
       {"added_tokens[1]"},
       [](json& f) { f["added_tokens"][1] = f["added_tokens"][0]; }},
      {words, Code::tokenizer_invalid, {"added_tokens[0]"}, [](json& f) { f["added_tokens"][0] = 5; }},
      {words,
       Code::tokenizer_invalid,
       {"\"<x>\"", "60"},
       [](json& f) {
         f["added_tokens"].push_back({{"id", 60}, {"content", "<x>"}});
       }},
  };
  for (const Case& one : cases) {
    std::vector<std::string> values = one.values;
    values.insert(values.begin(), "t.json");
    EXPECT_TRUE(is_bad_input(refusal(one.kind, one.change), one.code, values));
  }
}

TEST(TokenizerJson, AcceptsWhatDoesNoHarm) {
  const auto accepted = [](TokenizerKind kind, const std::function<void(json&)>& change) {
    EXPECT_FALSE(refusal(kind, change));
  };
  const TokenizerKind words = TokenizerKind::whitespace, bytes = TokenizerKind::bytelevel;
  accepted(words, [](json&) {});
  accepted(words,
           [](json& f) { f.erase("truncation"), f.erase("version"), f.erase("decoder"), f.erase("added_tokens"); });
  accepted(words, [](json& f) { f["model"]["dropout"] = 0.0, f["model"]["continuing_subword_prefix"] = ""; });
  accepted(words, [](json& f) { f["model"].erase("type"), f["model"].erase("ignore_merges"); });
  accepted(words, [](json& f) { f["extra"] = nullptr; });
  accepted(bytes, [](json& f) { f["decoder"] = nullptr; });
  accepted(bytes, [](json& f) { f["pre_tokenizer"]["trim_offsets"] = false, f["pre_tokenizer"].erase("use_regex"); });
  accepted(bytes, [](json& f) { f["post_processor"] = f["pre_tokenizer"]; });
}

TEST(TokenizerJson, OlderMergesAreReadToo) {
  for (const TokenizerKind kind : {TokenizerKind::whitespace, TokenizerKind::bytelevel}) {
    json file = small_file(kind);
    const Tokenizer tokenizer = Tokenizer::from_json(file.dump());
    for (json& merge : file["model"]["merges"]) merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    EXPECT_EQ(Tokenizer::from_json(file.dump()).to_json(), tokenizer.to_json());
  }
}

TEST(TokenizerJson, MissingSpecialTokensAreReportedWhenNeeded) {
  json file = small_file(TokenizerKind::bytelevel);
  file.erase("added_tokens");
  auto& vocab = file["model"]["vocab"];
  vocab["other"] = vocab["[EOS]"];
  vocab.erase("[EOS]");
  const Tokenizer tokenizer = Tokenizer::from_json(file.dump());
  EXPECT_EQ(tokenizer.pad_id(), 1);
  EXPECT_ERROR(tokenizer.eos_id(), Code::tokenizer_invalid, "[EOS]");
}

class TokenizerFile : public testing::TextFiles {};

TEST_F(TokenizerFile, SavesAndLoads) {
  const Tokenizer tokenizer = Tokenizer::from_json(small_file(TokenizerKind::bytelevel).dump());
  tokenizer.save(path("t.json"));
  const Tokenizer loaded = Tokenizer::load(path("t.json"));
  EXPECT_EQ(loaded.to_json(), tokenizer.to_json());
  EXPECT_EQ(loaded.hash(), tokenizer.hash());
  EXPECT_NE(loaded.hash(), Tokenizer::from_json(small_file(TokenizerKind::whitespace).dump()).hash());
  EXPECT_ERROR(Tokenizer::load(path("none.json")), Code::file_not_found, path("none.json"));
  EXPECT_ERROR(Tokenizer::load(folder_), Code::file_not_found, folder_.string());
  EXPECT_ERROR(Tokenizer::load(write("bad.json", "{\"version\": ")), Code::json_syntax, path("bad.json"), "1", "13");
}

TEST(TokenizerJson, NotJsonAtAll) {
  for (const std::string& text : {std::string(), std::string("null"), std::string("[]"), std::string("\xFF\xFE"),
                                  std::string("{\"model\": 1e999}"), std::string(200000, '['),
                                  std::string("{\"a\":") + std::string(1000, '{'), std::string("\0\0", 2)}) {
    EXPECT_TRUE(error_in([&] { Tokenizer::from_json(text); })) << text;
  }
}

// Returns every value in the file, so that a mutation can change any of them.
void collect(json& value, std::vector<json*>& values) {
  values.push_back(&value);
  if (value.is_structured()) {
    for (json& child : value) collect(child, values);
  }
}

json odd_value(Dice& dice) {
  switch (dice.below(16)) {
    case 0: return nullptr;
    case 1: return true;
    case 2: return false;
    case 3: return -1;
    case 4: return 0;
    case 5: return dice.below(400);
    case 6: return 4294967296ull + dice.below(4);
    case 7: return 9223372036854775807ll;
    case 8: return 1.5;
    case 9: return "";
    case 10: return "a b";
    case 11: return testing::random_unicode(dice, dice.below(20));
    case 12: return std::string(1, '\0');
    case 13: return json::array();
    case 14: return json::object();
    default: return json::array({json::array({"a", "b"}), json::object({{"type", "ByteLevel"}})});
  }
}

void mutate(json& file, Dice& dice) {
  std::vector<json*> values;
  collect(file, values);
  // The many vocabulary entries would receive nearly every mutation, so half of the mutations go to the rest.
  json* target = values[dice.below(static_cast<std::uint32_t>(values.size()))];
  if (dice.below(2) == 0) {
    std::vector<json*> few;
    for (const char* name : {"added_tokens", "pre_tokenizer", "decoder"}) {
      if (file.contains(name)) collect(file[name], few);
    }
    if (file.contains("model") && file["model"].is_object()) {
      for (auto& child : file["model"]) few.push_back(&child);
    }
    for (auto& child : file) few.push_back(&child);
    target = few[dice.below(static_cast<std::uint32_t>(few.size()))];
  }
  const json* other = values[dice.below(static_cast<std::uint32_t>(values.size()))];
  switch (dice.below(5)) {
    case 0: *target = odd_value(dice); break;
    case 1: {
      json copy = *other;
      *target = std::move(copy);
      break;
    }
    case 2:
      if (target->is_object() && !target->empty()) {
        auto at = target->begin();
        std::advance(at, dice.below(static_cast<std::uint32_t>(target->size())));
        target->erase(at);
      } else if (target->is_array() && !target->empty()) {
        target->erase(dice.below(static_cast<std::uint32_t>(target->size())));
      }
      break;
    case 3:
      if (target->is_object()) (*target)[testing::random_unicode(dice, 3)] = odd_value(dice);
      if (target->is_array()) target->push_back(odd_value(dice));
      if (target->is_number()) *target = target->get<double>() > 1e9 ? json(1) : json(target->get<std::int64_t>() + 1);
      if (target->is_string()) *target = target->get<std::string>() + testing::random_unicode(dice, 2);
      break;
    default:
      if (target->is_array() && target->size() > 1) {
        std::swap((*target)[0], (*target)[dice.below(static_cast<std::uint32_t>(target->size()))]);
      }
      if (target->is_boolean()) *target = !target->get<bool>();
      break;
  }
}

// Loads and uses a file; returns whether it was accepted.
bool try_file(const std::string& text) {
  try {
    const Tokenizer tokenizer = Tokenizer::from_json(text);
    std::vector<TokenId> ids;
    std::vector<std::uint32_t> lengths;
    for (const std::string_view sample :
         {"", "the cat went [EOS] a b", "\xFF\xC3\xA9 \xE6\x97\xA5", "thethethethethe"}) {
      tokenizer.encode(sample, ids, lengths);
      std::size_t covered = 0;
      for (const std::uint32_t length : lengths) covered += length;
      EXPECT_LE(covered, sample.size());
      tokenizer.decode(ids);
    }
    EXPECT_EQ(Tokenizer::from_json(tokenizer.to_json()).to_json(), tokenizer.to_json());
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::input) << error.what();
    EXPECT_FALSE(std::string(error.what()).empty());
    return false;
  }
}

TEST(TokenizerJsonFuzz, StructuredMutations) {
  Dice dice("structured");
  int accepted = 0, refused = 0;
  for (const TokenizerKind kind : {TokenizerKind::whitespace, TokenizerKind::bytelevel}) {
    const json whole = small_file(kind);
    for (int round = 0; round < 1500; ++round) {
      json file = whole;
      const std::uint32_t strikes = 1 + dice.below(3);
      for (std::uint32_t i = 0; i < strikes && file.is_object() && !file.empty(); ++i) mutate(file, dice);
      try_file(file.dump()) ? ++accepted : ++refused;
    }
  }
  // A fuzz test with a single outcome tests little.
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 1000);
}

TEST(TokenizerJsonFuzz, DamagedBytes) {
  Dice dice("bytes");
  const std::string whole = small_file(TokenizerKind::whitespace).dump();
  for (int round = 0; round < 3000; ++round) {
    std::string text = whole;
    switch (dice.below(4)) {
      case 0: text.resize(dice.below(static_cast<std::uint32_t>(text.size()))); break;
      case 1: text[dice.below(static_cast<std::uint32_t>(text.size()))] = static_cast<char>(dice.below(256)); break;
      case 2: text.erase(dice.below(static_cast<std::uint32_t>(text.size())), 1 + dice.below(20)); break;
      default:
        text.insert(dice.below(static_cast<std::uint32_t>(text.size())),
                    testing::random_bytes(dice, 1 + dice.below(5)));
        break;
    }
    try_file(text);
  }
}

}  // namespace
}  // namespace some

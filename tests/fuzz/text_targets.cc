#include "core/error.h"
#include "fuzz/fuzz.h"
#include "text/bpe_train.h"
#include "text/corpus.h"
#include "text/tokenizer.h"

namespace some::fuzz {
namespace {

using Json = nlohmann::json;

Json trained_tokenizer(TokenizerKind kind, std::size_t vocab) {
  BpeTrainOptions options;
  options.kind = kind;
  options.vocab_size = vocab;
  std::size_t told = 0;
  const std::vector<std::string> documents = {"the cat went to the sea", "a cat and a dog, naïve and 日本",
                                              "the the the sea"};
  const Tokenizer tokenizer = train_bpe(options, [&](std::string& story) {
    if (told == documents.size()) return false;
    story = documents[told++];
    return true;
  });
  return Json::parse(tokenizer.to_json());
}

class TokenizerTarget : public Target {
 public:
  std::string name() const override { return "tokenizer"; }
  std::string origin() const override { return "some/tokenizer.json"; }

  std::string make(Dice& dice) override {
    const Json& whole = seeds_[dice.one_in(6) ? 1 + dice.below(2) : 0];
    if (dice.one_in(3)) {
      std::string bytes = whole.dump();
      damage_text(bytes, dice, words_);
      return bytes;
    }
    Json file = whole;
    for (std::size_t strikes = 1 + dice.below(3); strikes > 0; --strikes) {
      // The many vocabulary entries would receive nearly every mutation, so half of the mutations go to the smaller
      // parts.
      if (dice.one_in(2) || !file.is_object() || file.empty()) {
        damage_json(file, dice);
      } else {
        auto part = file.begin();
        std::advance(part, static_cast<std::ptrdiff_t>(dice.below(file.size())));
        if (part.key() == "model" && part->is_object()) {
          Json without = *part;
          without.erase("vocab");
          without.erase("merges");
          damage_json(without, dice);
          if (without.is_object()) part->update(without);
        } else {
          damage_json(*part, dice);
        }
      }
    }
    return written(file);
  }

  void read(const std::string& input) override {
    const Tokenizer tokenizer = Tokenizer::from_json(input, origin());
    std::vector<TokenId> ids;
    std::vector<std::uint32_t> lengths;
    for (const std::string_view sample : {"", "the cat went [EOS] a b", "\xFF\xC3\xA9 \xE6\x97\xA5", "thethethethe"}) {
      tokenizer.encode(sample, ids, lengths);
      std::size_t covered = 0;
      for (const std::uint32_t length : lengths) covered += length;
      if (covered > sample.size()) throw std::logic_error("more bytes are covered than there are");
      tokenizer.decode(ids);
    }
    if (Tokenizer::from_json(tokenizer.to_json(), origin()).to_json() != tokenizer.to_json())
      throw std::logic_error("what is written reads back as something else");
  }

 private:
  // The byte-level kind has at least 256 tokens, whose reading takes most of the time.
  const std::vector<Json> seeds_ = {trained_tokenizer(TokenizerKind::whitespace, 48),
                                    trained_tokenizer(TokenizerKind::whitespace, 300),
                                    trained_tokenizer(TokenizerKind::bytelevel, 264)};
  const std::vector<std::string> words_ = {"null", "true", "-1", "{", "}", "[", "]", "\"", ",", "\"vocab\":", "1e9999"};
};

class CorpusTarget : public Target {
 public:
  explicit CorpusTarget(bool json_lines) : json_lines_(json_lines) {}
  std::string name() const override { return json_lines_ ? "json-lines" : "corpus"; }
  std::string origin() const override { return file_.path(); }

  std::string make(Dice& dice) override {
    std::string text = json_lines_
                           ? "{\"text\": \"The cat.\\n\\u00e9\"}\n{\"text\": \"A dog\", \"id\": [1, {\"a\": 2}]}\r\n\n"
                             "{\"id\": 7, \"text\": \"日本\"}\n"
                           : "\xEF\xBB\xBFOnce upon.\r\nThe end.\n<|endoftext|>\n\n naïve 日本\n<|endoftext|> \nx\n";
    damage_text(text, dice, words_);
    return text;
  }

  void read(const std::string& input) override {
    file_.set(input);
    CorpusOptions options;
    options.paths = {file_.path()};
    options.json_lines = json_lines_;
    CorpusReader reader(options);
    for (std::string story; reader.next(story);) {
    }
  }

 private:
  const bool json_lines_;
  const std::vector<std::string> words_ = {"{",    "}",  "[",    "\"", "\\u", "\\ud800", "\"text\":", "<|endoftext|>",
                                           "\r\n", "\n", "1e999"};
  MemoryFile file_;
};

}  // namespace

Json small_tokenizer() { return trained_tokenizer(TokenizerKind::whitespace, 48); }

void add_text_targets(std::vector<std::unique_ptr<Target>>& targets, const std::string&) {
  targets.push_back(std::make_unique<TokenizerTarget>());
  targets.push_back(std::make_unique<CorpusTarget>(false));
  targets.push_back(std::make_unique<CorpusTarget>(true));
}

}  // namespace some::fuzz

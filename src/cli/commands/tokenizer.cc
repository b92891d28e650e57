#include "text/tokenizer.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <sstream>

#include "cli/command.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "text/bpe_train.h"
#include "text/corpus.h"

namespace some {
namespace {

struct TrainOptions {
  std::string kind = "bytelevel", out;
  std::size_t vocab = 8192;
  std::uint64_t min_frequency = 0;
  CorpusOptions corpus;
  bool json = false;
};

struct CodeOptions {
  std::string tokenizer, file;
  std::vector<std::string> text;
  std::vector<TokenId> ids;
  bool json = false;
};

// Loads a tokenizer from its file or from a run folder.
Tokenizer load_tokenizer(const std::string& path) {
  return Tokenizer::load(folder_exists(path) ? path + "/tokenizer.json" : path);
}

void train(const TrainOptions& options) {
  BpeTrainOptions bpe;
  bpe.kind = tokenizer_kind(options.kind);
  bpe.vocab_size = options.vocab;
  bpe.min_frequency = options.min_frequency;
  bpe.log = terminal_log();
  CorpusReader corpus(options.corpus);
  const Tokenizer tokenizer = train_bpe(bpe, corpus);
  tokenizer.save(options.out);
  if (options.json)
    print_json({{"tokenizer", options.out},
                {"kind", options.kind},
                {"vocab", tokenizer.vocab_size()},
                {"documents", corpus.documents()},
                {"bytes", corpus.bytes()}});
  else
    fmt::print("{}: {} tokens, trained on {} documents ({})\n", options.out, tokenizer.vocab_size(), corpus.documents(),
               format_bytes(static_cast<double>(corpus.bytes())));
}

void encode(const CodeOptions& options) {
  const Tokenizer tokenizer = load_tokenizer(options.tokenizer);
  std::vector<std::string> texts = options.text;
  if (!options.file.empty()) texts.push_back(read_file(options.file));
  if (texts.empty()) texts.push_back(standard_input());
  nlohmann::json list = nlohmann::json::array();
  for (const std::string& text : texts) {
    std::vector<TokenId> ids;
    std::vector<std::uint32_t> lengths;
    tokenizer.encode(text, ids, lengths);
    if (options.json) {
      nlohmann::json tokens = nlohmann::json::array();
      for (const TokenId id : ids) tokens.push_back(tokenizer.token(id));
      list.push_back({{"text", text}, {"ids", ids}, {"tokens", tokens}, {"bytes", lengths}});
    } else {
      fmt::print("{}\n", fmt::join(ids, " "));
    }
  }
  if (options.json) print_json({{"encodings", list}});
}

void decode(const CodeOptions& options) {
  const Tokenizer tokenizer = load_tokenizer(options.tokenizer);
  std::vector<TokenId> ids = options.ids;
  if (ids.empty()) {
    std::string word;
    for (std::istringstream words(standard_input()); words >> word;) {
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), ids.emplace_back());
      if (error != std::errc() || end != word.data() + word.size())
        bad_input(Code::token_invalid, "'{}' is not a token id: must be integers separated by spaces",
                  shortened(word, 40));
    }
  }
  const std::string text = tokenizer.decode(ids);
  if (options.json)
    print_json({{"text", text}, {"ids", ids}});
  else
    fmt::print("{}\n", text);
}

void set_up_tokenizer_train(Command& command) {
  auto options = std::make_shared<TrainOptions>();
  command.add_option("FILES", options->corpus.paths, "text, JSON lines, or folders of them")->required();
  command.add_option("--kind", options->kind, "bytelevel (lossless) or whitespace (as the published runs)")
      ->capture_default_str();
  command.add_option("--vocab", options->vocab, "size of the vocabulary")->range(1, 1048576)->capture_default_str();
  command.add_option("--min-frequency", options->min_frequency, "minimum number of occurrences of a merged pair")
      ->capture_default_str();
  command
      .add_option("--separator", options->corpus.separator,
                  "separator line between documents; \"\" = one document per file")
      ->capture_default_str();
  command.add_option("--field", options->corpus.field, "text field of JSON lines")->capture_default_str();
  command.add_option("--max-documents", options->corpus.limit, "maximum number of documents, from the first");
  command.add_option("-o,--out", options->out, "tokenizer.json to write")->required();
  command.add_json(options->json);
  command.callback([options] { train(*options); });
}

void set_up_tokenizer_encode(Command& command) {
  auto options = std::make_shared<CodeOptions>();
  command.add_option("TEXT", options->text, "texts");
  command.add_option("--file", options->file, "file read as one text");
  command.add_option("--tokenizer", options->tokenizer, "tokenizer.json, or a run folder")->required();
  command.add_json(options->json);
  command.callback([options] { encode(*options); });
}

void set_up_tokenizer_decode(Command& command) {
  auto options = std::make_shared<CodeOptions>();
  command.add_option("IDS", options->ids, "token ids");
  command.add_option("--tokenizer", options->tokenizer, "tokenizer.json, or a run folder")->required();
  command.add_json(options->json);
  command.callback([options] { decode(*options); });
}

}  // namespace

CommandSpec tokenizer_command() {
  return {
      .name = "tokenizer",
      .group = CommandGroup::text,
      .summary = "train and use tokenizers (Hugging Face tokenizer.json)",
      .subcommands = {{
                          .name = "train",
                          .summary = "train a byte-pair vocabulary on text",
                          .examples = {{"tokenizer train --vocab 1024 mine.txt -o tokenizer.json", ""}},
                          .json = "the result",
                          .set_up = set_up_tokenizer_train,
                      },
                      {
                          .name = "encode",
                          .summary = "convert text to ids (without TEXT or --file: standard input)",
                          .examples = {{"tokenizer encode --tokenizer runs/tiny \"Once upon a time\"",
                                        "the tokenizer of a run folder"}},
                          .json = "the result",
                          .set_up = set_up_tokenizer_encode,
                      },
                      {
                          .name = "decode",
                          .summary = "convert ids to text (without IDS: standard input)",
                          .examples = {{"tokenizer decode --tokenizer runs/tiny 80 81 82", ""}},
                          .json = "the result",
                          .set_up = set_up_tokenizer_decode,
                      }},
  };
}

}  // namespace some

#include "cli/show.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/terminal.h"
#include "core/escape.h"

namespace some {

std::string shown_token(const Tokenizer& tokenizer, TokenId token) {
  const std::string bytes(tokenizer.token_bytes(token));
  return tokenizer.kind() == TokenizerKind::whitespace ? " " + bytes : bytes;
}

std::string visible(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) {
    if (c == ' ')
      out += "·";
    else if (c == '\n')
      out += "↵";
    else if (static_cast<unsigned char>(c) < 32)
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out;
}

std::string padded(const std::string& text, std::size_t width) {
  const std::size_t has = display_width(text);
  return has < width ? text + std::string(width - has, ' ') : text;
}

std::string format_rate(std::size_t tokens, double seconds) {
  const std::string count = fmt::format("{} token{}", tokens, tokens == 1 ? "" : "s");
  return tokens == 0 || seconds <= 0 ? count
                                     : fmt::format("{}, {:.{}f} tokens/s", count, static_cast<double>(tokens) / seconds,
                                                   static_cast<double>(tokens) / seconds < 10 ? 1 : 0);
}

namespace {

std::string described(const TokenSource& source) {
  const Passage& passage = source.passage;
  return fmt::format("{:>3.0f}% {}, {} at {}: {}[{}]{}", 100 * source.share,
                     source.is_context()
                         ? fmt::format("context of {} token{}, seen {} time{}", source.context_tokens,
                                       source.context_tokens == 1 ? "" : "s", source.seen, source.seen == 1 ? "" : "s")
                         : "slot",
                     escaped(passage.text), passage.offset, escaped(visible(passage.before)),
                     escaped(visible(passage.token)), escaped(visible(passage.after)));
}

}  // namespace

void print_sources(const std::vector<SourcedToken>& tokens) {
  constexpr std::size_t max_columns = 24;
  constexpr double least_share = 0.01;
  std::size_t widest = 5;
  for (const SourcedToken& one : tokens) widest = std::max(widest, display_width(escaped(visible(one.text))));
  widest = std::min(widest, max_columns);
  fmt::print(
      "share of model, slots and contexts in the probability of each token, and the largest source of each kind\n");
  fmt::print("{:>4}  {}  {:>6}  {:>5}  {:>5}  {:>8}  source\n", "", padded("token", widest), "prob.", "model", "slots",
             "contexts");
  for (const SourcedToken& one : tokens) {
    const TokenSources& from = one.sources;
    std::string line = fmt::format("{:>4}  {}  {:>6.3f}  {:>4.0f}%  {:>4.0f}%  {:>7.0f}%", one.index,
                                   padded(escaped(visible(one.text)), widest), from.probability, 100 * from.model(),
                                   100 * from.slots, 100 * from.contexts);
    const std::size_t columns = display_width(line);
    bool first = true;
    for (const bool context : {false, true}) {
      const auto found = std::find_if(from.passages.begin(), from.passages.end(), [&](const TokenSource& source) {
        return source.is_context() == context && source.share >= least_share;
      });
      if (found == from.passages.end()) continue;
      line += first ? "  " : "\n" + std::string(columns + 2, ' ');
      line += described(*found);
      first = false;
    }
    fmt::print("{}\n", line);
  }
}

void add_sampling_flags(Command& command, GenerateOptions& options) {
  command.add_option("--temperature", options.temperature, "sampling temperature; 0 = always the most likely token")
      ->capture_default_str();
  command.add_option("--top-k", options.top_k, "number of most likely tokens to sample from; 0 = all")
      ->capture_default_str();
  command.add_option("--top-p", options.top_p, "total probability of the most likely tokens to sample from; 1 = all")
      ->capture_default_str();
  command.add_option("--min-p", options.min_p, "minimum probability of a token, as a fraction of the largest; 0 = off")
      ->capture_default_str();
  command
      .add_option("--repetition-penalty", options.repetition_penalty,
                  "divisor of the logits of tokens that occur in the prompt or the new text; 1 = off")
      ->capture_default_str();
  command
      .add_option("--presence-penalty", options.presence_penalty,
                  "penalty on the logit of every token that occurs in the new text; 0 = off")
      ->capture_default_str();
  command
      .add_option("--frequency-penalty", options.frequency_penalty,
                  "penalty on the logit per occurrence in the new text; 0 = off")
      ->capture_default_str();
  command.add_option("--stop", options.stop_strings, "stop string, at which the text ends; repeatable")
      ->allow_extra_args(false);
  command.add_option("--seed", options.seed, "sampling seed")->capture_default_str();
  command.add_option("-n,--max-tokens", options.max_tokens, "maximum number of new tokens")->capture_default_str();
  command.add_flag("--half-weights", options.half_weights,
                   "on the CPU: weights in bf16, half the memory traffic; the text may differ");
  command.add_flag_callback(
      "--ignore-eos", [&options] { options.stop_at_eos = false; }, "do not stop at the end-of-text token");
}

}  // namespace some

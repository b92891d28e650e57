#include "compress/text_mixer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "compress/logistic.h"
#include "core/error.h"

namespace some {

namespace {

constexpr int longest_order = 6;
constexpr int byte_contexts = longest_order + 4;  // orders 0 to 6, word, two words, sparse
constexpr int token_contexts = 3;                 // the last one to three tokens
constexpr int kinds = 3;                          // bits of a token's first byte, of later bytes, end of the token
constexpr int end_kind = 2;
constexpr int inputs_of_match = 2, inputs_of_distribution = 2;
constexpr int shortest_match = 5, match_hash_bytes = 6;
#ifdef SOME_SMALL_TABLES  // for fuzzing: thousands of mixers per second
constexpr int match_table_bits = 8, smallest_table_bits = 5;
#else
constexpr int match_table_bits = 20, smallest_table_bits = 12;
#endif
constexpr int match_classes = 32, calibration_classes = 33, calibration_limit = 250;
constexpr std::int32_t calibration_step = 2 * max_log_odds / (calibration_classes - 1);

constexpr std::uint64_t multiplier = 0x2545F4914F6CDD1Dull;

std::uint64_t combine(std::uint64_t hash, std::uint64_t next) {
  hash = (hash + next + 1) * multiplier;
  return hash ^ hash >> 31;
}

bool is_letter(unsigned char byte) { return ((byte | 32) >= 'a' && (byte | 32) <= 'z') || byte >= 128; }

int match_class(std::uint32_t length) {
  const int n = static_cast<int>(std::min<std::uint32_t>(length, 400));
  return n < 16 ? n : n < 32 ? 16 + (n - 16) / 4 : std::min(20 + (n - 32) / 32, match_classes - 1);
}

// Moves a probability towards an outcome, by 1 / (n + 1.5) for the first decisions.
void learn(std::uint16_t& probability, std::uint16_t& seen, bool one, int limit) {
  const int goal = one ? 65535 : 0;
  probability = static_cast<std::uint16_t>(probability + (goal - probability) * 2 / (2 * seen + 3));
  probability = std::clamp<std::uint16_t>(probability, 1, 65535);
  if (seen < limit) ++seen;
}

MixerSettings mixer_settings(bool byte_tree, std::uint64_t length, int distributions) {
  MixerSettings settings;
  settings.contexts = byte_contexts + (byte_tree ? 0 : token_contexts);
  // A byte takes about eight decisions, many of them in contexts seen before.
  settings.table_bits = smallest_table_bits;
  while (settings.table_bits < 22 && (std::uint64_t{1} << settings.table_bits) < 4 * length) ++settings.table_bits;
  settings.kinds = kinds;
  settings.extra = inputs_of_match + inputs_of_distribution * distributions;
  settings.selectors = {512 + 16, 8 * 9, 256 * kinds, 16 * kinds};
  settings.final_selector = 512 + 16;
  settings.refining_context = 2;  // two bytes
  return settings;
}

}  // namespace

TextMixer::TextMixer(const TokenTree& tree, std::vector<std::uint64_t> parts, int distributions)
    : tree_(tree),
      distributions_(distributions),
      byte_tree_(tree.size() == 256),
      text_(parts.back(), '\0'),
      ends_(parts.back(), 0),
      match_table_(std::size_t{1} << match_table_bits, 0),
      match_history_(match_classes * kinds, {32768, 0}),
      calibrations_(static_cast<std::size_t>(distributions * kinds * calibration_classes)),
      mixer_(mixer_settings(byte_tree_, parts.back(), distributions)) {
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    Part part;
    part.begin = part.at = parts[i];
    part.end = parts[i + 1];
    parts_.push_back(part);
  }
  for (std::size_t i = 0; i < calibrations_.size(); ++i) {
    const int bucket = static_cast<int>(i % calibration_classes);
    calibrations_[i] = {static_cast<std::uint16_t>(squash(bucket * calibration_step - max_log_odds)), 6};
  }
}

std::uint64_t TextMixer::coded_bytes() const {
  std::uint64_t all = 0;
  for (const Part& part : parts_) all += part.at - part.begin;
  return all;
}

void TextMixer::append(Part& part, unsigned char byte) {
  if (part.at == part.end)
    bad_input(Code::compressed_invalid,
              "the compressed data is damaged: it decodes to more bytes than the original had");
  text_[part.at] = static_cast<char>(byte);
  if (part.match < part.match_end && static_cast<unsigned char>(text_[part.match]) == byte) {
    ++part.match;
    ++part.match_length;
  } else {
    part.match = part.match_end = 0;
    part.match_length = 0;
  }
  ++part.at;
  if (is_letter(byte)) {
    part.word = combine(part.word, byte >= 128 ? byte : byte | 32);
  } else if (part.word != 0) {
    part.previous_word = part.word;
    part.word = 0;
  }
  find_match(part);
}

void TextMixer::find_match(Part& part) {
  if (part.at < part.begin + match_hash_bytes) return;
  std::uint64_t hash = 0;
  for (std::uint64_t i = 1; i <= match_hash_bytes; ++i) hash = combine(hash, byte_before(part, i));
  std::uint32_t& last = match_table_[hash >> (64 - match_table_bits)];
  if (part.match == part.match_end && last != 0) {
    const std::uint64_t place = last;
    const auto holder = std::upper_bound(parts_.begin(), parts_.end(), place - 1,
                                         [](std::uint64_t at, const Part& one) { return at < one.end; });
    std::uint32_t length = 0;
    while (length < 32 && place - length > holder->begin && part.at - length > part.begin &&
           text_[place - length - 1] == text_[part.at - length - 1])
      ++length;
    if (length >= shortest_match && place < holder->at) {
      part.match = place;
      part.match_length = length;
      part.match_part = static_cast<std::uint32_t>(holder - parts_.begin());
    }
  }
  if (part.match_length > 0) part.match_end = std::max(part.match, parts_[part.match_part].at);
  if (part.match >= part.match_end) {
    part.match = part.match_end = 0;
    part.match_length = 0;
  }
  last = static_cast<std::uint32_t>(part.at);
}

void TextMixer::begin_byte(const Part& part) {
  std::uint64_t hash = 0;
  byte_context_[0] = 0;
  for (int order = 1; order <= longest_order; ++order) {
    hash = combine(hash, byte_before(part, static_cast<std::uint64_t>(order)));
    byte_context_[order] = combine(hash, static_cast<std::uint64_t>(order));
  }
  byte_context_[longest_order + 1] = combine(part.word, 100);
  byte_context_[longest_order + 2] = combine(combine(part.word, part.previous_word), 101);
  byte_context_[longest_order + 3] = combine(combine(byte_before(part, 2), byte_before(part, 3)), 102);
  if (byte_tree_) return;
  std::uint64_t tokens = 0;
  for (int i = 0; i < token_contexts; ++i) {
    tokens = combine(tokens, static_cast<std::uint64_t>(part.tokens[i] + 1));
    byte_context_[byte_contexts + i] = combine(tokens, static_cast<std::uint64_t>(200 + i));
  }
}

void TextMixer::set_contexts(const Part&, const TokenTree::Node& node, TokenTree::Question question) {
  const int kind = question == TokenTree::Question::end ? end_kind : node.depth == 0 ? 0 : 1;
  const std::uint64_t at = static_cast<std::uint64_t>(question == TokenTree::Question::end ? 0 : node.partial) +
                           static_cast<std::uint64_t>(byte_tree_ ? 0 : kind) * 256;
  for (int i = 0; i < byte_contexts; ++i) context_[i] = byte_context_[i] + at * 0xD6E8FEB86659FD93ull;
  if (byte_tree_) return;
  const std::uint64_t place =
      combine(combine(static_cast<std::uint64_t>(node.low), static_cast<std::uint64_t>(node.high)),
              static_cast<std::uint64_t>(node.depth * 16 + node.bits_left));
  for (int i = byte_contexts; i < byte_contexts + token_contexts; ++i)
    context_[i] = byte_context_[i] + place + (kind == end_kind ? 1 : 0);
}

int TextMixer::code_token(std::size_t index, std::span<const WeightSums> distributions, DecisionCoder& coder) {
  Part& part = parts_[index];
  TokenTree::Node node = tree_.root();
  std::int32_t extra[inputs_of_match + 8 * inputs_of_distribution];
  Calibration* low_calibration[8];
  Calibration* high_calibration[8];
  bool match_agrees = true;
  if (part.match_length > 0) part.match_end = std::max(part.match, parts_[part.match_part].at);
  begin_byte(part);
  for (;;) {
    const TokenTree::Decision decision = tree_.next(node, [&](unsigned char byte) {
      append(part, byte);
      begin_byte(part);
      match_agrees = true;
    });
    if (decision.question == TokenTree::Question::none) break;
    const bool asks_end = decision.question == TokenTree::Question::end;
    const int kind = asks_end ? end_kind : node.depth == 0 ? 0 : 1;
    set_contexts(part, node, decision.question);

    // Input from the longest match: the bit of the expected byte, or whether a token ended there.
    int match_bit = -1, length_class = 0;
    if (part.match < part.match_end) {
      if (asks_end) {
        match_bit = ends_[part.match - 1] != 0 ? 0 : 1;
      } else {
        const int expected = static_cast<unsigned char>(text_[part.match]) | 256;
        if (expected >> node.bits_left == node.partial) match_bit = expected >> (node.bits_left - 1) & 1;
      }
      if (match_bit >= 0 && match_agrees) length_class = match_class(part.match_length);
      if (length_class == 0) match_bit = -1;
    }
    Calibration* match_history = nullptr;
    extra[0] = extra[1] = 0;
    if (match_bit >= 0) {
      match_history = &match_history_[static_cast<std::size_t>(length_class * kinds + kind)];
      const std::int32_t odds = stretch(match_history->probability), lean = (match_history->probability - 32768) >> 5;
      extra[0] = match_bit == 1 ? odds : -odds;
      extra[1] = match_bit == 1 ? lean : -lean;
    }

    int confidence = 0;
    for (int d = 0; d < distributions_; ++d) {
      const WeightSums& sums = distributions[static_cast<std::size_t>(d)];
      const std::uint64_t low = sums[static_cast<std::size_t>(node.low)];
      const std::uint64_t all = sums[static_cast<std::size_t>(node.high)] - low;
      const std::uint64_t zeros = sums[static_cast<std::size_t>(decision.split)] - low;
      const auto p = std::clamp<std::uint64_t>(((all - zeros) << 16) / all, 1, 65535);
      const std::int32_t odds = stretch(static_cast<std::uint32_t>(p));
      const std::int32_t at = odds + max_log_odds, bucket = std::min(at / calibration_step, calibration_classes - 2);
      const std::int32_t part_above = std::min(at - bucket * calibration_step, calibration_step);
      low_calibration[d] = &calibrations_[static_cast<std::size_t>((d * kinds + kind) * calibration_classes + bucket)];
      high_calibration[d] = low_calibration[d] + 1;
      const std::int32_t calibrated = (low_calibration[d]->probability * (calibration_step - part_above) +
                                       high_calibration[d]->probability * part_above) /
                                      calibration_step;
      extra[inputs_of_match + inputs_of_distribution * d] = odds;
      extra[inputs_of_match + inputs_of_distribution * d + 1] =
          stretch(static_cast<std::uint32_t>(std::clamp(calibrated, 1, 65535)));
      if (part_above * 2 > calibration_step) std::swap(low_calibration[d], high_calibration[d]);
      if (d == 0) confidence = std::min(15, std::abs(odds) / 160);
    }

    const int place = asks_end ? 512 + std::min(node.depth, 15) : node.partial + (kind == 1 ? 256 : 0);
    const int selected[4] = {place, std::min(7, (length_class + 3) / 4) * 9 + (asks_end ? 8 : node.bits_left - 1),
                             byte_before(part, 1) * kinds + kind, confidence * kinds + kind};
    const auto extras = static_cast<std::size_t>(inputs_of_match + inputs_of_distribution * distributions_);
    const auto contexts = static_cast<std::size_t>(byte_contexts + (byte_tree_ ? 0 : token_contexts));
    const std::uint32_t p = mixer_.predict({{context_, contexts}, {extra, extras}, selected, kind, place});
    const bool one = coder.code(p, decision.split);
    mixer_.update(one);
    if (match_history != nullptr) {
      const bool hit = one == (match_bit == 1);
      learn(match_history->probability, match_history->seen, hit, calibration_limit);
      if (!hit) match_agrees = false;
    }
    for (int d = 0; d < distributions_; ++d)
      learn(low_calibration[d]->probability, low_calibration[d]->seen, one, calibration_limit);
    TokenTree::take(node, decision, one);
  }
  ends_[part.at - 1] = 1;
  for (int i = token_contexts - 1; i > 0; --i) part.tokens[i] = part.tokens[i - 1];
  part.tokens[0] = node.low;
  return node.low;
}

std::vector<StateField> TextMixer::state() {
  const auto field = [](const char* name, auto& list) {
    return StateField{name, list.data(), list.size() * sizeof(list[0])};
  };
  std::vector<StateField> fields = mixer_.state();
  fields.push_back(field("text", text_));
  fields.push_back(field("ends", ends_));
  fields.push_back(field("parts", parts_));
  fields.push_back(field("match_table", match_table_));
  fields.push_back(field("match_history", match_history_));
  fields.push_back(field("calibrations", calibrations_));
  return fields;
}

bool TextMixer::state_valid(const std::vector<std::uint64_t>& parts) const {
  const std::uint64_t length = text_.size();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    if (part.begin != parts[i] || part.end != parts[i + 1] || part.at < part.begin || part.at > part.end) return false;
    if (part.match > length || part.match_end > length || part.match_part >= parts_.size()) return false;
    if (part.match == 0 && part.match_end > 0) return false;  // a match continues after at least one byte
    for (const std::int32_t token : part.tokens) {
      if (token < -1 || token >= tree_.size()) return false;
    }
  }
  return mixer_.state_valid() && std::all_of(match_table_.begin(), match_table_.end(),
                                             [length](std::uint32_t position) { return position <= length; });
}

}  // namespace some

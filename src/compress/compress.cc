#include "compress/compress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "compress/binary_coder.h"
#include "compress/model_predictor.h"
#include "compress/saved_state.h"
#include "compress/text_mixer.h"
#include "core/error.h"
#include "core/files/files.h"
#include "memory/memory.h"

namespace some {

namespace {

constexpr std::uint64_t bytes_per_part = 16384;
constexpr int max_default_parts = 8;

class Encoder final : public DecisionCoder {
 public:
  bool code(std::uint32_t probability, int split) override {
    const bool one = place >= split;
    coder.encode(one, probability);
    return one;
  }
  int place = 0;
  BinaryEncoder coder;
};

class Decoder final : public DecisionCoder {
 public:
  explicit Decoder(std::string_view bytes) : coder(bytes) {}
  bool code(std::uint32_t probability, int) override { return coder.decode(probability); }
  BinaryDecoder coder;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Splits a text into parts of about equal size, preferably at the end of a line or a word.
std::vector<std::uint64_t> cut(std::string_view text, int parts) {
  std::vector<std::uint64_t> borders = {0};
  for (int i = 1; i < parts; ++i) {
    const std::uint64_t from = std::max<std::uint64_t>(
        text.size() * static_cast<std::uint64_t>(i) / static_cast<std::uint64_t>(parts), borders.back());
    const std::string_view near = text.substr(from, 256);
    std::size_t end = near.find('\n');
    if (end == std::string_view::npos) end = near.find(' ');
    borders.push_back(from + (end == std::string_view::npos || near[end] == ' ' ? 0 : end + 1));
    if (end != std::string_view::npos && near[end] == ' ') borders.back() += end;
  }
  borders.push_back(text.size());
  return borders;
}

int default_parts(std::uint64_t bytes) {
  return static_cast<int>(std::clamp<std::uint64_t>(bytes / bytes_per_part, 1, max_default_parts));
}

// The text being coded or decoded, part by part.
class Work {
 public:
  Work(OpenedRun* run, const CompressedHeader& header, const CompressOptions& options, CompressReport& report)
      : options_(options), report_(report), header_(header) {
    if (run != nullptr && header.mode == CompressionMode::model) {
      tree_ = TokenTree(run->tokenizer);
      predictor_.emplace(*run->model, run->tokenizer, tree_, parts());
    }
    mixer_.emplace(tree_, header.parts, predictor_ ? ModelPredictor::distributions : 0);
    report.parts = parts();
    read_.assign(static_cast<std::size_t>(parts()), 0);
  }

  const TokenTree& tree() const { return tree_; }
  TextMixer& mixer() { return *mixer_; }

  // next(part, number): called before each token of a part. matches(part, read, coded): whether a restored part, of
  // which `read` tokens were read and `coded` coded, fits the input. Returns false if it was interrupted.
  template <typename Coder, typename Next, typename Matches>
  bool run(Coder& coder, std::uint64_t key, std::string* output, Next&& next, Matches&& matches) {
    std::string memory;
    SavedState state{coder.coder.state(), {output, &memory}};
    for (StateField& field : mixer_->state()) state.fields.push_back(std::move(field));
    if (predictor_ && !options_.state.empty())
      for (StateField& field : predictor_->state()) state.fields.push_back(std::move(field));
    state.fields.push_back({"read", read_.data(), read_.size() * sizeof(read_[0])});
    state.fields.push_back({"tokens", &report_.tokens, sizeof(report_.tokens)});
    state.fields.push_back({"model_bytes", &report_.model_bytes, sizeof(report_.model_bytes)});
    if (!options_.state.empty() && restore_state(options_.state, key, state)) {
      // The file's hash is no secret: every position and size is checked before anything is read or written there.
      bool valid = coder.coder.state_valid() && mixer_->state_valid(header_.parts) &&
                   (!predictor_ || predictor_->state_valid()) && report_.tokens >= 0 &&
                   report_.tokens <= static_cast<std::int64_t>(header_.length) && report_.model_bytes >= 0 &&
                   report_.model_bytes <= 64.0 * static_cast<double>(header_.length);
      for (std::size_t part = 0; valid && part < read_.size(); ++part) {
        const std::string_view coded(mixer_->text().data() + header_.parts[part], mixer_->coded_bytes(part));
        valid = read_[part] <= coded.size() && matches(part, read_[part], coded);
      }
      if (!valid) state_damaged(options_.state);
      if (predictor_) predictor_->restore_memory(memory, options_.state);
      report_.resumed_at = mixer_->coded_bytes();
    }
    auto saved = std::chrono::steady_clock::now();
    std::vector<int> active;
    std::vector<std::vector<WeightSums>> predictions;
    for (std::uint64_t round = 0;; ++round) {
      active.clear();
      for (int part = 0; part < parts(); ++part) {
        if (!mixer_->done(static_cast<std::size_t>(part))) active.push_back(part);
      }
      if (active.empty()) return true;
      if (predictor_ || round % 256 == 0) {
        const std::uint64_t done = mixer_->coded_bytes();
        if (options_.progress) options_.progress(done, header_.length);
        const bool stop = options_.stop && options_.stop();
        if (!options_.state.empty() && (stop || seconds_since(saved) >= options_.state_seconds)) {
          if (predictor_) memory = predictor_->memory();
          save_state(options_.state, key, state);
          saved = std::chrono::steady_clock::now();
        }
        if (stop) return false;
      }
      if (predictor_) predictor_->predict(active, predictions);
      for (std::size_t i = 0; i < active.size(); ++i) {
        const auto part = static_cast<std::size_t>(active[i]);
        next(part, read_[part]++);
        const std::span<const WeightSums> given =
            predictor_ ? std::span<const WeightSums>(predictions[i]) : std::span<const WeightSums>();
        const int place = mixer_->code_token(part, given, coder);
        if (!predictor_) continue;
        predictor_->append(active[i], place);
        ++report_.tokens;
        const WeightSums& sums = given[0];
        const auto at = static_cast<std::size_t>(place);
        report_.model_bytes +=
            std::log2(static_cast<double>(sums.back()) / static_cast<double>(sums[at + 1] - sums[at])) / 8;
      }
    }
  }

 private:
  int parts() const { return static_cast<int>(header_.parts.size()) - 1; }

  const CompressOptions& options_;
  CompressReport& report_;
  const CompressedHeader& header_;
  TokenTree tree_;
  std::optional<ModelPredictor> predictor_;
  std::optional<TextMixer> mixer_;
  std::vector<std::uint64_t> read_;  // number of tokens of each part
};

std::uint64_t key_of(const CompressedHeader& header, const char* direction) {
  const std::string bytes = write_compressed(header, direction);
  return hash_bytes(bytes.data(), bytes.size());
}

void check_state(const CompressOptions& options, const OpenedRun* run) {
  if (options.state.empty() || run == nullptr || run->ctx->device.is_cpu()) return;
  bad_input(Code::option_conflict, "--state works on the CPU only; add --device cpu");
}

void check_model(const CompressedHeader& header, OpenedRun* run, const TokenTree& tree, const std::string& where) {
  const std::string model = fingerprint(*run->model, run->tokenizer);
  if (model != header.model)
    bad_input(Code::compressed_mismatch,
              "{} was compressed with another model or tokenizer (fingerprint {}, not {}): pass the run and the "
              "checkpoint it was compressed with",
              where, header.model, model);
  const std::string arithmetic = describe_arithmetic(*run->ctx);
  if (arithmetic != header.arithmetic)
    bad_input(
        Code::compressed_mismatch,
        "{} was compressed with the arithmetic \"{}\", and this process computes with \"{}\": decompress it on such "
        "a machine (--device chooses the device, SOME_CPU=x86-64 the baseline version of the CPU code)",
        where, header.arithmetic, arithmetic);
  if (probe_arithmetic(*run->model, run->tokenizer, tree, static_cast<int>(header.parts.size()) - 1) != header.probe)
    bad_input(
        Code::compressed_mismatch,
        "{}: the model's predictions for a test text are not bit-identical to those of the machine that compressed "
        "it; decompress it with the same program on the same kind of machine",
        where);
}

}  // namespace

std::string compress_text(OpenedRun* run, std::string_view text, const CompressOptions& options,
                          CompressReport& report) {
  const auto start = std::chrono::steady_clock::now();
  report.bytes = text.size();
  if (text.size() > max_compressed_bytes)
    bad_input(Code::text_too_long, "the file has {} bytes; the limit is {}; split it", text.size(),
              max_compressed_bytes);
  check_state(options, run);
  CompressedHeader header;
  header.mode = run != nullptr ? CompressionMode::model : CompressionMode::portable;
  header.length = text.size();
  header.checksum = checksum_of(text.data(), text.size());
  header.parts = cut(text, options.parts > 0 ? options.parts : run != nullptr ? default_parts(text.size()) : 1);
  std::vector<std::vector<TokenId>> tokens;
  if (run != nullptr) {
    const TokenTree tree(run->tokenizer);
    header.model = fingerprint(*run->model, run->tokenizer);
    header.arithmetic = describe_arithmetic(*run->ctx);
    header.probe = probe_arithmetic(*run->model, run->tokenizer, tree, static_cast<int>(header.parts.size()) - 1);
    for (std::size_t i = 0; i + 1 < header.parts.size(); ++i) {
      const std::string_view part = text.substr(header.parts[i], header.parts[i + 1] - header.parts[i]);
      tokens.push_back(run->tokenizer.encode(part, {.specials = false}));
      if (run->tokenizer.decode(tokens.back()) != part)
        failed(Code::internal,
               "internal error: the tokenizer does not preserve this text; use --portable, and please report it");
    }
  }
  Work work(run, header, options, report);
  Encoder encoder;
  if (text.empty()) {
    header.mode = CompressionMode::stored;
  } else {
    const auto next = [&](std::size_t part, std::uint64_t number) {
      encoder.place = run == nullptr ? static_cast<unsigned char>(text[header.parts[part] + number])
                                     : work.tree().place(tokens[part][number]);
    };
    const auto matches = [&](std::size_t part, std::uint64_t read, std::string_view coded) {
      if (text.substr(header.parts[part], coded.size()) != coded) return false;
      if (run == nullptr) return read == coded.size();
      const std::span<const TokenId> all = tokens[part];
      return read <= all.size() && run->tokenizer.decode(all.first(read)).size() == coded.size();
    };
    const bool finished = work.run(encoder, key_of(header, "compress"), &encoder.coder.bytes(), next, matches);
    if (!finished) {
      report.stopped = true;
      report.seconds = seconds_since(start);
      return "";
    }
    encoder.coder.finish();
  }
  std::string file = write_compressed(header, encoder.coder.bytes());
  CompressedHeader stored = header;
  stored.mode = CompressionMode::stored;
  if (std::string plain = write_compressed(stored, text); plain.size() <= file.size()) {
    file = std::move(plain);
    header = stored;
  }
  report.mode = header.mode;
  report.compressed = file.size();
  report.header =
      header.mode == CompressionMode::stored ? file.size() - text.size() : file.size() - encoder.coder.bytes().size();
  report.seconds = seconds_since(start);
  return file;
}

std::string decompress_text(OpenedRun* run, std::string_view file, const std::string& where,
                            const CompressOptions& options, CompressReport& report) {
  const auto start = std::chrono::steady_clock::now();
  const CompressedFile parsed = parse_compressed(file, where);
  const CompressedHeader& header = parsed.header;
  report.mode = header.mode;
  report.bytes = header.length;
  report.compressed = file.size();
  report.header = parsed.header_bytes;
  if (header.mode == CompressionMode::stored) {
    report.seconds = seconds_since(start);
    return std::string(parsed.payload);
  }
  if (header.mode == CompressionMode::model && run == nullptr)
    bad_input(Code::argument_missing, "{} was compressed with a model (fingerprint {}); pass its run", where,
              header.model);
  if (header.mode != CompressionMode::model) run = nullptr;
  check_state(options, run);
  if (run != nullptr) check_model(header, run, TokenTree(run->tokenizer), where);
  Work work(run, header, options, report);
  Decoder decoder(parsed.payload);
  std::string no_output;
  if (!work.run(
          decoder, key_of(header, "decompress"), &no_output, [](std::size_t, std::uint64_t) {},
          [](std::size_t, std::uint64_t, std::string_view) { return true; })) {
    report.stopped = true;
    report.seconds = seconds_since(start);
    return "";
  }
  std::string text = std::move(work.mixer().text());
  const bool same = checksum_of(text.data(), text.size()) == header.checksum;
  if (!same && report.resumed_at > 0)
    bad_input(Code::compressed_invalid,
              "{}: the decoded text does not have the checksum of the original; it was continued from {}, whose state "
              "may be wrong: remove that file to start over",
              where, options.state);
  if (!same)
    bad_input(Code::compressed_invalid,
              "{}: the decoded text does not have the checksum of the original, although the file is undamaged: this "
              "program or machine computes different numbers than the one that compressed it",
              where);
  report.seconds = seconds_since(start);
  return text;
}

nlohmann::json to_json(const CompressReport& report) {
  nlohmann::json json = {{"mode", name_of(report.mode)},
                         {"bytes", report.bytes},
                         {"compressed_bytes", report.compressed},
                         {"header_bytes", report.header},
                         {"bits_per_byte", report.bits_per_byte()},
                         {"parts", report.parts},
                         {"resumed_at", report.resumed_at},
                         {"seconds", report.seconds},
                         {"stopped", report.stopped}};
  if (report.mode == CompressionMode::model) {
    json["tokens"] = report.tokens;
    json["model_bytes"] = report.model_bytes;
  }
  return json;
}

}  // namespace some

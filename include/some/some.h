// SoME as a C++ library: opens a trained run, generates text, evaluates, and trains. This header requires only C++17
// and the standard library; link with find_package(some) and some::some. The API is stable within version 1 (namespace
// some::v1); a breaking change gets a new version.
//
//   some::Run run("runs/tiny");
//   std::cout << run.generate("Once upon a time").text;
//
// Errors are thrown as some::Failure, whose one-line message states what is wrong, where, and what would be right.
// Nothing is printed. A Run must be used by one thread at a time; several Runs may be used concurrently.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace some {
inline namespace v1 {

class Failure : public std::runtime_error {
 public:
  Failure(const std::string& message, bool input, std::string code, std::vector<std::string> values);
  ~Failure() override;
  // True if the caller can correct the problem (a wrong path, setting or file); false if the work itself failed (a full
  // disk).
  bool input() const noexcept { return input_; }
  // For programs: the error code (a name in docs/errors.md, which stays the same when the message is reworded), and the
  // names, paths and numbers in the message.
  const std::string& code() const noexcept { return code_; }
  const std::vector<std::string>& values() const noexcept { return values_; }

 private:
  bool input_;
  std::string code_;
  std::vector<std::string> values_;
};

using TokenIds = std::vector<std::int32_t>;
using MessageSink = std::function<void(bool warning, const std::string& message)>;

struct RunOptions {
  std::string checkpoint = "latest";  // "latest", "best" or a step
  std::string device = "auto";        // "auto", "cpu", "cuda", "cuda:N"
  std::string precision;              // empty: the precision of training; "fp32", "bf16" (GPU), "f64" (CPU)
  int threads = 0;                    // 0: one per CPU
  MessageSink log;                    // receives warnings and information; empty: both are dropped
};

struct WriteOptions {
  double temperature = 0.8;  // 0: always the most likely token
  int top_k = 0;             // 0: all tokens
  double top_p = 1.0;        // 1: all tokens
  std::uint64_t seed = 0;    // the same seed gives the same text
  std::int64_t max_tokens = 200;
  bool stop_at_end = true;  // stop at the end-of-text token
  // Called with each new token and its bytes; return false to stop.
  std::function<bool(std::int32_t token, const std::string& bytes)> on_token;
  double min_p = 0.0;               // smallest probability of a token, as a fraction of the largest; 0: all tokens
  double repetition_penalty = 1.0;  // divides the logits of tokens in the prompt or the new text; 1: none
  double presence_penalty = 0.0;    // subtracted from the logits of tokens in the new text
  double frequency_penalty = 0.0;   // the same, times the number of occurrences
  std::vector<std::string> stop;    // the text ends before the first of these strings
};

struct WrittenText {
  std::string text;     // prompt and continuation
  TokenIds tokens;      // the new tokens
  std::string stopped;  // reason: "eos", "stop" (one of `stop`), "length" or "asked" (on_token returned false)
};

struct MeasuredLoss {
  double loss = 0;  // nats/token
  double perplexity = 0, bits_per_byte = 0;
  std::int64_t tokens = 0;  // predicted tokens
};

// A trained model.
class Run {
 public:
  explicit Run(const std::string& folder, const RunOptions& options = {});
  ~Run();
  Run(Run&&) noexcept;
  Run& operator=(Run&&) noexcept;

  std::int64_t step() const;  // training step of the checkpoint
  int vocabulary() const;     // vocabulary size in tokens
  int longest() const;        // context length in tokens (model.seq_len)
  TokenIds encode(const std::string& text) const;
  std::string decode(const TokenIds& ids) const;

  // Returns the logits of all positions in row-major order: ids.size() * vocabulary() numbers.
  std::vector<float> logits(const TokenIds& ids);
  WrittenText generate(const std::string& prompt, const WriteOptions& options = {});
  // Evaluates on the validation text of the run, or on a file, a folder or "builtin:DOMAIN"; at most `documents`
  // documents (0: all).
  MeasuredLoss evaluate(const std::string& data = "", std::int64_t max_documents = 0);

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

struct TrainingStep {
  std::int64_t step = 0, total_steps = 0;
  double loss = 0, learning_rate = 0, tokens_per_second = 0;
};

struct TrainingOptions {
  // Called after each step whose loss is known. Return false to finish the step, save, and return.
  std::function<bool(const TrainingStep&)> on_step;
  MessageSink log;
};

struct TrainedRun {
  std::int64_t steps = 0;
  bool finished = false;                   // false: stopped by on_step; resume_run() continues
  std::optional<MeasuredLoss> evaluation;  // the last one, if any
};

// Trains a recipe (a TOML file) into a new run folder. Each setting has the form "train.max_steps=100". If the recipe
// requests a memory, it is built at the end: FOLDER/memory.safetensors.
TrainedRun train_run(const std::string& recipe, const std::string& folder,
                     const std::vector<std::string>& settings = {}, const TrainingOptions& options = {});
// Continues from the last checkpoint, bit-identically; settings may extend the run.
TrainedRun resume_run(const std::string& folder, const std::vector<std::string>& settings = {},
                      const TrainingOptions& options = {});

std::string version();

}  // namespace v1
}  // namespace some

// SoME as a C++ library: open a trained run, let it write, evaluate it, train one. C++17 and the standard library are
// all this header needs; link with find_package(some) and some::some. What is here stays as it is within version 1
// (namespace some::v1); a change that breaks it gets another.
//
//   some::Run run("runs/tiny");
//   std::cout << run.generate("Once upon a time").text;
//
// Everything that goes wrong is thrown as some::Failure, in one line that says what, where, and what would be right.
// Nothing is printed. A Run is used by one thread at a time; several may be used at once.
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
  // Whether the caller can set it right (a wrong path, setting, or file) or the work itself failed (a full disk).
  bool input() const noexcept { return input_; }
  // What is wrong, for programs: a name of docs/errors.md, which stays when the message is worded better, and the
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
  std::string precision;              // empty: as trained; "fp32", "bf16" (GPU), "f64" (CPU)
  int threads = 0;                    // 0: one for each CPU
  MessageSink log;                    // warnings and remarks; none: they are dropped
};

struct WriteOptions {
  double temperature = 0.8;  // 0: always the likeliest token
  int top_k = 0;             // 0: all
  double top_p = 1.0;        // 1: all
  std::uint64_t seed = 0;    // the same seed writes the same text
  std::int64_t max_tokens = 200;
  bool stop_at_end = true;  // of the text
  // Told of each token as it comes, with the bytes it stands for; false: stop there.
  std::function<bool(std::int32_t token, const std::string& bytes)> on_token;
};

struct WrittenText {
  std::string text;     // prompt and continuation
  TokenIds tokens;      // the new ones
  std::string stopped;  // why: "eos", "length" or "asked"
};

struct MeasuredLoss {
  double loss = 0;  // nats a token
  double perplexity = 0, bits_per_byte = 0;
  std::int64_t tokens = 0;  // predicted
};

// A trained model.
class Run {
 public:
  explicit Run(const std::string& folder, const RunOptions& options = {});
  ~Run();
  Run(Run&&) noexcept;
  Run& operator=(Run&&) noexcept;

  std::int64_t step() const;  // of the checkpoint
  int vocabulary() const;     // tokens
  int longest() const;        // tokens that it reads at once (model.seq_len)
  TokenIds encode(const std::string& text) const;
  std::string decode(const TokenIds& ids) const;

  // Of every position, one row after another: ids.size() * vocabulary() numbers.
  std::vector<float> logits(const TokenIds& ids);
  WrittenText generate(const std::string& prompt, const WriteOptions& options = {});
  // On the run's validation text, or on a file, a folder or "builtin:DOMAIN"; at most so many documents (0: all).
  MeasuredLoss evaluate(const std::string& data = "", std::int64_t documents = 0);

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

struct TrainingStep {
  std::int64_t step = 0, total_steps = 0;
  double loss = 0, learning_rate = 0, tokens_per_second = 0;
};

struct TrainingOptions {
  // After each step whose loss is known; false: finish the step, save, and return.
  std::function<bool(const TrainingStep&)> on_step;
  MessageSink log;
};

struct TrainedRun {
  std::int64_t steps = 0;
  bool finished = false;                   // or stopped by on_step: resume_run() goes on
  std::optional<MeasuredLoss> evaluation;  // the last one
};

// Trains a recipe (a TOML file) into a new run folder. settings: "train.max_steps=100" each. A memory that the recipe
// asks for is built at the end: FOLDER/memory.safetensors.
TrainedRun train_run(const std::string& recipe, const std::string& folder,
                     const std::vector<std::string>& settings = {}, const TrainingOptions& options = {});
// Goes on from the last checkpoint, to the bit; settings may make the run longer.
TrainedRun resume_run(const std::string& folder, const std::vector<std::string>& settings = {},
                      const TrainingOptions& options = {});

std::string version();

}  // namespace v1
}  // namespace some

// Implements include/some/some.h on top of the internal libraries, translating their errors, log messages and results.
#include "some/some.h"

#include <csignal>
#include <filesystem>
#include <system_error>

#include "analysis/assignments.h"
#include "core/error.h"
#include "core/version.h"
#include "evaluation/evaluate.h"
#include "inference/generate.h"
#include "runs/run.h"
#include "runtime/machine.h"
#include "train/trainer.h"

namespace some {
inline namespace v1 {
namespace {

template <typename Body>
auto told(Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    throw Failure(error.what(), error.fault() == Fault::input, std::string(name_of(error.code())), error.values());
  } catch (const std::filesystem::filesystem_error& error) {
    throw Failure(error.what(), true, std::string(name_of(Code::system_failed)), {error.path1().string()});
  } catch (const std::system_error& error) {
    throw Failure(error.what(), false, std::string(name_of(Code::system_failed)), {});
  }
}

Log log_of(const MessageSink& sink) {
  if (!sink) return {};
  return Log([sink](const LogMessage& message) { sink(message.level == LogLevel::warning, message.text); });
}

MeasuredLoss measured(const Evaluation& evaluation) {
  return {evaluation.loss, evaluation.perplexity(), evaluation.bits_per_byte, evaluation.tokens};
}

TrainHooks hooks_of(const TrainingOptions& options, const std::shared_ptr<bool>& stop) {
  TrainHooks hooks;
  hooks.log = log_of(options.log);
  if (options.on_step)
    hooks.step = [tell = options.on_step, stop](const TrainProgress& progress) {
      if (!tell({progress.step, progress.total_steps, progress.loss, progress.lr, progress.tokens_per_second}))
        *stop = true;
    };
  hooks.stop_signal = [stop] { return *stop ? SIGINT : 0; };
  return hooks;
}

TrainedRun result_of(const TrainResult& result) {
  TrainedRun out{result.steps, result.stopped_by == 0, std::nullopt};
  if (result.final_evaluation) out.evaluation = measured(*result.final_evaluation);
  return out;
}

}  // namespace

Failure::Failure(const std::string& message, bool input, std::string code, std::vector<std::string> values)
    : std::runtime_error(message), input_(input), code_(std::move(code)), values_(std::move(values)) {}
Failure::~Failure() = default;

struct Run::Inside {
  OpenedRun run;
};

Run::Run(const std::string& folder, const RunOptions& options) {
  inside_ = told([&] {
    return std::make_unique<Inside>(Inside{open_run(
        folder, {options.checkpoint, device_choice(options.device), parse_optional_precision(options.precision),
                 make_host(options.threads, log_of(options.log))})});
  });
}
Run::~Run() = default;
Run::Run(Run&&) noexcept = default;
Run& Run::operator=(Run&&) noexcept = default;

std::int64_t Run::step() const { return inside_->run.step; }
int Run::vocabulary() const { return inside_->run.recipe.model.vocab; }
int Run::longest() const { return inside_->run.recipe.model.seq_len; }

TokenIds Run::encode(const std::string& text) const {
  return told([&] { return inside_->run.tokenizer.encode(text); });
}
std::string Run::decode(const TokenIds& ids) const {
  return told([&] { return inside_->run.tokenizer.decode(ids, {.skip_specials = true}); });
}

std::vector<float> Run::logits(const TokenIds& ids) {
  return told([&] {
    if (ids.empty() || static_cast<int>(ids.size()) > longest())
      bad_input(Code::text_too_long, "logits of {} ids: their number must be from 1 to model.seq_len = {}", ids.size(),
                longest());
    Batch batch;
    batch.tokens = ids;
    batch.targets.assign(ids.size(), -1);
    batch.offsets = {0, static_cast<std::int32_t>(ids.size())};
    for (std::size_t t = 0; t < ids.size(); ++t) batch.positions.push_back(static_cast<std::int32_t>(t));
    batch.longest = batch.size();
    Context& ctx = *inside_->run.ctx;
    ctx.arena->reset();
    const std::vector<double> all = read_vector(inside_->run.model->logits(upload(ctx, batch), {}));
    return std::vector<float>(all.begin(), all.end());
  });
}

WrittenText Run::generate(const std::string& prompt, const WriteOptions& options) {
  return told([&] {
    bool stop = false;
    GenerateOptions how;
    how.temperature = options.temperature;
    how.top_k = options.top_k;
    how.top_p = options.top_p;
    how.min_p = options.min_p;
    how.repetition_penalty = options.repetition_penalty;
    how.presence_penalty = options.presence_penalty;
    how.frequency_penalty = options.frequency_penalty;
    how.stop_strings = options.stop;
    how.seed = options.seed;
    how.max_tokens = options.max_tokens;
    how.stop_at_eos = options.stop_at_end;
    how.stop = [&] { return stop; };
    const Tokenizer& tokenizer = inside_->run.tokenizer;
    TokenObserver observe;
    if (options.on_token)
      observe = [&](std::size_t, const TokenEvent& event) {
        if (!options.on_token(event.token, std::string(tokenizer.token_bytes(event.token)))) stop = true;
      };
    const Generated one = some::generate(*inside_->run.model, tokenizer, {prompt}, how, observe).at(0);
    return WrittenText{one.text, one.tokens, one.stopped};
  });
}

MeasuredLoss Run::evaluate(const std::string& data, std::int64_t max_documents) {
  return told([&] {
    const AnalysisText text = load_analysis_text(inside_->run, data, max_documents);
    EvaluateOptions how = evaluate_options(inside_->run.recipe, inside_->run.tokenizer);
    how.max_documents = max_documents;
    return measured(some::evaluate(*inside_->run.model, text.data, how));
  });
}

TrainedRun train_run(const std::string& recipe, const std::string& folder, const std::vector<std::string>& settings,
                     const TrainingOptions& options) {
  return told([&] {
    const auto stop = std::make_shared<bool>(false);
    return result_of(start_run(load_recipe(recipe, settings), folder, hooks_of(options, stop)));
  });
}

TrainedRun resume_run(const std::string& folder, const std::vector<std::string>& settings,
                      const TrainingOptions& options) {
  return told([&] {
    const auto stop = std::make_shared<bool>(false);
    return result_of(resume_run(folder, {settings, std::nullopt}, hooks_of(options, stop)));
  });
}

std::string version() { return program_version(); }

}  // namespace v1
}  // namespace some

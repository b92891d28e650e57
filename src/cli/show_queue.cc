#include "cli/show_queue.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "cli/units.h"

namespace some {
namespace {

class QueueDisplay {
 public:
  explicit QueueDisplay(std::size_t runs) : runs_(runs) {}

  void begin(const PlannedRun& run, std::size_t place, bool resumed) {
    label_ = fmt::format("[{}/{}] {}", place + 1, runs_, run.name);
    line("{}{}{}", resumed ? "going on" : "begins", run.recipe.title.empty() ? "" : ": ", run.recipe.title);
  }

  void step(const TrainProgress& p) {
    const auto now = std::chrono::steady_clock::now();
    const double wait = is_terminal() ? 0.1 : 30.0;
    if (std::chrono::duration<double>(now - when_).count() < wait) return;
    when_ = now;
    std::string numbers = fmt::format("step {}/{}  loss {:.4f}  {} tokens/s", p.step, p.total_steps, p.loss,
                                      format_count(p.tokens_per_second));
    if (p.seconds_left) numbers += fmt::format("  {} left", format_seconds(*p.seconds_left));
    if (is_terminal())
      redraw(label_ + " " + numbers);
    else
      line("{}", numbers);
  }

  void evaluated(const EvaluationReport& report) {
    const Evaluation& e = report.evaluation;
    std::string text =
        fmt::format("epoch {:.2f}  loss {:.4f}  {:.3f} bits/byte", report.epoch, e.loss, e.bits_per_byte);
    if (e.padded_loss) text += fmt::format("  padded loss {:.4f}", *e.padded_loss);
    line("{}", text);
  }

  void prepare(const std::string& what, std::int64_t done, std::int64_t total) {
    preparation_.show(label_ + " " + what, done, total);
  }

  void end(const QueueEntry& entry) {
    label_ = entry.name;
    if (entry.outcome == Outcome::failed) line("failed: {}", entry.message);
  }

 private:
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    print_line("{} {}", label_, fmt::format(format, std::forward<Args>(args)...));
  }

  std::size_t runs_;
  std::string label_;
  PreparationProgress preparation_;
  std::chrono::steady_clock::time_point when_;
};

std::int64_t count(const std::vector<QueueEntry>& entries, Outcome outcome) {
  return std::count_if(entries.begin(), entries.end(), [&](const QueueEntry& e) { return e.outcome == outcome; });
}

}  // namespace

std::vector<QueueEntry> show_queue(const std::vector<PlannedRun>& plan, const Group& group, int ranks_per_run) {
  QueueDisplay display(plan.size());
  QueueHooks hooks;
  hooks.ranks = group;
  hooks.ranks_per_run = ranks_per_run;
  hooks.train.log = terminal_log();
  hooks.begin = [&](const PlannedRun& one, std::size_t place, bool resumed) { display.begin(one, place, resumed); };
  hooks.end = [&](const QueueEntry& entry) { display.end(entry); };
  hooks.train.step = [&](const TrainProgress& progress) { display.step(progress); };
  hooks.train.evaluated = [&](const EvaluationReport& report) { display.evaluated(report); };
  hooks.train.prepare = [&](const std::string& what, std::int64_t done, std::int64_t total) {
    display.prepare(what, done, total);
  };
  hooks.train.remember = [&](const std::string& what, std::int64_t done, std::int64_t total) {
    display.prepare("memory: reading " + what, done, total);
  };
  hooks.train.stop_signal = [] { return received_signal(); };
  hooks.train.saving = set_saving;
  return run_queue(plan, hooks);
}

nlohmann::json to_json(const QueueEntry& entry) {
  nlohmann::json out{
      {"run", entry.name}, {"folder", entry.folder}, {"outcome", name_of(entry.outcome)}, {"seconds", entry.seconds}};
  if (!entry.message.empty()) out["message"] = entry.message;
  if (entry.result.steps > 0) out["steps"] = entry.result.steps;
  if (const auto& e = entry.result.final_evaluation) {
    out["loss"] = e->loss;
    out["bits_per_byte"] = e->bits_per_byte;
    if (e->padded_loss) out["padded_loss"] = *e->padded_loss;
  }
  return out;
}

std::int64_t count_failures(const std::vector<QueueEntry>& entries) { return count(entries, Outcome::failed); }

void report_unfinished(const std::vector<QueueEntry>& entries, int signal) {
  if (const auto failures = count_failures(entries); failures > 0) {
    say("{} of {} runs failed:\n", failures, entries.size());
    for (const QueueEntry& entry : entries) {
      if (entry.outcome == Outcome::failed) say("  {}: {}\n", entry.name, entry.message);
    }
    exit_code = 1;
  }
  if (signal != 0 && count(entries, Outcome::stopped) + count(entries, Outcome::not_begun) > 0) {
    say("stopped and saved; the same command resumes here\n");
    exit_code = 128 + signal;
  }
}

}  // namespace some

// `some memory`: shows and edits a memory (show, recall, forget, merge, prune).
#include <fmt/format.h>

#include <cmath>

#include "analysis/assignments.h"
#include "analysis/pages/memory_view.h"
#include "analysis/read.h"
#include "analysis/recall.h"
#include "cli/model_flags.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "memory/memory_file.h"
#include "memory/reader.h"
#include "runs/run.h"

namespace some {
namespace {

struct ShowOptions {
  std::string file, run;
  std::size_t strongest = 12;
  bool json = false;
};

std::string run_of(const Memory& memory, const std::string& given, const std::string& file) {
  if (!given.empty()) return given;
  if (memory.run.empty() || !folder_exists(memory.run))
    bad_input(Code::memory_mismatch, "{}: run {} of this memory not found; use --run FOLDER", file,
              memory.run.empty() ? "(unnamed)" : memory.run);
  return memory.run;
}

std::string one_line(std::string text) {
  for (char& c : text) c = c == '\n' || c == '\r' || c == '\t' ? ' ' : c;
  return escaped(text);
}

std::string in_words(const Passage& passage) {
  return fmt::format("…{}[{}]{}…", one_line(passage.before), one_line(passage.token), one_line(passage.after));
}

void show(const ShowOptions& options) {
  const auto ctx = make_context("cpu", "fp32");
  const Memory memory = load_memory(*ctx, options.file);
  const std::string run = run_of(memory, options.run, options.file);
  const Tokenizer tokenizer = Tokenizer::load(RunPaths{run}.tokenizer());
  if (hex(tokenizer.hash()) != memory.tokenizer)
    bad_input(Code::memory_mismatch, "{}: the tokenizer of {} differs from that of the memory; use --run FOLDER",
              options.file, run);
  const MemoryDescription report = describe_memory(memory, tokenizer, options.strongest);
  if (options.json) return print_json(to_json(report));
  fmt::print("{}: {} of {} slots in use, {:.0f} tokens counted; model: {}\n", options.file, report.slots_in_use,
             memory.settings.slots, report.tokens_stored, escaped(memory.run));
  if (memory.settings.partitions > 1)
    fmt::print("{} partitions, {} active; a query searches {}\n", memory.settings.partitions,
               memory.store.partitions_active(), memory.settings.nprobe);
  double slots = 0;
  for (const double one : report.weights) slots += one;
  if (const auto& contexts = report.contexts) {
    double counted = 0;
    for (const double one : contexts->weights) counted += one;
    fmt::print("contexts of up to {} tokens: {} of {} entries in use, {} evicted\n", memory.settings.contexts,
               contexts->entries, memory.settings.context_entries, contexts->evicted);
    fmt::print("weights in predictions: model {:.1f}%, slots {:.1f}%, contexts {:.1f}%\n\n",
               100 * (1 - slots - counted), 100 * slots, 100 * counted);
  } else {
    fmt::print("current mixture weight: {:.1f}%\n\n", 100 * slots);
  }
  std::int64_t number = 0;
  for (const MemoryDescription::Text& text : report.texts)
    fmt::print("text {}  {}: {} tokens read, {} slots inserted\n", ++number, escaped(text.name), text.tokens,
               text.slots);
  if (!report.strongest.empty()) fmt::print("\n   slot    count    usage  token\n");
  for (const MemoryDescription::Slot& slot : report.strongest) {
    fmt::print("{:>7}  {:>7.0f}  {:>7.1f}  \"{}\"\n", slot.slot, slot.count, slot.usage, one_line(slot.token));
    std::string others;
    for (std::size_t i = 1; i < slot.holding.size(); ++i)
      others +=
          fmt::format("{}\"{}\" {:.0f}", i > 1 ? ", " : "", one_line(slot.holding[i].first), slot.holding[i].second);
    if (!others.empty()) fmt::print("         also {}\n", others);
    fmt::print("         inserted in {} at {}: {}\n", escaped(slot.born.text), slot.born.offset, in_words(slot.born));
    if (slot.hit.offset != slot.born.offset || slot.hit.text != slot.born.text)
      fmt::print("         last match in {} at {}: {}\n", escaped(slot.hit.text), slot.hit.offset, in_words(slot.hit));
  }
  if (!report.contexts || report.contexts->strongest.empty()) return;
  fmt::print("\n   seen  context and the token that followed it\n");
  for (const auto& entry : report.contexts->strongest) {
    fmt::print("{:>7}  \"{}\" -> \"{}\"\n", entry.seen, one_line(entry.context), one_line(entry.token));
    fmt::print("         first in {} at {}, last in {} at {}: {}\n", escaped(entry.born.text), entry.born.offset,
               escaped(entry.hit.text), entry.hit.offset, in_words(entry.hit));
  }
}

struct RecallOptions {
  std::string file, text;
  std::vector<std::int32_t> searches = {1, 2, 4, 8, 16};
  std::int64_t tokens = 20000;
  ModelFlags model;
  bool json = false;
};

void recall(RecallOptions options) {
  for (const std::int32_t nprobe : options.searches) {
    if (nprobe < 1 || nprobe > max_partitions)
      bad_input(Code::option_invalid, "{} {}: must be numbers of partitions from 1 to {}, separated by commas",
                "--nprobe", nprobe, max_partitions);
  }
  if (options.tokens < 2) bad_input(Code::option_invalid, "{} {}: must be >= 2", "--tokens", options.tokens);
  if (options.model.run.empty()) {
    const auto ctx = make_context("cpu", "fp32");
    options.model.run = run_of(load_memory(*ctx, options.file), "", options.file);
  }
  OpenedRun run = open_run(options.model);
  const std::vector<std::int32_t> tokens = stream_of(load_analysis_text(run, options.text, 0).data, options.tokens);
  const RecallReport report = measure_recall(*run.model, open_memory(run, options.file), tokens, options.searches);
  const std::string text = options.text.empty() ? "the run's validation text" : options.text;
  if (options.json) {
    nlohmann::json out = to_json(report);
    out["file"] = options.file;
    out["text"] = text;
    return print_json(out);
  }
  fmt::print("{}: {} of {} slots in use, in {} of {} partitions; {} tokens of {}\n\n", options.file,
             report.slots_in_use, report.slots, report.partitions_active, report.partitions, report.tokens, text);
  fmt::print("partitions searched   nearest found      loss   to exact   seconds\n");
  const auto row = [&](const std::string& name, const std::string& found, const RecallRow& one) {
    fmt::print("{:>19}   {:>13}   {:>7.4f}   {:>+8.4f}   {:>7.2f}\n", name, found, one.loss,
               one.loss - report.exact.loss, one.seconds);
  };
  row("without memory", "", report.alone);
  for (const RecallRow& one : report.searches)
    row(std::to_string(one.nprobe), fmt::format("{:.1f}%", 100 * one.found), one);
  row("all: exact", "100%", report.exact);
}

struct ForgetOptions {
  std::string file, text, run, out;
  ModelFlags model;
};

// Chooses the precision so that a text is read again with the same number format as the memory.
void choose_precision(ModelFlags& model, const std::string& file) {
  const bool run_has_f64 = read_run_recipe(model.run).train.precision == PrecisionChoice::f64;
  if (precision_of(file) == Precision::f64) {
    model.precision = "f64";
    if (model.device == "auto") model.device = "cpu";  // f64 is only supported on the CPU
  } else if (run_has_f64) {
    model.precision = "fp32";
  }
}

void forget(ForgetOptions options) {
  Memory before;
  {
    const auto ctx = make_context("cpu", "fp32");
    before = load_memory(*ctx, options.file);
    options.model.run = run_of(before, options.run, options.file);
    text_named(before, options.text);
  }
  choose_precision(options.model, options.file);
  OpenedRun run = open_run(options.model);
  const std::string out = options.out.empty() ? options.file : options.out;
  MemorySaver keeper(out);
  const Memory memory = open_memory(run, options.file);
  const std::int64_t text = text_named(memory, options.text);
  const std::string name = memory.texts[static_cast<std::size_t>(text)].name;
  PreparationProgress shown;
  const Memory left = memory_without_text(*run.model, memory, text, [&](std::int64_t done, std::int64_t total) {
    shown.show("reading the other texts again", done, total);
  });
  keeper.save(left);
  fmt::print("{}: {} forgotten; {} slots in use, the result is as if it had never been read\n", out, escaped(name),
             slots_in_use(left));
}

// Returns a context in the memory's own precision, so that its values are kept unchanged.
std::unique_ptr<Context> context_of(const std::string& file) {
  return make_context(DeviceName{}, precision_of(file), {});
}

struct MergeOptions {
  std::string first, second, out;
};

void merge_files(const MergeOptions& options) {
  const std::string out = options.out.empty() ? options.first : options.out;
  MemorySaver keeper(out);
  const auto ctx = context_of(options.first);
  Memory memory = load_memory(*ctx, options.first);
  const Memory other = load_memory(*ctx, options.second);
  const std::int64_t before = slots_in_use(memory), theirs = slots_in_use(other);
  merge(*ctx, memory, other);
  keeper.save(memory);
  fmt::print("{}: {} and {} slots merged into {} of {}\n", out, before, theirs, slots_in_use(memory),
             memory.settings.slots);
}

struct PruneOptions {
  std::string file, out;
  std::int64_t least = 2;
};

void prune_file(const PruneOptions& options) {
  if (options.least < 1) bad_input(Code::option_invalid, "{} {}: must be >= 1", "--least", options.least);
  const std::string out = options.out.empty() ? options.file : options.out;
  MemorySaver keeper(out);
  const auto ctx = context_of(options.file);
  Memory memory = load_memory(*ctx, options.file);
  const std::int64_t entries = memory.contexts.size(), emptied = prune(*ctx, memory, options.least);
  keeper.save(memory);
  fmt::print("{}: {} slots with a count below {} were emptied; {} remain\n", out, emptied, options.least,
             slots_in_use(memory));
  if (memory.settings.contexts > 0)
    fmt::print("{} context entries with lower counts were removed; {} remain\n", entries - memory.contexts.size(),
               memory.contexts.size());
}

void set_up_memory_show(Command& command) {
  auto options = std::make_shared<ShowOptions>();
  command.add_option("FILE", options->file, "memory file, or a run that has one")->required()->memory_file();
  command.add_option("--strongest", options->strongest, "number of slots to list")->capture_default_str();
  command.add_option("--run", options->run, "run of the memory (default: as recorded in it)");
  command.add_json(options->json);
  command.callback([options] { show(*options); });
}

void set_up_memory_recall(Command& command) {
  auto options = std::make_shared<RecallOptions>();
  command.add_option("FILE", options->file, "memory file, or a run that has one")->required()->memory_file();
  command.add_option("TEXT", options->text, "text to read (default: the run's validation text)");
  command.add_option("--nprobe", options->searches, "numbers of partitions to search, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  command.add_option("--tokens", options->tokens, "maximum number of tokens, from the first")->capture_default_str();
  command.add_option("--run", options->model.run, "run of the memory (default: as recorded in it)");
  command.add_option("--device", options->model.device, "cpu, cuda, cuda:N or auto")->capture_default_str();
  command.add_option("--threads", options->model.threads, "CPU threads; 0 = all available")->capture_default_str();
  command.add_json(options->json);
  command.callback([options] { recall(*options); });
}

void set_up_memory_forget(Command& command) {
  auto options = std::make_shared<ForgetOptions>();
  command.add_option("FILE", options->file, "memory file, or a run that has one")->required()->memory_file();
  command.add_option("TEXT", options->text, "name of the text, or its number in `show`")->required();
  command.add_option("--run", options->run, "run of the memory (default: as recorded in it)");
  command.add_option("-o,--out", options->out, "output file (default: FILE)");
  command.add_option("--device", options->model.device, "cpu, cuda, cuda:N or auto")->capture_default_str();
  command.add_option("--threads", options->model.threads, "CPU threads; 0 = all available")->capture_default_str();
  command.callback([options] { forget(*options); });
}

void set_up_memory_merge(Command& command) {
  auto options = std::make_shared<MergeOptions>();
  command.add_option("FILE", options->first, "memory file, or a run that has one")->required()->memory_file();
  command.add_option("OTHER", options->second, "memory of the same model")->required();
  command.add_option("-o,--out", options->out, "output file (default: FILE)");
  command.callback([options] { merge_files(*options); });
}

void set_up_memory_prune(Command& command) {
  auto options = std::make_shared<PruneOptions>();
  command.add_option("FILE", options->file, "memory file, or a run that has one")->required()->memory_file();
  command.add_option("--least", options->least, "slots with a smaller count are emptied")->capture_default_str();
  command.add_option("-o,--out", options->out, "output file (default: FILE)");
  command.callback([options] { prune_file(*options); });
}

}  // namespace

CommandSpec memory_command() {
  return {
      .name = "memory",
      .group = CommandGroup::train_and_use,
      .summary = "show, measure, merge and prune memories",
      .subcommands = {{
                          .name = "show",
                          .summary = "list the texts of a memory and its strongest slots",
                          .examples = {{"memory show runs/tiny/memory.safetensors",
                                        "its strongest slots, and where they were read"}},
                          .json = "the result",
                          .set_up = set_up_memory_show,
                      },
                      {
                          .name = "recall",
                          .summary =
                              "measure a partitioned memory: nearest slots found, loss and time by partitions searched",
                          .examples = {{"memory recall large.memory", "loss and time of searching fewer partitions"}},
                          .json = "the result",
                          .set_up = set_up_memory_recall,
                      },
                      {
                          .name = "forget",
                          .summary = "remove a text from a memory by reading the others again",
                          .examples = {{"memory forget runs/tiny/memory.safetensors builtin:recipes --out less.memory",
                                        "the result is as if it had never been read"}},
                          .set_up = set_up_memory_forget,
                      },
                      {
                          .name = "merge",
                          .summary = "merge the slots of a second memory into the first",
                          .examples = {{"memory merge mine.memory runs/tiny/memory.safetensors --out both.memory", ""}},
                          .set_up = set_up_memory_merge,
                      },
                      {
                          .name = "prune",
                          .summary = "empty slots with small counts",
                          .examples = {{"memory prune mine.memory --least 2", ""}},
                          .set_up = set_up_memory_prune,
                      }},
  };
}

}  // namespace some

#include "compress/compress.h"

#include <fmt/format.h>

#include <chrono>

#include "cli/model_flags.h"
#include "cli/program.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "core/files/files.h"
#include "core/files/folders.h"

namespace some {
namespace {

struct CompressFlags {
  ModelFlags model;
  std::string file, out;
  CompressOptions compress;
  bool portable = false, force = false, json = false;
};

// Shows how far the work is: redrawn on a terminal, otherwise a line every 30 seconds.
class Progress {
 public:
  explicit Progress(std::string what) : what_(std::move(what)) {}
  void show(std::uint64_t done, std::uint64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (!first_) first_ = done;
    const double wait = is_terminal() ? 0.2 : 30;
    if (std::chrono::duration<double>(now - shown_).count() < wait) return;
    shown_ = now;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double rate = static_cast<double>(done - *first_) / std::max(seconds, 1e-9);
    const std::string line = fmt::format(
        "{}: {} of {} ({:.0f}%), {:.1f} kB/s, {} left", what_, format_bytes(static_cast<double>(done)),
        format_bytes(static_cast<double>(total)), 100 * static_cast<double>(done) / static_cast<double>(total),
        rate / 1000, rate > 0 ? format_seconds(static_cast<double>(total - done) / rate) : "unknown time");
    if (is_terminal())
      redraw(line);
    else
      print_message_line(line);
  }
  static void end() {
    if (is_terminal()) redraw("");
  }

 private:
  std::string what_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), shown_ = start_;
  std::optional<std::uint64_t> first_;
};

void check_output(const CompressFlags& flags) {
  if (exists_path(flags.out) && !flags.force)
    bad_input(Code::path_exists, "{} exists; choose another -o, or pass --force to replace it", flags.out);
}

// The two positional arguments are RUN and FILE; without a run the only one is the file.
std::string file_of(CompressFlags& flags) {
  if (!flags.file.empty()) return flags.file;
  return std::exchange(flags.model.run, "");
}

// Returns false, after a message, if the work was interrupted.
bool finished(const CompressFlags& flags, const CompressReport& report, const char* what, std::uint64_t done) {
  Progress::end();
  if (!report.stopped) {
    // The state file is useless once the result exists.
    if (!flags.compress.state.empty() && exists_path(flags.compress.state)) remove_tree(flags.compress.state);
    return true;
  }
  exit_code = 128 + received_signal();
  if (flags.compress.state.empty())
    say("{} stopped after {} of {} bytes, and nothing was written; --state FILE would save the progress\n", what, done,
        report.bytes);
  else
    say("{} stopped after {} of {} bytes: the same command continues from {}\n", what, done, report.bytes,
        flags.compress.state);
  return false;
}

void set_up_work(CompressFlags& flags, Progress& progress, std::uint64_t& done) {
  watch_signals();
  flags.compress.progress = [&](std::uint64_t now, std::uint64_t total) {
    done = now;
    progress.show(now, total);
  };
  flags.compress.stop = [] { return received_signal() != 0; };
}

void print_compressed(const CompressReport& report, const std::string& out) {
  const auto size = static_cast<double>(report.bytes);
  fmt::print("{}: {} bytes from {}, {:.3f} bits/byte", out, report.compressed, report.bytes, report.bits_per_byte());
  if (report.compressed < report.bytes && report.bytes > 0)
    fmt::print(" ({:.1f}% of the size)", 100 * static_cast<double>(report.compressed) / size);
  fmt::print("; {}, {:.1f} kB/s\n", format_seconds(report.seconds),
             static_cast<double>(report.bytes - report.resumed_at) / 1000 / std::max(report.seconds, 1e-9));
  if (report.mode == CompressionMode::model)
    fmt::print("the model without contexts: {:.0f} bytes, {:.3f} bits/byte, {} tokens\n", report.model_bytes,
               8 * report.model_bytes / size, report.tokens);
  if (report.mode == CompressionMode::stored && report.bytes > 0)
    fmt::print("compression would save nothing: the bytes are stored uncompressed\n");
}

void compress(CompressFlags flags) {
  if (flags.portable && !flags.file.empty())
    bad_input(Code::option_conflict, "--portable uses no model; omit the run '{}'", flags.model.run);
  if (!flags.portable && flags.file.empty())
    bad_input(Code::argument_missing, "run or file missing; use some compress RUN FILE -o OUT, or --portable FILE");
  std::uint64_t done = 0;
  Progress progress("compressing");
  set_up_work(flags, progress, done);
  const std::string path = file_of(flags);
  check_output(flags);
  const std::string text = read_file(path, max_compressed_bytes);
  std::optional<OpenedRun> run;
  if (!flags.portable) run.emplace(open_run(flags.model));
  CompressReport report;
  const std::string file = compress_text(run ? &*run : nullptr, text, flags.compress, report);
  if (!report.stopped) write_output_file(flags.out, file);
  const bool whole = finished(flags, report, "compression", done);
  if (flags.json) return print_json(to_json(report));
  if (whole) print_compressed(report, flags.out);
}

void decompress(CompressFlags flags) {
  std::uint64_t done = 0;
  Progress progress("decompressing");
  set_up_work(flags, progress, done);
  const std::string path = file_of(flags);
  check_output(flags);
  const std::string file = read_file(path, 2 * max_compressed_bytes);
  const CompressedFile parsed = parse_compressed(file, path);
  std::optional<OpenedRun> run;
  if (parsed.header.mode == CompressionMode::model && !flags.model.run.empty()) run.emplace(open_run(flags.model));
  CompressReport report;
  const std::string text = decompress_text(run ? &*run : nullptr, file, path, flags.compress, report);
  if (!report.stopped) write_output_file(flags.out, text);
  const bool whole = finished(flags, report, "decompression", done);
  if (flags.json) return print_json(to_json(report));
  if (whole)
    fmt::print("{}: {} bytes, checksum correct; {}, {:.1f} kB/s\n", flags.out, report.bytes,
               format_seconds(report.seconds),
               static_cast<double>(report.bytes - report.resumed_at) / 1000 / std::max(report.seconds, 1e-9));
}

void add_flags(Command& command, CompressFlags& flags, const char* file, const char* out) {
  add_model_flags(command, flags.model);
  command.add_option("FILE", flags.file, file);
  command.add_option("-o,--out", flags.out, out)->required();
  command.add_flag("--force", flags.force, "replace the output file if it exists");
  command.add_option("--state", flags.compress.state,
                     "state file, from which the same command continues after an interruption");
  command.add_option("--state-seconds", flags.compress.state_seconds, "seconds between saves of the state")
      ->capture_default_str();
  command.add_json(flags.json);
}

void set_up_compress(Command& command) {
  auto flags = std::make_shared<CompressFlags>();
  flags->model.device = "cpu";  // a portable file must not depend on whether a GPU was present
  add_flags(command, *flags, "file to compress", "compressed file");
  command.add_flag("--portable", flags->portable,
                   "compress without a run, in integer arithmetic, for decompression on any machine");
  command
      .add_option("--parts", flags->compress.parts,
                  "parts of the text coded in one batch; more are faster; 0 = one per 16 KiB, at most 8")
      ->range(0, max_coded_parts)
      ->capture_default_str();
  command.callback([flags] { compress(*flags); });
}

void set_up_decompress(Command& command) {
  auto flags = std::make_shared<CompressFlags>();
  flags->model.device = "cpu";  // a portable file must not depend on whether a GPU was present
  add_flags(command, *flags, "compressed file", "output file");
  command.callback([flags] { decompress(*flags); });
}

}  // namespace

CommandSpec compress_command() {
  return {
      .name = "compress",
      .group = CommandGroup::train_and_use,
      .summary = "compress a file losslessly with a model that learns from the file",
      .examples = {{"compress runs/tiny mine.txt -o mine.somez", "with the model of a run"},
                   {"compress --portable mine.txt -o portable.somez", "without a model, for any machine"}},
      .json = "the report",
      .set_up = set_up_compress,
  };
}

CommandSpec decompress_command() {
  return {
      .name = "decompress",
      .group = CommandGroup::train_and_use,
      .summary = "restore a compressed file",
      .examples = {{"decompress runs/tiny mine.somez -o again.txt", "with the run that compressed it"},
                   {"decompress portable.somez -o portable.txt", "a portable file needs no run"}},
      .json = "the report",
      .set_up = set_up_decompress,
  };
}

}  // namespace some

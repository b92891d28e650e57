#include "analysis/read.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "analysis/assignments.h"
#include "analysis/contamination.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/system_memory.h"
#include "memory/memory_file.h"

namespace some {
namespace {

constexpr double seconds_between_saves = 60;

void add(WindowResult& sum, const WindowResult& one) {
  sum.tokens += one.tokens;
  sum.frozen += one.frozen;
  sum.mixed += one.mixed;
  sum.births += one.births;
  sum.hits += one.hits;
  sum.lost += one.lost;
}

// Throws if the requested settings differ from those of the existing memory.
void refuse_changes(const Memory& memory, const std::string& path, const MemoryOverrides& choices,
                    std::optional<TokenId> end) {
  MemorySettings wanted = apply_memory_overrides(memory.settings, choices, end);
  wanted.refinement_passes = memory.settings.refinement_passes;  // refinement passes can be changed at any time
  if (wanted.slots != memory.settings.slots)
    bad_input(Code::memory_settings, "{} {}: the memory {} has {}; omit --slots, or use another file", "--slots",
              wanted.slots, path, memory.settings.slots);
  if (!(wanted == memory.settings))
    bad_input(Code::memory_settings,
              "the memory {} was made with other settings (beta {}, threshold {}, decay {}, switch_rate {}, counts {}, "
              "values {}, "
              "merge_evicted {}, partitions {}, nprobe {}, window {}, contexts {}, context_entries {}, {}); omit them, "
              "or use another "
              "file",
              path, fmt::join(memory.settings.beta, ","), memory.settings.threshold, memory.settings.decay,
              memory.settings.switch_rate, memory.settings.counts, memory.settings.values,
              memory.settings.merge_evicted, memory.settings.partitions, memory.settings.nprobe, memory.settings.window,
              memory.settings.contexts, memory.settings.context_entries,
              memory.settings.border ? "each document separately" : "all as one stream");
}

void require_writable(const std::string& memory) {
  const std::string folder = std::filesystem::canonical(memory).parent_path().string();
  if (const std::string why_not = unwritable_reason(folder); !why_not.empty())
    failed(Code::memory_not_kept, "{}: reading cannot be saved: {}", memory, why_not);
}

// Returns the index of the text to be read among those the memory knows; a new text is added. The file may be at
// different paths on different ranks: rank 0 decides.
std::int64_t number_of_text(const Group& group, Memory& memory, const std::string& path, const std::string& source,
                            std::span<const std::int32_t> tokens, std::optional<TokenId> end) {
  const std::optional<std::size_t> found = find_known_text(memory, path, source, tokens, end);
  std::int64_t text = group.all_reduce_max(group.root() && found ? static_cast<std::int64_t>(*found) + 1 : 0) - 1;
  if (text < 0) {
    text = std::ssize(memory.texts);
    memory.texts.push_back({escaped(source), {}});
  }
  memory.texts[static_cast<std::size_t>(text)].file = file_of(source);
  return text;
}

// Records snapshots of a subset of the slots during reading: enough to be visible, few enough for a page.
class FrameKeeper {
 public:
  FrameKeeper(ReadMemory& kept, const Memory& memory, std::int64_t total) : kept_(kept), total_(total) {
    constexpr std::int64_t max_shown = 700;
    const std::int64_t slots = memory.settings.slots, step = (slots + max_shown - 1) / max_shown;
    for (std::int64_t m = 0; m < slots; m += step) kept_.shown.push_back(m);
  }
  void after(const Memory& memory, std::span<const WindowResult> windows) {
    for (const WindowResult& window : windows) {
      tokens_ += window.tokens;
      next_.births += window.births;
      next_.hits += window.hits;
      next_.lost += window.lost;
    }
    constexpr std::int64_t max_frames = 16;
    if (tokens_ < total_ * (std::ssize(kept_.frames) + 1) / max_frames) return;
    const std::vector<double> counts = read_vector(memory.store.counts);
    const Tensor born = memory.store.born.to(Device::cpu), hit = memory.store.hit.to(Device::cpu);
    next_.tokens = tokens_;
    for (const std::int64_t slot : kept_.shown) {
      const auto m = static_cast<std::size_t>(slot);
      const std::vector<double> key = read_vector(memory.store.keys.rows(slot, slot + 1));
      next_.keys.insert(next_.keys.end(), key.begin(), key.end());
      next_.counts.push_back(counts[m]);
      next_.born.push_back(born.data<std::int64_t>()[slot]);
      next_.hit.push_back(hit.data<std::int64_t>()[slot]);
    }
    kept_.frames.push_back(std::move(next_));
    next_ = {};
  }

 private:
  ReadMemory& kept_;
  StoreFrame next_;
  std::int64_t total_, tokens_ = 0;
};

}  // namespace

double per_token(double sum, std::int64_t tokens) { return tokens > 0 ? sum / static_cast<double>(tokens) : 0.0; }

WindowResult TextReading::all() const {
  WindowResult sum;
  for (const WindowResult& window : windows) add(sum, window);
  return sum;
}

WindowResult ReadReport::all() const {
  WindowResult sum;
  for (const TextReading& text : texts) add(sum, text.all());
  return sum;
}

MemorySettings apply_memory_overrides(MemorySettings settings, const MemoryOverrides& choices,
                                      std::optional<TokenId> end) {
  settings.slots = choices.slots.value_or(settings.slots);
  settings.window = choices.window.value_or(settings.window);
  settings.threshold = choices.threshold.value_or(settings.threshold);
  settings.decay = choices.decay.value_or(settings.decay);
  settings.switch_rate = choices.switch_rate.value_or(settings.switch_rate);
  settings.counts = choices.counts.value_or(settings.counts);
  settings.values = choices.values.value_or(settings.values);
  settings.merge_evicted = choices.merge_evicted.value_or(settings.merge_evicted);
  settings.partitions = choices.partitions.value_or(settings.partitions);
  settings.nprobe = choices.nprobe.value_or(settings.nprobe);
  settings.refinement_passes = choices.refinement_passes.value_or(settings.refinement_passes);
  settings.contexts = choices.contexts.value_or(settings.contexts);
  settings.context_entries = choices.context_entries.value_or(settings.context_entries);
  if (!choices.beta.empty()) settings.beta = choices.beta;
  if (choices.plain_cache) settings.become_plain_cache();
  if (choices.documents) {
    if (!end)
      bad_input(Code::model_unsuitable,
                "{}: the documents of this run do not end with [EOS] (data.eos = false), so they cannot be separated",
                "--documents");
    settings.border = end;
  }
  return settings;
}

void learn_typed_text(OpenedRun& run, Memory& memory, const std::string& text) {
  const std::vector<TokenId> tokens = run.tokenizer.encode(text);
  if (tokens.size() < 2) return;  // a single token has nothing to predict
  const std::string name =
      fmt::format("written: {} ({})", shortened(text, 40), hex(hash_bytes(text.data(), text.size())).substr(0, 8));
  learn_text(*run.model, memory, name, tokens, std::ssize(tokens), {});
}

LossPair measure_losses(Model& model, Memory& memory, const std::vector<std::int32_t>& tokens) {
  LossPair out;
  if (tokens.size() < 2) return out;
  const ReadSpan reading{0, 1, std::ssize(tokens), memory.settings.window,
                         windows_at_once(model.context(), model.config())};
  MemoryReader(model, &memory, false).read(tokens, reading, [&](std::span<const WindowResult> windows, auto) {
    for (const WindowResult& window : windows) {
      out.tokens += window.tokens;
      out.frozen += window.frozen;
      out.mixed += window.mixed;
    }
    return true;
  });
  out.frozen = per_token(out.frozen, out.tokens);
  out.mixed = per_token(out.mixed, out.tokens);
  return out;
}

ReadReport read_texts(OpenedRun& run, const ReadOptions& options, ReadMemory* kept) {
  if (options.texts.empty())
    bad_input(Code::argument_missing, "no text to read; pass files, folders or builtin:DOMAIN");
  if (options.tokens < 0 || options.tokens == 1)
    bad_input(Code::option_invalid, "{} {}: must be 0 (all) or >= 2", "--tokens", options.tokens);
  Model& model = *run.model;
  if (run.recipe.model.seq_len < 2)
    bad_input(Code::model_unsuitable,
              "model.seq_len = 1: a sequence of one token predicts nothing; use a run with a longer context");
  // Texts are loaded first: an invalid name must not cost the time of creating a memory.
  std::vector<std::vector<std::int32_t>> streams;
  for (const std::string& text : options.texts) {
    const TokenData data =
        load_tokens(*run.ctx, text, run.recipe.data, run.tokenizer, options.max_documents, run.paths.read_only_cache());
    streams.push_back(stream_of(data, options.tokens));
    if (streams.back().size() < 2)
      bad_input(Code::data_nothing_to_predict, "{} is too short: it has no token to predict; use a longer text", text);
  }
  const Group& group = run.ctx->group;
  if (!group.alone()) {
    Group::Facts facts;
    for (std::size_t i = 0; i < streams.size(); ++i)
      facts.emplace_back(options.texts[i] + " (its hash)",
                         hex(hash_bytes(streams[i].data(), streams[i].size() * sizeof(streams[i][0]))));
    group.check_identical(facts);
  }
  Memory memory;
  // Every rank has the memory; only rank 0 writes it, and first reports whether it exists.
  std::optional<MemorySaver> keeper;
  if (!options.frozen && !options.memory.empty() && group.root()) keeper.emplace(options.memory);
  const auto save = [&] {
    if (keeper) keeper->save(memory);
  };
  const bool asked = !options.frozen && !options.memory.empty();
  const bool there = group.all_reduce_max(asked && group.root() && exists_path(options.memory) ? 1 : 0) != 0;
  if (there) {
    // An unwritable path must be reported before hours of reading; for a new file, the first save detects it.
    if (group.root()) require_writable(options.memory);
    memory = open_memory_for_update(run, options.memory);
    refuse_changes(memory, options.memory, options.choices, document_end(run));
    memory.settings.refinement_passes = options.choices.refinement_passes.value_or(memory.settings.refinement_passes);
    check_settings(memory.settings, "--");
    // If one text cannot be continued, the texts read before it must not be lost.
    for (std::size_t i = 0; i < streams.size(); ++i)
      find_known_text(memory, options.memory, options.texts[i], streams[i], document_end(run));
  } else if (!options.frozen) {
    memory = new_memory(run, apply_memory_overrides(default_memory_settings(run), options.choices, document_end(run)));
    save();
  }
  group.barrier();
  const std::int64_t window =
      options.frozen ? options.choices.window.value_or(default_window(run.recipe.model)) : memory.settings.window;

  ReadReport report;
  report.run = run.paths.folder;
  report.step = run.step;
  report.window = window;
  auto saved = std::chrono::steady_clock::now();
  bool stopped = false;
  std::optional<FrameKeeper> frames;
  if (kept != nullptr && options.keep_frames && !options.frozen) {
    std::int64_t total = 0;
    for (const auto& stream : streams) total += std::ssize(stream);
    frames.emplace(*kept, memory, total);
  }
  for (std::size_t i = 0; i < streams.size() && !stopped; ++i) {
    std::vector<std::int32_t>& tokens = streams[i];
    TextReading reading;
    reading.text = escaped(options.texts[i]);  // as stored: file names may contain any bytes, JSON may not
    std::int64_t text = 0;
    if (!options.frozen) {
      text = number_of_text(group, memory, options.memory, options.texts[i], tokens, document_end(run));
      const MemoryText& known = memory.texts[static_cast<std::size_t>(text)];
      if (!known.tokens.empty()) reading.from = std::ssize(known.tokens);
      tokens = read_on(known, tokens, document_end(run));
    }
    const auto total = std::ssize(tokens);
    reading.of = total;
    std::int64_t done = reading.from;
    const auto observe = [&](std::span<const WindowResult> results, std::span<const SlotAssignment>) {
      for (const WindowResult& one : results) {
        reading.windows.push_back(one);
        done += one.tokens;
      }
      if (frames) frames->after(memory, results);
      if (options.progress) options.progress(reading.text, done, total);
      if (!options.frozen && seconds_since(saved) > seconds_between_saves) {
        save();
        saved = std::chrono::steady_clock::now();
      }
      stopped = options.stop && options.stop();
      return !stopped;
    };
    const auto start = std::chrono::steady_clock::now();
    if (options.frozen) {
      MemoryReader(model, nullptr, false, options.choices.documents ? document_end(run) : std::nullopt)
          .read(tokens, {0, 1, total, window, windows_at_once(*run.ctx, run.recipe.model)}, observe);
    } else {
      learn_text(model, memory, text, tokens, total, observe);
    }
    reading.seconds = seconds_since(start);
    report.seconds += reading.seconds;
    stopped = group.all_reduce_max(stopped ? 1 : 0) != 0;
    report.texts.push_back(std::move(reading));
  }
  report.stopped = stopped;
  if (options.frozen) return report;
  save();
  if (!stopped && refinement_passes(memory) < memory.settings.refinement_passes) {
    const auto start = std::chrono::steady_clock::now();
    report.stopped = stopped = !refine_all(model, memory, options.progress, options.stop, save);
    report.refinement_seconds = seconds_since(start);
  }
  report.memory = {options.memory, memory.settings, slots_in_use(memory), refinement_passes(memory), {}, {}};
  const std::vector<double> weights = source_weights(memory);
  const auto kinds = static_cast<std::ptrdiff_t>(memory.settings.beta.size());
  report.memory->weights.assign(weights.begin() + 1, weights.begin() + 1 + kinds);
  if (memory.settings.contexts > 0)
    report.memory->contexts =
        MemoryAfterReading::Contexts{memory.contexts.size(), memory.contexts.evicted(),
                                     std::vector<double>(weights.begin() + 1 + kinds, weights.end())};
  if (options.original_tokens > 1 && !stopped) {
    if (options.progress) options.progress("the run's validation text", 0, options.original_tokens);
    const TokenData original = load_analysis_text(run, "", 0).data;
    report.original = measure_losses(model, memory, stream_of(original, options.original_tokens));
    report.original_known = warn_about_overlap(run, memory, original, 0, "the run's validation text");
    if (options.progress) options.progress("the run's validation text", 1, 1);
  }
  if (kept != nullptr) kept->memory = std::move(memory);
  return report;
}

}  // namespace some

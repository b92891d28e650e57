#include "analysis/needle/needle.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "analysis/assignments.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/random.h"
#include "memory/predictions.h"
#include "memory/reader.h"

namespace some {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::vector<std::int32_t>> documents_of(const TokenData& data, std::int64_t max_tokens) {
  std::vector<std::vector<std::int32_t>> out;
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < data.documents() && tokens < max_tokens; ++i) {
    out.push_back(data.ids(i));
    tokens += std::ssize(out.back());
  }
  return out;
}

bool ends_sentence(const Tokenizer& tokenizer, TokenId id) {
  const std::string_view bytes = tokenizer.token_bytes(id);
  return !bytes.empty() && std::string_view(".!?").find(bytes.back()) != std::string_view::npos;
}

// One question followed by one of the answers.
struct Asked {
  std::vector<std::int32_t> tokens;
  std::int64_t begin = 0;  // first token of the answer
};

// Returns all questions: [form, fact, answer], with the forms verbatim and reworded.
struct Questions {
  std::vector<Asked> all;
  std::size_t facts = 0, answers = 0;
  const Asked& at(std::size_t form, std::size_t fact, std::size_t answer) const {
    return all[(form * facts + fact) * answers + answer];
  }
};

Questions make_questions(const Tokenizer& tokenizer, const FactSet& set) {
  Questions out{{}, set.facts.size(), set.answers.size()};
  for (const bool reworded : {false, true}) {
    for (const Fact& fact : set.facts) {
      const std::string& question = reworded ? fact.reworded : fact.verbatim;
      const std::vector<TokenId> alone = tokenizer.encode(question);
      for (const std::string& answer : set.answers) {
        Asked one{tokenizer.encode(question + " " + answer), 0};
        const auto [same, end] = std::mismatch(alone.begin(), alone.end(), one.tokens.begin(), one.tokens.end());
        one.begin = std::max<std::int64_t>(1, same - alone.begin());
        for (std::size_t i = out.all.size() - out.all.size() % set.answers.size(); i < out.all.size(); ++i) {
          if (out.all[i].tokens == one.tokens)
            bad_input(Code::model_unsuitable,
                      "the vocabulary of this run does not distinguish the answers {}; use a run that was trained on "
                      "English text",
                      fmt::join(set.answers, ", "));
        }
        out.all.push_back(std::move(one));
      }
    }
  }
  return out;
}

// Sums over questions. The true answer counts as right if it has the lowest loss; ties count fractionally.
struct Sums {
  std::array<NeedleScore, 2> forms;
  double questions = 0;
  void add(const Questions& questions_asked, const FactSet& set, const std::vector<double>& losses) {
    for (std::size_t form = 0; form < 2; ++form) {
      for (std::size_t fact = 0; fact < questions_asked.facts; ++fact) {
        const double* own = losses.data() + (form * questions_asked.facts + fact) * questions_asked.answers;
        const double lowest = *std::min_element(own, own + questions_asked.answers), loss = own[set.facts[fact].answer];
        forms[form].loss += loss;
        if (loss <= lowest)
          forms[form].right += 1.0 / static_cast<double>(std::count(own, own + questions_asked.answers, lowest));
      }
    }
    questions += static_cast<double>(questions_asked.facts);
  }
  NeedleScore mean(std::size_t form) const {
    const double count = std::max(questions, 1.0);
    return {forms[form].right / count, forms[form].loss / count};
  }
};

// A text read by the memories and the counter.
class Readers {
 public:
  Readers(OpenedRun& run, const Tensor& mean, const MemorySettings& settings) : run_(run), settings_(settings) {
    for (const NeedleMethod method : {NeedleMethod::states, NeedleMethod::contexts, NeedleMethod::both}) {
      MemorySettings own = settings;
      if (method == NeedleMethod::states) own.contexts = 0;
      if (method == NeedleMethod::contexts) own.slots = own.partitions = 1;
      memories_.push_back({method, make_memory(*run.ctx, own, run.recipe.model, mean)});
      bind_to_model(memories_.back().second, *run.model, run.tokenizer, run.paths.folder);
    }
    ContextSettings counted = memories_.back().second.settings.of_contexts();
    counter_.emplace(counted, run.recipe.model.vocab);
  }

  void read(const std::string& name, const std::vector<std::int32_t>& tokens) {
    for (auto& [method, memory] : memories_) learn_text(*run_.model, memory, name, tokens, std::ssize(tokens), {});
    for (std::int64_t t = 1; t < std::ssize(tokens); ++t)
      counter_->learn(before(tokens, t), tokens[static_cast<std::size_t>(t)], -1);
  }

  // Adds the results of every method. text: contents of the model's window before a question.
  void ask(const Questions& questions, const FactSet& set, const std::vector<std::int32_t>& text,
           std::array<Sums, needle_methods.size()>& sums) {
    std::array<std::vector<double>, needle_methods.size()> losses;
    answer(questions, {}, losses);
    std::array<std::vector<double>, needle_methods.size()> in_window;
    answer(questions, text, in_window);
    losses[index_of(NeedleMethod::window)] = in_window[index_of(NeedleMethod::model)];
    for (const Asked& one : questions.all) losses[index_of(NeedleMethod::counter)].push_back(counted(one));
    for (std::size_t m = 0; m < needle_methods.size(); ++m) sums[m].add(questions, set, losses[m]);
  }

 private:
  static std::size_t index_of(NeedleMethod method) { return static_cast<std::size_t>(method); }

  std::span<const std::int32_t> before(std::span<const std::int32_t> tokens, std::int64_t t) const {
    return context_before(tokens, t, counter_->settings().longest, settings_.border);
  }

  double counted(const Asked& one) const {
    std::vector<double> estimates(static_cast<std::size_t>(counter_->settings().orders()));
    double loss = 0;
    for (std::int64_t t = one.begin; t < std::ssize(one.tokens); ++t) {
      counter_->estimate(counter_->find(before(one.tokens, t)), one.tokens[static_cast<std::size_t>(t)], estimates);
      loss -= std::log(estimates.back());
    }
    return loss;
  }

  // Returns the losses of all answers by the model and, if no text precedes the questions, by the memories. Each
  // question is answered independently: the mixture weights start from those of the memory.
  void answer(const Questions& questions, const std::vector<std::int32_t>& text,
              std::array<std::vector<double>, needle_methods.size()>& losses) {
    Context& ctx = *run_.ctx;
    const std::int64_t longest = run_.recipe.model.seq_len + 1, at_once = ctx.device.is_cpu() ? 2048 : 16384;
    for (std::size_t next = 0; next < questions.all.size();) {
      Batch batch;
      std::vector<std::int64_t> rows, begins;  // per question: its first row, and the row that predicts the answer
      std::vector<std::int64_t> sizes;
      for (; next < questions.all.size() && (rows.empty() || batch.size() < at_once); ++next) {
        const Asked& one = questions.all[next];
        const std::int64_t shown = std::min(std::ssize(text), longest - std::ssize(one.tokens));
        std::vector<std::int32_t> tokens(text.end() - std::max<std::int64_t>(0, shown), text.end());
        const std::int64_t context = std::ssize(tokens);
        tokens.insert(tokens.end(), one.tokens.begin(), one.tokens.end());
        rows.push_back(batch.size());
        add_window(batch, tokens, 1, std::ssize(tokens), std::ssize(tokens), std::nullopt);
        begins.push_back(context + one.begin - 1);
        sizes.push_back(batch.size() - rows.back());
      }
      ctx.arena->reset();
      const DeviceBatch device_batch = upload(ctx, batch);
      Tensor states;
      const Tensor nll = run_.model->evaluate(device_batch, {}, {.states = &states});
      const auto add = [&](NeedleMethod method, const Tensor& own, std::size_t i, std::int64_t offset) {
        const std::vector<double> each = read_vector(own.rows(offset + begins[i], offset + sizes[i]));
        double loss = 0;
        for (const double one : each) loss += one;
        losses[index_of(method)].push_back(loss);
      };
      for (std::size_t i = 0; i < rows.size(); ++i) {
        add(NeedleMethod::model, nll, i, rows[i]);
        if (!text.empty()) continue;
        const std::int64_t first = rows[i], last = rows[i] + sizes[i];
        for (const auto& [method, memory] : memories_) {
          MixtureState mixture(memory);
          Tensor own = nll.rows(first, last).clone();
          mix_losses(ctx, memory, batch, first, states.rows(first, last), device_batch.targets.rows(first, last),
                     mixture, own);
          add(method, own, i, 0);
        }
      }
    }
  }

  OpenedRun& run_;
  MemorySettings settings_;
  std::vector<std::pair<NeedleMethod, Memory>> memories_;
  std::optional<ContextStore> counter_;
};

std::vector<NeedleResult> results_of(const std::array<Sums, needle_methods.size()>& sums) {
  std::vector<NeedleResult> out;
  for (std::size_t m = 0; m < needle_methods.size(); ++m)
    out.push_back({needle_methods[m], sums[m].mean(0), sums[m].mean(1)});
  return out;
}

void check(const NeedleOptions& options) {
  const auto require = [](bool right, const char* option, const std::string& value, const std::string& wanted) {
    if (!right) bad_input(Code::option_invalid, "{} {}: must be {}", option, value, wanted);
  };
  require(options.facts >= 1 && options.facts <= max_facts(), "--facts", std::to_string(options.facts),
          fmt::format("from 1 to {}", max_facts()));
  require(options.repeats >= 1 && options.repeats <= 1000, "--repeats", std::to_string(options.repeats),
          "from 1 to 1000");
  require(!options.tokens.empty(), "--tokens", "", "at least one number");
  for (const std::int64_t one : options.tokens)
    require(one >= 16 && one <= 100'000'000, "--tokens", std::to_string(one), "numbers from 16 to 100000000");
  for (const std::int64_t one : options.others)
    require(one >= 1 && one <= 1'000'000, "--others", std::to_string(one), "numbers from 1 to 1000000");
}

}  // namespace

const char* name_of(NeedleMethod method) {
  switch (method) {
    case NeedleMethod::model: return "model, question only";
    case NeedleMethod::window: return "model, its window";
    case NeedleMethod::counter: return "counter";
    case NeedleMethod::states: return "slots";
    case NeedleMethod::contexts: return "contexts";
    case NeedleMethod::both: return "slots and contexts";
  }
  return "";
}

Haystack make_haystack(const std::vector<std::vector<std::int32_t>>& documents, const Tokenizer& tokenizer,
                       const FactSet& facts, std::int64_t tokens, std::uint64_t seed) {
  std::vector<std::vector<std::int32_t>> planted;
  std::int64_t room = tokens;
  for (const Fact& fact : facts.facts) {
    planted.push_back(tokenizer.encode((tokenizer.kind() == TokenizerKind::bytelevel ? " " : "") + fact.statement));
    room -= std::ssize(planted.back());
  }
  if (room < tokens / 2)
    bad_input(Code::option_invalid, "{} facts take {} of {} tokens, more than half; use fewer --facts or more --tokens",
              facts.facts.size(), tokens - room, tokens);
  std::vector<std::int32_t> text;
  for (const std::vector<std::int32_t>& document : documents) {
    const auto left = std::min(std::ssize(document), room - std::ssize(text));
    text.insert(text.end(), document.begin(), document.begin() + left);
  }
  if (std::ssize(text) < room)
    bad_input(Code::data_nothing_to_predict,
              "the text has {} tokens, but {} are required; use a longer text with --data", text.size(), room);
  // Plants the facts after ends of sentences; in a text without any, anywhere.
  std::vector<std::int64_t> ends;
  for (std::int64_t t = 0; t + 1 < room; ++t) {
    if (ends_sentence(tokenizer, text[static_cast<std::size_t>(t)])) ends.push_back(t + 1);
  }
  const RandomStream stream = random_stream(seed, "facts.places");
  std::vector<std::int64_t> chosen;
  for (std::size_t i = 0; i < planted.size(); ++i)
    chosen.push_back(ends.empty() ? stream.below(i, static_cast<std::uint32_t>(room))
                                  : ends[stream.below(i, static_cast<std::uint32_t>(ends.size()))]);
  std::sort(chosen.begin(), chosen.end());
  Haystack out;
  std::int64_t done = 0;
  for (std::size_t i = 0; i < planted.size(); ++i) {
    out.tokens.insert(out.tokens.end(), text.begin() + done, text.begin() + chosen[i]);
    done = chosen[i];
    out.places.push_back(std::ssize(out.tokens));
    out.tokens.insert(out.tokens.end(), planted[i].begin(), planted[i].end());
  }
  out.tokens.insert(out.tokens.end(), text.begin() + done, text.end());
  return out;
}

NeedleReport measure_needles(OpenedRun& run, const NeedleOptions& options) {
  check(options);
  const auto started = Clock::now();
  NeedleReport report;
  report.run = run.paths.folder;
  report.step = run.step;
  report.facts = options.facts;
  report.repeats = options.repeats;
  report.seed = options.seed;
  report.other_data = escaped(options.other_data);
  MemoryOverrides choices = options.choices;
  choices.contexts = choices.contexts.value_or(ContextSettings{}.longest);
  choices.documents = document_end(run).has_value();
  report.settings = apply_memory_overrides(default_memory_settings(run), choices, document_end(run));
  if (report.settings.contexts < 1)
    bad_input(Code::option_invalid, "{} {}: must be at least 1, because contexts are one of the methods", "--contexts",
              report.settings.contexts);
  check_settings(report.settings, "--");
  const AnalysisText text = load_analysis_text(run, options.data, 0);
  report.data = text.source;
  std::vector<std::int64_t> lengths(options.tokens.begin(), options.tokens.end()),
      others(options.others.begin(), options.others.end());
  std::sort(lengths.begin(), lengths.end());
  std::sort(others.begin(), others.end());
  const auto documents = documents_of(text.data, lengths.back());
  // Checks all options before the first text is read.
  for (const std::int64_t length : lengths)
    make_haystack(documents, run.tokenizer, make_facts(options.facts, options.seed), length, options.seed);
  std::vector<std::vector<std::int32_t>> other;
  if (!others.empty()) {
    const TokenData data = load_tokens(*run.ctx, options.other_data, run.recipe.data, run.tokenizer, others.back(),
                                       run.paths.read_only_cache());
    other = documents_of(data, std::numeric_limits<std::int64_t>::max());
    if (std::ssize(other) < others.back())
      bad_input(Code::data_nothing_to_predict,
                "{} has {} documents, but {} are required; use fewer --others, or other text", options.other_data,
                other.size(), others.back());
  }
  const Memory first = new_memory(run, report.settings);
  report.settings = first.settings;

  const auto rows = lengths.size() + others.size();
  std::vector<std::array<Sums, needle_methods.size()>> sums(rows);
  std::vector<double> other_tokens(others.size(), 0);
  for (std::int64_t repeat = 0; repeat < options.repeats && !report.stopped; ++repeat) {
    const std::uint64_t seed = options.seed + static_cast<std::uint64_t>(repeat);
    const FactSet set = make_facts(options.facts, seed);
    report.answers = std::ssize(set.answers);
    const Questions questions = make_questions(run.tokenizer, set);
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      if ((report.stopped = options.stop && options.stop())) break;
      if (options.progress)
        options.progress("text", repeat * std::ssize(lengths) + static_cast<std::int64_t>(i),
                         options.repeats * std::ssize(lengths));
      Readers readers(run, first.store.mean, report.settings);
      Haystack haystack = make_haystack(documents, run.tokenizer, set, lengths[i], seed);
      readers.read("text", haystack.tokens);
      readers.ask(questions, set, haystack.tokens, sums[i]);
      if (i > 0) continue;
      std::vector<std::int32_t> shown = haystack.tokens;
      std::size_t read = 0;
      for (std::size_t j = 0; j < others.size(); ++j) {
        if ((report.stopped = options.stop && options.stop())) break;
        std::vector<std::int32_t> more;
        for (; std::cmp_less(read, others[j]); ++read) more.insert(more.end(), other[read].begin(), other[read].end());
        readers.read(fmt::format("other {}", j + 1), more);
        shown.insert(shown.end(), more.begin(), more.end());
        other_tokens[j] = static_cast<double>(std::ssize(shown) - std::ssize(haystack.tokens));
        readers.ask(questions, set, shown, sums[lengths.size() + j]);
      }
    }
  }
  for (std::size_t i = 0; i < lengths.size(); ++i)
    if (sums[i][0].questions > 0) report.lengths.push_back({lengths[i], 0, 0, results_of(sums[i])});
  for (std::size_t j = 0; j < others.size(); ++j)
    if (const auto& own = sums[lengths.size() + j]; own[0].questions > 0)
      report.retention.push_back({lengths[0], others[j], static_cast<std::int64_t>(other_tokens[j]), results_of(own)});
  report.seconds = std::chrono::duration<double>(Clock::now() - started).count();
  return report;
}

nlohmann::json to_json(const NeedleReport& report) {
  const auto score = [](const NeedleScore& one) -> nlohmann::json {
    return {{"right", one.right}, {"loss", one.loss}};
  };
  const auto rows = [&](const std::vector<NeedleRow>& list) {
    nlohmann::json out = nlohmann::json::array();
    for (const NeedleRow& row : list) {
      nlohmann::json methods = nlohmann::json::array();
      for (const NeedleResult& one : row.results)
        methods.push_back(
            {{"method", name_of(one.method)}, {"verbatim", score(one.verbatim)}, {"reworded", score(one.reworded)}});
      out.push_back(
          {{"tokens", row.tokens}, {"others", row.others}, {"other_tokens", row.other_tokens}, {"methods", methods}});
    }
    return out;
  };
  return {{"run", report.run},
          {"step", report.step},
          {"data", report.data},
          {"other_data", report.other_data},
          {"facts", report.facts},
          {"repeats", report.repeats},
          {"seed", report.seed},
          {"answers", report.answers},
          {"chance", report.answers > 0 ? 1.0 / static_cast<double>(report.answers) : 0.0},
          {"settings", to_json(report.settings)},
          {"lengths", rows(report.lengths)},
          {"retention", rows(report.retention)},
          {"seconds", report.seconds},
          {"stopped", report.stopped}};
}

}  // namespace some

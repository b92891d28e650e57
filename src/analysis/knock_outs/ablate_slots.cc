#include "analysis/knock_outs/ablate_slots.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "analysis/assignments.h"
#include "core/error.h"
#include "core/random.h"
#include "evaluation/evaluate.h"

namespace some {
namespace {

// Returns the non-empty slots of a memory with the word class of their main token.
struct UsedSlots {
  std::vector<std::size_t> slots;
  std::vector<WordClass> classes;
};

std::vector<WordClass> classes_of(const Tokenizer& tokenizer, const std::vector<std::int32_t>& tokens) {
  std::vector<WordClass> out;
  if (tokenizer.kind() == TokenizerKind::bytelevel) {
    std::vector<std::uint16_t> lengths;
    for (const std::int32_t token : tokens)
      lengths.push_back(static_cast<std::uint16_t>(tokenizer.token_bytes(token).size()));
    return classify_tokens(tokenizer, tokens, lengths);
  }
  for (const std::int32_t token : tokens) {  // each token counts as a word
    const std::vector<ClassifiedWord> words = classify_text(tokenizer.token_bytes(token));
    out.push_back(words.empty() ? WordClass::other : words[0].word_class);
  }
  return out;
}

UsedSlots used_slots(const Memory& memory, const Tokenizer& tokenizer) {
  std::vector<std::vector<WordClass>> classes;
  for (const MemoryText& text : memory.texts) classes.push_back(classes_of(tokenizer, text.tokens));
  const Tensor values = memory.store.values.to(Device::cpu), born = memory.store.born.to(Device::cpu);
  UsedSlots out;
  for (std::size_t m = 0; m < static_cast<std::size_t>(memory.store.slots()); ++m) {
    const std::int32_t token = values.data<std::int32_t>()[m];
    if (token < 0) continue;
    const Place place = unpacked(born.data<std::int64_t>()[m]);
    const auto text = static_cast<std::size_t>(place.text), at = static_cast<std::size_t>(place.offset);
    const bool known = text < classes.size() && at < classes[text].size();
    out.slots.push_back(m);
    out.classes.push_back(known ? classes[text][at] : classes_of(tokenizer, {token})[0]);
  }
  return out;
}

// Empties slots during the lifetime of the object.
class WithoutSlots {
 public:
  WithoutSlots(Memory& memory, const std::vector<std::size_t>& slots)
      : store_(memory.store), values_(store_.values), counts_(store_.counts), entry_counts_(store_.entry_counts) {
    const Device device = values_.device();
    Tensor values = values_.to(Device::cpu).clone();
    const std::int64_t all = store_.slots(), entries = store_.entries();
    for (const std::size_t slot : slots) {
      for (std::int64_t k = 0; k < entries; ++k)
        values.data<std::int32_t>()[k * all + static_cast<std::int64_t>(slot)] = -1;
    }
    store_.values = values.to(device);
    store_.counts = emptied(counts_, slots, 1);
    if (entry_counts_) store_.entry_counts = emptied(entry_counts_, slots, entries);
  }
  ~WithoutSlots() {
    store_.values = values_;
    store_.counts = counts_;
    store_.entry_counts = entry_counts_;
  }
  WithoutSlots(const WithoutSlots&) = delete;
  WithoutSlots& operator=(const WithoutSlots&) = delete;

 private:
  Tensor emptied(const Tensor& counts, const std::vector<std::size_t>& slots, std::int64_t entries) const {
    Tensor out = counts.to(Device::cpu).clone();
    for (const std::size_t slot : slots) {
      for (std::int64_t k = 0; k < entries; ++k) {
        const std::int64_t at = k * store_.slots() + static_cast<std::int64_t>(slot);
        if (out.dtype() == DType::f64)
          out.data<double>()[at] = 0;
        else
          out.data<float>()[at] = 0;
      }
    }
    return out.to(counts.device());
  }

  Store& store_;
  Tensor values_, counts_, entry_counts_;
};

// Returns the first `count` slots in a random order.
std::vector<std::size_t> random_slots(const UsedSlots& used, std::size_t count, const RandomStream& stream) {
  std::vector<std::size_t> order = used.slots;
  for (std::size_t i = 0; i < count; ++i)
    std::swap(order[i], order[i + stream.below(i, static_cast<std::uint32_t>(order.size() - i))]);
  order.resize(count);
  return order;
}

}  // namespace

AblateSlotsReport ablate_slots(OpenedRun& run, Memory& memory, const AblateSlotsOptions& options) {
  if (options.draws < 1 || options.draws > 10000)
    bad_input(Code::option_invalid, "{} {}: must be from 1 to 10000", "--draws", options.draws);
  const AnalysisText text = load_analysis_text(run, options.data, options.max_documents);
  const UsedSlots used = used_slots(memory, run.tokenizer);
  if (used.slots.empty())
    bad_input(Code::memory_settings, "the memory of {} is empty: there is no slot to knock out", run.paths.folder);
  EvaluateOptions how = evaluate_options(run.recipe, run.tokenizer);
  how.max_documents = options.max_documents;
  how.memory = &memory;
  const auto loss_without = [&](const std::vector<std::size_t>& slots) {
    const WithoutSlots without(memory, slots);
    return evaluate(*run.model, text.data, how).loss;
  };
  AblateSlotsReport report;
  report.run = run.paths.folder;
  report.step = run.step;
  report.data = text.source;
  report.documents = text.documents;
  report.slots = static_cast<std::int64_t>(used.slots.size());
  report.draws = options.draws;
  report.loss = loss_without({});
  report.without_slots = loss_without(used.slots);
  std::vector<std::vector<std::size_t>> by_class(word_classes);
  for (std::size_t i = 0; i < used.slots.size(); ++i)
    by_class[static_cast<std::size_t>(used.classes[i])].push_back(used.slots[i]);
  const int present =
      static_cast<int>(std::count_if(by_class.begin(), by_class.end(), [](const auto& one) { return !one.empty(); }));
  int done = 0;
  for (int c = 0; c < word_classes && !report.stopped; ++c) {
    const std::vector<std::size_t>& slots = by_class[static_cast<std::size_t>(c)];
    if (slots.empty()) continue;
    SlotKnockOut one;
    one.word_class = static_cast<WordClass>(c);
    one.slots = std::ssize(slots);
    one.change = loss_without(slots) - report.loss;
    std::vector<double> drawn;
    for (int draw = 0; draw < options.draws && !report.stopped; ++draw) {
      const RandomStream stream = random_stream(options.seed, fmt::format("ablate.slots.{}.{}", c, draw));
      drawn.push_back(loss_without(random_slots(used, slots.size(), stream)) - report.loss);
      report.stopped = options.stop && options.stop();
      if (options.progress) options.progress(++done, present * options.draws);
    }
    if (report.stopped && std::ssize(drawn) < options.draws) break;
    const auto count = static_cast<double>(drawn.size());
    one.control = std::accumulate(drawn.begin(), drawn.end(), 0.0) / count;
    double squares = 0;
    int as_far = 0;
    for (const double value : drawn) {
      squares += (value - one.control) * (value - one.control);
      as_far += std::abs(value - one.control) >= std::abs(one.change - one.control);
    }
    if (count > 1) one.control_deviation = std::sqrt(squares / (count - 1));
    one.p = (1.0 + as_far) / (1.0 + count);
    report.knock_outs.push_back(one);
  }
  return report;
}

nlohmann::json to_json(const AblateSlotsReport& report) {
  nlohmann::json list = nlohmann::json::array();
  for (const SlotKnockOut& one : report.knock_outs)
    list.push_back({{"word_class", name_of(one.word_class)},
                    {"slots", one.slots},
                    {"change", one.change},
                    {"control", one.control},
                    {"control_deviation", one.control_deviation},
                    {"p", one.p}});
  return {{"run", report.run},
          {"step", report.step},
          {"data", report.data},
          {"documents", report.documents},
          {"slots", report.slots},
          {"loss", report.loss},
          {"loss_without_slots", report.without_slots},
          {"draws", report.draws},
          {"knock_outs", list},
          {"stopped", report.stopped}};
}

}  // namespace some

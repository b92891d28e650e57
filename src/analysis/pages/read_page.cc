// The page of a reading: loss compared with the frozen control, the effect of memory updates, and a map of the store's
// slots.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/pages/key_charts.h"
#include "analysis/pages/memory_view.h"
#include "analysis/pages/run_header.h"
#include "analysis/read.h"

namespace some {
namespace {

using nlohmann::json;

constexpr std::size_t max_spans = 160;  // more could not be distinguished
constexpr std::int64_t context_words = 14;

// Windows of all texts, merged into at most max_spans spans.
struct LossSpan {
  double tokens = 0, read = 0, frozen = 0, mixed = 0, births = 0, hits = 0, lost = 0;
};
std::vector<LossSpan> spans_of_windows(const ReadReport& report) {
  std::vector<LossSpan> all;
  double read = 0;
  for (const TextReading& text : report.texts) {
    for (const WindowResult& window : text.windows) {
      const auto tokens = static_cast<double>(window.tokens);
      read += tokens;
      all.push_back({tokens, read, window.frozen, window.mixed, static_cast<double>(window.births),
                     static_cast<double>(window.hits), static_cast<double>(window.lost)});
    }
  }
  const std::size_t merged = std::max<std::size_t>(1, (all.size() + max_spans - 1) / max_spans);
  std::vector<LossSpan> out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i % merged == 0) out.emplace_back();
    LossSpan& one = out.back();
    one.tokens += all[i].tokens;
    one.read = all[i].read;
    one.frozen += all[i].frozen;
    one.mixed += all[i].mixed;
    one.births += all[i].births;
    one.hits += all[i].hits;
    one.lost += all[i].lost;
  }
  return out;
}

void add_curves(Document& document, const ReadReport& report) {
  json frozen = json::array(), mixed = json::array(), births = json::array(), hits = json::array(),
       lost = json::array();
  for (const LossSpan& span : spans_of_windows(report)) {
    frozen.push_back(chart_point(span.read, span.frozen / span.tokens));
    mixed.push_back(chart_point(span.read, span.mixed / span.tokens));
    births.push_back(chart_point(span.read, span.births / span.tokens));
    hits.push_back(chart_point(span.read, span.hits / span.tokens));
    lost.push_back(chart_point(span.read, span.lost / span.tokens));
  }
  document.begin_side_by_side();
  document.chart({"loss",
                  "Loss while reading",
                  "Every token is predicted before the memory learns from it.",
                  {{"kind", "lines"},
                   {"x", {{"name", "tokens read"}}},
                   {"y", {{"name", "nats/token"}}},
                   {"series",
                    {{{"name", "without memory"}, {"role", "frozen"}, {"points", frozen}},
                     {{"name", "with memory"}, {"role", "active"}, {"points", mixed}}}}}});
  document.chart(
      {"lessons",
       "Matched and inserted tokens",
       report.memory && report.memory->settings.merge_evicted
           ? "A token that matches a slot moves its key. Any other token is inserted into the least used slot, "
             "whose previous content is merged into its nearest neighbor."
           : "A token that matches a slot moves the key of that slot. Any other token is inserted into the "
             "least used slot, which evicts its previous content.",
       {{"kind", "lines"},
        {"x", {{"name", "tokens read"}}},
        {"y", {{"name", "share of the tokens"}}},
        {"series",
         {{{"name", "matched"}, {"points", hits}},
          {{"name", "inserted"}, {"points", births}},
          {{"name", "inserted, evicting another slot"}, {"points", lost}}}}}});
  document.end_side_by_side();
}

// States of a slot between two frames, as in the page's script.
enum class SlotState { empty, still, hit, born };

json store_view(const ReadMemory& kept, const OpenedRun& run) {
  const std::size_t slots = kept.shown.size();
  const auto d = static_cast<std::int64_t>(kept.memory->store.keys.dim(1));
  Points points;  // of all frames, so that they share one plane
  points.dimensions = d;
  for (const StoreFrame& frame : kept.frames) {
    for (std::size_t i = 0; i < slots; ++i) {
      if (!(frame.counts[i] > 0)) continue;
      const auto at = frame.keys.begin() + static_cast<std::ptrdiff_t>(i) * d;
      points.values.insert(points.values.end(), at, at + d);
      ++points.count;
    }
  }
  if (points.count < 3) return nullptr;
  const std::vector<Point2> places = project(points, principal_plane(points));
  json frames = json::array();
  std::size_t next = 0;
  for (std::size_t f = 0; f < kept.frames.size(); ++f) {
    const StoreFrame& frame = kept.frames[f];
    json dots = json::array();
    for (std::size_t i = 0; i < slots; ++i) {
      if (!(frame.counts[i] > 0)) continue;
      const bool first = f == 0, born = first || kept.frames[f - 1].born[i] != frame.born[i];
      const bool hit = !born && kept.frames[f - 1].hit[i] != frame.hit[i];
      const SlotState state = born ? SlotState::born : hit ? SlotState::hit : SlotState::still;
      const Point2 place = places[next++];
      dots.push_back(
          {i, chart_number(place.x), chart_number(place.y), chart_number(frame.counts[i]), static_cast<int>(state)});
    }
    frames.push_back({{"tokens", frame.tokens},
                      {"births", frame.births},
                      {"hits", frame.hits},
                      {"lost", frame.lost},
                      {"dots", dots}});
  }
  // Final content of each slot.
  const Tensor born = kept.memory->store.born.to(Device::cpu);
  json words = json::array();
  for (const std::int64_t slot : kept.shown) {
    const std::int64_t place = born.data<std::int64_t>()[slot];
    if (place == no_place) {
      words.push_back({{"slot", slot}});
      continue;
    }
    json one = to_json(passage_at(*kept.memory, run.tokenizer, place, context_words));
    one["slot"] = slot;
    words.push_back(one);
  }
  return {{"frames", frames}, {"slots", words}, {"of", kept.memory->settings.slots}};
}

}  // namespace

std::string read_page(const ReadReport& report, const ReadMemory& kept, const OpenedRun& run) {
  Header header = run_header("Reading", run);
  std::string names;
  for (const TextReading& text : report.texts) names += (names.empty() ? "" : ", ") + text.text;
  const WindowResult all = report.all();
  header.title = fmt::format("{} at step {} reads {}", run_name(run), report.step, names);
  header.facts.emplace_back("read", fmt::format("{} tokens in windows of {}", all.tokens, report.window));
  if (report.memory)
    header.facts.emplace_back(
        "memory", fmt::format("{} of {} slots in use{}", report.memory->slots_in_use, report.memory->settings.slots,
                              report.memory->settings.partitions > 1
                                  ? fmt::format(", in {} partitions", report.memory->settings.partitions)
                                  : ""));
  Document document(std::move(header));
  if (!report.memory) {
    document.paragraph("Only the model was run; there is no memory to show.");
    return write_html(document);
  }
  const double gain = per_token(all.frozen - all.mixed, all.tokens);
  Text told = Text("Loss of the model without memory: ")
                  .strong(fmt::format("{:.4f}", per_token(all.frozen, all.tokens)))
                  .add(" nats/token; with memory: ")
                  .strong(fmt::format("{:.4f}", per_token(all.mixed, all.tokens)))
                  .add(fmt::format(": {} {:.4f}.", gain >= 0 ? "improvement" : "increase", std::abs(gain)));
  if (report.original) {
    const double lost = report.original->mixed - report.original->frozen;
    told.add(fmt::format(" On the run's validation text the memory {} the loss by {:.4f}.",
                         lost > 0 ? "increases" : "improves", std::abs(lost)));
  }
  document.paragraph(told);
  add_curves(document, report);
  if (kept.memory && !kept.frames.empty()) {
    json view = store_view(kept, run);
    if (!view.is_null()) {
      document.heading(2, "store", "The memory over time");
      std::string how =
          "Slots by their keys, by PCA. Drag the slider to any moment; select a slot to see the passage in which it "
          "was inserted.";
      if (kept.memory->settings.partitions > 1)
        how +=
            " The memory has partitions. A partition that is split renumbers its slots, so a slot that looks inserted "
            "may have moved.";
      document.paragraph(how);
      document.view({"store-map", "store", std::move(view)});
    }
  }
  return write_html(document);
}

}  // namespace some

#include "board/slots.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "analysis/pages/key_charts.h"
#include "analysis/pages/memory_view.h"
#include "board/own_files.h"
#include "core/error.h"
#include "core/files/files.h"
#include "memory/memory_file.h"
#include "plot/projection.h"
#include "runs/run.h"
#include "runtime/context.h"
#include "text/tokenizer.h"

namespace some {
namespace {

using nlohmann::json;

constexpr std::size_t max_slots_shown = 600, moments = 24;
constexpr std::int64_t context_words = 14;

// A slot with its times of insertion and of the last merged token, in tokens read until then. For texts that only
// another memory has read, both are the time when that memory was merged into this one.
struct Seen {
  std::int64_t slot = 0;
  double count = 0, born = 0, hit = 0;
  bool born_elsewhere = false, hit_elsewhere = false;
};

// States as defined in web/src/view/store.js.
enum class SlotState { still = 1, merged = 2, born = 3, taken_in = 4 };

std::vector<Seen> seen_slots(const Memory& memory) {
  std::vector<double> before{0};
  for (const MemoryText& text : memory.texts) before.push_back(before.back() + static_cast<double>(text.tokens.size()));
  const auto moment = [&](std::int64_t packed_place) {
    const Place place = unpacked(packed_place);
    const auto text = std::min(static_cast<std::size_t>(std::max<std::int64_t>(0, place.text)), before.size() - 1);
    return before[text] + static_cast<double>(place.offset);
  };
  std::set<std::int64_t> own;  // indices of texts read by this memory
  for (const HistoryEntry& entry : memory.history) {
    if (entry.kind == HistoryEntry::Kind::read) own.insert(entry.reading.text);
  }
  const Tensor& values = memory.store.values;
  const std::vector<double> counts = read_vector(memory.store.counts);
  std::vector<Seen> out;
  for (std::int64_t m = 0; m < memory.store.slots(); ++m) {
    if (values.data<std::int32_t>()[m] < 0) continue;
    const std::int64_t born = memory.store.born.data<std::int64_t>()[m], hit = memory.store.hit.data<std::int64_t>()[m];
    out.push_back({m, counts[static_cast<std::size_t>(m)], moment(born), moment(hit),
                   !own.contains(unpacked(born).text), !own.contains(unpacked(hit).text)});
  }
  return out;
}

json frames_of(const std::vector<Seen>& all, const std::vector<Seen>& shown, const std::vector<Point2>& places,
               double tokens) {
  json frames = json::array();
  for (std::size_t i = 1; i <= moments; ++i) {
    const double begin = tokens * static_cast<double>(i - 1) / moments, end = tokens * static_cast<double>(i) / moments;
    const auto now = [&](double moment) { return moment >= begin && (moment < end || i == moments); };
    json dots = json::array();
    for (std::size_t s = 0; s < shown.size(); ++s) {
      if (shown[s].born >= end && i < moments) continue;
      SlotState state = SlotState::still;
      if (now(shown[s].born))
        state = shown[s].born_elsewhere ? SlotState::taken_in : SlotState::born;
      else if (now(shown[s].hit))
        state = shown[s].hit_elsewhere ? SlotState::taken_in : SlotState::merged;
      dots.push_back({s, chart_number(places[s].x), chart_number(places[s].y), chart_number(shown[s].count),
                      static_cast<int>(state)});
    }
    std::int64_t births = 0, hits = 0, taken = 0;
    for (const Seen& one : all) {
      if (now(one.born))
        ++(one.born_elsewhere ? taken : births);
      else if (now(one.hit))
        ++(one.hit_elsewhere ? taken : hits);
    }
    frames.push_back({{"tokens", static_cast<std::int64_t>(end)}, {"births", births}, {"hits", hits}, {"dots", dots}});
    if (taken > 0) frames.back()["taken"] = taken;
  }
  return frames;
}

}  // namespace

std::string slots_of_memory(const Watch& watch, const Request& request) {
  const auto runs = requested_runs(watch, request);
  if (runs.size() != 1) bad_input(Code::request_invalid, "{}: must be the number of one run", "runs");
  const std::string file = runs[0]->memory(), words = RunPaths{runs[0]->folder()}.tokenizer();
  if (file.empty() || !is_file_not_link(file) || !is_file_not_link(words)) return "{}";
  const auto ctx = make_context("cpu", "fp32", make_host(1));
  const Memory memory = load_memory(*ctx, file);
  const Tokenizer tokenizer = Tokenizer::load(words);
  if (hex(tokenizer.hash()) != memory.tokenizer)
    bad_input(Code::memory_mismatch, "this memory was read with another tokenizer");
  const std::vector<Seen> all = seen_slots(memory);
  std::vector<Seen> shown = all;
  if (shown.size() > max_slots_shown) {
    std::stable_sort(shown.begin(), shown.end(), [](const Seen& a, const Seen& b) { return a.count > b.count; });
    shown.resize(max_slots_shown);
  }
  double tokens = 0;
  json texts = json::array();
  for (std::size_t i = 0; i < memory.texts.size(); ++i) {
    const double end = tokens + static_cast<double>(memory.texts[i].tokens.size());
    const bool last = i + 1 == memory.texts.size();
    texts.push_back({{"name", memory.texts[i].name},
                     {"tokens", memory.texts[i].tokens.size()},
                     {"slots", std::count_if(all.begin(), all.end(), [&](const Seen& one) {
                        return one.born >= tokens && (one.born < end || last);
                      })}});
    tokens = end;
  }
  json out{{"texts", texts}, {"in_use", all.size()}, {"slots", memory.store.slots()}};
  if (shown.size() >= 3) {
    Points points{static_cast<std::int64_t>(shown.size()), memory.store.keys.dim(1), {}};
    const std::vector<double> keys = read_vector(memory.store.keys);
    json passages = json::array();
    for (const Seen& one : shown) {
      const auto row = keys.begin() + one.slot * points.dimensions;
      points.values.insert(points.values.end(), row, row + points.dimensions);
      json passage =
          to_json(passage_at(memory, tokenizer, memory.store.born.data<std::int64_t>()[one.slot], context_words));
      passage["slot"] = one.slot;
      passage["met"] = static_cast<std::int64_t>(one.count);
      passages.push_back(std::move(passage));
    }
    const std::vector<Point2> places = project(points, principal_plane(points));
    out["store"] = {{"frames", frames_of(all, shown, places, tokens)}, {"slots", passages}, {"of", all.size()}};
  }
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace some

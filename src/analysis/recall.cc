#include "analysis/recall.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "memory/reader.h"

namespace some {
namespace {

// Reads the text once. Returns loss and time, and for each position the nearest slot that holds the target.
RecallRow read_once(Model& model, Memory* memory, const std::vector<std::int32_t>& tokens, std::int64_t end,
                    std::int64_t window, std::optional<std::int32_t> border, std::vector<std::int32_t>* nearest) {
  RecallRow out;
  const ReadSpan span{0, 1, end, window, windows_at_once(model.context(), model.config())};
  const auto start = std::chrono::steady_clock::now();
  MemoryReader(model, memory, false, border)
      .read(tokens, span, [&](std::span<const WindowResult> windows, std::span<const SlotAssignment> assignments) {
        for (const WindowResult& one : windows) out.loss += one.mixed;
        for (const SlotAssignment& assignment : assignments) {
          if (nearest != nullptr) nearest->push_back(assignment.slot);
        }
        return true;
      });
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  out.loss /= static_cast<double>(end - 1);
  return out;
}

nlohmann::json loss_and_time(const RecallRow& row) { return {{"loss", row.loss}, {"seconds", row.seconds}}; }

}  // namespace

RecallReport measure_recall(Model& model, Memory memory, const std::vector<std::int32_t>& tokens,
                            const std::vector<std::int32_t>& searches) {
  if (memory.store.partitions() == 1)
    bad_input(Code::model_unsuitable,
              "this memory has one partition, so every query searches all slots ('some read "
              "--partitions')");
  if (tokens.size() < 2)
    bad_input(Code::data_nothing_to_predict, "the text is too short: it has no token to predict; use a longer text");
  RecallReport report;
  const std::int64_t end = std::ssize(tokens), window = memory.settings.window;
  const std::optional<std::int32_t> border = memory.settings.border;
  report.tokens = end - 1;
  report.slots = memory.settings.slots;
  report.slots_in_use = slots_in_use(memory);
  report.partitions = memory.store.partitions();
  report.partitions_active = memory.store.partitions_active();
  // Warm-up: one-time work such as kernel selection must not count for any row.
  read_once(model, &memory, tokens, std::min(end, window + 1), window, border, nullptr);
  report.alone = read_once(model, nullptr, tokens, end, window, border, nullptr);
  std::vector<std::int32_t> exact;
  memory.settings.nprobe = report.partitions;
  read_once(model, &memory, tokens, std::min(end, window + 1), window, border, nullptr);
  report.exact = read_once(model, &memory, tokens, end, window, border, &exact);
  report.exact.nprobe = report.partitions_active;
  report.exact.found = 1;
  for (const std::int32_t nprobe : searches) {
    memory.settings.nprobe = nprobe;
    std::vector<std::int32_t> nearest;
    RecallRow row = read_once(model, &memory, tokens, end, window, border, &nearest);
    row.nprobe = nprobe;
    std::int64_t there = 0, found = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      there += exact[i] >= 0;
      found += exact[i] >= 0 && nearest[i] == exact[i];
    }
    row.found = there > 0 ? static_cast<double>(found) / static_cast<double>(there) : 1.0;
    report.searches.push_back(row);
  }
  return report;
}

nlohmann::json to_json(const RecallReport& report) {
  nlohmann::json searches = nlohmann::json::array();
  for (const RecallRow& row : report.searches) {
    nlohmann::json one = loss_and_time(row);
    one["nprobe"] = row.nprobe;
    one["found"] = row.found;
    searches.push_back(one);
  }
  return {{"tokens", report.tokens},
          {"slots", report.slots},
          {"slots_in_use", report.slots_in_use},
          {"partitions", report.partitions},
          {"partitions_active", report.partitions_active},
          {"alone", loss_and_time(report.alone)},
          {"exact", loss_and_time(report.exact)},
          {"searches", searches}};
}

}  // namespace some

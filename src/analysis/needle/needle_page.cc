// The page of the needle test: right answers by length of the text and after other texts.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "analysis/needle/needle.h"
#include "analysis/pages/key_charts.h"
#include "analysis/pages/run_header.h"

namespace some {
namespace {

using nlohmann::json;

void add_part(Document& document, const std::string& id, const std::string& title, const std::string& note,
              const std::vector<NeedleRow>& rows, bool after) {
  if (rows.empty()) return;
  document.heading(2, id, title);
  document.paragraph(note);
  document.begin_side_by_side();
  for (const bool reworded : {false, true}) {
    json series = json::array();
    for (std::size_t m = 0; m < needle_methods.size(); ++m) {
      json points = json::array();
      for (const NeedleRow& row : rows) {
        const NeedleScore& score = reworded ? row.results[m].reworded : row.results[m].verbatim;
        points.push_back(chart_point(static_cast<double>(after ? row.other_tokens : row.tokens), 100 * score.right));
      }
      series.push_back({{"name", name_of(needle_methods[m])}, {"points", std::move(points)}});
    }
    document.chart({id + (reworded ? "-reworded" : "-verbatim"),
                    reworded ? "Reworded questions" : "Verbatim questions",
                    "Percent of right answers.",
                    {{"kind", "lines"},
                     {"x", {{"name", after ? "tokens of other texts" : "tokens of the text"}}},
                     {"y", {{"name", "right, %"}}},
                     {"series", std::move(series)}}});
  }
  document.end_side_by_side();
  Table table{id + "-table", title, {{after ? "other documents" : "tokens", "", true}, {"method", "", false}}, {}};
  for (const char* form : {"verbatim", "reworded"}) {
    table.columns.push_back({"right", form, true});
    table.columns.push_back({"nats", form, true});
  }
  for (const NeedleRow& row : rows) {
    for (const NeedleResult& one : row.results)
      table.rows.push_back({std::to_string(after ? row.others : row.tokens), name_of(one.method),
                            fmt::format("{:.0f}%", 100 * one.verbatim.right), fmt::format("{:.2f}", one.verbatim.loss),
                            fmt::format("{:.0f}%", 100 * one.reworded.right),
                            fmt::format("{:.2f}", one.reworded.loss)});
  }
  document.table(std::move(table));
}

}  // namespace

std::string needle_page(const NeedleReport& report, const OpenedRun& run) {
  Header header = run_header("Needle", run);
  header.title = fmt::format("{} at step {}: facts in {}", run_name(run), report.step, report.data);
  header.facts.emplace_back("questions", fmt::format("{} facts, {} repeat{}, {} answers each", report.facts,
                                                     report.repeats, report.repeats == 1 ? "" : "s", report.answers));
  header.facts.emplace_back("chance", fmt::format("{:.1f}%", 100.0 / static_cast<double>(report.answers)));
  header.facts.emplace_back(
      "memory", fmt::format("{} slots, {} context entries", report.settings.slots, report.settings.context_entries));
  Document document(std::move(header));
  document.paragraph(
      "Made-up facts are planted in the text. After the text has been read, the model is asked for each of them; an "
      "answer is correct if it is more probable than all others. The counter works without a model: it counts which "
      "tokens followed the last ones.");
  add_part(document, "lengths", "By length of the text", "Each length is a separate text with the same facts.",
           report.lengths, false);
  add_part(document, "retention", "After other texts",
           fmt::format("The text of {} tokens, then documents of {}.",
                       report.lengths.empty() ? 0 : report.lengths.front().tokens, report.other_data),
           report.retention, true);
  return write_html(document);
}

}  // namespace some

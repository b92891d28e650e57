// The page of continual learning: the summary of every method, and the matrix of losses behind it.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "analysis/continual/continual.h"
#include "analysis/pages/key_charts.h"
#include "plot/document.h"

namespace some {
namespace {

using nlohmann::json;

std::string with_deviation(double mean, double deviation, bool several) {
  return several ? fmt::format("{:.3f} ± {:.3f}", mean, deviation) : fmt::format("{:.3f}", mean);
}

}  // namespace

std::string continual_page(const std::vector<ContinualReport>& reports) {
  const ContinualReport& first = reports.front();
  const bool several = reports.size() > 1;
  Header header{"Continual learning", "Several methods on one text after another", {}};
  std::string names;
  for (const ContinualReport& report : reports) names += (names.empty() ? "" : ", ") + report.run;
  header.facts.emplace_back("runs", names);
  header.facts.emplace_back("gradient methods", fmt::format("{} epochs, {} sequences per step, rate {:.1e}",
                                                            first.epochs, first.batch, first.rate));
  Document document(std::move(header));
  document.paragraph(
      "Every method starts from the same trained model and learns the other texts one after another. After each text, "
      "the loss is measured on held-out parts of all texts, in nats/token.");
  document.list({parse_marks("**average**: loss on all texts at the end."),
                 parse_marks("**forgetting**: loss on earlier texts at the end minus the lowest before."),
                 parse_marks("**backward transfer**: improvement of earlier texts after they were learned."),
                 parse_marks("**forward transfer**: improvement of a text before it is learned.")});
  const auto summaries = summarize(reports);
  for (std::size_t o = 0; o < summaries.size(); ++o) {
    const ContinualOrder& order = first.orders[o];
    std::string title;
    for (const std::string& text : order.texts) title += (title.empty() ? "" : " → ") + text;
    const std::string id = fmt::format("order-{}", o + 1);
    document.heading(2, id, title);
    Table table{id + "-methods",
                "Methods",
                {{"method", "", false},
                 {"average", "", true},
                 {"forgetting", "", true},
                 {"backward transfer", "", true},
                 {"forward transfer", "", true},
                 {"seconds of learning", "", true},
                 {"kept, MB", "", true}},
                {}};
    json series = json::array();
    for (const ContinualSummary& one : summaries[o]) {
      table.rows.push_back({name_of(one.method), with_deviation(one.mean.average, one.deviation.average, several),
                            with_deviation(one.mean.forgetting, one.deviation.forgetting, several),
                            with_deviation(one.mean.backward, one.deviation.backward, several),
                            with_deviation(one.mean.forward, one.deviation.forward, several),
                            fmt::format("{:.2f}", one.seconds), fmt::format("{:.2f}", one.kept_bytes / 1e6)});
      json points = json::array();
      for (std::size_t i = 0; i < one.losses.size(); ++i) {
        double mean = 0;
        for (const double loss : one.losses[i]) mean += loss / static_cast<double>(one.losses[i].size());
        points.push_back(chart_point(static_cast<double>(i), mean));
      }
      series.push_back({{"name", name_of(one.method)}, {"points", std::move(points)}});
    }
    document.table(std::move(table));
    document.chart({id + "-chart",
                    "Mean loss on all texts",
                    "Lower is better; 0 = the trained model.",
                    {{"kind", "lines"},
                     {"x", {{"name", "texts learned"}}},
                     {"y", {{"name", "nats/token"}}},
                     {"series", std::move(series)}}});
    for (const ContinualSummary& one : summaries[o]) {
      Table matrix{
          fmt::format("{}-{}", id, static_cast<int>(one.method)), name_of(one.method), {{"after", "", false}}, {}};
      for (const std::string& text : order.texts) matrix.columns.push_back({text, "loss on", true});
      for (std::size_t i = 0; i < one.losses.size(); ++i) {
        std::vector<Text> row{order.texts[i]};
        for (const double loss : one.losses[i]) row.emplace_back(fmt::format("{:.3f}", loss));
        matrix.rows.push_back(std::move(row));
      }
      document.begin_fold(name_of(one.method));
      document.table(std::move(matrix));
      document.end_fold();
    }
  }
  return write_html(document);
}

}  // namespace some

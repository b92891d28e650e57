// The page of an adaptation: loss over the stream with learning keys compared with the frozen control, gain on the new
// text and loss increase on the original text.
#include <fmt/format.h>

#include <cmath>

#include "analysis/adapt.h"
#include "analysis/pages/key_charts.h"
#include "analysis/pages/run_header.h"

namespace some {
namespace {

using nlohmann::json;

constexpr std::size_t max_points = 160;  // more could not be distinguished

std::string loss_text(double loss, double bits_per_byte) {
  return fmt::format("{:.4f} nats ({:.4f} bits per byte)", loss, bits_per_byte);
}
std::string loss_text(const Evaluation& measured) { return loss_text(measured.loss, measured.bits_per_byte); }
std::string loss_text(const StreamReading& reading) {
  return loss_text(reading.all().loss(), reading.all().bits_per_byte());
}

void add_curves(Document& document, const std::vector<StreamSpan>& spans, bool learnt) {
  json frozen = json::array(), active = json::array(), gain = json::array(), nothing = json::array();
  for (const StreamSpan& span : spans) {
    frozen.push_back(chart_point(span.read, span.frozen));
    active.push_back(chart_point(span.read, span.active));
    gain.push_back(chart_point(span.read, span.frozen - span.active));
  }
  nothing.push_back(chart_point(0, 0));
  nothing.push_back(chart_point(spans.empty() ? 1 : spans.back().read, 0));
  json series = json::array({{{"name", "frozen keys"}, {"role", "frozen"}, {"points", frozen}}});
  if (learnt) series.push_back({{"name", "learning keys"}, {"role", "active"}, {"points", active}});
  const std::string x = "tokens read";
  document.begin_side_by_side();
  document.chart({"loss",
                  "Loss over the stream",
                  "Every token is predicted before the keys learn from it.",
                  {{"kind", "lines"}, {"x", {{"name", x}}}, {"y", {{"name", "nats/token"}}}, {"series", series}}});
  if (learnt) {
    document.chart({"gain",
                    "Gain from learning",
                    "Loss with frozen keys minus loss with learning keys; learning helps above zero.",
                    {{"kind", "lines"},
                     {"x", {{"name", x}}},
                     {"y", {{"name", "nats/token"}}},
                     {"series",
                      {{{"name", "gain"}, {"role", "active"}, {"points", gain}},
                       {{"name", "no gain"}, {"role", "nothing"}, {"points", nothing}}}}}});
  }
  document.end_side_by_side();
}

Table losses_table(const AdaptReport& report) {
  Table table{"losses",
              "Loss before and after the stream",
              {{"text", "", false}, {"before", "", true}, {"after", "", true}, {"change", "", true}},
              {}};
  const auto row = [&](const char* name, const BeforeAfter& text) {
    table.rows.push_back({name, loss_text(text.before), text.after ? loss_text(*text.after) : "–",
                          text.after ? fmt::format("{:+.4f}", text.after->loss - text.before.loss) : "–"});
  };
  row("original text (the run's validation)", report.original);
  row("new text (held-out part)", report.held_out);
  return table;
}

Table layers_table(const AdaptReport& report) {
  Table table{"layers",
              "The layers",
              {{"layer", "", true},
               {"mean", "keys moved", true},
               {"most", "keys moved", true},
               {"before", "Gini", true},
               {"after", "Gini", true},
               {"before", "effective experts", true},
               {"after", "effective experts", true},
               {"births", "", true},
               {"deaths", "", true}},
              {}};
  const auto fixed = [](double value, int digits) { return fmt::format("{:.{}f}", value, digits); };
  for (const AdaptedLayer& layer : report.layers) {
    const UsageMeasures &before = layer.usage_before, &after = layer.usage_after;
    table.rows.push_back({fmt::to_string(layer.layer), fixed(layer.moved_mean, 4), fixed(layer.moved_most, 4),
                          fixed(before.gini, 3), fixed(after.gini, 3), fixed(before.effective_experts, 1),
                          fixed(after.effective_experts, 1), fixed(layer.births, 0), fixed(layer.deaths, 0)});
  }
  return table;
}

// Formats a gain: "improve the loss by 0.0123".
std::string gain_text(double gain) {
  return fmt::format("{} {:.4f}", gain >= 0 ? "improve the loss by" : "increase the loss by", std::abs(gain));
}

}  // namespace

std::string adapt_page(const AdaptReport& report, const OpenedRun& run) {
  const bool learnt = report.active.has_value();
  Header header = run_header("Adaptation", run);
  header.title = fmt::format("{} at step {} reads {}", run_name(run), report.from_step, report.data);
  header.facts.emplace_back("stream", fmt::format("{} tokens of {} documents", report.tokens, report.documents));
  header.facts.emplace_back("keys",
                            learnt ? fmt::format("move by {}, {} updates", report.rules, report.updates) : "frozen");
  Document document(std::move(header));
  if (learnt) {
    document.paragraph(
        Text("Compared with the frozen control, the learning keys ")
            .strong(gain_text(report.gain_on_stream()))
            .add(" nats/token over the stream; on the held-out part of the new text they ")
            .strong(gain_text(report.gain_on_new()))
            .add(fmt::format(", and on the original text they {} {:.4f}.",
                             report.forgotten() > 0 ? "forget" : "improve it by", std::abs(report.forgotten()))));
  } else {
    document.paragraph("The keys are frozen: only the frozen control was run.");
  }
  document.paragraph(fmt::format(
      "For comparison: uniform guessing over {} tokens gives {:.4f} nats. The frozen control has {} on the stream{}.",
      run.tokenizer.vocab_size(), std::log(static_cast<double>(run.tokenizer.vocab_size())), loss_text(report.frozen),
      learnt ? ", the learning keys at " + loss_text(*report.active) : std::string()));
  add_curves(document, merge_windows(report, max_points), learnt);
  document.table(losses_table(report));
  if (learnt) document.table(layers_table(report));
  return write_html(document);
}

}  // namespace some

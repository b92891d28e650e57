// The page of `some inspect`: a table of all layers, expert usage and key maps.
#include <fmt/format.h>

#include "analysis/inspect.h"
#include "analysis/pages/run_header.h"

namespace some {
namespace {

std::string fixed(double value, int digits) { return fmt::format("{:.{}f}", value, digits); }

std::string layer_name(const InspectReport& report, const InspectedLayer& layer) {
  const int number = layer.measures.layer;
  return fmt::format("{}{}", number, number == report.middle_layer ? " (middle)" : "");
}

Table layer_table(const InspectReport& report) {
  Table table{"layers",
              "Layers",
              {{"layer", "", false},
               {"count", "Gini by", true},
               {"mass", "Gini by", true},
               {"count", "entropy (bits) by", true},
               {"mass", "entropy (bits) by", true},
               {"count", "effective experts by", true},
               {"mass", "effective experts by", true},
               {"max/mean load", "", true},
               {"used in the last epoch", "", true},
               {"gate entropy (nats)", "", true},
               {"least", "key length", true},
               {"mean", "key length", true},
               {"most", "key length", true},
               {"mean", "key moved", true},
               {"most", "key moved", true},
               {"births", "", true},
               {"deaths", "", true},
               {"different sets", "", true}},
              {}};
  for (const InspectedLayer& layer : report.layers) {
    const LayerMeasures& m = layer.measures;
    if (m.layer == report.middle_layer) table.marked.insert(table.rows.size());
    table.rows.push_back({layer_name(report, layer), fixed(m.count.gini, 3), fixed(m.mass.gini, 3),
                          fixed(m.count.entropy, 2), fixed(m.mass.entropy, 2), fixed(m.count.effective_experts, 1),
                          fixed(m.mass.effective_experts, 1), fixed(m.count.max_over_mean_load, 2),
                          layer.experts_used_last_epoch ? fmt::to_string(*layer.experts_used_last_epoch) : "–",
                          fixed(m.validation->choices.gate_entropy, 3), fixed(m.key_norm.least, 3),
                          fixed(m.key_norm.mean, 3), fixed(m.key_norm.most, 3),
                          m.key_moved ? fixed(m.key_moved->mean, 3) : "–",
                          m.key_moved ? fixed(m.key_moved->most, 3) : "–", fixed(m.births, 0), fixed(m.deaths, 0),
                          fmt::to_string(m.validation->choices.distinct_sets)});
  }
  return table;
}

Table set_table(const InspectReport& report) {
  Table table{"sets",
              "Most frequent sets of experts, and the share of tokens that chose them",
              {{"layer", "", false}, {"sets", "", false}},
              {}};
  for (const InspectedLayer& layer : report.layers) {
    const std::vector<Clique>& cliques = layer.measures.validation->choices.cliques;
    std::string sets;
    for (std::size_t i = 0; i < std::min<std::size_t>(5, cliques.size()); ++i)
      sets += (sets.empty() ? "" : ", ") + clique_text(cliques[i]);
    if (layer.measures.layer == report.middle_layer) table.marked.insert(table.rows.size());
    table.rows.push_back({layer_name(report, layer), sets});
  }
  return table;
}

std::string meaning(const InspectReport& report) {
  std::string text = fmt::format(
      "Usage is the moving average of the key update: by count (number of assignments) and by mass (sum of gates). "
      "Gini: 0 = uniform load, 1 = one expert has all. Effective experts: 2^entropy. Movement is the distance of a key "
      "from its position {}. Gate entropy and sets are measured on {} positions of the text; a set is the {} experts "
      "active together for one token.",
      report.moved_since_step ? fmt::format("at step {}", *report.moved_since_step)
                              : std::string("at the start (no positions were saved)"),
      report.layers.empty() ? 0 : report.layers[0].measures.validation->choices.sampled, report.top_k);
  for (const InspectedLayer& layer : report.layers) {
    if (layer.usage_of_data)
      text += fmt::format(
          " The keys of layer {} are frozen and count no usage, so the usage shown is that of the evaluated documents.",
          layer.measures.layer);
  }
  return text;
}

void add_layer(Document& document, Threads& threads, const InspectReport& report, const InspectedLayer& layer) {
  const LayerMeasures& m = layer.measures;
  const int number = m.layer;
  document.heading(2, fmt::format("layer-{}", number), "Layer " + layer_name(report, layer));
  document.begin_side_by_side();
  document.chart(usage_histogram(fmt::format("usage-{}", number), number, layer.usage));
  std::optional<TsneMap> tsne;
  if (layer.maps->tsne) {
    const LayerMaps::Tsne& map = *layer.maps->tsne;
    tsne = TsneMap{map.experts, map.result.points, fmt::format("{}", fmt::join(tsne_notes(map, report.experts), " "))};
  }
  std::string note = "A circle is a key with the number of its expert; size and darkness show its usage.";
  if (layer.maps->positions.size() > 1) note += " The line leads to the first saved position.";
  document.chart(key_map_chart(threads, fmt::format("keys-{}", number), fmt::format("Keys of layer {}", number), note,
                               layer.maps->positions, layer.usage, tsne));
  document.end_side_by_side();
}

}  // namespace

std::string inspect_page(const InspectReport& report, const OpenedRun& run) {
  Header header = run_header("Inspection", run);
  header.facts.emplace_back(
      "loss", fmt::format("{:.4f} nats/token, {:.4f} bits per byte over {} documents of {}", report.evaluation.loss,
                          report.evaluation.bits_per_byte, report.evaluation.documents, report.data));
  Document document(std::move(header));
  document.heading(2, "all", "All layers");
  document.table(layer_table(report));
  document.paragraph(meaning(report));
  document.table(set_table(report));
  std::vector<int> layers;
  std::vector<std::vector<double>> usage;
  for (const InspectedLayer& layer : report.layers) {
    layers.push_back(layer.measures.layer);
    usage.push_back(layer.usage);
  }
  document.chart(usage_ranks("ranks", layers, report.middle_layer, usage));
  for (const InspectedLayer& layer : report.layers) add_layer(document, *run.ctx->threads, report, layer);
  return write_html(document);
}

}  // namespace some

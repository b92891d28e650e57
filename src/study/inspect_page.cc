// The page that holds the table and the pictures of `some inspect`.
#include <fmt/format.h>

#include "study/inspect.h"
#include "study/svg.h"

namespace some::study {
namespace {

const char* const style =
    R"(:root{color-scheme:light dark;--ink:#1d1d1f;--soft:#5c5c66;--page:#ffffff;--line:#d9d9e0;--mark:#fff4d6}
@media (prefers-color-scheme:dark){:root{--ink:#e8e8ee;--soft:#a4a4b0;--page:#17171b;--line:#3a3a44;--mark:#3d3519}}
body{font:15px/1.5 system-ui,'DejaVu Sans',Arial,sans-serif;color:var(--ink);background:var(--page);max-width:1500px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2.5rem}p,li{max-width:46rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px}
th,td{padding:.35rem .4rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}th{vertical-align:bottom;font-weight:600}
tr.middle td{background:var(--mark)}td.left,th.left{text-align:left}
img{max-width:100%;height:auto;border:1px solid var(--line);border-radius:6px;margin:.5rem 0}.soft{color:var(--soft)})";

std::string number(const nlohmann::json& value, int digits) {
  if (!value.is_number()) return "&ndash;";
  return value.is_number_integer() ? fmt::format("{}", value.get<std::int64_t>())
                                   : fmt::format("{:.{}f}", value.get<double>(), digits);
}

std::string cliques_text(const nlohmann::json& layer) {
  std::string out;
  for (std::size_t i = 0; i < std::min<std::size_t>(5, layer["cliques"].size()); ++i) {
    const auto& clique = layer["cliques"][i];
    std::string members;
    for (const auto& expert : clique["experts"])
      members += fmt::format("{}{}", members.empty() ? "" : " ", expert.get<int>());
    out += fmt::format("{}{{{}}} {:.1f} %", out.empty() ? "" : ", ", members, 100 * clique["share"].get<double>());
  }
  return out;
}

}  // namespace

std::string inspect_page(const nlohmann::json& report) {
  const int middle = report["middle_layer"];
  std::string rows, sets;
  for (const auto& layer : report["layers"]) {
    const auto& count = layer["count"];
    const auto& mass = layer["mass"];
    const nlohmann::json moved = layer.value("key_moved", nlohmann::json::object());
    rows += fmt::format("<tr{}><td>{}{}</td>", layer["layer"] == middle ? " class=\"middle\"" : "",
                        layer["layer"].get<int>(), layer["layer"] == middle ? " (middle)" : "");
    for (const auto& [value, digits] :
         std::initializer_list<std::pair<nlohmann::json, int>>{{count["gini"], 3},
                                                               {mass["gini"], 3},
                                                               {count["entropy"], 2},
                                                               {mass["entropy"], 2},
                                                               {count["effective_experts"], 1},
                                                               {mass["effective_experts"], 1},
                                                               {count["load_over_fair"], 2},
                                                               {layer["experts_used_last_epoch"], 0},
                                                               {layer["gate_entropy"], 3},
                                                               {layer["key_norm"]["min"], 3},
                                                               {layer["key_norm"]["mean"], 3},
                                                               {layer["key_norm"]["max"], 3},
                                                               {moved.value("mean", nlohmann::json()), 3},
                                                               {moved.value("max", nlohmann::json()), 3},
                                                               {layer["births"], 0},
                                                               {layer["deaths"], 0},
                                                               {layer["distinct_sets"], 0}}) {
      rows += fmt::format("<td>{}</td>", number(value, digits));
    }
    rows += "</tr>\n";
    sets += fmt::format("<tr{}><td>{}{}</td><td class=\"left\">{}</td></tr>\n",
                        layer["layer"] == middle ? " class=\"middle\"" : "", layer["layer"].get<int>(),
                        layer["layer"] == middle ? " (middle)" : "", cliques_text(layer));
  }
  std::string pictures;
  for (const auto& layer : report["layers"]) {
    pictures += fmt::format("<h2 id=\"layer-{0}\">Layer {0}</h2>\n", layer["layer"].get<int>());
    std::string data;
    for (const auto& file : layer["files"]) {
      const std::string name = file;
      if (name.ends_with(".svg"))
        pictures += fmt::format("<img src=\"{0}\" alt=\"{0}\">\n", xml_escape(name));
      else
        data += fmt::format("{}<a href=\"{}\">{}</a>", data.empty() ? "" : ", ", xml_escape(name), xml_escape(name));
    }
    pictures += fmt::format("<p class=\"soft\">The same as data: {}</p>\n", data);
  }
  std::string remarks;
  for (const auto& layer : report["layers"]) {
    if (layer["usage_of"] == "data")
      remarks +=
          fmt::format(" The keys of layer {} do not learn and count nothing: its usage is that of the stories read.",
                      layer["layer"].get<int>());
  }
  const auto& evaluation = report["evaluation"];
  return fmt::format(
      R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title><style>{style}</style></head><body>
<h1>{title}</h1>
<p>{experts} experts a layer, {top_k} chosen by each token. Loss {loss:.4f} nats a token ({bits:.4f} bits a byte) over {stories} stories of {data}. Layers count from 0.</p>
<div class="scroll"><table><thead>
<tr><th rowspan="2">layer</th><th colspan="2">Gini by</th><th colspan="2">entropy (bits) by</th><th colspan="2">experts in effect by</th><th rowspan="2">busiest over<br>fair share</th><th rowspan="2">used in the<br>last epoch</th><th rowspan="2">gate entropy<br>(nats)</th><th colspan="3">key length</th><th colspan="2">key moved</th><th rowspan="2">births</th><th rowspan="2">deaths</th><th rowspan="2">different<br>sets</th></tr>
<tr><th>count</th><th>mass</th><th>count</th><th>mass</th><th>count</th><th>mass</th><th>min</th><th>mean</th><th>max</th><th>mean</th><th>max</th></tr></thead><tbody>
{rows}</tbody></table></div>
<p class="soft">Usage is the running mean the key update keeps: by count (how often an expert was chosen) and by mass (the sum of its gates). Gini 0: all experts are used alike, 1: one has everything.
Experts in effect: 2 to the power of the entropy. Movement is the distance of a key from where it was {since}. Gate entropy and sets are measured on {sampled} positions of the stories above;
a set is the {top_k} experts that one token chose together.{remarks}</p>
<div class="scroll"><table><thead><tr><th>layer</th><th class="left">most frequent sets of experts, and the share of tokens that chose them</th></tr></thead><tbody>
{sets}</tbody></table></div>
{pictures}<p class="soft">Everything on this page as data: <a href="inspect.json">inspect.json</a></p>
</body></html>
)",
      fmt::arg("title", xml_escape(fmt::format("{} at step {}", report["run"].get<std::string>(),
                                               report["step"].get<std::int64_t>()))),
      fmt::arg("style", style), fmt::arg("experts", report["experts"].get<int>()),
      fmt::arg("top_k", report["top_k"].get<int>()), fmt::arg("loss", evaluation["loss"].get<double>()),
      fmt::arg("bits", evaluation["bits_per_byte"].get<double>()),
      fmt::arg("stories", evaluation["stories"].get<std::int64_t>()),
      fmt::arg("data", xml_escape(evaluation["data"].get<std::string>())), fmt::arg("rows", rows),
      fmt::arg("sets", sets), fmt::arg("pictures", pictures), fmt::arg("remarks", remarks),
      fmt::arg("since", report.contains("moved_since_step")
                            ? fmt::format("at step {}", report["moved_since_step"].get<std::int64_t>())
                            : std::string("at the start (no positions were saved)")),
      fmt::arg("sampled", report["layers"].empty() ? 0 : report["layers"][0]["sampled_positions"].get<std::int64_t>()));
}

}  // namespace some::study

#include "analysis/routes_csv.h"

#include "plot/escape_html.h"

namespace some {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : valid_text(text)) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

}  // namespace

void write_routes(const Choices& choices, const std::vector<int>& layers, const Tokenizer& tokenizer,
                  const std::function<void(std::string_view)>& write) {
  write("document,position,token_id,token,next_id,loss,layer,rank,expert,gate\n");
  const auto k = static_cast<std::size_t>(choices.top_k);
  for (std::size_t t = 0; t < choices.tokens.size(); ++t) {
    const bool predicts = choices.next[t] >= 0;
    const std::string token =
        fmt::format("{},{},{},{},{},{}", choices.document[t], choices.places[t], choices.tokens[t],
                    quoted(tokenizer.token_bytes(choices.tokens[t])), predicts ? fmt::to_string(choices.next[t]) : "",
                    predicts ? fmt::format("{:.6g}", choices.nll[t]) : "");
    std::string lines;
    for (const int layer : layers) {
      const LayerAssignments& firings = choices.layers[static_cast<std::size_t>(layer)];
      for (std::size_t i = 0; i < k; ++i)
        lines +=
            fmt::format("{},{},{},{},{:.6g}\n", token, layer, i, firings.experts[t * k + i], firings.gates[t * k + i]);
    }
    write(lines);
  }
}

}  // namespace some

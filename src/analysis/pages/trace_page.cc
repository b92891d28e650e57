// The data of the trace page; web/src/view/trace.js draws it.
#include "analysis/pages/run_header.h"
#include "analysis/trace.h"

namespace some {

std::string trace_page(const Trace& trace, const OpenedRun& run) {
  Document document(run_header("Trace", run));
  document.paragraph(fmt::format(
      "Active experts of {} tokens. Select a token to see its experts in every layer and the tokens that share "
      "them in the layer shown. Select an expert or a set to see all its tokens: the stronger the color, the "
      "larger the gate. Select it again, or press Escape, to clear.{}",
      trace.words.size(),
      trace.prompt_tokens == 0 ? ""
                               : fmt::format(" The first {} tokens are the prompt; generated text is "
                                             "underlined.",
                                             trace.prompt_tokens)));
  document.view({"trace", "trace", to_json(trace, run)});
  return write_html(document);
}

}  // namespace some

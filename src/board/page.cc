#include "board/page.h"

namespace some {

std::string board_page(const std::vector<std::string>& folders, bool read_only, bool changes) {
  std::string names;
  for (const std::string& folder : folders) names += (names.empty() ? "" : ", ") + folder;
  Header header{"Board", names};
  header.live = true;
  Document document(std::move(header));
  document.view({"board", "board", {{"read_only", read_only}, {"changes", changes}}});
  return write_html(document);
}

}  // namespace some

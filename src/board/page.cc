#include "board/page.h"

namespace some::board {

std::string board_page(const std::vector<std::string>& folders, bool read_only) {
  std::string names;
  for (const std::string& folder : folders) names += (names.empty() ? "" : ", ") + folder;
  page::Header header{"Board", "Runs in " + names};
  header.live = true;
  page::Document document(std::move(header));
  document.view({"board", "board", {{"read_only", read_only}}});
  return page::write_html(document);
}

}  // namespace some::board

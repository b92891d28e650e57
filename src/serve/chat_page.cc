#include "serve/chat_page.h"

#include "plot/document.h"

namespace some {

std::string chat_page(bool needs_key) {
  Header header{"Chat", "Chat with a model"};
  header.live = true;
  Document document(std::move(header));
  document.view({"talk", "talk", {{"needs_key", needs_key}}});
  return write_html(document);
}

}  // namespace some

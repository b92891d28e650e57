#include "runs/run_labels.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/files/json.h"
#include "text/utf8.h"

namespace some {
namespace {

constexpr std::size_t max_name_bytes = 200, max_tag_bytes = 60, max_note_bytes = 10000, max_tags = 20;
constexpr std::size_t max_file_bytes = 64 << 10;

// Throws for text that cannot be displayed unchanged. `lines`: line ends and tabs are allowed.
void check_text(const std::string& text, std::size_t most, bool lines, const std::string& what) {
  if (text.size() > most) bad_input(Code::request_invalid, "{}: must be at most {} bytes", what, most);
  if (find_invalid_utf8(text)) bad_input(Code::request_invalid, "{}: must be UTF-8", what);
  const auto is_control = [&](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && !(lines && (c == '\n' || c == '\t'))) || byte == 0x7f;
  };
  if (std::any_of(text.begin(), text.end(), is_control))
    bad_input(Code::request_invalid, "{}: must not contain control characters", what);
}

}  // namespace

std::string labels_file(const std::string& folder) { return folder + "/labels.json"; }

RunLabels parse_run_labels(const nlohmann::json& object, const std::string& origin) {
  const JsonObject all(object, origin);
  RunLabels labels;
  labels.name = all.get<std::string>("name", "");
  labels.tags = all.get<std::vector<std::string>>("tags", {});
  labels.note = all.get<std::string>("note", "");
  check_text(labels.name, max_name_bytes, false, origin + ": name");
  check_text(labels.note, max_note_bytes, true, origin + ": note");
  if (labels.tags.size() > max_tags)
    bad_input(Code::request_invalid, "{}: must be at most {}", origin + ": tags", max_tags);
  for (const std::string& tag : labels.tags) {
    check_text(tag, max_tag_bytes, false, origin + ": tags");
    if (tag.empty() || tag.find(',') != std::string::npos)
      bad_input(Code::request_invalid, "{}: must not be empty or contain a comma", origin + ": tags");
  }
  std::sort(labels.tags.begin(), labels.tags.end());
  labels.tags.erase(std::unique(labels.tags.begin(), labels.tags.end()), labels.tags.end());
  return labels;
}

RunLabels read_run_labels(const std::string& folder) {
  const std::string path = labels_file(folder);
  if (!file_exists(path)) return {};
  return parse_run_labels(parse_json(read_file(path, max_file_bytes), path), path);
}

void write_run_labels(const std::string& folder, const RunLabels& labels) {
  const std::string path = labels_file(folder);
  if (labels == RunLabels{}) return remove_tree(path);
  const nlohmann::json object{{"name", labels.name}, {"tags", labels.tags}, {"note", labels.note}};
  parse_run_labels(object, path);
  write_output_file(path, object.dump(1) + "\n");
}

}  // namespace some

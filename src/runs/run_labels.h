// Labels of a run on the board: a name, tags and a note. Stored in RUN/labels.json; the folder keeps its own name,
// which commands use.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace some {

struct RunLabels {
  std::string name;  // shown instead of the folder's name; empty: none
  std::vector<std::string> tags;
  std::string note;
  bool operator==(const RunLabels&) const = default;
};

std::string labels_file(const std::string& folder);
// Returns the labels in a JSON object with the members name, tags and note; throws (bad_input) if one is too long, has
// control characters, or is not text.
RunLabels parse_run_labels(const nlohmann::json& object, const std::string& origin);
// Returns empty labels if the file does not exist; throws (bad_input) if it is damaged.
RunLabels read_run_labels(const std::string& folder);
void write_run_labels(const std::string& folder, const RunLabels& labels);  // empty labels remove the file

}  // namespace some

#include "lab/texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "recipe/schema.h"
#include "recipe/toml.h"

namespace some {
namespace fs = std::filesystem;
namespace {

using Kind = TomlNode::Kind;

class Reader {
 public:
  Reader(std::string origin, ReportTexts& texts) : origin_(std::move(origin)), texts_(texts) {}

  void read(const TomlNode& root) {
    for (const auto& [key, value] : root.entries) {
      if (key == "guide" || key == "reason") {
        for (const TomlNode& item : tables(key, value)) explanation(item, key == "guide");
      } else if (key == "claim") {
        for (const TomlNode& item : tables(key, value)) claim(item);
      } else if (key == "sentences" && value.kind == Kind::table) {
        for (const auto& [name, words] : value.entries) texts_.sentences[name] = text(name, words);
      } else {
        unknown(key, value, {"guide", "claim", "reason", "sentences"});
      }
    }
  }

 private:
  std::string place(const TomlNode& node) const { return fmt::format("{}:{}", origin_, node.line); }

  [[noreturn]] void unknown(const std::string& key, const TomlNode& node, const std::vector<std::string>& known) const {
    bad_input(Code::setting_unknown, "{}: unknown key {}; did you mean {}?", place(node), key,
              nearest_name(key, known));
  }

  const std::vector<TomlNode>& tables(const std::string& key, const TomlNode& node) const {
    for (const TomlNode& item : node.items) {
      if (item.kind != Kind::table)
        bad_input(Code::setting_type, "{}: {}: must be tables headed [[{}]]", place(item), key, key);
    }
    if (node.kind != Kind::array)
      bad_input(Code::setting_type, "{}: {}: must be tables headed [[{}]]", place(node), key, key);
    return node.items;
  }

  std::string text(const std::string& key, const TomlNode& node) const {
    if (node.kind != Kind::text || node.text.empty())
      bad_input(Code::setting_type, "{}: {}: must be a string, not {}", place(node), key, node.describe());
    return node.text;
  }

  std::vector<std::string> names(const std::string& key, const TomlNode& node) const {
    if (node.kind != Kind::array)
      bad_input(Code::setting_type, "{}: {}: must be a list of names of recipes", place(node), key);
    std::vector<std::string> out;
    for (const TomlNode& item : node.items) out.push_back(text(key, item));
    return out;
  }

  // Parses one of the words of an enum.
  template <typename Enum>
  Enum word(const std::string& key, const TomlNode& node,
            const std::vector<std::pair<std::string, Enum>>& words) const {
    const std::string given = text(key, node);
    std::string known;
    for (const auto& [name, value] : words) {
      if (name == given) return value;
      known += (known.empty() ? "" : ", ") + name;
    }
    bad_input(Code::setting_out_of_range, "{}: {} = \"{}\": must be one of {}", place(node), key, given, known);
  }

  void explanation(const TomlNode& node, bool guide) {
    using When = Explanation::When;
    Explanation one;
    for (const auto& [key, value] : node.entries) {
      if (key == "title") {
        one.title = text(key, value);
      } else if (key == "text") {
        one.text = text(key, value);
      } else if (key == "when" && guide) {
        one.when = word<When>(key, value,
                              {{"always", When::always},
                               {"padding", When::padding},
                               {"seeds", When::seeds},
                               {"one-seed", When::one_seed},
                               {"scaled", When::scaled},
                               {"pale", When::pale},
                               {"builtin", When::builtin}});
      } else {
        unknown(key, value, {"title", "text", "when"});
      }
    }
    if (one.title.empty() || one.text.empty())
      bad_input(Code::setting_missing, "{}: requires a title and a text", place(node));
    (guide ? texts_.guide : texts_.reasons).push_back(std::move(one));
  }

  double number(const std::string& key, const TomlNode& node) const {
    if (!node.is_number())
      bad_input(Code::setting_type, "{}: {}: must be a number, not {}", place(node), key, node.describe());
    return node.number;
  }

  ClaimPart part(const TomlNode& node) const {
    using Measure = ClaimPart::Measure;
    ClaimPart one;
    for (const auto& [key, value] : node.entries) {
      if (key == "says") {
        one.says = text(key, value);
      } else if (key == "run") {
        one.run = text(key, value);
      } else if (key == "against") {
        one.against = text(key, value);
      } else if (key == "than") {
        one.than = names(key, value);
      } else if (key == "below") {
        one.below = number(key, value);
      } else if (key == "above") {
        one.above = number(key, value);
      } else if (key == "measure") {
        one.measure = word<Measure>(key, value,
                                    {{"loss", Measure::loss},
                                     {"bits", Measure::bits},
                                     {"gini", Measure::gini},
                                     {"time", Measure::time},
                                     {"gain", Measure::gain},
                                     {"published", Measure::published}});
      } else {
        unknown(key, value, {"says", "measure", "run", "against", "than", "below", "above"});
      }
    }
    if (one.says.empty() || one.run.empty() || (!one.below && !one.above))
      bad_input(Code::setting_missing,
                "{}: a part of a claim requires what it says, a run, and a bound: below, above or both", place(node));
    if ((one.measure == Measure::time || one.measure == Measure::gain) && one.against.empty())
      bad_input(Code::setting_missing, "{}: a part that measures time or gain requires a run for comparison",
                place(node));
    if (one.than.size() != (one.measure == Measure::gain ? 2 : 0))
      bad_input(Code::setting_conflict, "{}: than = [run, base] belongs to measure = \"gain\", which requires it",
                place(node));
    if (one.measure == Measure::published && !one.against.empty())
      bad_input(Code::setting_conflict,
                "{}: measure = \"published\" compares with the published number, not with a run", place(node));
    return one;
  }

  // A part's runs appear in the claim's table, so they must be among the claim's runs.
  void check_part(const ClaimPart& part, const Claim& claim, const TomlNode& node) const {
    std::vector<std::string> named = part.than;
    named.push_back(part.run);
    if (!part.against.empty()) named.push_back(part.against);
    for (const std::string& name : named) {
      const auto among = [&](const std::vector<std::string>& runs) {
        return std::find(runs.begin(), runs.end(), name) != runs.end();
      };
      if (!among(claim.runs) && !among(claim.controls))
        bad_input(Code::claims_invalid, "{}: {} is neither among the runs nor the controls of the claim", place(node),
                  name);
    }
  }

  void claim(const TomlNode& node) {
    using Expects = Claim::Expects;
    Claim one;
    for (const auto& [key, value] : node.entries) {
      if (key == "id") {
        one.id = text(key, value);
      } else if (key == "claim") {
        one.claim = text(key, value);
      } else if (key == "question") {
        one.question = text(key, value);
      } else if (key == "least") {
        if (value.kind != Kind::integer || value.integer < 1)
          bad_input(Code::setting_out_of_range, "{}: {}: must be an integer >= 1", place(value), "least");
        one.least = static_cast<std::size_t>(value.integer);
      } else if (key == "runs") {
        one.runs = names(key, value);
      } else if (key == "controls") {
        one.controls = names(key, value);
      } else if (key == "along") {
        one.along = names(key, value);
      } else if (key == "subject") {
        one.subject = text(key, value);
      } else if (key == "expects") {
        one.expects = word<Expects>(
            key, value, {{"lowest", Expects::lowest}, {"beats", Expects::beats}, {"falls", Expects::falls}});
      } else if (key == "part") {
        for (const TomlNode& item : tables("claim.part", value)) one.parts.push_back(part(item));
      } else {
        unknown(key, value,
                {"id", "claim", "question", "least", "runs", "controls", "along", "subject", "expects", "part"});
      }
    }
    if (one.id.empty() || one.claim.empty() || one.question.empty() || one.runs.empty())
      bad_input(Code::setting_missing, "{}: a claim requires an id, a claim, a question and runs", place(node));
    if (one.expects == Expects::lowest && one.subject.empty())
      bad_input(Code::setting_missing,
                "{}: expects = \"lowest\" requires a subject: the run expected to have the lowest loss", place(node));
    if (one.expects == Expects::beats && one.controls.empty())
      bad_input(Code::setting_missing, "{}: expects = \"beats\" requires controls", place(node));
    if (const TomlNode* parts = node.find("part")) {
      for (std::size_t i = 0; i < one.parts.size(); ++i) check_part(one.parts[i], one, parts->items[i]);
    }
    for (const Claim& other : texts_.claims) {
      if (other.id == one.id) bad_input(Code::name_taken, "{}: another claim has the id {}", place(node), one.id);
    }
    if (one.along.empty()) one.along = one.runs;
    texts_.claims.push_back(std::move(one));
  }

  std::string origin_;
  ReportTexts& texts_;
};

}  // namespace

std::string ReportTexts::fill(const std::string& text, const Substitutions& fillings) const {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t open = std::min(text.find('{', at), text.size());
    out += text.substr(at, open - at);
    if (open == text.size()) break;
    const std::size_t close = text.find('}', open);
    const std::string name = close == std::string::npos ? "" : text.substr(open + 1, close - open - 1);
    const auto filling = fillings.find(name);
    if (filling == fillings.end())
      bad_input(Code::claims_invalid, "{}: unknown placeholder {{{}}} in \"{}\"", origin, name, text);
    out += filling->second;
    at = close + 1;
  }
  return out;
}

Text ReportTexts::say(const std::string& sentence, const Substitutions& fillings) const {
  const auto found = sentences.find(sentence);
  if (found == sentences.end()) return {};
  // Marks are parsed before names are inserted: marks in a run's name are literal.
  Text text = parse_marks(found->second);
  for (Span& span : text.spans) span.text = fill(span.text, fillings);
  return text;
}

ReportTexts load_report_texts(const std::string& folder) {
  ReportTexts texts;
  texts.origin = (fs::path(folder) / "report.toml").string();
  if (exists_path(texts.origin)) Reader(texts.origin, texts).read(parse_toml(read_file(texts.origin), texts.origin));
  return texts;
}

}  // namespace some

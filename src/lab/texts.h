// The texts of a report, read from recipes/report.toml, whose first lines describe its format.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plot/document.h"

namespace some {

// One number of a claim, with its bounds.
struct ClaimPart {
  enum class Measure { loss, bits, gini, time, gain, published };
  std::string says;
  Measure measure = Measure::loss;
  std::string run;
  std::string against;                 // empty: the published number of the run, or the run's first evaluation
  std::vector<std::string> than;       // for `gain`: run and base of the reference gain
  std::optional<double> below, above;  // at least one of them
};

struct Claim {
  enum class Expects { nothing, lowest, beats, falls };
  std::string id, claim, question;
  std::size_t least = 1;              // number of its runs that must be available
  std::vector<std::string> runs;      // the first is the reference for the rest
  std::vector<std::string> controls;  // if not empty, at least one of them must be available
  Expects expects = Expects::nothing;
  std::string subject;             // the run that the claim is about; empty: the best of `runs`
  std::vector<std::string> along;  // for `falls`
  std::vector<ClaimPart> parts;
};

struct Explanation {
  enum class When { always, padding, seeds, one_seed, scaled, pale, builtin };
  When when = When::always;
  std::string title, text;
};

using Substitutions = std::map<std::string, std::string>;

struct ReportTexts {
  std::vector<Explanation> guide, reasons;
  std::vector<Claim> claims;
  std::map<std::string, std::string> sentences;
  std::string origin;  // path of the file

  // Returns a sentence with its {names} replaced; empty if the sentence does not exist. Throws (bad_input) for an
  // unknown {name}.
  Text say(const std::string& sentence, const Substitutions& fillings = {}) const;
  std::string fill(const std::string& text, const Substitutions& fillings) const;
};

// Throws (bad_input), with file and line, for unknown keys, wrong types and unknown words. A folder without the file
// gives no texts: its reports contain only numbers.
ReportTexts load_report_texts(const std::string& folder);

}  // namespace some

// The words of a report, read from recipes/report.toml, whose first lines describe it.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plot/document.h"

namespace some {

// One number that a claim comes to, and what it has to be.
struct ClaimPart {
  enum class Measure { loss, bits, gini, time, gain, published };
  std::string says;
  Measure measure = Measure::loss;
  std::string run;
  std::string against;                 // empty: the number published for the run, or the run's own first evaluation
  std::vector<std::string> than;       // for `gain`: the run and the base of the gain it is a share of
  std::optional<double> below, above;  // at least one of them
};

struct Claim {
  enum class Expects { nothing, lowest, beats, falls };
  std::string id, claim, question;
  std::size_t least = 1;              // so many of its runs must be there for the question to be asked
  std::vector<std::string> runs;      // the first is what the others are held against
  std::vector<std::string> controls;  // at least one of them must be there, where there are any
  Expects expects = Expects::nothing;
  std::string subject;             // the run it is said of; empty: the best of them
  std::vector<std::string> along;  // for `falls`
  std::vector<ClaimPart> parts;
};

struct Explanation {
  enum class When { always, padding, seeds, one_seed, scaled, pale, builtin };
  When when = When::always;
  std::string title, text;
};

using Fillings = std::map<std::string, std::string>;

struct ReportTexts {
  std::vector<Explanation> guide, reasons;
  std::vector<Claim> claims;
  std::map<std::string, std::string> sentences;
  std::string origin;  // the file

  // A sentence with its {names} filled in; a sentence that is not there is empty. bad_input for a {name} nothing is
  // known of.
  Text say(const std::string& sentence, const Fillings& fillings = {}) const;
  std::string fill(const std::string& text, const Fillings& fillings) const;
};

// Unknown keys, wrong types and words are bad input with file and line. A folder without the file has no texts: its
// reports are numbers alone.
ReportTexts load_report_texts(const std::string& folder);

}  // namespace some

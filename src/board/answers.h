// Requests that the board answers by path: each answer is a function of the runs and the request only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "board/watch.h"
#include "http/http.h"

namespace some {

struct Question {
  std::string path;
  bool of_all = false;  // depends on all runs, whichever the request names
  bool slow = false;    // must not run on the server's thread
  // returns JSON; throws (bad_input) for an invalid request
  std::function<std::string(const Watch&, const Request&)> answer;
};
const std::vector<Question>& questions();

// Parses a number from a request within bounds; throws (bad_input) otherwise.
double number_of(const std::string& name, const std::string& text);
double number_of(const Request& request, const std::string& name, double usual, double least, double most);
void append_points(std::string& out, const std::vector<XY>& points);  // appends [[x, y], ...]
// Returns the runs that a request names; unknown runs are omitted.
std::vector<std::shared_ptr<RunLog>> requested_runs(const Watch& watch, const Request& request);

}  // namespace some

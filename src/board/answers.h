// What can be asked of the board by an address: each a function of the runs and the question alone.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "board/http.h"
#include "board/watch.h"

namespace some {

struct Question {
  std::string path;
  bool of_all = false;                                              // runs, whichever are named
  bool slow = false;                                                // not for the thread that serves everybody
  std::function<std::string(const Watch&, const Request&)> answer;  // JSON; bad_input where the question is none
};
const std::vector<Question>& questions();

// A number that a request names, within bounds; bad_input otherwise.
double number_of(const std::string& name, const std::string& text);
double number_of(const Request& request, const std::string& name, double usual, double least, double most);
void append_points(std::string& out, const std::vector<XY>& points);  // [[x, y], ...]
// The runs that a request names; those that are not there are left out.
std::vector<std::shared_ptr<RunLog>> asked_runs(const Watch& watch, const Request& request);

}  // namespace some
